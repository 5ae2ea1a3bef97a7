"""What goes wrong between clients and brokers, by script."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kio.schema.errors import ErrorCode


class Loss(Enum):
    """When a connection is reset."""

    BEFORE = "before the request is looked at"
    AFTER = "after the request was carried out, before its answer"
    WITHIN = "in the middle of the answer"


@dataclass(slots=True, eq=False, kw_only=True)
class Fault:
    """One kind of trouble for some requests. What is not set matches everything, and changes nothing."""

    api: str | None = None
    """kio's name, as "list_offsets"."""
    node_id: int | None = None
    client_id: str | None = None
    times: int | None = None
    """For this many requests only."""

    hangs: bool = False
    """The broker does not look at the request, nor at later ones of the connection, before the fault ends: as
    a stopped process."""
    swallows: bool = False
    """The request is carried out and never answered; later ones are."""
    swallows_unseen: bool = False
    """The request is neither carried out nor answered."""
    loses: Loss | None = None
    throttle_ms: int = 0
    """The answer says so, and the broker reads nothing from the connection for this long (KIP-219)."""
    error: ErrorCode = ErrorCode.none
    """Answered in place of the work: per partition, or for a coordinator's key, where the API has them."""
    request_seconds: float = 0.0
    """What the way to the broker takes."""
    answer_seconds: float = 0.0
    bytes_per_second: float | None = None
    """Of the link, each way."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, api: str, node_id: int, client_id: str) -> bool:
        return (
            self.times != 0
            and self.api in (None, api)
            and self.node_id in (None, node_id)
            and self.client_id in (None, client_id)
        )

    def way_seconds(self, seconds: float, size_bytes: int) -> float:
        """How long bytes take, with `seconds` of delay."""
        return seconds + (size_bytes / self.bytes_per_second if self.bytes_per_second else 0.0)


class Faults:
    """Those of now, in the order in which they began."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def begin(self, *, seconds: float | None = None, **what: Any) -> Fault:
        """Begin a `Fault` with these fields; it ends after a while, or by `end`."""
        fault = Fault(**what)
        self._faults.append(fault)
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self.end, fault)
        return fault

    def end(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)
        fault.ended.set()

    @contextmanager
    def during(self, **what: Any) -> Iterator[Fault]:
        """A fault for as long as the block."""
        fault = self.begin(**what)
        try:
            yield fault
        finally:
            self.end(fault)

    def of(self, api: str, node_id: int, client_id: str) -> list[Fault]:
        """Those that this request meets; each is counted."""
        found = [each for each in self._faults if each.matches(api, node_id, client_id)]
        for fault in found:
            if fault.times is not None:
                fault.times -= 1
        return found
