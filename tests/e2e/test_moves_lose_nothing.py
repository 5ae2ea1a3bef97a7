"""A failover waits behind open transactions; a failback skips nothing that only the target has."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.conftest import FAST_AND_SMALL
from integration.in_process import twinlog
from twinlog.batches import Codec, NewRecord, build_batch
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic, OffsetSpec
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer, fence
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name, write_batches


@dataclass(slots=True, kw_only=True)
class Site:
    """Two clusters, a flow between them that keeps offsets, and a group."""

    pair: KafkaPair
    directory: Path
    source: KafkaCluster
    target: KafkaCluster
    session: DataClientPool
    """To the source."""
    east: str = field(default_factory=lambda: unique_name("east"))
    west: str = field(default_factory=lambda: unique_name("west"))
    topic: str = field(default_factory=lambda: unique_name("e2e-moves"))
    group: str = field(default_factory=lambda: unique_name("e2e-moves"))

    @property
    def flow(self) -> str:
        return f"{self.east}->{self.west}"

    @property
    def origin(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def copy(self) -> TopicPartition:
        return TopicPartition(f"{self.east}.{self.topic}", 0)

    def run(self) -> TwinlogRun:
        return TwinlogRun(
            f"""
clusters = {self.east}, {self.west}
{self.east}.bootstrap.servers = {self.pair.a.bootstrap_servers}
{self.west}.bootstrap.servers = {self.pair.b.bootstrap_servers}
{self.flow}.enabled = true
{self.west}->{self.east}.emit.heartbeats.enabled = false
topics = {self.topic}
groups = {self.group}
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
{FAST_AND_SMALL}""",
            self.directory,
        )

    async def write(self, count: int) -> None:
        now_ms = SystemClock().now_ms()
        records = [NewRecord(None, b"%d" % number, now_ms) for number in range(count)]
        await write_batches(self.pair.a, self.topic, [(0, Codec.NONE, records)])

    async def leave_open(self) -> None:
        """A transaction of three records that its producer does not end."""
        settings = ProducerSettings(delivery_timeout_seconds=30, transaction_timeout_seconds=600)
        records = [NewRecord(None, b"open", SystemClock().now_ms())] * 3
        async with RawProducer(self.session, settings, transactional_id=self.topic) as producer:
            producer.begin()
            producer.send(self.origin, build_batch(records))
            await producer.flush()

    async def abort(self) -> None:
        outcomes = await fence(
            self.session, [self.topic], timeout_seconds=30, transaction_timeout_seconds=600
        )
        assert not isinstance(outcomes[self.topic], KafkaError)

    async def commits(self, cluster: KafkaCluster, partition: TopicPartition, offset: int) -> None:
        committed = {partition: CommittedOffset(next_offset=offset, metadata="")}
        assert await cluster.alter_group_offsets(self.group, committed) == {partition: None}

    async def committed(self, cluster: KafkaCluster, partition: TopicPartition) -> int | None:
        held = (await cluster.group_offsets([self.group]))[self.group]
        assert not isinstance(held, KafkaError)
        return held[partition].next_offset if partition in held else None

    async def has_copied(self, end: int) -> bool:
        ends = await self.target.list_offsets(OffsetSpec.LAST_STABLE, [self.copy])
        return ends[self.copy] == end

    async def twinlog(self, run: TwinlogRun, *words: str) -> tuple[int, str]:
        """Exit code, and what the command printed."""
        answer = await twinlog(*words, "--config", str(run.file))
        return answer.returncode, answer.stdout + answer.stderr


@pytest.fixture
async def site(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_cluster("A", kafka_pair.a.client_properties()))
        target = await stack.enter_async_context(open_cluster("B", kafka_pair.b.client_properties()))
        options = aiokafka_client_options(kafka_pair.a.client_properties())
        session = DataClientPool("test", options, timeout_seconds=30)
        stack.push_async_callback(session.close)
        found = Site(pair=kafka_pair, directory=tmp_path, source=source, target=target, session=session)
        await make_topics(source, NewTopic(name=found.topic, partition_count=1, replication_factor=1))
        yield found


async def test_a_failover_waits_for_an_open_transaction_and_its_failback_skips_nothing(site: Site) -> None:
    await site.write(5)
    await site.leave_open()
    await site.write(500)
    await site.commits(site.source, site.origin, 5)
    async with site.run() as run:
        await eventually(lambda: site.has_copied(5))

        async def is_planned() -> bool:
            code, printed = await site.twinlog(run, "failover", "plan", site.flow)
            assert (code, "producer id" in printed) == (0, True), printed
            return "at most 503 records" in printed

        await eventually(is_planned)

        async def is_named() -> bool:
            code, printed = await site.twinlog(run, "status")
            return code == 0 and "OPEN_TRANSACTION" in printed and "producer id" in printed

        await eventually(is_named)
        code, printed = await site.twinlog(run, "explain", "topic", site.topic)
        assert "OPEN_TRANSACTION" in printed, printed
        code, printed = await site.twinlog(run, "status", "--check")
        assert code == 0, printed
        code, printed = await site.twinlog(run, "failover", "run", site.flow, "--yes", "--wait", "3")
        assert (code, "BACKLOG_NOT_COPIED" in printed, "producer id" in printed) == (1, True, True), printed
        await site.abort()
        code, printed = await site.twinlog(run, "failover", "run", site.flow, "--yes")
        assert code == 0, printed
        assert await site.has_copied(509) or await site.has_copied(508)

        await site.commits(site.target, site.copy, 300)
        records = [NewRecord(None, b"by an application", SystemClock().now_ms())] * 7
        await write_batches(site.pair.b, site.copy.topic, [(0, Codec.NONE, records)])
        assert await site.source.delete_records({site.origin: 400}) == {site.origin: None}
        for words in (("failback", "plan", site.flow), ("failback", "run", site.flow, "--yes")):
            code, printed = await site.twinlog(run, *words)
            assert (code, "107 records" in printed, "--accept-loss" in printed) == (1, True, True), printed
        code, printed = await site.twinlog(run, "failback", "plan", site.flow)
        assert f"7 records in {site.copy.topic} are only on {site.west}" in printed, printed
        assert await site.committed(site.source, site.origin) == 5
        code, printed = await site.twinlog(run, "failback", "run", site.flow, "--yes", "--accept-loss")
        assert code == 0, printed
        assert await site.committed(site.source, site.origin) == 400
        # The checkpoint of 400 is there, and what comes after it has been synced: the place stays till then.
        await site.commits(site.source, site.origin, 450)

        async def goes_on() -> bool:
            there = await site.committed(site.target, site.copy)
            assert there in (300, 450), there
            return there == 450

        await eventually(goes_on)


async def test_foreign_records_between_copied_ones_are_counted_also_after_a_restart(site: Site) -> None:
    await site.write(100)
    await site.commits(site.source, site.origin, 10)

    async def is_counted(run: TwinlogRun) -> bool:
        code, printed = await site.twinlog(run, "failback", "plan", site.flow)
        assert code in (0, 1), printed
        return f"7 records in {site.copy.topic} are only on {site.west}" in printed

    async with site.run() as run:
        await eventually(lambda: site.has_copied(100))
        code, printed = await site.twinlog(run, "failover", "run", site.flow, "--yes")
        assert code == 0, printed
        await site.commits(site.target, site.copy, 50)
        records = [NewRecord(None, b"by an application", SystemClock().now_ms())] * 7
        await write_batches(site.pair.b, site.copy.topic, [(0, Codec.NONE, records)])
        await site.write(20)

        async def is_found() -> bool:
            _, printed = await site.twinlog(run, "status")
            return "FOREIGN" in printed

        await eventually(is_found)
        await eventually(lambda: is_counted(run))
    async with site.run() as run:
        await eventually(lambda: is_counted(run))
        code, printed = await site.twinlog(run, "failback", "run", site.flow, "--yes")
        assert (code, "7 records" in printed, "--accept-loss" in printed) == (1, True, True), printed
