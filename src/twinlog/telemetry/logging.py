"""Structured logs: structlog over stdlib logging, so that the lines of aiokafka, grpc and Spark look the
same.

One JSON object per line on stdout; readable lines on a terminal. The event is a constant snake_case name, and
each variable is a key with the same name as the metric attribute.
"""

import json
import logging
import select
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from twinlog.printable import printable
from twinlog.telemetry.redaction import redact
from twinlog.telemetry.tracing import add_trace_ids

# Limits repeated log lines: writes the first at once, then at most one per interval with the number left
# out.


@dataclass(slots=True)
class _Repeat:
    last_written: float
    left_out: int = 0


@dataclass(slots=True, kw_only=True)
class RepeatLimiter:
    """Pure: takes `now` in monotonic seconds. Beyond `max_keys` the oldest key is forgotten."""

    interval_seconds: float = 60.0
    max_keys: int = 1000
    _repeats: dict[object, _Repeat] = field(default_factory=dict)

    def admit(self, key: object, *, now: float) -> int | None:
        """None = leave this line out; otherwise write it, with the number left out since the last one."""
        repeat = self._repeats.get(key)
        if repeat is not None and now - repeat.last_written < self.interval_seconds:
            repeat.left_out += 1
            return None
        left_out = repeat.left_out if repeat is not None else 0
        self._repeats.pop(key, None)
        if len(self._repeats) >= self.max_keys:
            del self._repeats[next(iter(self._repeats))]
        self._repeats[key] = _Repeat(last_written=now)
        return left_out


FORMATS = ("auto", "json", "console")

_CLIENT_LIBRARIES = ("aiokafka", "grpc", "py4j", "pyspark", "opentelemetry", "asyncio")

_COLOURS = {"error": "\x1b[31m", "critical": "\x1b[31m", "warning": "\x1b[33m", "debug": "\x1b[2m"}
_RESET = "\x1b[0m"
_SHOWN_FIRST = frozenset({"time", "service", "level", "event", "version", "logger", "exception"})

AUDIT_LOGGER = "twinlog.audit"


def configure_logging(
    *,
    service: str,
    version: str,
    format: str = "auto",  # noqa: A002 (the option's own name)
    level: str = "info",
    stream: TextIO | None = None,
) -> None:
    """Send every log line of the process to `stream` (stdout when None). Call once, before the first loop
    starts.

    The audit log is written at every `level`. Client libraries, which log per request, stay at WARNING unless
    `level` is debug.
    """
    target = stream if stream is not None else sys.stdout
    rendering = ("console" if target.isatty() else "json") if format == "auto" else format
    identity = {"service": service, "version": version}

    def add_identity(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for key, value in identity.items():
            event.setdefault(key, value)
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        add_identity,
        add_trace_ids,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = _NeverWaiting(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(rendering, coloured=target.isatty()),
            ],
        )
    )
    handler.addFilter(_Seldom())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(level)
    # The audit log is never filtered.
    logging.getLogger(AUDIT_LOGGER).setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
    # A broken stdout must not end a service with a traceback per line.
    logging.raiseExceptions = False


def set_level(level: str) -> None:
    """Log from this level on: debug, info, warning or error. Kafka clients log everything at debug, else
    warnings."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(number)
    for library in _CLIENT_LIBRARIES:
        logging.getLogger(library).setLevel(logging.DEBUG if number <= logging.DEBUG else logging.WARNING)


def toggle_debug(level: str) -> str:
    """Switch between logging everything and logging from `level` on; return the level now in force."""
    is_debug = logging.getLogger().level <= logging.DEBUG
    chosen = level if is_debug else "debug"
    set_level(chosen)
    return chosen


class _NeverWaiting(logging.StreamHandler[TextIO]):
    """Leaves lines out while nobody reads them (a paused `less`, a pipe that is full): the process goes on.
    The first line after them has their number as `lines_left_out`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._left_out = 0
        self._room: select.poll | None = None
        with suppress(OSError, ValueError):  # A stream in memory has always room.
            room = select.poll()
            room.register(stream.fileno(), select.POLLOUT)
            self._room = room

    def emit(self, record: logging.LogRecord) -> None:
        if self._room is not None and not self._room.poll(0):
            self._left_out += 1
            return
        if self._left_out and isinstance(record.msg, dict):
            record.msg = {**record.msg, "lines_left_out": self._left_out}
            self._left_out = 0
        super().emit(record)


class _Seldom(logging.Filter):
    """Passes one line of a kind a minute of OpenTelemetry's own lines: an exporter logs each failed try."""

    def __init__(self) -> None:
        super().__init__()
        self._limiter = RepeatLimiter(interval_seconds=60.0)

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith("opentelemetry"):
            return True
        return self._limiter.admit((record.name, record.lineno), now=record.created) is not None


def _redact_event(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return redact(event)  # type: ignore[no-any-return]  # a mapping in, a mapping out


def _rendering(format: str, *, coloured: bool) -> list[Processor]:  # noqa: A002

    def console_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
        line = printable(_line(event))
        colour = _COLOURS.get(str(event.get("level"))) if coloured else None
        return f"{colour}{line}{_RESET}" if colour else line

    return [
        structlog.processors.format_exc_info,
        # After the exception was rendered: redaction then sees its text.
        _redact_event,
        structlog.processors.JSONRenderer(default=str) if format == "json" else console_line,
    ]


def _line(event: MutableMapping[str, Any]) -> str:
    """`03:04:05Z source     info    listening address="a b" port=5`."""
    rest = " ".join(f"{key}={_value(value)}" for key, value in event.items() if key not in _SHOWN_FIRST)
    time, service, level = str(event["time"])[11:19], event["service"], event["level"]
    text = f"{time}Z {service:<10} {level:<7} {event['event']} {rest}".rstrip()
    return f"{text}\n{event['exception']}" if event.get("exception") else text


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    needs_quotes = isinstance(value, str) and (not text or any(mark in text for mark in ' "=\n'))
    return json.dumps(text) if needs_quotes else text
