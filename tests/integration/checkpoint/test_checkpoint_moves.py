"""Failover and failback by their commands, under load: every record is read exactly once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from integration.checkpoint.checkpoint_rig import twinlog
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.groups.consumer import GroupConsumer
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name
from twinlog.testing.java.mm2 import quick_mm2_properties

PARTITIONS = 2
VERDICTS = {"auto": {"PRESERVED"}, "translated": {"EXACT", "UP_TO_DATE"}}
"""The verdicts of a group for which no record is repeated, by `twinlog.offsets`."""


@dataclass(slots=True, kw_only=True)
class Application:
    """One consumer application: a group id, and every value it has handled."""

    group: str
    seen: Counter[bytes] = field(default_factory=Counter)

    @asynccontextmanager
    async def at(self, cluster: BlockingCluster, topics: Sequence[str]) -> AsyncIterator[None]:
        """Read on this cluster until the end of the block, then commit what was handled and leave."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read(cluster, topics, stop), name=f"read as {self.group}")
            try:
                yield
            finally:
                stop.set()

    async def _read(self, cluster: BlockingCluster, topics: Sequence[str], stop: asyncio.Event) -> None:
        properties = cluster.client_properties()
        async with GroupConsumer("app", properties, group=self.group, topics=topics) as consumer:
            while not stop.is_set():
                next_offsets: dict[TopicPartition, int] = {}
                for record in await consumer.poll(max_wait_seconds=0.2, max_records=50):
                    self.seen[record.value or b""] += 1
                    next_offsets[record.partition] = record.offset + 1
                if next_offsets:
                    await consumer.commit(next_offsets)


@dataclass(slots=True, kw_only=True)
class Load:
    """A producer that never rests, on whichever cluster it is told."""

    cluster: KafkaCluster
    topic: str
    prefix: str
    sent: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(stop), name=f"produce {self.topic}")
            try:
                yield
            finally:
                stop.set()

    async def _send(self, stop: asyncio.Event) -> None:
        clock = SystemClock()
        async with self.cluster.writer() as writer:
            while not stop.is_set():
                partition = TopicPartition(self.topic, self.sent % PARTITIONS)
                value = f"{self.prefix}-{self.sent}".encode()
                await writer.append(partition, key=None, value=value, timestamp_ms=clock.now_ms())
                self.sent += 1
                await wait_or_stop(stop, 0.005)


@pytest.mark.parametrize("offsets", ["auto", "translated"])
async def test_a_live_consumer_goes_there_and_back_and_reads_each_record_once(
    kafka_pair: KafkaPair, tmp_path: Path, offsets: str
) -> None:
    topic, group = unique_name("move"), unique_name("app")
    there = Flow(unique_name("east"), unique_name("west"))
    back = Flow(there.target, there.source)
    clients = {
        there.source: kafka_pair.a.client_properties(),
        there.target: kafka_pair.b.client_properties(),
    }
    extra = {
        "topics": topic,
        "groups": f"{group}.*",
        "twinlog.epoch.seconds": "5",
        "twinlog.drain.seconds": "0",
        "twinlog.offsets": offsets,
    }
    text = quick_mm2_properties(clients, [there, back], extra)
    app = Application(group=group)
    on_b, on_a = f"{there.source}.{topic}", f"{there.target}.{topic}"
    async with (
        open_cluster("a", clients[there.source]) as a,
        open_cluster("b", clients[there.target]) as b,
    ):
        new = NewTopic(name=topic, partition_count=PARTITIONS, replication_factor=1)
        await retry_admin(lambda: a.create_topics([new]))
        await retry_admin(lambda: b.create_topics([new]))
        east, west = (
            Load(cluster=a, topic=topic, prefix="east"),
            Load(cluster=b, topic=topic, prefix="west"),
        )
        async with TwinlogRun(text, tmp_path) as run:
            where = ("--config", str(run.file))
            await eventually(lambda: _has(a, on_a))
            await eventually(lambda: _has(b, on_b))

            async def read_more_than(count: int) -> None:
                await eventually(lambda: app.seen.total() > count)

            async with east.running():
                async with west.running(), app.at(kafka_pair.a, [topic, on_a]):
                    await read_more_than(100)
                    await eventually(lambda: any(value.startswith(b"west") for value in app.seen))
                moved = await twinlog("failover", "run", "--yes", str(there), "--group", group, *where)
                assert moved.code == 0, moved.errors
                assert not moved.documents[-1]["already_done"]
                assert {entry["from_topic"] for entry in moved.documents[-1]["plan"]["partitions"]} == {
                    topic,
                    on_a,
                }
                async with west.running(), app.at(kafka_pair.b, [topic, on_b]):
                    await read_more_than(app.seen.total() + 200)
                back_home = await twinlog("failback", "run", "--yes", str(there), "--group", group, *where)
                assert back_home.code == 0, back_home.errors
                verdicts = {entry["verdict"] for entry in back_home.documents[-1]["plan"]["partitions"]}
                assert verdicts <= VERDICTS[offsets]
                async with app.at(kafka_pair.a, [topic, on_a]):
                    await read_more_than(app.seen.total() + 100)
            async with app.at(kafka_pair.a, [topic, on_a]):
                await eventually(lambda: len(app.seen) == east.sent + west.sent)
    produced = {f"east-{n}".encode() for n in range(east.sent)} | {
        f"west-{n}".encode() for n in range(west.sent)
    }
    assert app.seen.keys() == produced
    again = {value: times for value, times in app.seen.items() if times > 1}
    assert not again, (len(again), sorted(again)[:5])


async def _has(cluster: KafkaCluster, topic: str) -> bool:
    return topic in await cluster.list_topics()
