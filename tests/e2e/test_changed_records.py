"""docs/transforms.md, "With Spark": its recipes on real clusters, with bad records, and the JVM killed."""

import asyncio
import hashlib
import signal
from pathlib import Path

import psutil
import pytest

from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.kafka.whole_logs import committed_records
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name
from twinlog.testing.java.mm2 import quick_mm2_properties
from twinlog.testing.records import write_batches

pytestmark = pytest.mark.java

GUIDE = Path(__file__).parents[2] / "docs" / "transforms.md"
_FLOW = {
    "twinlog.transform.where": "get_json_object(CAST(value AS string), '$.country') = 'CH'",
    "twinlog.transform.value": "regexp_replace(CAST(value AS string), "
    '\'"card":"[0-9]+"\', \'"card":"xxxx"\')',
    "twinlog.transform.key": "sha2(key, 256)",
    "twinlog.transform.headers": "filter(headers, h -> h.key != 'trace')",
    "twinlog.transform.timestamp": "timestamp + INTERVAL 1 SECOND"
    " * CAST(get_json_object(CAST(value AS string), '$.n') AS int)",
    "twinlog.transform.on.error": "skip",
    "twinlog.transform.timeout.seconds": "30",
    "twinlog.transform.python": "changed_records_rules:with_origin",
}
"""The recipes in one flow."""
_RULES = """
from pyspark.sql import functions as f


def with_origin(records):
    return records.withColumn("headers", f.concat("headers", f.array(f.struct(
        f.lit("origin").alias("key"), f.col("topic").cast("binary").alias("value")))))
"""
_FIRST_MS = SystemClock().now_ms() - 10_800_000
"""Kafka deletes what is old, and refuses what is an hour ahead."""


def _record(number: int) -> NewRecord:
    country = ("CH", "DE")[number % 3 == 0]
    value = f'{{"n":"{"x" if number % 10 == 7 else number}","country":"{country}","card":"41{number}"}}'
    headers = ((b"trace", b"1"), (b"keep", b"\x00\xff"))
    return NewRecord(b"%d" % number, value.encode(), _FIRST_MS + number, headers)


def _wanted(numbers: int, topic: str) -> list[tuple[object, ...]]:
    wanted: list[tuple[object, ...]] = []
    for number in range(numbers):
        if number % 3 and number % 10 != 7:
            key = hashlib.sha256(b"%d" % number).hexdigest().encode()
            value = f'{{"n":"{number}","country":"CH","card":"xxxx"}}'.encode()
            headers = (("keep", b"\x00\xff"), ("origin", topic.encode()))
            wanted.append((key, value, _FIRST_MS + 1001 * number, headers))
    return wanted


async def test_records_arrive_changed_and_once_also_when_the_jvm_is_killed(
    kafka_pair: KafkaPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "changed_records_rules.py").write_text(_RULES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    orders, plain = unique_name("orders"), unique_name("plain")
    flow = Flow(unique_name("east"), unique_name("west"))
    async with (
        open_cluster(flow.source, kafka_pair.a.client_properties()) as source,
        open_cluster(flow.target, kafka_pair.b.client_properties()) as target,
    ):
        await make_topics(
            source,
            *(NewTopic(name=name, partition_count=2, replication_factor=1) for name in (orders, plain)),
        )
        clients = {
            flow.source: kafka_pair.a.client_properties(),
            flow.target: kafka_pair.b.client_properties(),
        }
        of_flow = {f"{flow}.{key}": value for key, value in _FLOW.items()}
        file = quick_mm2_properties(
            clients,
            [flow],
            {"topics": f"{orders}, {plain}", f"{flow}.twinlog.transform.topics": orders, **of_flow},
        )
        written = 0

        async def write(count: int) -> None:
            nonlocal written
            records = [_record(number) for number in range(written, written + count)]
            written += count
            await write_batches(kafka_pair.a, orders, [(0, Codec.ZSTD, records), (1, Codec.NONE, records)])
            await write_batches(kafka_pair.a, plain, [(0, Codec.ZSTD, records)])

        async def arrived() -> bool | None:
            wanted = _wanted(written, orders)
            for number in range(2):
                found = await _content(target, TopicPartition(f"{flow.source}.{orders}", number))
                assert found == wanted
            unchanged = await _content(target, TopicPartition(f"{flow.source}.{plain}", 0))
            return len(unchanged) == written

        async with TwinlogRun(file, tmp_path) as run:
            await write(50)
            await eventually(arrived, timeout_seconds=300)  # Spark loads its SQL.
            for _ in range(2):
                await write(3_000)
                await asyncio.to_thread(_kill_jvm, run)
                await write(500)
                await eventually(arrived, timeout_seconds=200)


def _kill_jvm(run: TwinlogRun) -> None:
    for process in psutil.Process(run.process.pid).children(recursive=True):
        if process.name() == "java":
            process.send_signal(signal.SIGKILL)


async def _content(cluster: KafkaCluster, partition: TopicPartition) -> list[tuple[object, ...]]:
    if partition.topic not in await cluster.list_topics():
        return []
    async with cluster.reader() as reader:
        return [
            (record.key, record.value, record.timestamp_ms, tuple(record.headers))
            async for record in committed_records(cluster, reader, partition)
        ]
