"""Structured logs: structlog over stdlib logging, so that the lines of aiokafka, grpc and Spark look the
same.

One JSON object per line on stdout; readable lines on a terminal. The event is a constant snake_case name, and
each variable is a key with the same name as the metric attribute.
"""

import json
import logging
import re
import select
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from twinlog.printable import printable
from twinlog.telemetry.tracing import add_trace_ids

# The safety net under the rule "secrets never reach a log": text that looks like a secret becomes `***`.
#
# Callers redact by meaning (the configuration knows which keys are secret); this catches what they missed.
# It reads strangers' text (names, patterns, headers of calls) on the event loop, so its time is linear in
# the text by construction: a match attempt begins only where a run of its characters begins (`(?<!…)`), runs
# are possessive (`++`, never given back), and so each character is read only a few times.

REDACTED = "***"
LEFT_OUT = "…"

MAX_TEXT_CHARACTERS = 16 * 1024
"""Most characters of a text in a log line."""
MAX_ITEMS = 1_000
"""Most entries of a container in a log line."""
MAX_DEPTH = 8
"""Deepest level of containers within containers."""

_WORDS = (
    r"passw|passphrase|secret|credential|authorization|private[._-]?key|keystore[._-]key|api[._-]?key"
    r"|(?<![A-Za-z0-9])(?:(?:access|refresh|auth|bearer|id)[._-]?)?token(?![A-Za-z0-9])"
)
_SECRET_KEY = re.compile(f"{_WORDS}|jaas|(?:access|refresh)_?token", re.IGNORECASE)
_NOT_SECRET_KEY = re.compile(r"(resume|page)_token", re.IGNORECASE)
_PEM_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_ASSIGNMENT = re.compile(
    r"(?P<before>(?<![\w.\-])"  # only where a name begins
    rf"(?![\w.\-]*?(?:resume|page)_token)(?=[\w.\-]*?(?:{_WORDS}))[\w.\-]++"
    r"""\\?["']?\s*+[=:]\s*+)"""
    r"""(?P<value>\\"(?:(?!\\").)*+(?:\\"|\Z)"""  # inside a quoted text
    r"""|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)"""
    r"""|(?:(?:Bearer|Basic|Digest|Negotiate)\s++)?[^\s,;&"'}]++)""",
    re.IGNORECASE | re.DOTALL,
)
_URL_PASSWORD = re.compile(r"(?P<before>(?<!\w)\w++://[^\s:/@]*+:)[^\s@/]++(?=@)")


def is_secret_key(name: str) -> bool:
    """True when a value of this name counts as a secret (`sasl.jaas.config`, `ssl.key.password`, …)."""
    name = name[:MAX_TEXT_CHARACTERS]
    return _SECRET_KEY.search(name) is not None and _NOT_SECRET_KEY.search(name) is None


def cut(text: str, limit: int) -> str:
    """The text, or its first `limit` characters and how many were left out.

    >>> cut("abcdef", 4)
    'abcd… (2 characters left out)'
    """
    return (
        text if len(text) <= limit else f"{text[:limit]}{LEFT_OUT} ({len(text) - limit} characters left out)"
    )


def redact_text(text: str) -> str:
    """Cut a text to MAX_TEXT_CHARACTERS and blank the secrets that `blank_secrets` finds."""
    return blank_secrets(cut(text, MAX_TEXT_CHARACTERS))


def blank_secrets(text: str) -> str:
    """Blank `password=…` and similar, passwords in URLs and PEM private keys. Takes linear time."""
    text = _PEM_KEY.sub(REDACTED, text)
    text = _URL_PASSWORD.sub(_blanked, text)
    return _ASSIGNMENT.sub(_blanked, text)


def redact(value: Any, *, depth: int = MAX_DEPTH) -> Any:
    """A copy with blanked secrets and bounded depth, items and text lengths. Numbers, truth values and None
    stay; any other object becomes its text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return _redact_mapping(value, depth) if depth else LEFT_OUT
    if isinstance(value, list | tuple | set | frozenset):
        return _redact_sequence(value, depth) if depth else LEFT_OUT
    return redact_text(str(value))


def _redact_mapping(value: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
    shown: dict[Any, Any] = {}
    for key, item in value.items():
        if len(shown) == MAX_ITEMS:
            shown[LEFT_OUT] = f"{len(value) - MAX_ITEMS} more"
            break
        name = redact_text(key) if isinstance(key, str) else key
        secret = isinstance(key, str) and is_secret_key(key)
        shown[name] = REDACTED if secret else redact(item, depth=depth - 1)
    return shown


def _redact_sequence(
    value: "list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]", depth: int
) -> list[Any]:
    shown: list[Any] = []
    for item in value:
        if len(shown) == MAX_ITEMS:
            shown.append(f"{LEFT_OUT} {len(value) - MAX_ITEMS} more")
            break
        shown.append(redact(item, depth=depth - 1))
    return shown


def _blanked(match: re.Match[str]) -> str:
    return match["before"] + REDACTED


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


def _rendering(format: str, *, coloured: bool) -> list[Processor]:  # noqa: A002

    def console_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
        line = printable(_line(event))
        colour = _COLOURS.get(str(event.get("level"))) if coloured else None
        return f"{colour}{line}{_RESET}" if colour else line

    return [
        structlog.processors.format_exc_info,
        # After the exception was rendered: redaction then sees its text.
        lambda _logger, _method, event: redact(event),
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
