"""Every example of examples/ on real clusters: what its page promises is there."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from e2e.conftest import FAST_AND_SMALL, example_text
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import group_position, read_some
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, LogReader, NewTopic, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster, start_clusters, stop_clusters
from twinlog.local.spec import ClusterSpec
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import eventually, retry_admin, write_batches

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[BlockingCluster, BlockingCluster, BlockingCluster]]:
    """Three clusters of this module's own: examples select by plain names."""
    clusters = start_clusters(*(ClusterSpec(name=name) for name in ("one", "two", "three")))
    yield clusters[0], clusters[1], clusters[2]
    stop_clusters(clusters)


Three = tuple[BlockingCluster, BlockingCluster, BlockingCluster]


def _open(cluster: BlockingCluster) -> KafkaCluster:
    return open_cluster("x", cluster.client_properties())


async def _make(cluster: BlockingCluster, topic: str, records: int) -> None:
    async with _open(cluster) as client:
        await retry_admin(
            lambda: client.create_topics([NewTopic(name=topic, partition_count=1, replication_factor=1)])
        )
    await _add(cluster, topic, records)


async def _add(cluster: BlockingCluster, topic: str, records: int) -> None:
    now_ms = SystemClock().now_ms()
    batch = [NewRecord(b"k%d" % i, b"%d" % i, now_ms) for i in range(records)]
    await write_batches(cluster, topic, [(0, Codec.ZSTD, batch)])


async def _values(client: KafkaCluster, reader: LogReader, topic: str) -> list[bytes | None]:
    partition = TopicPartition(topic, 0)
    if topic not in await client.list_topics():
        return []
    end = (await client.list_offsets(OffsetSpec.LAST_STABLE, [partition]))[partition]
    assert isinstance(end, int), end
    values, offset = [], 0
    while offset < end:
        fetched = await reader.fetch(partition, offset, max_wait_seconds=0.5)
        values += [record.value for record in fetched.records]
        offset = fetched.next_offset
    return values


async def _has(cluster: BlockingCluster, topics: Mapping[str, int]) -> None:
    async with _open(cluster) as client, client.reader() as reader:

        async def there() -> bool:
            for topic, count in topics.items():
                values = await _values(client, reader, topic)
                assert len(values) == count, f"{topic} has {len(values)} records, not {count}"
            return True

        await eventually(there)


async def test_active_standby(three: Three, tmp_path: Path) -> None:
    primary, backup, _ = three
    await _make(primary, "standby-orders", 30)
    text = example_text(
        "active_standby", primary_kafka=primary.bootstrap_servers, backup_kafka=backup.bootstrap_servers
    )
    async with TwinlogRun(text + "sync.group.offsets.interval.seconds = 1\n", tmp_path):
        await _has(backup, {"primary.standby-orders": 30})
        properties = primary.client_properties()
        read = await read_some(
            "p", properties, group="standby", topic="standby-orders", at_least=30, max_idle_polls=60
        )
        assert read.records == 30

        async def moved() -> bool:
            async with _open(backup) as client:
                return TopicPartition("primary.standby-orders", 0) in await group_position(client, "standby")

        await eventually(moved)


async def test_active_active_without_loops(three: Three, tmp_path: Path) -> None:
    a, b, _ = three
    for cluster, count in ((a, 20), (b, 35)):
        await _make(cluster, "payment-events", count)
        await _make(cluster, "user-actions", count + 1)
    text = example_text("active_active", kafka_a=a.bootstrap_servers, kafka_b=b.bootstrap_servers)
    async with TwinlogRun(text, tmp_path):
        on_b = {"kafka-a.payment-events": 20, "kafka-a.user-actions": 21}
        on_a = {"kafka-b.payment-events": 35, "kafka-b.user-actions": 36}
        await _has(b, on_b)
        await _has(a, on_a)
        await _add(a, "payment-events", 5)
        await _has(b, {"kafka-a.payment-events": 25})
        await wait_or_stop(asyncio.Event(), 3.0)
        await _has(a, {"payment-events": 25, "user-actions": 21, **on_a})
        await _has(b, {"payment-events": 35, "user-actions": 36, **on_b, "kafka-a.payment-events": 25})
        for cluster in (a, b):
            async with _open(cluster) as client:
                names = await client.list_topics()
            assert not [name for name in names if name.count("kafka-") > 1 and "heartbeats" not in name]


async def test_logical_topic(three: Three, tmp_path: Path) -> None:
    a, b, _ = three
    text = (EXAMPLES / "logical_topic" / "mm2.properties").read_text()
    for address, cluster in (("127.0.0.1:19092", a), ("127.0.0.1:19093", b)):
        assert address in text
        text = text.replace(address, cluster.bootstrap_servers)
    async with TwinlogRun(text + FAST_AND_SMALL, tmp_path):
        await _program("logical_topic/producer.py", a.bootstrap_servers, "a book", "a chair")
        await _program("logical_topic/producer.py", b.bootstrap_servers, "a lamp")
        printed = await _program("logical_topic/consumer.py", b.bootstrap_servers, "3")
        assert sorted(printed) == ["from here: a lamp", "from kafka-a: a book", "from kafka-a: a chair"]
        await _program("logical_topic/producer.py", a.bootstrap_servers, "a table")
        assert await _program("logical_topic/consumer.py", b.bootstrap_servers, "1") == [
            "from kafka-a: a table"
        ]


async def _program(path: str, *arguments: str) -> list[str]:
    """Run a program of the examples to its end; the lines it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / path), *arguments), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(90):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    return out.decode().splitlines()


async def test_aggregation(three: Three, tmp_path: Path) -> None:
    west, east, central = three
    await _make(west, "sales", 11)
    await _make(east, "sales", 22)
    text = example_text(
        "aggregation",
        west_kafka=west.bootstrap_servers,
        east_kafka=east.bootstrap_servers,
        central_kafka=central.bootstrap_servers,
    )
    async with TwinlogRun(text, tmp_path):
        await _has(central, {"west.sales": 11, "east.sales": 22})


async def test_chain(three: Three, tmp_path: Path) -> None:
    edge, region, hq = three
    await _make(edge, "readings", 40)
    text = example_text(
        "chain",
        edge_kafka=edge.bootstrap_servers,
        region_kafka=region.bootstrap_servers,
        hq_kafka=hq.bootstrap_servers,
    )
    async with TwinlogRun(text, tmp_path):
        await _has(region, {"edge.readings": 40})
        await _has(hq, {"region.edge.readings": 40})


async def test_identity(three: Three, tmp_path: Path) -> None:
    old, new, _ = three
    await _make(old, "orders-eu", 15)
    text = example_text("identity", old_kafka=old.bootstrap_servers, new_kafka=new.bootstrap_servers)
    async with TwinlogRun(text, tmp_path):
        await _has(new, {"orders-eu": 15})
        await _add(old, "orders-eu", 5)
        await _has(new, {"orders-eu": 20})
