"""A failover waits behind open transactions; a failback skips nothing that only the target has."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from e2e.conftest import MirrorRig
from integration.in_process import twinlog
from twinlog.batches import Codec, NewRecord, build_batch
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic, OffsetSpec
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer, fence
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, make_topics, unique_name, write_batches


@dataclass(slots=True, kw_only=True)
class Site:
    """A topic whose copy keeps offsets, and a group."""

    mirror: MirrorRig
    source: KafkaCluster
    target: KafkaCluster
    session: DataClientPool
    """To the source."""
    topic: str = field(default_factory=lambda: unique_name("e2e-moves"))
    group: str = field(default_factory=lambda: unique_name("e2e-moves"))

    @property
    def flow(self) -> str:
        return f"{self.mirror.source_alias}->{self.mirror.target_alias}"

    @property
    def origin(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def copy(self) -> TopicPartition:
        return TopicPartition(self.mirror.remote(self.topic), 0)

    async def write(self, count: int) -> None:
        now_ms = SystemClock().now_ms()
        records = [NewRecord(None, b"%d" % number, now_ms) for number in range(count)]
        await write_batches(self.mirror.pair.a, self.topic, [(0, Codec.NONE, records)])

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

    async def move(self, kind: str, *words: str) -> tuple[int, str]:
        return await self.twinlog(kind, words[0], self.flow, "--group", self.group, *words[1:])

    async def twinlog(self, *words: str) -> tuple[int, str]:
        """Exit code, and what the command printed."""
        answer = await twinlog(*words, "--config", str(self.mirror.run.file))
        return answer.returncode, answer.stdout + answer.stderr


@pytest.fixture
async def site(mirror: MirrorRig) -> AsyncIterator[Site]:
    async with mirror.source() as source, mirror.target() as target:
        options = aiokafka_client_options(mirror.pair.a.client_properties())
        session = DataClientPool("test", options, timeout_seconds=30)
        found = Site(mirror=mirror, source=source, target=target, session=session)
        await make_topics(source, NewTopic(name=found.topic, partition_count=1, replication_factor=1))
        yield found
        await session.close()


async def test_a_failover_waits_for_an_open_transaction_and_its_failback_skips_nothing(site: Site) -> None:
    await site.write(5)
    await site.leave_open()
    await site.write(500)
    await site.commits(site.source, site.origin, 5)
    await eventually(lambda: site.has_copied(5))

    async def is_planned() -> bool:
        code, printed = await site.move("failover", "plan")
        assert (code, "producer id" in printed) == (0, True), printed
        return "at most 503 records" in printed

    await eventually(is_planned)

    async def is_named() -> bool:
        code, printed = await site.twinlog("status")
        return code == 0 and "OPEN_TRANSACTION" in printed and "producer id" in printed

    await eventually(is_named)
    code, printed = await site.twinlog("explain", "topic", site.topic)
    assert "OPEN_TRANSACTION" in printed, printed
    _, checked = await site.twinlog("status", "--check", "-o", "json")
    problems = json.loads(checked)["check"]["problems"]
    assert not [each for each in problems if each["reason"] == "OPEN_TRANSACTION"], problems
    code, printed = await site.move("failover", "run", "--yes", "--wait", "3")
    assert (code, "BACKLOG_NOT_COPIED" in printed, "producer id" in printed) == (1, True, True), printed
    await site.abort()
    code, printed = await site.move("failover", "run", "--yes")
    assert code == 0, printed
    assert await site.has_copied(509) or await site.has_copied(508)

    await site.commits(site.target, site.copy, 300)
    records = [NewRecord(None, b"by an application", SystemClock().now_ms())] * 7
    await write_batches(site.mirror.pair.b, site.copy.topic, [(0, Codec.NONE, records)])
    assert await site.source.delete_records({site.origin: 400}) == {site.origin: None}
    for words in (("plan",), ("run", "--yes")):
        code, printed = await site.move("failback", *words)
        assert (code, "107 records" in printed, "--accept-loss" in printed) == (1, True, True), printed
    code, printed = await site.move("failback", "plan")
    assert f"7 records in {site.copy.topic} are only on {site.mirror.target_alias}" in printed, printed
    assert await site.committed(site.source, site.origin) == 5
    code, printed = await site.move("failback", "run", "--yes", "--accept-loss")
    assert code == 0, printed
    assert await site.committed(site.source, site.origin) == 400
    # The checkpoint of 400 is there, and what comes after it has been synced: the place stays till then.
    await site.commits(site.source, site.origin, 450)

    async def goes_on() -> bool:
        there = await site.committed(site.target, site.copy)
        assert there in (300, 450), there
        return there == 450

    await eventually(goes_on)
