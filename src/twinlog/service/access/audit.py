"""The audit log: one line for each call of a method that changes something, refused calls included.

A servicer reports the values before and after by `changed`. A call that begins a process that outlives it,
such as the run of a move, has two lines: one at the beginning (`begun`), one for the outcome.

Invariants: a call never fails because of its audit line, and `MAX_SHOWN` bounds its cost for any request.
"""

import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from itertools import islice
from typing import cast

import structlog
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from twinlog.service.access.roles import Caller, Role
from twinlog.telemetry.logging import AUDIT_LOGGER

_log = structlog.stdlib.get_logger(AUDIT_LOGGER)

MAX_SHOWN = 4_000
"""Most characters of a request and of the values before and after. Hardly more bytes than that are read."""

MOST_ENTRIES = 100
"""Most entries shown of a mapping before or after."""

_PART = 200
"""Most characters of a part of a value that is too long as a whole."""
_AROUND = 8
"""Quotes, signs and blanks around an entry."""
_SHORTEST = 20

NOT_SHOWABLE = "not showable"

UNKNOWN_CALLER = Caller(name="", role=Role.NONE, via="none")
"""The caller of a call that is refused before it is identified."""

NOT_KNOWN = "not known: the call ended before its outcome"
"""The value after a call that may take effect although its caller disconnects."""

STARTED = "STARTED"
"""Outcome in the first line of a process that outlives its call."""


def changed(*, before: object, after: object) -> None:
    """Report a change by the current call. Values are JSON values or messages, without secrets."""
    audit = _audit.get()
    if audit is not None:
        audit.change = _change(before, after)


def begun() -> "AuditedProcess":
    """Report that the current call begins a process that continues even if the caller disconnects.

    Writes a line now; the end of the call writes none.
    """
    audit = _audit.get()
    return AuditedProcess({}) if audit is None else audit.begun()


class Audit:
    """The record of one call, from its start to its outcome."""

    def __init__(self, *, method: str, caller: Caller, peer: str, request: object) -> None:
        """`request`: None when it must not be shown."""
        self._fields: dict[str, object] = {
            "method": method.rpartition("/")[2],
            "caller": caller.name,
            "role": caller.role.word,
            "via": caller.via,
            "peer": peer,
            "request": _shown(request) if isinstance(request, Message) else None,
        }
        self.change: dict[str, object] = {}
        self._goes_on = False
        _audit.set(self)

    def begun(self) -> "AuditedProcess":
        self._goes_on = True
        _log.info("audit", **self._fields, outcome=STARTED)
        return AuditedProcess({**structlog.contextvars.get_contextvars(), **self._fields})

    def ended(self, outcome: str, *, left_out: int = 0) -> None:
        """`outcome`: OK, or the reason of the failure. `left_out`: number of similar calls without a line."""
        if self._goes_on:
            return
        more = {"left_out": left_out} if left_out else {}
        _log.info("audit", **self._fields, **self.change, **more, outcome=outcome)


class AuditedProcess:
    """A process that a call began and that outlives it."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        """`fields` of its lines; empty: no lines, because no API call began it."""
        self._fields = fields

    def ended(self, outcome: str, *, before: object, after: object) -> None:
        """Call once. `outcome`: OK, or the reason of the failure."""
        if self._fields:
            _log.info("audit", **{**self._fields, **_change(before, after), "outcome": outcome})


_audit: ContextVar[Audit | None] = ContextVar("twinlog_audit", default=None)


def _change(before: object, after: object) -> dict[str, object]:
    return {"before": _shown(before), "after": _shown(after)}


def _shown(value: object) -> object:
    """As JSON, shortened if long. Never raises: the change may have been made already."""
    try:
        if isinstance(value, str):
            return _cut(value)
        if isinstance(value, list | tuple):
            value = _first(value)
        elif isinstance(value, Mapping):
            value = _first_of(value)
        plain = _plain(value)
        text = json.dumps(plain, default=str, ensure_ascii=False)
    except Exception:  # noqa: BLE001 (messages and JSON fail in many ways, and none of them is the caller's)
        return NOT_SHOWABLE
    return plain if len(text) <= MAX_SHOWN else _cut(text)


def _first(values: Sequence[object]) -> list[object]:
    """The entries that fit, and the number of the others."""
    found: list[object] = []
    spent = 0
    for each in values:
        spent += 1 + (each.ByteSize() if isinstance(each, Message) else len(str(each)))
        if found and spent > MAX_SHOWN:
            return [*found, f"and {len(values) - len(found)} more"]
        found.append(_plain(each))
    return found


def _first_of(values: Mapping[object, object]) -> dict[object, object]:
    """The entries that fit, each shortened by itself so that a long one hides no other, and the number of the
    others."""
    found: dict[object, object] = {}
    share = MAX_SHOWN // min(len(values) + 1, MOST_ENTRIES + 1) - _AROUND
    for key, value in islice(values.items(), MOST_ENTRIES):
        if isinstance(value, str):
            found[key] = _cut(value, max(share - len(str(key)), _SHORTEST))
        else:
            found[key] = _first(value) if isinstance(value, list | tuple) else _plain(value)
    if len(values) > len(found):
        found["left out"] = len(values) - len(found)
    return found


def _plain(value: object, most: int = MAX_SHOWN) -> object:
    """A message that is too long in parts: each field shortened by itself."""
    if isinstance(value, str):
        return _cut(value, most)
    if not isinstance(value, Message):
        return value
    if value.ByteSize() <= most:
        return MessageToDict(value, preserving_proto_field_name=True)
    return {field.name: _of_field(part) for field, part in value.ListFields()}


def _of_field(value: object) -> object:
    if isinstance(value, str | bytes | Message | int | float):
        return f"{len(value)} bytes" if isinstance(value, bytes) else _plain(value, _PART)
    if isinstance(value, Mapping):
        return _first_of(value)
    repeated = cast("Sequence[object]", value)
    found = [_plain(each, _PART) for each in islice(repeated, MAX_SHOWN // _PART // 2)]
    return found if len(repeated) == len(found) else [*found, f"and {len(repeated) - len(found)} more"]


def _cut(text: str, most: int = MAX_SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
