"""The audit log: one line for each call of a method that changes something, also for those that were refused.

A servicer that knows what was before and what is after says so by `changed`.
"""

import json
from contextvars import ContextVar
from typing import Any

import structlog
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from twinlog.service.access.roles import Caller

_log = structlog.stdlib.get_logger("twinlog.audit")

MAX_SHOWN = 4_000
"""Characters of a request, and of what was before and after."""

_change: ContextVar[dict[str, Any] | None] = ContextVar("twinlog_change", default=None)


def changed(*, before: object, after: object) -> None:
    """What the call that is being served changes. Values are those of JSON, or messages; no secret."""
    record = _change.get()
    if record is not None:
        record["before"], record["after"] = _shown(before), _shown(after)


class Audit:
    """The record of one call, from its start to its outcome."""

    def __init__(self, *, method: str, caller: Caller, peer: str, request: object) -> None:
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

    def ended(self, outcome: str) -> None:
        """`outcome`: OK, or the reason why not."""
        _log.info("audit", **self._fields, **self._change, outcome=outcome)


def _shown(value: object) -> object:
    """As JSON; what is long is cut."""
    if isinstance(value, Message):
        value = MessageToDict(value, preserving_proto_field_name=True)
    elif isinstance(value, list | tuple):
        value = [_plain(each) for each in value]
    text = json.dumps(value, default=str, ensure_ascii=False)
    return value if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _plain(value: object) -> object:
    return MessageToDict(value, preserving_proto_field_name=True) if isinstance(value, Message) else value
