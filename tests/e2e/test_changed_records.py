"""docs/transforms.md, "With Spark": its recipes on real clusters, with bad records, and the JVM killed."""

import asyncio
import hashlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

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
    "twinlog.transform.on.error": "dead-letter",
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


def _wanted(numbers: int, topic: str) -> list[tuple[Any, ...]]:
    wanted: list[tuple[Any, ...]] = []
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
        of_flow[f"{flow}.twinlog.dead.letter.topic"] = unique_name("dead")
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

        async def dead() -> list[tuple[int, int]]:
            """Number and partition of the records among the dead letters, which are as they were."""
            found = []
            for key, value, timestamp_ms, headers in await _content(
                target, TopicPartition(of_flow[f"{flow}.twinlog.dead.letter.topic"], 0)
            ):
                was = _record(int(key))
                assert (value, timestamp_ms, headers[:2]) == (
                    was.value,
                    was.timestamp_ms,
                    (("trace", b"1"), ("keep", b"\x00\xff")),
                )
                told = dict(headers)
                assert told["__connect.errors.topic"] == orders.encode()
                found.append((int(key), int(told["__connect.errors.partition"])))
            return found

        async def arrived() -> bool | None:
            wanted = _wanted(written, orders)
            for number in range(2):
                found = await _content(target, TopicPartition(f"{flow.source}.{orders}", number))
                assert found == wanted
            assert sorted(await dead()) == [
                (number, partition) for number in range(7, written, 10) if number % 3 for partition in (0, 1)
            ]
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
            tried = await asyncio.to_thread(
                _twinlog, file, "transform", "try", str(flow), "--topic", orders, "--last", "10", "-o", "json"
            )
            assert tried.returncode == 0, tried.stderr
            assert "xxxx" in tried.stdout
            assert "CAST_INVALID_INPUT" in tried.stdout
            verify = "verify", str(flow), "--topic", orders
            verified = await asyncio.to_thread(_twinlog, file, *verify)
            assert verified.returncode == 0, verified.stdout + verified.stderr
            copy = f"{flow.source}.{orders}"
            key, value, timestamp_ms, headers = _wanted(2, orders)[0]
            again = NewRecord(
                key, value, timestamp_ms, tuple((name.encode(), text) for name, text in headers)
            )
            wrong = again._replace(value=_record(1).value)
            await write_batches(kafka_pair.b, copy, [(0, Codec.NONE, [again]), (1, Codec.NONE, [wrong])])
            verified = await asyncio.to_thread(_twinlog, file, *verify)
            assert verified.returncode == 1, verified.stdout + verified.stderr
            assert "DUPLICATE" in verified.stdout
            assert "FOREIGN" in verified.stdout


def _twinlog(file: str, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "twinlog", *words, "--config", file]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def _kill_jvm(run: TwinlogRun) -> None:
    for process in psutil.Process(run.process.pid).children(recursive=True):
        if process.name() == "java":
            process.send_signal(signal.SIGKILL)


async def _content(cluster: KafkaCluster, partition: TopicPartition) -> list[tuple[Any, ...]]:
    if partition.topic not in await cluster.list_topics():
        return []
    async with cluster.reader() as reader:
        return [
            (record.key, record.value, record.timestamp_ms, tuple(record.headers))
            async for record in committed_records(cluster, reader, partition)
        ]
