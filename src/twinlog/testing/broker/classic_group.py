"""A group of the classic protocol: its coordinator's state machine, with timers of the running loop.

After ClassicGroup.java and GroupMetadataManager.java; member ids KIP-394.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import NamedTuple, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

# Members of groups of the classic protocol: what they ask, what they are told.

Answer = TypeVar("Answer")


class Wish(NamedTuple):
    """What a JoinGroup asks for."""

    member_id: str
    client_id: str
    client_host: str
    session_seconds: float
    rebalance_seconds: float
    protocol_type: str
    protocols: Mapping[str, bytes]
    """The member's metadata by protocol; the first is preferred."""


class Joined(NamedTuple):
    error: ErrorCode
    member_id: str = ""
    generation: int = -1
    protocol: str = ""
    leader: str = ""
    members: tuple[tuple[str, bytes], ...] = ()
    """Id and metadata of each; for the leader only."""


class Synced(NamedTuple):
    error: ErrorCode
    assignment: bytes = b""


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    wish: Wish
    assignment: bytes = b""
    joining: asyncio.Future[Joined] | None = None
    syncing: asyncio.Future[Synced] | None = None
    session: asyncio.TimerHandle | None = None

    def answer_join(self, answer: Joined) -> None:
        waiting, self.joining = self.joining, None
        _answer(waiting, answer)

    def answer_sync(self, answer: Synced) -> None:
        waiting, self.syncing = self.syncing, None
        _answer(waiting, answer)


def _answer(waiting: "asyncio.Future[Answer] | None", answer: Answer) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(answer)


class ClassicState(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True, eq=False)
class ClassicGroup:
    group_id: str
    random: Random
    initial_delay_seconds: float
    """How long a new group waits for more members (KIP-134)."""
    state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: dict[str, ClassicMember] = field(default_factory=dict)
    pending: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    """Ids that were given out and have not joined yet."""
    _rebalance: asyncio.TimerHandle | None = None
    _initial: asyncio.TimerHandle | None = None
    _joined_meanwhile: bool = False
    kind: str = "classic"
    """Of another kind it has no life of its own: a test says what state it is in."""

    @property
    def listed_protocol(self) -> str:
        return self.protocol_type or ""

    @property
    def has_members(self) -> bool:
        return self.state is not ClassicState.EMPTY

    def member(self, member_id: str) -> tuple[ClassicMember | None, ErrorCode]:
        """Who that is, or why it is nobody."""
        found = self.members.get(member_id)
        return found, ErrorCode.none if found else ErrorCode.unknown_member_id

    async def join(self, wish: Wish) -> Joined:
        """JoinGroup: waits until the group has its members."""
        if not self._supports(wish):
            return Joined(ErrorCode.inconsistent_group_protocol, wish.member_id)
        if wish.member_id in self.pending:
            self.pending.pop(wish.member_id).cancel()
            return await self._add(wish.member_id, wish)
        if not wish.member_id:
            return self._welcome(wish)
        member, error = self.member(wish.member_id)
        if member is None:
            return Joined(error, wish.member_id)
        unchanged = dict(member.wish.protocols) == dict(wish.protocols)
        leads_stable = self.state is ClassicState.STABLE and member.member_id == self.leader
        if unchanged and not leads_stable and self.state is not ClassicState.PREPARING:
            return self._joined(member)
        return await self._wait(member, wish)

    def _welcome(self, wish: Wish) -> Joined:
        member_id = f"{wish.client_id}-{UUID(int=self.random.getrandbits(128), version=4)}"
        timer = asyncio.get_running_loop().call_later(wish.session_seconds, self._forget_id, member_id)
        self.pending[member_id] = timer
        return Joined(ErrorCode.member_id_required, member_id)

    async def _add(self, member_id: str, wish: Wish) -> Joined:
        if not self.members:
            self.protocol_type = wish.protocol_type
        member = self.members[member_id] = ClassicMember(member_id, wish)
        self._joined_meanwhile = True
        return await self._wait(member, wish)

    async def _wait(self, member: ClassicMember, wish: Wish) -> Joined:
        member.answer_join(Joined(ErrorCode.rebalance_in_progress, member.member_id))
        member.wish = wish
        waiting: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        member.joining = waiting
        self.leader = self.leader or member.member_id
        self._touch(member)
        self._prepare()
        self._complete_if_all_joined()
        return await waiting

    async def sync(self, member: ClassicMember, generation: int, assignments: Mapping[str, bytes]) -> Synced:
        """SyncGroup: waits for the leader's assignments."""
        if generation != self.generation:
            return Synced(ErrorCode.illegal_generation)
        if self.state is ClassicState.PREPARING:
            return Synced(ErrorCode.rebalance_in_progress)
        self._touch(member)
        if self.state is ClassicState.STABLE:
            return Synced(ErrorCode.none, member.assignment)
        waiting: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()
        member.syncing = waiting
        if member.member_id == self.leader:
            self._stop(self._rebalance)
            self.state = ClassicState.STABLE
            for each in self.members.values():
                each.assignment = assignments.get(each.member_id, b"")
                if each.syncing is not None:
                    self._touch(each)
                each.answer_sync(Synced(ErrorCode.none, each.assignment))
        return await waiting

    def heartbeat(self, member: ClassicMember, generation: int) -> ErrorCode:
        if generation != self.generation:
            return ErrorCode.illegal_generation
        self._touch(member)
        if self.state is ClassicState.PREPARING:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def leave(self, member_id: str) -> ErrorCode:
        """LeaveGroup."""
        if member_id in self.pending:
            self.pending.pop(member_id).cancel()
            self._complete_if_all_joined()
            return ErrorCode.none
        member, error = self.member(member_id)
        if member is not None:
            self._remove(member)
        return error

    def commit_error(self, member_id: str, generation: int) -> ErrorCode:
        """Whether these may commit: members only, and administrators while there are none."""
        if generation >= 0 or member_id:
            member, error = self.member(member_id)
            if error:
                return error
            if generation != self.generation:
                return ErrorCode.illegal_generation
            if member is not None:
                self._touch(member)
        elif self.has_members:
            return ErrorCode.unknown_member_id
        if self.state is ClassicState.COMPLETING:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def close(self) -> None:
        """Stop all timers."""
        for timer in (self._rebalance, self._initial, *self.pending.values()):
            self._stop(timer)
        for member in self.members.values():
            self._stop(member.session)

    def _supports(self, wish: Wish) -> bool:
        if not wish.protocol_type or not wish.protocols:
            return False
        others = [each for each in self.members.values() if each.member_id != wish.member_id]
        if not self.members:
            return True
        return wish.protocol_type == self.protocol_type and bool(
            set(wish.protocols).intersection(*(each.wish.protocols for each in others))
        )

    def _forget_id(self, member_id: str) -> None:
        del self.pending[member_id]
        self._complete_if_all_joined()

    def _touch(self, member: ClassicMember) -> None:
        self._stop(member.session)
        member.session = asyncio.get_running_loop().call_later(
            member.wish.session_seconds, self._expire, member
        )

    def _expire(self, member: ClassicMember) -> None:
        """A session ends, unless the coordinator lets the member wait."""
        if member.joining is not None or member.syncing is not None:
            self._touch(member)
        else:
            self._remove(member)

    def _remove(self, member: ClassicMember) -> None:
        self._drop(member)
        if self.state in (ClassicState.STABLE, ClassicState.COMPLETING):
            self._prepare()
        self._complete_if_all_joined()

    def _drop(self, member: ClassicMember) -> None:
        del self.members[member.member_id]
        self._stop(member.session)
        member.answer_join(Joined(ErrorCode.unknown_member_id, member.member_id))
        member.answer_sync(Synced(ErrorCode.unknown_member_id))
        if self.leader == member.member_id:
            self.leader = _first(self.members, lambda each: each.joining is not None)

    def _prepare(self) -> None:
        """Begin a rebalance, unless there is one."""
        if self.state is ClassicState.PREPARING:
            return
        is_new = self.state is ClassicState.EMPTY
        for member in self.members.values():
            member.assignment = b""
            member.answer_sync(Synced(ErrorCode.rebalance_in_progress))
        self.state = ClassicState.PREPARING
        longest = max((each.wish.rebalance_seconds for each in self.members.values()), default=0.0)
        self._after(longest, self._complete)
        if is_new and self.initial_delay_seconds > 0:
            self._wait_for_more(longest)

    def _wait_for_more(self, remaining_seconds: float) -> None:
        seconds = min(self.initial_delay_seconds, remaining_seconds)
        self._joined_meanwhile = False
        self._initial = asyncio.get_running_loop().call_later(
            seconds, self._end_initial, remaining_seconds - seconds
        )

    def _end_initial(self, remaining_seconds: float) -> None:
        self._initial = None
        if self._joined_meanwhile and remaining_seconds > 0:
            self._wait_for_more(remaining_seconds)
        else:
            self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        if self.state is not ClassicState.PREPARING or self._initial is not None or self.pending:
            return
        if all(member.joining is not None for member in self.members.values()):
            self._complete()

    def _complete(self) -> None:
        """Begin the next generation with who has joined."""
        self._stop(self._initial)
        self._initial = None
        for member in list(self.members.values()):
            if member.joining is None:
                self._drop(member)
        self._stop(self._rebalance)
        joined = [*self.members.values()]
        self.generation += 1
        if not joined:
            self.state, self.protocol, self.leader = ClassicState.EMPTY, None, ""
            return
        if self.leader not in self.members:
            self.leader = joined[0].member_id
        self.protocol = self._vote()
        self.state = ClassicState.COMPLETING
        for member in joined:
            self._touch(member)
            member.answer_join(self._joined(member))
        self._after(max(each.wish.rebalance_seconds for each in joined), self._end_syncing)

    def _end_syncing(self) -> None:
        """Who has joined but does not ask for its assignment is gone."""
        for member in [each for each in self.members.values() if each.syncing is None]:
            self._drop(member)
        self._prepare()
        self._complete_if_all_joined()

    def _vote(self) -> str:
        wishes = [list(each.wish.protocols) for each in self.members.values()]
        common = set(wishes[0]).intersection(*wishes[1:])
        votes = Counter(next(name for name in wish if name in common) for wish in wishes)
        return votes.most_common(1)[0][0]

    def _joined(self, member: ClassicMember) -> Joined:
        leads = member.member_id == self.leader
        told = (
            (each.member_id, each.wish.protocols.get(self.protocol or "", b""))
            for each in self.members.values()
        )
        return Joined(
            ErrorCode.none,
            member.member_id,
            self.generation,
            self.protocol or "",
            self.leader,
            tuple(told) if leads else (),
        )

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        self._stop(self._rebalance)
        self._rebalance = asyncio.get_running_loop().call_later(seconds, callback)

    def _stop(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def _first(members: Mapping[str, ClassicMember], wanted: Callable[[ClassicMember], bool]) -> str:
    return next((key for key, each in members.items() if wanted(each)), next(iter(members), ""))
