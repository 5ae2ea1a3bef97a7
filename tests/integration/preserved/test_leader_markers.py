"""Markers written at the leader of a partition, on real brokers: what docs/adr/0014 says of brokers, who may
write them, and requests that a broker carries out when nobody waits for them any more."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from integration.conftest import WRITER, GuardedPair
from integration.preserved.preserved_rig import read
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.ports import AclBinding, NewTopic, OffsetSpec
from twinlog.kafka.raw import DataClientPool, TransactionCoordinator, list_offsets
from twinlog.kafka.raw.lookups import producer_states
from twinlog.kafka.raw.transactions.wire import AbortMarker, write_markers
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, retry_admin, unique_name
from twinlog.testing.raw_copying import QUICK, open_session
from twinlog_source.preserved.leader_filler import LeaderFiller, may_write_markers


@asynccontextmanager
async def _log(cluster: BlockingCluster) -> AsyncIterator[tuple[DataClientPool, TopicPartition]]:
    """An empty one."""
    topic = unique_name("markers")
    async with (
        open_cluster("B", cluster.client_properties()) as admin,
        open_session("B", cluster.client_properties()) as session,
    ):
        await make_topics(admin, NewTopic(name=topic, partition_count=1, replication_factor=1))
        yield session, TopicPartition(topic, 0)


async def _end(session: DataClientPool, partition: TopicPartition) -> int:
    found = (await list_offsets(session, OffsetSpec.LATEST, [partition]))[partition]
    if isinstance(found, KafkaError):
        raise found
    return found


@dataclass(frozen=True, slots=True)
class _Writer:
    session: DataClientPool
    partition: TopicPartition
    producer_id: int

    async def write(self, *numbers: tuple[int, int]) -> tuple[int, int]:
        """Markers with these numbers: the error code that is answered, and where the log ends then."""
        markers = [AbortMarker(self.partition, self.producer_id, *each) for each in numbers]
        node = await self.session.leader(self.partition, "write")
        answers = await self.session.send(node, write_markers(markers), "write")
        return answers[self.partition, self.producer_id], await _end(self.session, self.partition)


@pytest.mark.parametrize("version", ["4.3", "3.9"])
async def test_a_leader_refuses_a_marker_either_number_of_which_is_below_that_of_the_last_one(
    kafka_pair: KafkaPair, older_cluster: BlockingCluster, version: str
) -> None:
    cluster = kafka_pair.b if version == "4.3" else older_cluster
    async with _log(cluster) as (session, partition):
        coordinator = TransactionCoordinator(session, unique_name("id"), transaction_timeout_seconds=60)
        older = await coordinator.new_identity(timeout_seconds=20)
        newer = await coordinator.new_identity(timeout_seconds=20)
        assert (newer.producer_id, newer.producer_epoch) == (older.producer_id, older.producer_epoch + 1)
        writer = _Writer(session, partition, older.producer_id)
        assert await writer.write((0, 100)) == (ErrorCode.none, 1)
        # Of two on the same state whichever comes first excludes the other.
        assert await writer.write((1, 99)) == (ErrorCode.transaction_coordinator_fenced, 1)
        assert await writer.write((1, 100)) == (ErrorCode.none, 2)
        assert await writer.write((0, 163)) == (ErrorCode.invalid_producer_epoch, 2)
        # Each marker of a request takes an offset, and is tried by itself; the answer does not tell.
        assert await writer.write((1, 164), (1, 228), (1, 292)) == (ErrorCode.none, 5)
        assert await writer.write((2, 292), (1, 292), (2, 293)) == (ErrorCode.none, 7)
        states = (await producer_states(session, [partition]))[partition]
        assert not isinstance(states, KafkaError)
        known = states[older.producer_id]
        assert (known.producer_epoch, known.coordinator_epoch, known.open_from) == (2, 293, -1)
        stable = (await list_offsets(session, OffsetSpec.LAST_STABLE, [partition]))[partition]
        assert stable == 7
        for isolation in ("read_committed", "read_uncommitted"):
            assert await read(cluster, partition, 7, isolation=isolation) == {}


async def test_what_a_restarted_leader_knows_of_markers_is_what_it_knew(
    start_cluster: Callable[[ClusterSpec], BlockingCluster],
) -> None:
    cluster = start_cluster(ClusterSpec(name="markers"))
    async with _log(cluster) as (session, partition):
        coordinator = TransactionCoordinator(session, unique_name("id"), transaction_timeout_seconds=60)
        identity = await coordinator.new_identity(timeout_seconds=20)
        writer = _Writer(session, partition, identity.producer_id)
        assert await writer.write((3, 100)) == (ErrorCode.none, 1)
        cluster.kill_broker(1)
        await asyncio.to_thread(cluster.restart_broker, 1)

        async def refused() -> bool:
            assert await writer.write((3, 99)) == (ErrorCode.transaction_coordinator_fenced, 1)
            assert await writer.write((2, 200)) == (ErrorCode.invalid_producer_epoch, 1)
            return True

        await eventually(refused)


async def test_the_right_is_asked_for_without_writing_anything(guarded: GuardedPair) -> None:
    cluster = guarded.b
    topic = unique_name("rights")
    async with (
        open_cluster("B", cluster.client_properties()) as admin,
        open_session("B", cluster.client_properties(WRITER)) as session,
    ):
        await make_topics(admin, NewTopic(name=topic, partition_count=1, replication_factor=1))
        described = _acl("TOPIC", topic, "DESCRIBE")
        await retry_admin(lambda: admin.create_acls([described]))
        assert not await may_write_markers(session, topic)
        filler = LeaderFiller(session, unique_name("id"), QUICK, reads=session, known_topic=topic)
        await filler.open()
        assert filler.is_open
        assert not filler.is_allowed
        holes = {TopicPartition(topic, 0): (0, 3)}
        assert await filler.fill(holes, _none, _none) == holes, "transactions fill them"
        right = _acl("CLUSTER", "kafka-cluster", "ALTER")
        await retry_admin(lambda: admin.create_acls([right]))

        assert await eventually(lambda: may_write_markers(session, topic))


def _acl(kind: str, name: str, operation: str) -> AclBinding:
    return AclBinding(
        resource_type=kind,
        resource_name=name,
        pattern_type="LITERAL",
        principal=f"User:{WRITER}",
        host="*",
        operation=operation,
        permission="ALLOW",
    )


class _Outcome:
    """What a filler said of the one partition."""

    def __init__(self) -> None:
        self.filled: bool | None = None

    def ended(self, _: TopicPartition, is_filled: bool) -> None:
        assert self.filled is None
        self.filled = is_filled

    def left_out(self, _: TopicPartition, __: KafkaError) -> None:
        self.ended(_, False)


async def _fill(filler: LeaderFiller, partition: TopicPartition, first: int, count: int) -> bool:
    """Whether the hole is filled for certain. Raises KafkaError where that is not known."""
    outcome = _Outcome()
    rest = await filler.fill({partition: (first, count)}, outcome.ended, outcome.left_out)
    assert not rest
    assert outcome.filled is not None
    return outcome.filled


async def _fill_all(
    filler: LeaderFiller, partition: TopicPartition, session: DataClientPool, end: int
) -> None:
    """As an owner does it: read the end, fill what is left."""
    while True:
        try:
            if not filler.is_open:
                await filler.open()
            at = await _end(session, partition)
            if at >= end or await _fill(filler, partition, at, end - at):
                return
        except TransientKafkaError:
            continue


@pytest.mark.parametrize("count", [1, 5, 3000])
async def test_a_request_that_a_stopped_broker_carries_out_later_fills_no_hole_twice(
    start_cluster: Callable[[ClusterSpec], BlockingCluster], count: int
) -> None:
    """The broker stops, the answers of some owners are lost, and it continues while others fill."""
    cluster = start_cluster(ClusterSpec(name="stopped"))
    topic = unique_name("markers")
    partition = TopicPartition(topic, 0)
    properties = cluster.client_properties()
    async with (
        open_cluster("B", properties) as admin,
        open_session("B", properties) as session,
        open_session("B", properties, timeout_seconds=3) as late_session,
    ):
        await make_topics(admin, NewTopic(name=topic, partition_count=1, replication_factor=1))
        marker_id = unique_name("id")

        def filler(through: DataClientPool) -> LeaderFiller:
            return LeaderFiller(through, marker_id, QUICK, reads=through, known_topic=topic)

        end = 0
        late, owner = filler(late_session), filler(session)
        for each in (late, owner):
            await each.open()
        for _ in range(3):
            # From here on it knows the numbers, and asks no more before it writes.
            await _fill_all(late, partition, late_session, end + 1)
            end += 1
            cluster.pause_broker(1)
            try:
                with pytest.raises(TransientKafkaError):
                    await _fill(late, partition, end, count)
            finally:
                cluster.resume_broker(1)
            end += count
            async with asyncio.TaskGroup() as group:
                group.create_task(_fill_all(late, partition, late_session, end), name="the same once more")
                group.create_task(_fill_all(owner, partition, session, end), name="another owner")
            assert {await _end(session, partition) for _ in range(20)} == {end}


def _none(*_: object) -> None:
    """Nobody is told."""


async def test_holes_of_any_length_end_where_they_should(kafka_pair: KafkaPair) -> None:
    async with _log(kafka_pair.b) as (session, partition):
        filler = LeaderFiller(session, unique_name("id"), QUICK, reads=session, known_topic=partition.topic)
        await filler.open()
        at = 0
        for count in (1, 1, 7, 10_000, 2):
            assert await _fill(filler, partition, at, count)
            at += count
            assert await _end(session, partition) == at
        # A hole that begins elsewhere is not touched by who has not written there.
        other = LeaderFiller(session, unique_name("id"), QUICK, reads=session, known_topic=partition.topic)
        await other.open()
        assert not await _fill(other, partition, at - 1, 1)
        # What is too long begins with one marker, and is left to a transaction.
        rest = await other.fill({partition: (at, 10_001)}, _none, _none)
        assert rest == {partition: (at + 1, 10_000)}
        assert await _end(session, partition) == at + 1
