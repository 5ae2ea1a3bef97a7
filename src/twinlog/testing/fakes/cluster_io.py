"""Reader and writer of a fake cluster."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from twinlog.errors import KafkaError, StateError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import pause
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import (
    Assign,
    FetchedRecords,
    Introduce,
    ManagedReader,
    ManagedWriter,
    Member,
    Pulse,
    Seat,
    never_gone,
)
from twinlog.model import Headers, Record, TimestampType, TopicPartition
from twinlog.testing.fakes.cluster_base import FakeClusterBase, Hooks, operation
from twinlog.testing.fakes.cluster_state import FakeTopic

_BATCH_OVERHEAD_BYTES = 70


class FakeReader:
    """`LogReader` on a fake cluster."""

    def __init__(self, cluster: FakeClusterBase, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._read_committed = read_committed
        self._closed = False

    @property
    def hooks(self) -> Hooks:
        return self._cluster.hooks

    async def __aenter__(self) -> ManagedReader:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closed = True

    @operation
    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_seconds: float, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        if self._closed:
            raise StateError("the reader is closed", reason="CLIENT_CLOSED")
        doing = f"read {partition} at {offset}"
        loop = asyncio.get_running_loop()
        wait_until = loop.time() + max_wait_seconds
        while True:
            changed = self._cluster.next_change()
            log = self._cluster.log(partition, doing)
            if not log.start <= offset <= log.end:
                raise from_code(ErrorCode.OFFSET_OUT_OF_RANGE, doing, alias=self._cluster.alias)
            read = log.read(offset, read_committed=self._read_committed, max_bytes=max_bytes)
            left_seconds = wait_until - loop.time()
            if read.next_offset > offset or left_seconds <= 0:
                return read
            await asyncio.wait([changed], timeout=left_seconds)
            self.hooks.check_available("fetch")


class FakeWriter:
    """`LogWriter` on a fake cluster."""

    def __init__(self, cluster: FakeClusterBase, introduce: Introduce | None = None) -> None:
        self._cluster = cluster
        self._introduce = introduce
        self._producer_id = cluster.new_producer_id()
        self._closed = False

    @property
    def hooks(self) -> Hooks:
        return self._cluster.hooks

    async def __aenter__(self) -> ManagedWriter:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closed = True

    @operation
    async def append(
        self,
        partition: TopicPartition,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> int:
        if self._closed:
            raise StateError("the writer is closed", reason="CLIENT_CLOSED")
        introduce, self._introduce = self._introduce, None
        if introduce is not None:
            first, first_key, first_value = introduce(self._producer_id)
            try:
                await self.append(first, key=first_key, value=first_value)
            except BaseException:
                self._introduce = introduce
                raise
        doing = f"append to {partition}"
        cluster = self._cluster
        log = cluster.log(partition, doing)
        topic = cluster.topics[partition.topic]
        now_ms = cluster.clock.now_ms()
        record = _stamped(topic, key, value, timestamp_ms, headers, now_ms, self._producer_id)
        problem = _problem(topic, record, now_ms, doing, cluster.alias)
        if problem is not None:
            raise problem
        offset = log.append(record)
        cluster.changed()
        return offset


def _stamped(
    topic: FakeTopic,
    key: bytes | None,
    value: bytes | None,
    timestamp_ms: int | None,
    headers: Headers,
    now_ms: int,
    producer_id: int,
) -> Record:
    kind = TimestampType(topic.config("message.timestamp.type"))
    if timestamp_ms is None or kind is TimestampType.LOG_APPEND_TIME:
        timestamp_ms = now_ms
    return Record(
        offset=-1,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        headers=headers,
        timestamp_type=kind,
        producer_id=producer_id,
    )


def _problem(topic: FakeTopic, record: Record, now_ms: int, doing: str, alias: str) -> KafkaError | None:
    """Why a broker would refuse the record."""
    size_bytes = _BATCH_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    if size_bytes > int(topic.config("max.message.bytes")):
        return from_code(ErrorCode.MESSAGE_TOO_LARGE, doing, alias=alias)
    if record.key is None and "compact" in topic.config("cleanup.policy"):
        return from_code(ErrorCode.INVALID_RECORD, doing, alias=alias)
    if record.timestamp_ms > now_ms + int(topic.config("message.timestamp.after.max.ms")):
        return from_code(ErrorCode.INVALID_TIMESTAMP, doing, alias=alias)
    for name, _ in record.headers:
        try:
            name.encode()
        except UnicodeEncodeError:
            return from_code(
                ErrorCode.INVALID_RECORD, doing, alias=alias, detail="a header name is not UTF-8"
            )
    return None


# Groups on a fake cluster whose leaders tell their members what to do: the first member leads until it
# withdraws or is silenced by a test.


@dataclass(slots=True)
class FakeMemberGroup:
    members: list["FakeMember"] = field(default_factory=list)
    generation: int = 0
    waiting: dict["FakeMember", asyncio.Future[Seat]] = field(default_factory=dict)
    """Those that have joined the next generation."""
    is_complete: bool = True

    def change(self) -> None:
        """All have to join again, and the next generation begins when all have."""
        self.is_complete = False
        if not self.members or len(self.waiting) < len(self.members):
            return
        self.generation += 1
        self.is_complete = True
        told = self.members[0].assign({each.id: each.about for each in self.members}, self.generation)
        for member, seat in self.waiting.items():
            member.generation = self.generation
            if not seat.done():
                seat.set_result(
                    Seat(member=member.id, generation=self.generation, assignment=told[member.id])
                )
        self.waiting.clear()

    def remove(self, member: "FakeMember") -> None:
        if member in self.members:
            self.members.remove(member)
            self.waiting.pop(member, None)
            self.change()


class FakeMembers(FakeClusterBase):
    def member(
        self,
        group_id: str,
        *,
        assign: Assign,
        session_seconds: float,
        rebalance_seconds: float,
        mark: str = "",
        is_gone: Callable[[str], bool] = never_gone,
    ) -> Member:
        return FakeMember(self.hooks, self.member_groups, group_id, assign, mark=mark, is_gone=is_gone)

    def silence(self, group_id: str) -> None:
        """End the leader's session: it is no member any more, and comes back after the others went on."""
        group = self.member_groups[group_id]
        group.members[0].returns_after = group.generation
        group.remove(group.members[0])


class FakeMember:
    def __init__(
        self,
        hooks: Hooks,
        groups: dict[str, FakeMemberGroup],
        group_id: str,
        assign: Assign,
        *,
        mark: str,
        is_gone: Callable[[str], bool],
    ) -> None:
        self.hooks = hooks
        self.assign = assign
        self.mark = mark
        self.id = ""
        self.about = b""
        self.generation = -1
        self.returns_after = -1
        self._is_gone = is_gone
        self._groups = groups
        self._group = groups.setdefault(group_id, FakeMemberGroup())

    @operation
    async def join(self, about: Callable[[bool], bytes]) -> Seat:
        while self._group.generation == self.returns_after:
            await pause(0.001)
        is_known = self in self._group.members
        self._put_out_the_gone()
        if not is_known:
            self.id = f"member {id(self)}"
            self._group.members.append(self)
        self.about = about(is_known)
        seat: asyncio.Future[Seat] = asyncio.get_running_loop().create_future()
        self._group.waiting[self] = seat
        self._group.change()
        return await seat

    @operation
    async def beat(self) -> Pulse:
        if self not in self._group.members or self.generation < 0:
            return Pulse.JOINS
        if not self._group.is_complete:
            return Pulse.WAITED_FOR
        return Pulse.SEATED if self.generation == self._group.generation else Pulse.JOINS

    @operation
    async def others(self, group_ids: Collection[str]) -> Mapping[str, tuple[bytes, ...]]:
        self._put_out_the_gone()
        return {
            group_id: tuple(each.about for each in self._groups[group_id].members)
            for group_id in group_ids
            if group_id in self._groups
        }

    async def withdraw(self) -> None:
        self._group.remove(self)

    def _put_out_the_gone(self) -> None:
        for one in [each for each in self._group.members if each.mark and self._is_gone(each.mark)]:
            self._group.remove(one)
