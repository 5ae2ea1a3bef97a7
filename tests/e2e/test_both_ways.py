"""docs/both-ways.md: two clusters write to topics of the same names, and each has every record once."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from integration.in_process import twinlog
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic, OffsetSpec
from twinlog.kafka.whole_logs import committed_records
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name, write_batches
from twinlog.testing.java.mm2 import MirrorMaker2, quick_mm2_properties

PARTITIONS = 2
BEFORE, WHILE = 20, 60
"""Batches of each side, before the first start and while services die."""
IDLE_SECONDS = 20.0
_IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}
_CODECS = (Codec.NONE, Codec.ZSTD, Codec.LZ4)


class Side:
    """One cluster and its applications, which number their records in each partition."""

    def __init__(self, alias: str, kafka: BlockingCluster, cluster: KafkaCluster, topic: str) -> None:
        self.alias, self.kafka, self.cluster, self.topic = alias, kafka, cluster, topic
        self.written = Counter[int]()

    async def write(self, number: int) -> None:
        partition, now_ms = number % PARTITIONS, SystemClock().now_ms()
        records = []
        for _ in range(3):
            value = f"{self.alias} {self.written[partition]}".encode()
            self.written[partition] += 1
            records.append(NewRecord(b"k", value, now_ms))
        transactional_id = f"{self.alias}-{self.topic}" if number % 4 == 0 else None
        batch = (partition, _CODECS[number % len(_CODECS)], records)
        await write_batches(self.kafka, self.topic, [batch], transactional_id=transactional_id)

    async def read(self, partitions: int = PARTITIONS) -> list[list[str]]:
        """The values of each partition."""
        found = []
        async with self.cluster.reader() as reader:
            for number in range(partitions):
                at = TopicPartition(self.topic, number)
                found.append(
                    [
                        (record.value or b"").decode()
                        async for record in committed_records(self.cluster, reader, at)
                    ]
                )
        return found

    async def ends(self, partitions: int = PARTITIONS) -> list[int]:
        at = [TopicPartition(self.topic, number) for number in range(partitions)]
        ends = await self.cluster.list_offsets(OffsetSpec.LATEST, at)
        return [end for each in at if isinstance(end := ends[each], int)]


def wanted(sides: list[Side], partition: int) -> dict[str, list[str]]:
    """What each partition has of each side, in order."""
    return {
        side.alias: [f"{side.alias} {number}" for number in range(side.written[partition])] for side in sides
    }


async def has_all(sides: list[Side], partitions: int = PARTITIONS) -> bool:
    for side in sides:
        for partition, values in enumerate(await side.read(partitions)):
            found = {
                each.alias: [value for value in values if value.startswith(f"{each.alias} ")]
                for each in sides
            }
            goal = wanted(sides, partition)
            assert all(len(found[alias]) <= len(goal[alias]) for alias in goal), "something is there twice"
            if found != goal:
                return False
    return True


async def test_both_sides_write_and_each_has_every_record_once(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    topic, names = unique_name("both"), (unique_name("a"), unique_name("b"))
    brokers = dict(zip(names, (kafka_pair.a, kafka_pair.b), strict=True))
    properties = quick_mm2_properties(
        {alias: kafka.client_properties() for alias, kafka in brokers.items()},
        [Flow(*names), Flow(*reversed(names))],
        {
            "topics": topic,
            **_IDENTITY,
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "groups": "readers-.*",
        },
    )
    group = unique_name("readers-")
    async with (
        open_cluster(names[0], kafka_pair.a.client_properties()) as a,
        open_cluster(names[1], kafka_pair.b.client_properties()) as b,
    ):
        sides = [Side(names[0], kafka_pair.a, a, topic), Side(names[1], kafka_pair.b, b, topic)]
        for side in sides:
            new = NewTopic(name=topic, partition_count=PARTITIONS, replication_factor=1)
            await make_topics(side.cluster, new)
        for number in range(BEFORE):
            for side in sides:
                await side.write(number)
        async with TwinlogRun(properties, tmp_path) as run:
            await eventually(lambda: has_all(sides))
            for number in range(WHILE):
                for side in sides:
                    await side.write(number)
                if number in (WHILE // 4, WHILE // 2):
                    run.kill_service("source")
                await wait_or_stop(asyncio.Event(), 0.05)
            await eventually(lambda: has_all(sides))
            ends = [await side.ends() for side in sides]
            place = {
                TopicPartition(topic, number): CommittedOffset(next_offset=end)
                for number, end in enumerate(ends[0])
            }
            await a.alter_group_offsets(group, place)

            async def follows() -> bool:
                there = (await b.group_offsets([group]))[group]
                return not isinstance(there, Exception) and {
                    each.partition: offset.next_offset for each, offset in there.items()
                } == dict(enumerate(ends[1]))

            await eventually(follows)
            await wait_or_stop(asyncio.Event(), IDLE_SECONDS)
            assert [await side.ends() for side in sides] == ends, "something is copied round"
            assert await run.stop() == 0
        async with run:
            for side in sides:
                await side.write(0)
            await eventually(lambda: has_all(sides))


@pytest.mark.java
async def test_a_loop_over_mirror_maker_2_is_noticed_and_stopped(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    topic, names = unique_name("round"), (unique_name("a"), unique_name("b"))
    brokers = dict(zip(names, (kafka_pair.a, kafka_pair.b), strict=True))

    def file(flow: Flow) -> str:
        clients = {alias: kafka.client_properties() for alias, kafka in brokers.items()}
        return quick_mm2_properties(clients, [flow], {"topics": topic, **_IDENTITY})

    async with (
        open_cluster(names[0], kafka_pair.a.client_properties()) as a,
        open_cluster(names[1], kafka_pair.b.client_properties()) as b,
        TwinlogRun(file(Flow(*names)), tmp_path) as run,
    ):
        sides = [Side(names[0], kafka_pair.a, a, topic), Side(names[1], kafka_pair.b, b, topic)]
        for side in sides:
            await make_topics(
                side.cluster, NewTopic(name=topic, partition_count=PARTITIONS, replication_factor=1)
            )
        back = tmp_path / "for-mm2.properties"
        back.write_text(file(Flow(*reversed(names))), encoding="latin-1")
        process = MirrorMaker2(back, log_file=tmp_path / "mm2.log", quick_start=True)
        await asyncio.to_thread(process.start)
        try:
            for number in range(BEFORE):
                await sides[0].write(number)

            async def stopped() -> bool:
                words = ("partitions", "--topic", topic, "-o", "json", "--config", str(run.file))
                told = (await twinlog(*words)).stdout
                # LOOP is told also while nothing is copied for a while.
                return [told.count(each) for each in ('"LOOP"', '"FAULTED"')] == [PARTITIONS, PARTITIONS]

            await eventually(stopped)
            await wait_or_stop(asyncio.Event(), IDLE_SECONDS / 2)
            ends = await sides[1].ends()
            await wait_or_stop(asyncio.Event(), IDLE_SECONDS / 2)
            assert await sides[1].ends() == ends
        finally:
            await asyncio.to_thread(process.stop)
