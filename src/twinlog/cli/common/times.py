"""Times as people give them to commands: a moment of the calendar, `now`, or so long ago."""

import re
from datetime import UTC, datetime

from twinlog.errors import ConfigError

_AGO = re.compile(r"-(\d+)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
EXPECTED = "2026-01-31T12:00:00Z, 2026-01-31T12:00:00+02:00, now, or -10m (s, m, h, d)"


def parse_time(text: str, *, now_ms: int | None) -> int:
    """Milliseconds since 1970. A time without a zone is UTC. `now_ms` None: `now` means nothing here.

    Raises ConfigError.
    """
    plain = text.strip()
    if plain == "now" and now_ms is not None:
        return now_ms
    ago = _AGO.fullmatch(plain)
    if ago is not None and now_ms is not None:
        return now_ms - int(ago[1]) * _SECONDS[ago[2]] * 1000
    try:
        at = datetime.fromisoformat(plain)
    except ValueError:
        raise ConfigError(f"{text!r} is not a time: expected {EXPECTED}; without a zone it is UTC") from None
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def shown_time(wall_ms: int) -> str:
    """`2026-01-31 12:00:00 UTC`."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def shown_clock(wall_ms: int) -> str:
    """`12:00:00 UTC`."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%H:%M:%S UTC")
