"""Parses and checks the options of verifying commands."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from twinlog.cli.common.options import option
from twinlog.cli.common.times import CLOCK, offset_of, parse_time, shortened, whole_number
from twinlog.cli.verify.engine import engine
from twinlog.errors import ConfigError


class Isolation(StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


IsolationOption = Annotated[
    Isolation | None,
    option(
        "--isolation",
        "The isolation level with which the replicator read the source, if the file does not say it.",
    ),
]
ReportOption = Annotated[Path | None, option("--report FILE", "Also write the report to this file, as JSON.")]
HtmlOption = Annotated[
    Path | None,
    option("--html FILE", "Also write the report as an HTML page with a picture of every partition."),
]
_SIZE = re.compile(r"(\d+)\s*([kKmMgG]?)")
_MOST_BYTES = 10**12
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def instant_of(option: str, text: str | None) -> Any:
    """Raises ConfigError when it is neither an offset nor a time."""
    if text is None:
        return None
    instant = engine("verify.request").Instant
    if text.isascii() and text.isdecimal():
        return instant(offset=offset_of(text, option))
    return instant(timestamp_ms=parse_time(text, now_ms=CLOCK.get().now_ms(), option=option))


def reads_committed(asked: Isolation | None) -> bool | None:
    """None = as configured."""
    return None if asked is None else asked is Isolation.READ_COMMITTED


def bytes_of(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    number = None if match is None else whole_number(match[1], _MOST_BYTES)
    if match is None or number is None:
        raise ConfigError(
            f"--max-bytes-per-second {shortened(text)}: expected a number of bytes, such as 50M",
            key="--max-bytes-per-second",
        )
    return number * _UNITS[match.group(2).lower()]


def check_range(begin: Any, end: Any) -> None:
    """Refuse an empty range: two offsets or two times in the wrong order. An offset and a time can only be
    compared by the source. Raises ConfigError."""
    for of in ("offset", "timestamp_ms"):
        first, behind = getattr(begin, of, None), getattr(end, of, None)
        if first is not None and behind is not None and first >= behind:
            raise ConfigError("--from has to lie before --to", key="--from")
