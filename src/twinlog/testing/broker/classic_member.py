"""Members of groups of the classic protocol: what they ask, what they are told."""

import asyncio
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

Answer = TypeVar("Answer")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class Wish(NamedTuple):
    """What a JoinGroup asks for."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_seconds: float
    rebalance_seconds: float
    protocol_type: str
    protocols: Mapping[str, bytes]
    """The member's metadata by protocol; the first is preferred."""
    needs_id: bool
    """Whether a new member first gets its id (version 4 on)."""
    knows_skipping: bool
    """Whether a leader that came back is told that there is nothing to assign (version 9 on, KIP-814)."""


class Joined(NamedTuple):
    error: ErrorCode
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """Id, instance id, metadata of each; for the leader only."""
    skips_assignment: bool = False


class Synced(NamedTuple):
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    wish: Wish
    assignment: bytes = b""
    joining: asyncio.Future[Joined] | None = None
    syncing: asyncio.Future[Synced] | None = None
    session: asyncio.TimerHandle | None = None

    @property
    def topics(self) -> Iterable[str]:
        """Of a consumer, by its metadata (ConsumerProtocolSubscription.json)."""
        metadata = next(iter(self.wish.protocols.values()))
        (count,) = _INT32.unpack_from(metadata, _INT16.size)
        position = _INT16.size + _INT32.size
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            position += _INT16.size + length
            yield metadata[position - length : position].decode()

    def answer_join(self, answer: Joined) -> None:
        waiting, self.joining = self.joining, None
        _answer(waiting, answer)

    def answer_sync(self, answer: Synced) -> None:
        waiting, self.syncing = self.syncing, None
        _answer(waiting, answer)


def _answer(waiting: "asyncio.Future[Answer] | None", answer: Answer) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(answer)
