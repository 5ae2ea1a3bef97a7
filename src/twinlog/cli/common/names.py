"""How commands name what they are about: flows, partitions, scopes, callers, times, counts."""

import getpass
import os
import re
import socket
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final

from twinlog.api.common.v1 import types_pb2
from twinlog.clock import Clock, SystemClock
from twinlog.errors import ConfigError
from twinlog.model import Flow


def parse_flow(name: str) -> types_pb2.Flow:
    """Raises ConfigError."""
    flow = flow_of(name)
    return types_pb2.Flow(source=flow.source, target=flow.target)


def flow_of(name: str) -> Flow:
    """Raises ConfigError."""
    try:
        return Flow.parse(name)
    except ValueError as error:
        raise ConfigError(str(error), key="FLOW") from None


def flow_name(flow: types_pb2.Flow) -> str:
    return f"{flow.source}->{flow.target}"


def partition_name(partition: types_pb2.TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def who(current_user: Callable[[], str] = getpass.getuser) -> str:
    """The caller's name, for the service's log and the flow's records."""
    try:
        user = current_user()
    except (KeyError, OSError):
        # Containers often run with a user number without a passwd entry.
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def shown_bytes(size: float) -> str:
    """`1.5 MB`: for people."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


# Times on the command line: a date and time, `now`, or a time before now.

# The limits of numbers on the command line: partitions, offsets and seconds that Kafka and the services
# support.

MOST_PARTITION: Final = 2**31 - 1
MOST_OFFSET: Final = 2**63 - 1
MOST_SECONDS: Final = 366 * 86_400
"""A year: longer waits make no sense, and `inf` is not a time."""


def counted(count: int, word: str) -> str:
    """`1 error`, `1,200 errors`."""
    return f"1 {word}" if count == 1 else f"{count:,} {word}s"


def whole_number(text: str, most: int) -> int | None:
    """The whole number from 0 to `most` in the text; None if it is anything else."""
    if not (text.isascii() and text.isdecimal()) or len(text.lstrip("0")) > len(str(most)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None


def offset_of(text: str, option: str) -> int:
    """The offset in an option or an argument. Raises ConfigError."""
    return _bounded(text, MOST_OFFSET, "an offset", option)


def partition_of(text: str, option: str) -> int:
    """Raises ConfigError."""
    return _bounded(text, MOST_PARTITION, "a partition", option)


def _bounded(text: str, most: int, what: str, option: str) -> int:
    number = whole_number(text, most)
    if number is None:
        raise ConfigError(f"{shortened(text)} is not {what} from 0 to {most}", key=option)
    return number


def shortened(text: str) -> str:
    """In quotes; of a long text only the beginning."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


_SHOWN = 80


def producer_words(producer_id: int) -> str:
    """Who wrote a batch, by its header.

    >>> producer_words(-1)
    'a producer without idempotence (id -1)'
    """
    return f"producer id {producer_id}" if producer_id >= 0 else "a producer without idempotence (id -1)"


_AGO = re.compile(r"-([0-9]+)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MOST_SECONDS_AGO = 10**11
_TOO_EARLY_MS = -1
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, the last time that services and calendars support."""
CLOCK: ContextVar[Clock] = ContextVar("CLOCK", default=SystemClock())  # noqa: B039 (it has no state)
"""The clock of a command; tests give that of simulated services."""
EXPECTED = "2026-01-31T12:00:00Z, 2026-01-31T12:00:00+02:00, now, or -10m (s, m, h, d)"
EXAMPLES = "2026-01-31T12:00Z, now, -10m (s, m, h, d)"
"""In a narrow column."""


def parse_time(text: str, *, now_ms: int | None, option: str = "TIME") -> int:
    """Milliseconds since 1970. A time without a zone is UTC. Without `now_ms`, `now` is not allowed. Raises
    ConfigError, also for a time before 1970, because negative times have other meanings in Kafka."""
    at_ms = _read(text, now_ms)
    if at_ms is None:
        raise ConfigError(
            f"{shortened(text)} is not a time: expected {EXPECTED}; without a zone it is UTC", key=option
        )
    if not 0 <= at_ms <= _LAST_MS:
        raise ConfigError(f"{shortened(text)}: expected a time from 1970 to the year 9999", key=option)
    return at_ms


def _read(text: str, now_ms: int | None) -> int | None:
    """None: it is not a time."""
    plain = text.strip()
    if plain == "now" and now_ms is not None:
        return now_ms
    ago = _AGO.fullmatch(plain)
    if ago is not None and now_ms is not None:
        number = whole_number(ago[1], _MOST_SECONDS_AGO)
        return _TOO_EARLY_MS if number is None else now_ms - number * _SECONDS[ago[2]] * 1000
    try:
        at = datetime.fromisoformat(plain)
        return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def shown_time(wall_ms: int) -> str:
    """`2026-01-31 12:00:00 UTC`."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def shown_clock(wall_ms: int) -> str:
    """`12:00:00 UTC`."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%H:%M:%S UTC")


def shown_seconds(seconds: float | None) -> str:
    """`12 s`, `5 min`, `3.2 h`, `2.0 d`; `?` when unknown."""
    if seconds is None:
        return "?"
    for size, unit in ((86_400, "d"), (3_600, "h")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
