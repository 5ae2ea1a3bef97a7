"""Parses and checks the options of verifying commands."""

import re
from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from twinlog.cli.common.names import CLOCK, offset_of, parse_time, shortened, whole_number
from twinlog.cli.common.options import option
from twinlog.errors import ConfigError
from twinlog.verify.report import FlowReport

# How commands verify: the code that reads the logs is part of the source service.


def engine(module: str) -> Any:
    """A module of the source service, such as `verify.request`. Raises ConfigError if it is not installed."""
    try:
        return import_module(f"twinlog_source.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("twinlog_source"):
            raise
        raise ConfigError(
            "this command needs the package twinlog-source: install it on this machine"
        ) from None


async def verified(
    configuration: Any, request: Any, on_progress: Callable[[Any], None] = lambda _: None
) -> "FlowReport":
    """Raises ConfigError if the request names something that does not exist."""
    verification = engine("verify.engine").Verification(
        configuration=configuration, request=request, clock=CLOCK.get(), on_progress=on_progress
    )
    report: FlowReport = await verification.run()
    return report


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
