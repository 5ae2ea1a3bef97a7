"""Writes tests/golden/state-RELEASE.tar.xz: two brokers' data as a deployment of this release leaves them
in the middle of its life. Run it at a release, from the root of the project:

    python tests/golden/golden_state.py

`tests/integration/migration/test_last_release.py` starts later code on it.
"""

import asyncio
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as Place

from twinlog import __version__
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, make_topics, start_clusters, stop_clusters

FLOW = "A->B"
SMALL = {
    "offsets.retention.minutes": "2147483647",
    "log.retention.ms": "-1",
    "log.index.size.max.bytes": "4096",
    "log.segment.bytes": "1048576",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
"""Brokers whose data fits into a few kilobytes, and of which nothing expires."""
COMMAND_SECONDS = 120


def properties(a: BlockingCluster, b: BlockingCluster) -> str:
    settings = {
        "clusters": "A, B",
        "A.bootstrap.servers": a.bootstrap_servers,
        "B.bootstrap.servers": b.bootstrap_servers,
        "A->B.enabled": "true",
        "A->B.topics": "orders, payments, old",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.topics.interval.seconds": "1",
        "sync.topic.configs.interval.seconds": "2",
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "twinlog.offsets": "auto",
        "twinlog.offsets.translated.topics": "payments",
        "twinlog.verify.interval.seconds": "5",
        "twinlog.spark.master": "local[1]",
        **{
            f"twinlog.{service}.metrics.listen": "127.0.0.1:0"
            for service in ("source", "checkpoint", "heartbeat", "configsync")
        },
    }
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


async def command(run: TwinlogRun, *words: str) -> None:
    whole = [sys.executable, "-m", "twinlog", *words, "--config", str(run.file)]
    await asyncio.to_thread(subprocess.run, whole, check=True, timeout=COMMAND_SECONDS)


async def produce(servers: str, topic: str, partition: int, numbers: range) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as sender:
        for number in numbers:
            await sender.send(topic, f"{topic}-{partition}-{number}".encode(), partition=partition)


async def commit(servers: str, group: str, offsets: dict[Place, int]) -> None:
    async with AIOKafkaConsumer(
        bootstrap_servers=servers, group_id=group, enable_auto_commit=False
    ) as consumer:
        consumer.assign(list(offsets))
        await consumer.commit(offsets)


async def copied(target: KafkaCluster, topic: str, partition: int, at_least: int) -> None:
    place = TopicPartition(f"A.{topic}", partition)

    async def there() -> bool:
        end = (await target.list_offsets(OffsetSpec.LATEST, [place]))[place]
        return isinstance(end, int) and end >= at_least

    await eventually(there)


async def live(a: BlockingCluster, run: TwinlogRun, source: KafkaCluster, target: KafkaCluster) -> None:
    """What a deployment sees in its life."""
    servers = a.bootstrap_servers
    for topic, count in (("orders", 2), ("payments", 1), ("old", 1)):
        new = NewTopic(
            name=topic, partition_count=count, replication_factor=1, configs={"retention.ms": "-1"}
        )
        await make_topics(source, new)
    begun = (("orders", 0, 50), ("orders", 1, 30), ("payments", 0, 20), ("old", 0, 40))
    for topic, partition, records in begun:
        await produce(servers, topic, partition, range(records))
    await commit(servers, "billing", {Place("orders", 0): 31, Place("orders", 1): 12})
    await commit(servers, "audit", {Place("orders", 1): 7})
    for topic, partition, records in begun:
        await copied(target, topic, partition, records)
    await command(run, "failover", "run", FLOW, "--group", "audit", "--yes")
    await command(run, "pause", FLOW, "--topic", "payments")
    await produce(servers, "payments", 0, range(20, 25))
    await command(run, "pause", FLOW, "--topic", "old")
    await produce(servers, "old", 0, range(40, 60))
    await source.delete_records({TopicPartition("old", 0): 50})
    await command(run, "resume", FLOW, "--topic", "old")
    await copied(target, "old", 0, 50)
    await command(run, "throttle", FLOW, "1M", "--topic", "orders")
    await command(run, "rules", "set", FLOW, "topics", "orders, payments, old, later")
    await command(run, "plan", FLOW)


async def grow(a: BlockingCluster, b: BlockingCluster) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with (
            open_cluster("A", a.client_properties()) as source,
            open_cluster("B", b.client_properties()) as target,
            TwinlogRun(properties(a, b), Path(directory)) as run,
        ):
            await live(a, run, source, target)


def nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    clusters = start_clusters(
        ClusterSpec(name="golden-A", properties=SMALL), ClusterSpec(name="golden-B", properties=SMALL)
    )
    try:
        asyncio.run(grow(*clusters))
        with tarfile.open(Path(__file__).with_name(f"state-{__version__}.tar.xz"), "w:xz") as archive:
            for name, cluster in zip("AB", clusters, strict=True):
                cluster.stop_broker(1)
                archive.add(cluster.log_file(1).parent / "data", arcname=name, filter=nobodys)
    finally:
        stop_clusters(clusters)


if __name__ == "__main__":
    main()
