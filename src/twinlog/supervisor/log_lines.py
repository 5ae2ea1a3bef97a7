"""Merges the children's log lines and the supervisor's own, as JSON or as text for people.

A service's line is a JSON object already and passes unchanged. Any other output of a child (a JVM, a native
library) becomes the `line` of an `output` event.
"""

import json
import signal
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from twinlog import strange_json
from twinlog.clock import Clock
from twinlog.printable import printable
from twinlog.supervisor.streams import OutputStream, write_line
from twinlog.telemetry.redaction import redact, redact_text

_COLOURS = {"error": "\x1b[31m", "critical": "\x1b[31m", "warning": "\x1b[33m", "debug": "\x1b[2m"}
_RESET = "\x1b[0m"
_SHOWN_FIRST = frozenset({"time", "service", "level", "event", "version", "logger", "exception"})

SUPERVISOR = "twinlog"
_NOTICE = "configuration_notice"
_SIGNALS = 128
"""An exit code above this is a signal's."""
_BY_SIGKILL = _SIGNALS + signal.SIGKILL


class LogLines:
    """Writes to `stream` line by line. Ignores a broken stream: logging never stops the run."""

    def __init__(self, stream: OutputStream, *, format: str, clock: Clock) -> None:  # noqa: A002
        readable = format == "console" or (format == "auto" and stream.isatty())
        self._stream = stream
        self._clock = clock
        self._notices: set[tuple[Any, ...]] = set()
        """Notices of the configuration so far: every child reads the same file, and one copy is enough."""
        self._away: dict[str, str] = {}
        """The clusters that a child did not reach when it said so last, with the reason."""
        self._render: Callable[[dict[str, Any]], str] = _json_line
        if readable:
            self._render = _coloured_line if stream.isatty() else _plain_line

    def event(self, level: str, event: str, /, **values: Any) -> None:
        """Write a line of the supervisor's own."""
        line = self._own(level, event, **values)
        self._is_repeated(line)
        self._write(redact(line))

    def dropped(self, lines: int) -> str:
        """The line that stands where nobody read so many lines. Other threads may call this."""
        message = "nobody read the output for a while"
        return self._render(self._own("warning", "log_lines_dropped", lines=lines, message=message))

    def child_line(self, service: str, line: str) -> None:
        """Write a line that a child printed."""
        if not line:
            return
        fields = self._parsed(service, line)
        match fields:
            case {"event": "cluster_unreachable", "cluster": cluster, "reason": reason}:
                self._away[str(cluster)] = str(reason)
            case {"event": "cluster_reachable", "cluster": cluster}:
                self._away.pop(str(cluster), None)
        if not self._is_repeated(fields):
            self._write(fields)

    @property
    def obstacles(self) -> str:
        """`AUTHENTICATION_FAILED on T`: why services that serve do not work yet, as far as they said so."""
        return ", ".join(f"{reason} on {cluster}" for cluster, reason in sorted(self._away.items()))

    def _is_repeated(self, fields: dict[str, Any]) -> bool:
        """Whether this notice of the configuration was written before; records it if not."""
        if fields["event"] != _NOTICE:
            return False
        notice = tuple(str(fields.get(name)) for name in ("key", "line", "message"))
        known = notice in self._notices
        self._notices.add(notice)
        return known

    def _parsed(self, service: str, line: str) -> dict[str, Any]:
        fields = _parse(line)
        if fields is not None:
            return {"service": service, **fields}
        return {
            "time": self._now(),
            "service": service,
            "level": "info",
            "event": "output",
            "line": redact_text(line),
        }

    def _own(self, level: str, event: str, **values: Any) -> dict[str, Any]:
        return {"time": self._now(), "service": SUPERVISOR, "level": level, "event": event, **values}

    def _write(self, fields: dict[str, Any]) -> None:
        write_line(self._stream, self._render(fields))

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat().replace("+00:00", "Z")


def last_words(lines: Sequence[str], exit_code: int) -> str:
    """The known cause of a child's death: a signal that it could not handle, the error that it logged, or the
    last output beside its log. Lines of normal operation are no cause."""
    signal_name = _signal_name(exit_code)
    if exit_code == _BY_SIGKILL:
        return f"ended by {signal_name}: killed by a user, or by the system because of its memory"
    for line in reversed(lines):
        fields = _parse(line)
        if fields is None:
            continue
        if fields.get("exception"):
            return redact_text(str(fields["exception"]).strip().splitlines()[-1])
        if fields.get("level") in ("error", "critical"):
            return redact_text(str(fields.get("message", fields["event"])))
    printed = [line for line in lines if line.strip() and _parse(line) is None]
    words = redact_text(printed[-1]) if printed else "no reason was logged"
    return f"ended by {signal_name}; {words}" if signal_name else words


def _signal_name(exit_code: int) -> str:
    """Empty without a signal."""
    try:
        return signal.Signals(exit_code - _SIGNALS).name if exit_code > _SIGNALS else ""
    except ValueError:
        return ""


def _parse(line: str) -> dict[str, Any] | None:
    """A line of a service's log; None for any other text."""
    if not line.startswith("{"):
        return None
    try:
        fields = strange_json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and "event" in fields else None


def _json_line(fields: dict[str, Any]) -> str:
    return json.dumps(fields, default=str)


def _plain_line(fields: dict[str, Any]) -> str:
    return printable(_line(fields))


def _line(fields: dict[str, Any]) -> str:
    time = f"{str(fields.get('time', ''))[11:19]}Z"
    service, level = fields.get("service", ""), fields.get("level", "")
    if fields.get("event") == "output":
        return f"{time} {service:<10} {'-':<7} {fields.get('line', '')}"
    rest = " ".join(f"{key}={_value(value)}" for key, value in fields.items() if key not in _SHOWN_FIRST)
    text = f"{time} {service:<10} {level:<7} {fields.get('event', '')} {rest}".rstrip()
    return f"{text}\n{fields['exception']}" if fields.get("exception") else text


def _coloured_line(fields: dict[str, Any]) -> str:
    colour = _COLOURS.get(str(fields.get("level", "")))
    line = _plain_line(fields)
    return f"{colour}{line}{_RESET}" if colour else line


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    needs_quotes = isinstance(value, str) and (not text or any(mark in text for mark in ' "=\n'))
    return json.dumps(text) if needs_quotes else text
