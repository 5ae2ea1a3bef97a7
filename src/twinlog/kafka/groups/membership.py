"""Takes part in a group whose leader tells every member its part: a group of the classic protocol with a
protocol type of its own.

The coordinator makes the first member the leader, and another one when that leaves or is silent for a
session. With every change of the group each member joins again and says what it is; the leader hears all of
it and answers for all (Kafka Connect and the Schema Registry work like this). Groups of other protocol types
than `consumer` are not in listings of consumer groups.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from twinlog.errors import KafkaError
from twinlog.kafka.codes import COORDINATOR_MOVED, ErrorCode
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import from_code
from twinlog.kafka.groups.coordinators import GroupCoordinators
from twinlog.kafka.groups.offsets import DescribedGroup, GroupDescriptionsClient
from twinlog.kafka.ports import Assign, Pulse, Seat, never_gone
from twinlog.kafka.protocol.client_pool import DataClientPool

PROTOCOL_TYPE = "twinlog"
_PROTOCOL = "flows"
MARK_SEPARATOR: Final = b"\0"
"""Between what a member says and the mark of its process."""
_ANSWER_SECONDS = 10.0
"""In addition to the time for which the coordinator itself makes a member wait."""
_LEAVE_SECONDS = 1.0
_LEAST_BEAT_SECONDS = 3.0
_PAUSE_SECONDS = 0.05
_JOIN_AGAIN: Final = frozenset(
    {ErrorCode.unknown_member_id, ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation}
)


class KafkaMember:
    """A member of one group. `beat` may be called while `join` waits: each request has its own connection."""

    def __init__(
        self,
        session: DataClientPool,
        group_id: str,
        *,
        assign: Assign,
        session_seconds: float,
        rebalance_seconds: float,
        mark: str = "",
        is_gone: Callable[[str], bool] = never_gone,
    ) -> None:
        """`withdraw` closes the session."""
        self._session = session
        self._alias = session.alias
        self._coordinators = GroupCoordinators(session)
        self._descriptions = GroupDescriptionsClient(session, self._coordinators)
        self._group = group_id
        self._assign = assign
        self._times_ms = round(session_seconds * 1000), round(rebalance_seconds * 1000)
        self._join_seconds = rebalance_seconds + _ANSWER_SECONDS
        self._beat_seconds = max(session_seconds / 2, _LEAST_BEAT_SECONDS)
        self._mark = mark
        self._is_gone = is_gone
        self._member = ""
        self._generation = -1
        self._is_seated = False

    async def join(self, about: Callable[[bool], bytes]) -> Seat:
        doing = f"join group {self._group}"
        async with deadline(self._join_seconds, doing, alias=self._alias):
            while True:
                seat = await self._join(about, doing)
                if seat is not None:
                    return seat
                await pause(_PAUSE_SECONDS)

    async def beat(self) -> Pulse:
        if self._generation < 0:
            return Pulse.JOINS
        doing = f"stay in group {self._group}"
        request = HeartbeatRequest(self._group, self._generation, self._member)
        async with deadline(self._beat_seconds, doing, alias=self._alias):
            code = (await self._ask(request, doing)).error_code
        if code == ErrorCode.rebalance_in_progress:
            return Pulse.WAITED_FOR
        if code in _JOIN_AGAIN:
            return Pulse.JOINS
        if code:
            raise from_code(code, doing, alias=self._alias)
        return Pulse.SEATED if self._is_seated else Pulse.WAITED_FOR

    async def others(self, group_ids: Collection[str]) -> Mapping[str, tuple[bytes, ...]]:
        doing = f"look at group {self._group}"
        async with deadline(self._beat_seconds, doing, alias=self._alias):
            described = await self._descriptions.describe({self._group, *group_ids})
            await self._put_out_the_gone(described[self._group], doing)
        found: dict[str, tuple[bytes, ...]] = {}
        for group_id in group_ids:
            group = described[group_id]
            if not isinstance(group, KafkaError):
                found[group_id] = tuple(_split(about)[0] for _, about in group.members)
            elif group.reason != "GROUP_UNAUTHORIZED":
                raise group
        return found

    async def withdraw(self) -> None:
        member, self._member, self._generation = self._member, "", -1
        doing = f"leave group {self._group}"
        try:
            if member:
                with contextlib.suppress(KafkaError):
                    async with deadline(_LEAVE_SECONDS, doing, alias=self._alias):
                        await self._ask(LeaveGroupRequest(self._group, member), doing)
        finally:
            await self._session.close()

    async def _join(self, about: Callable[[bool], bytes], doing: str) -> Seat | None:
        """One try; waits for the other members, and for what the leader says."""
        self._is_seated = False
        told = about(self._generation >= 0) + MARK_SEPARATOR + self._mark.encode()
        joined = await self._ask(
            JoinGroupRequest(
                self._group, *self._times_ms, self._member, None, PROTOCOL_TYPE, [(_PROTOCOL, told)]
            ),
            doing,
        )
        if joined.error_code == ErrorCode.member_id_required:
            self._member = joined.member_id
            # From now on the group waits for this member. A group from which others are removed is not empty,
            # so it need not wait for `group.initial.rebalance.delay.ms`.
            described = await self._descriptions.describe((self._group,))
            await self._put_out_the_gone(described[self._group], doing)
            return None
        if not self._holds(joined.error_code, doing):
            return None
        self._member, self._generation = joined.member_id, joined.generation_id
        told_to = []
        if joined.leader_id == joined.member_id:
            members = {member[0]: _split(bytes(member[-1]))[0] for member in joined.members}
            told_to = [*self._assign(members, joined.generation_id).items()]
        synced = await self._ask(
            SyncGroupRequest(self._group, joined.generation_id, self._member, None, told_to), doing
        )
        if not self._holds(synced.error_code, doing):
            return None
        self._is_seated = True
        return Seat(
            member=self._member,
            generation=joined.generation_id,
            assignment=bytes(synced.member_assignment or b""),
        )

    async def _put_out_the_gone(self, group: DescribedGroup | KafkaError, doing: str) -> None:
        """Remove members whose processes have ended, because the group would wait for their sessions."""
        for member_id, about in () if isinstance(group, KafkaError) else group.members:
            mark = _split(about)[1].decode(errors="replace")
            if mark and self._is_gone(mark):
                await self._ask(LeaveGroupRequest(self._group, member_id), doing)

    def _holds(self, code: int, doing: str) -> bool:
        """False for codes that mean: join again. Raises KafkaError for all others."""
        if code == ErrorCode.unknown_member_id:
            self._member, self._generation = "", -1
        if code and code not in _JOIN_AGAIN:
            raise from_code(code, doing, alias=self._alias)
        return not code

    async def _ask(self, request: Any, doing: str) -> Any:
        try:
            node_id = await self._coordinators.node(self._group, doing)
            answer = await self._session.send(node_id, request, doing)
        except KafkaError:
            self._coordinators.forget(self._group)
            raise
        if answer.error_code in COORDINATOR_MOVED:
            self._coordinators.forget(self._group)
        return answer


def _split(about: bytes) -> tuple[bytes, bytes]:
    told, _, mark = about.partition(MARK_SEPARATOR)
    return told, mark
