"""docs/transforms.md, "With Spark": its recipes on real clusters, with bad records, and the JVM killed."""

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
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
from twinlog.machine import spark_environment
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name, write_batches
from twinlog.testing.java.mm2 import quick_mm2_properties

pytestmark = pytest.mark.java

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
    "twinlog.provenance.headers": "true",
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


def _wanted(numbers: int, source: str, partition: TopicPartition) -> list[tuple[Any, ...]]:
    wanted: list[tuple[Any, ...]] = []
    for number in range(numbers):
        if number % 3 and number % 10 != 7:
            key = hashlib.sha256(b"%d" % number).hexdigest().encode()
            value = f'{{"n":"{number}","country":"CH","card":"xxxx"}}'.encode()
            origin = f"{source}/{partition.topic}/{partition.partition}/{number}/{_FIRST_MS + number}"
            headers = (
                ("keep", b"\x00\xff"),
                ("origin", partition.topic.encode()),
                ("twinlog.origin", origin.encode()),
            )
            wanted.append((key, value, _FIRST_MS + 1001 * number, headers))
    return wanted


@dataclass(slots=True, kw_only=True)
class ChangedFlow:
    pair: KafkaPair
    flow: Flow
    source: KafkaCluster
    target: KafkaCluster
    file: str
    orders: str
    plain: str
    dead: str
    written: int = 0

    async def write(self, count: int) -> None:
        records = [_record(number) for number in range(self.written, self.written + count)]
        self.written += count
        for partition, codec in enumerate((Codec.ZSTD, Codec.NONE)):
            await write_batches(self.pair.a, self.orders, [(partition, codec, records)])
        await write_batches(self.pair.a, self.plain, [(0, Codec.ZSTD, records)])

    async def have_arrived(self) -> bool | None:
        for number in range(2):
            partition = TopicPartition(self.orders, number)
            wanted = _wanted(self.written, self.flow.source, partition)
            found = await _content(self.target, TopicPartition(f"{self.flow.source}.{self.orders}", number))
            assert found == wanted
        assert sorted(await self._dead()) == [
            (number, partition) for number in range(7, self.written, 10) if number % 3 for partition in (0, 1)
        ]
        unchanged = await _content(self.target, TopicPartition(f"{self.flow.source}.{self.plain}", 0))
        return len(unchanged) == self.written

    async def _dead(self) -> list[tuple[int, int]]:
        """Number and partition of the dead letters, which are as they were."""
        found = []
        for key, value, timestamp_ms, headers in await _content(self.target, TopicPartition(self.dead, 0)):
            was, told = _record(int(key)), dict(headers)
            assert (value, timestamp_ms) == (was.value, was.timestamp_ms)
            assert headers[:2] == (("trace", b"1"), ("keep", b"\x00\xff"))
            assert told["__connect.errors.topic"] == self.orders.encode()
            found.append((int(key), int(told["__connect.errors.partition"])))
        return found

    async def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "twinlog", *words, "--config", self.file]
        return await asyncio.to_thread(
            partial(subprocess.run, command, capture_output=True, text=True, check=False, timeout=300)
        )


@pytest.fixture
async def changed(
    kafka_pair: KafkaPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ChangedFlow]:
    (tmp_path / "changed_records_rules.py").write_text(_RULES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    orders, plain, dead = unique_name("orders"), unique_name("plain"), unique_name("dead")
    flow = Flow(unique_name("east"), unique_name("west"))
    clients = {
        flow.source: kafka_pair.a.client_properties(),
        flow.target: kafka_pair.b.client_properties(),
    }
    keys = {**_FLOW, "twinlog.transform.topics": orders, "twinlog.dead.letter.topic": dead}
    # An epoch is over before Spark has loaded its SQL.
    more = {"twinlog.epoch.seconds": "2", "twinlog.epoch.max.seconds": "2"}
    more |= {"twinlog.spark.conf.spark.ui.enabled": "true", "twinlog.spark.conf.spark.ui.port": "0"}
    more |= {"topics": f"{orders}, {plain}", **{f"{flow}.{key}": value for key, value in keys.items()}}
    async with (
        open_cluster(flow.source, clients[flow.source]) as source,
        open_cluster(flow.target, clients[flow.target]) as target,
    ):
        topics = [NewTopic(name=name, partition_count=2, replication_factor=1) for name in (orders, plain)]
        await make_topics(source, *topics)
        file = quick_mm2_properties(clients, [flow], more)
        yield ChangedFlow(
            pair=kafka_pair,
            flow=flow,
            source=source,
            target=target,
            file=file,
            orders=orders,
            plain=plain,
            dead=dead,
        )


async def test_records_arrive_changed_and_once_also_when_the_jvm_is_killed(
    changed: ChangedFlow, tmp_path: Path
) -> None:
    flow, orders = str(changed.flow), changed.orders
    async with TwinlogRun(changed.file, tmp_path) as run:
        changed.file = str(run.file)
        await changed.write(50)
        await eventually(changed.have_arrived, timeout_seconds=300)  # Spark loads its SQL.
        tried = await changed.command(
            "transform", "try", flow, "--topic", orders, "--last", "10", "-o", "json"
        )
        assert tried.returncode == 0, tried.stderr
        assert "xxxx" in tried.stdout
        assert "CAST_INVALID_INPUT" in tried.stdout
        status = await changed.command("status", "-o", "json")
        assert "8 DEAD_LETTERED, 34 FILTERED" in status.stdout, status.stdout
        jobs = await asyncio.to_thread(_jobs, status.stdout)
        assert f"records of {flow}: {orders}" in jobs
        await changed.write(3_000)
        await asyncio.to_thread(_kill_jvm, run)
        await changed.write(500)
        await eventually(changed.have_arrived, timeout_seconds=200)
    verify = "verify", flow, "--topic", orders
    verified = await changed.command(*verify)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    key, value, timestamp_ms, headers = _wanted(2, changed.flow.source, TopicPartition(orders, 0))[0]
    again = NewRecord(key, value, timestamp_ms, tuple((name.encode(), text) for name, text in headers))
    wrong = again._replace(value=_record(1).value)
    copy = f"{changed.flow.source}.{orders}"
    await write_batches(changed.pair.b, copy, [(0, Codec.NONE, [again]), (1, Codec.NONE, [wrong])])
    verified = await changed.command(*verify)
    assert verified.returncode == 1, verified.stdout + verified.stderr
    assert "DUPLICATE" in verified.stdout
    assert "FOREIGN" in verified.stdout


_NOTEBOOK = """
from pyspark.sql import SparkSession
from twinlog_source.pipeline.data_source import TwinlogDataSource
spark = SparkSession.builder.master("local[1]").getOrCreate()
spark.dataSource.register(TwinlogDataSource)
records = spark.read.format("twinlog").options(config="{file}", flow="{flow}", topic="{topic}").load()
found = records.where("offset < 3 AND partition = 1").orderBy("offset").collect()
print(records.count(), [(row.key, [tuple(header) for header in row.headers]) for row in found])
"""


async def test_a_notebook_reads_a_log(changed: ChangedFlow, tmp_path: Path) -> None:
    await changed.write(50)
    file = tmp_path / "mm2.properties"
    file.write_text(changed.file)
    text = _NOTEBOOK.format(file=file, flow=changed.flow, topic=changed.orders)
    environment = {**os.environ, **spark_environment()}
    read = await asyncio.to_thread(
        partial(subprocess.run, [sys.executable, "-c", text], capture_output=True, text=True, env=environment)
    )
    headers = [("trace", b"1"), ("keep", b"\x00\xff")]
    assert read.stdout.strip() == f"100 {[(b'%d' % n, headers) for n in range(3)]}", read.stderr


def _jobs(status: str) -> set[str]:
    """What Spark's UI, to which the status leads, says of its jobs."""
    (told,) = re.findall(r"Spark shows its jobs to anybody at ([^\s\"]+)", status)[:1]

    def asked(path: str) -> Any:
        with urllib.request.urlopen(f"{told}/api/v1/applications{path}", timeout=30) as answer:
            return json.load(answer)

    (application,) = asked("")
    return {job.get("description", job["name"]) for job in asked(f"/{application['id']}/jobs")}


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
