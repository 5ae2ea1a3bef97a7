"""How long filled offsets take: `python -m bench.filling [--offsets 10000000]`. Half a minute.

One local broker, and the filler of a task: what a preserved copy costs whose source's log starts at that
offset.
"""

import argparse
import time

import uvloop

from twinlog.errors import KafkaError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw import ProducerSettings
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.cluster_group import start_clusters, stop_clusters
from twinlog.local.spec import ClusterSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import make_topics
from twinlog_source.preserved.filler import Filler

_RUNS = 3
"""The first one compiles what matters in the broker's JVM."""


async def fill(cluster: BlockingCluster, offsets: int) -> list[float]:
    """Seconds of each run."""
    properties = cluster.client_properties()
    seconds = []
    async with open_cluster("B", properties) as admin:
        for run in range(_RUNS):
            await make_topics(admin, NewTopic(name=_topic(run), partition_count=1, replication_factor=1))
    session = DataClientPool("B", aiokafka_client_options(properties), timeout_seconds=30)
    try:
        filler = Filler(session, "bench-filling", ProducerSettings())
        await filler.open()
        for run in range(_RUNS):
            began = time.perf_counter()
            await filler.fill({TopicPartition(_topic(run), 0): (0, offsets)}, _must_be_filled, _no_leader)
            seconds.append(time.perf_counter() - began)
    finally:
        await session.close()
    return seconds


def _topic(run: int) -> str:
    return f"filled-{run}"


def _must_be_filled(partition: TopicPartition, filled: bool) -> None:
    if not filled:
        raise SystemExit(f"{partition}: something else lies in the log")


def _no_leader(partition: TopicPartition, error: KafkaError) -> None:
    raise SystemExit(f"{partition}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description="How long filled offsets take.")
    parser.add_argument("--offsets", type=int, default=10_000_000)
    options = parser.parse_args()
    clusters = start_clusters(ClusterSpec(name="B"))
    try:
        runs = uvloop.run(fill(clusters[0], options.offsets))
    finally:
        stop_clusters(clusters)
    for seconds in runs:
        print(f"{options.offsets:,} offsets in {seconds:.2f} s: {options.offsets / seconds:,.0f} a second")


if __name__ == "__main__":
    main()
