"""The audit log: one line for each call of a method that changes something, also for those that were refused.

A servicer that knows what was before and what is after says so by `changed`.

Invariants: a call never fails because of its audit line, and what it costs is bounded by
`MAX_SHOWN`, however long the request is.
"""

import json
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import structlog
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from twinlog.service.access.roles import Caller, Role
from twinlog.telemetry.logging import AUDIT_LOGGER

_log = structlog.stdlib.get_logger(AUDIT_LOGGER)

MAX_SHOWN = 4_000
"""Characters of a request, and of what was before and after; what is longer than as many bytes is not looked
at."""

NOT_SHOWABLE = "not showable"

UNKNOWN_CALLER = Caller(name="", role=Role.NONE, via="none")
"""Of a call that is refused before it is known who makes it."""

_change: ContextVar[dict[str, Any] | None] = ContextVar("twinlog_change", default=None)


def changed(*, before: object, after: object) -> None:
    """What the call that is being served changes. Values are those of JSON, or messages; no secret."""
    record = _change.get()
    if record is not None:
        record["before"], record["after"] = _shown(before), _shown(after)


class Audit:
    """The record of one call, from its start to its outcome."""

    def __init__(self, *, method: str, caller: Caller, peer: str, request: object) -> None:
        """`request`: None where it is not to be shown."""
        self._fields = {
            "method": method.rpartition("/")[2],
            "caller": caller.name,
            "role": caller.role.word,
            "via": caller.via,
            "peer": peer,
            "request": _shown(request) if isinstance(request, Message) else None,
        }
        self._change: dict[str, Any] = {}
        _change.set(self._change)

    def ended(self, outcome: str, *, left_out: int = 0) -> None:
        """`outcome`: OK, or the reason why not. `left_out`: calls alike that have no line."""
        more = {"left_out": left_out} if left_out else {}
        _log.info("audit", **self._fields, **self._change, **more, outcome=outcome)


def _shown(value: object) -> object:
    """As JSON; what is long is cut. Never raises: the change may be done by now."""
    try:
        if isinstance(value, str):
            return _cut(value)
        if isinstance(value, list | tuple):
            value = _first(value)
        plain = _plain(value)
        text = json.dumps(plain, default=str, ensure_ascii=False)
    except Exception:  # noqa: BLE001 (messages and JSON fail in many ways, and none of them is the caller's)
        return NOT_SHOWABLE
    return plain if len(text) <= MAX_SHOWN else _cut(text)


def _first(values: Sequence[object]) -> list[object]:
    """As many as may be shown; the rest is counted."""
    found: list[object] = []
    spent = 0
    for each in values:
        spent += 1 + (each.ByteSize() if isinstance(each, Message) else len(str(each)))
        if found and spent > MAX_SHOWN:
            return [*found, f"and {len(values) - len(found)} more"]
        found.append(_plain(each))
    return found


def _plain(value: object) -> object:
    if not isinstance(value, Message):
        return value
    size = value.ByteSize()
    if size > MAX_SHOWN:
        return f"{size} bytes"
    return MessageToDict(value, preserving_proto_field_name=True)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
