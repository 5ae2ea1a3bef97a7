"""Elects one of several processes: a group with its own protocol type, whose leader Kafka chooses.

The first member of a classic group is its leader, and stays it as long as it heartbeats. When it leaves, or
is silent for a session, the coordinator chooses another one (Kafka Connect and the Schema Registry choose
their leaders like this). Groups of other protocol types than `consumer` are not in listings of consumer
groups.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from twinlog.errors import KafkaError
from twinlog.kafka.codes import COORDINATOR_MOVED, ErrorCode
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import from_code
from twinlog.kafka.groups.coordinators import GroupCoordinators
from twinlog.kafka.ports import ElectionResult, never_gone
from twinlog.kafka.protocol.client_pool import DataClientPool

PROTOCOL_TYPE = "twinlog"
_PROTOCOL = "leader"
_MARK_SEPARATOR = "\0"
"""Separates name and mark in a member's metadata."""


_ANSWER_SECONDS = 10.0
"""In addition to the time for which the coordinator itself makes a member wait."""
_LEAVE_SECONDS = 1.0
_PAUSE_SECONDS = 0.05


class KafkaCandidate:
    """A member of one group. Not for concurrent use."""

    def __init__(
        self,
        session: DataClientPool,
        group_id: str,
        *,
        name: Callable[[], str],
        session_seconds: float,
        mark: str = "",
        is_gone: Callable[[str], bool] = never_gone,
    ) -> None:
        """`session_seconds`: a member that is silent for this long is gone. `withdraw` closes the session."""
        self._session = session
        self._coordinators = GroupCoordinators(session)
        self._group = group_id
        self._name = name
        self._session_seconds = session_seconds
        self._mark = mark
        self._is_gone = is_gone
        self._member = ""
        self._generation: int | None = None
        self._standing = ElectionResult(leads=False, leader="")

    async def stand(self) -> ElectionResult:
        doing = f"join group {self._group}"
        async with deadline(self._session_seconds + _ANSWER_SECONDS, doing, alias=self._session.alias):
            if self._generation is None or not await self._is_settled(doing):
                while not await self._join(doing):
                    await pause(_PAUSE_SECONDS)
            elif not self._standing.leads:
                # A leader of this machine whose process has ended need not be waited for.
                await self._put_out_the_gone(doing)
        return self._standing

    async def withdraw(self) -> None:
        member, self._member, self._generation = self._member, "", None
        doing = f"leave group {self._group}"
        try:
            if member:
                with contextlib.suppress(KafkaError):
                    async with deadline(_LEAVE_SECONDS, doing, alias=self._session.alias):
                        await self._ask(LeaveGroupRequest(self._group, member), doing)
        finally:
            await self._session.close()

    async def _is_settled(self, doing: str) -> bool:
        """Send a heartbeat. False when the group has to be joined again."""
        assert self._generation is not None
        answer = await self._ask(HeartbeatRequest(self._group, self._generation, self._member), doing)
        return self._holds(answer.error_code, doing)

    async def _join(self, doing: str) -> bool:
        """Take part in an election; waits for the other members. False when it has to be tried again."""
        self._generation = None
        name = self._name()
        about = f"{name}{_MARK_SEPARATOR}{self._mark}".encode()
        timeout_ms = round(self._session_seconds * 1000)
        joined = await self._ask(
            JoinGroupRequest(
                self._group, timeout_ms, timeout_ms, self._member, None, PROTOCOL_TYPE, [(_PROTOCOL, about)]
            ),
            doing,
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = joined.member_id
            # From now on the group waits for this member. A group from which others are removed is not empty,
            # so it need not wait for `group.initial.rebalance.delay.ms`.
            await self._put_out_the_gone(doing)
            return False
        if not self._holds(joined.error_code, doing):
            return False
        self._member = joined.member_id
        leads = joined.leader_id == joined.member_id
        told = [(member[0], name.encode()) for member in joined.members] if leads else []
        synced = await self._ask(
            SyncGroupRequest(self._group, joined.generation_id, self._member, None, told), doing
        )
        if not self._holds(synced.error_code, doing):
            return False
        self._generation = joined.generation_id
        self._standing = ElectionResult(leads=leads, leader=bytes(synced.member_assignment or b"").decode())
        return True

    async def _put_out_the_gone(self, doing: str) -> None:
        """Remove members whose processes have ended, because the group would wait for their sessions."""
        node_id = await self._coordinators.node(self._group, doing)
        described = await self._session.send(node_id, DescribeGroupsRequest([self._group]), doing)
        for _code, _group, _state, _type, _protocol, members, *_ in described.groups:
            for member_id, _client_id, _host, about, *_ in members:
                _, _, mark = about.decode(errors="replace").partition(_MARK_SEPARATOR)
                if mark and self._is_gone(mark):
                    await self._ask(LeaveGroupRequest(self._group, member_id), doing)

    def _holds(self, code: int, doing: str) -> bool:
        """False for codes that mean: join again. Raises KafkaError for all others."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member = ""
        if code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
        ):
            return False
        if code:
            raise from_code(code, doing, alias=self._session.alias)
        return True

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
