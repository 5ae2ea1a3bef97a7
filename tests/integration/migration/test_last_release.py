"""The last release's state with this code: brokers as a deployment of that release left them (tests/golden).

What operators ordered still holds, nothing is copied twice or left out, and no record is taken for another.
"""

import json
import re
import shutil
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.in_process import twinlog
from integration.source.source_rig import GrowingLog, producer
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic, TopicDescription
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Record, TopicPartition
from twinlog.testing.brokers import eventually, make_topics, start_clusters, stop_clusters

pytestmark = pytest.mark.broker

GOLDEN = Path(__file__).parents[2] / "golden"
STATES = sorted(GOLDEN.glob("state-*.tar.xz"))
AGELESS = {
    "offsets.retention.minutes": "2147483647",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
"""The state is years old one day: nothing of it may expire by its timestamps."""
STATE = re.compile(r"mm2-(offsets|configsync|failover|sync-history)\.A\.internal")


def settled_on(cluster: BlockingCluster, data: Path) -> None:
    """Restart a broker on other data."""
    place = cluster.log_file(1).parent / "data"
    cluster.stop_broker(1)
    shutil.rmtree(place)
    shutil.copytree(data, place)
    cluster.restart_broker(1)


@pytest.fixture(params=STATES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[BlockingCluster, BlockingCluster]]:
    """Clusters A and B as the release left them."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path / "left", filter="data")
    clusters = start_clusters(
        ClusterSpec(name="left-A", properties=AGELESS), ClusterSpec(name="left-B", properties=AGELESS)
    )
    try:
        for name, cluster in zip("AB", clusters, strict=True):
            settled_on(cluster, tmp_path / "left" / name)
        yield clusters[0], clusters[1]
    finally:
        stop_clusters(clusters)


def properties(a: BlockingCluster, b: BlockingCluster) -> str:
    settings = {
        "clusters": "A, B",
        "A.bootstrap.servers": a.bootstrap_servers,
        "B.bootstrap.servers": b.bootstrap_servers,
        "A->B.enabled": "true",
        "A->B.topics": "orders, payments, old",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "0.5",
        "emit.checkpoints.interval.seconds": "0.5",
        "refresh.topics.interval.seconds": "0.5",
        "refresh.groups.interval.seconds": "0.5",
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "twinlog.offsets": "auto",
        "twinlog.offsets.translated.topics": "payments",
        "twinlog.spark.master": "local[1]",
        **{
            f"twinlog.{service}.metrics.listen": "127.0.0.1:0"
            for service in ("source", "checkpoint", "heartbeat", "configsync")
        },
    }
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


async def told(run: TwinlogRun, *words: str) -> Any:
    """What a command prints as JSON."""
    done = await twinlog(*words, "--config", str(run.file), "-o", "json")
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return json.loads(done.stdout)


async def values(cluster: KafkaCluster, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
    """Offset and value of each record."""
    records = await GrowingLog(cluster, TopicPartition(topic, partition)).records()
    return [(record.offset, record.value) for record in records]


async def own_records(cluster: KafkaCluster, *, since_ms: int) -> list[tuple[str, Record]]:
    """What this release has written to the topics of Twinlog's own state, with the topic."""
    found: list[tuple[str, Record]] = []
    topics = [topic for topic in await cluster.list_topics() if STATE.fullmatch(topic)]
    for topic, described in (await cluster.describe_topics(topics)).items():
        assert isinstance(described, TopicDescription), described
        for number in range(described.partition_count):
            records = await GrowingLog(cluster, TopicPartition(topic, number)).records()
            found += [(topic, record) for record in records if record.timestamp_ms >= since_ms]
    return found


def says_its_format(record: Record) -> bool:
    """Positions are MirrorMaker 2's records, a record that is taken away has no value, and of what is only
    kept to start faster the first one speaks for all."""
    key = json.loads(record.key or b"null")
    is_position = isinstance(key, list) and str(key[0]).endswith("MirrorSourceConnector")
    is_part = isinstance(key, dict) and "topic" in key
    if record.value is None or is_position or is_part:
        return True
    value = json.loads(record.value)
    return isinstance(value, dict) and isinstance(value.get("format", value.get("version")), int)


@pytest.fixture
async def ends(
    left: tuple[BlockingCluster, BlockingCluster],
) -> AsyncIterator[tuple[KafkaCluster, KafkaCluster]]:
    async with (
        open_cluster("A", left[0].client_properties()) as source,
        open_cluster("B", left[1].client_properties()) as target,
    ):
        yield source, target


async def test_a_release_continues_on_the_state_of_the_last_one(
    left: tuple[BlockingCluster, BlockingCluster],
    ends: tuple[KafkaCluster, KafkaCluster],
    tmp_path: Path,
) -> None:
    source, target = ends
    before = await values(target, "A.orders", 0)
    begun_ms = SystemClock().now_ms()
    assert [value for _, value in before] == [b"orders-0-%d" % number for number in range(50)]
    async with TwinlogRun(properties(*left), tmp_path) as run:
        async with producer(left[0].bootstrap_servers, None, 16_384) as sender:
            for number in range(50, 60):
                await sender.send_and_wait("orders", b"orders-0-%d" % number, partition=0)
            await sender.send_and_wait("old", b"old-0-60", partition=0)
        await make_topics(source, NewTopic(name="later", partition_count=1, replication_factor=1))
        async with producer(left[0].bootstrap_servers, None, 16_384) as sender:
            await sender.send_and_wait("later", b"first", partition=0)

        async def continued() -> bool:
            # Every record once, at the source's offset: what was there, and what came.
            assert await values(target, "A.orders", 0) == await values(source, "orders", 0)
            assert await values(target, "A.orders", 1) == await values(source, "orders", 1)
            return True

        await eventually(continued)

        async def rule_holds() -> bool:
            return [value for _, value in await values(target, "A.later", 0)] == [b"first"]

        await eventually(rule_holds)

        async def behind_the_gap() -> bool:
            copied = [value for _, value in await values(target, "A.old", 0)]
            assert copied == [b"old-0-%d" % number for number in (*range(40), *range(50, 61))]
            return True

        await eventually(behind_the_gap)
        gaps = await told(run, "gaps", "A->B")
        assert [(gap["topic"], gap["from"], gap["to"], gap["reason"]) for gap in gaps] == [
            ("old", 40, 50, "RETENTION")
        ]
        paused = await told(run, "pause")
        assert [(each["scope"], each["partition"]) for each in paused] == [("A->B payments", None)]
        limits = await told(run, "throttle", "A->B")
        assert [(each["scope"], each["bytes_per_second"]) for each in limits] == [("A->B orders", 1_000_000)]
        moved = (await told(run, "failover", "status", "A->B"))["last"]
        assert (moved["kind"], moved["finished"], moved["complete"]) == ("failover", True, True)

        async def translated() -> bool:
            held = (await target.group_offsets(["billing"]))["billing"]
            assert not isinstance(held, KafkaError), held
            there = {str(partition): offset.next_offset for partition, offset in held.items()}
            assert there == {"A.orders-0": 31, "A.orders-1": 12}
            return True

        await eventually(translated)
        assert len(await values(target, "A.payments", 0)) == 20, "it is paused"
        written = await own_records(target, since_ms=begun_ms)
        assert {topic for topic, _ in written} >= {"mm2-offsets.A.internal", "mm2-configsync.A.internal"}
        assert not [record for record in written if not says_its_format(record[1])]
        log = run.log.read_text(errors="replace")
    for word in ("WIRE_VERSION", "WIRE_FORMAT", "REGISTRY_UNREADABLE", "position_unreadable"):
        assert word not in log, word
