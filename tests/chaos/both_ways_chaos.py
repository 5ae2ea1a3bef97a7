"""Two clusters write to a topic of one name, services, tasks, JVM and brokers are killed, and at the end each
cluster has every record once, in the order of its cluster, and nothing is copied round.

    python tests/chaos/both_ways_chaos.py --seed 7 --minutes 5
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaProducer

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from chaos.source_chaos import kill, processes
from e2e.test_both_ways import Side, has_all
from integration.source.source_rig import producer, quiet
from twinlog.errors import StateError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Flow
from twinlog.testing.brokers import eventually, make_topics, start_clusters, stop_clusters
from twinlog.testing.java.mm2 import quick_mm2_properties

TOPIC, PARTITIONS = "both", 4
RECORDS_PER_SECOND = {"A": 500, "B": 300}
TICK_SECONDS = 0.1
KINDS = ("source", "source", "checkpoint", "configsync", "task", "task", "jvm", "broker")
DRAIN_SECONDS = 300.0


@dataclass(slots=True, kw_only=True)
class Chaos:
    run: TwinlogRun
    sides: list[Side]
    dice: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    _done: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self, minutes: float) -> None:
        """Raises AssertionError with what is wrong."""
        async with asyncio.TaskGroup() as group:
            for side in self.sides:
                group.create_task(self._write(side), name=f"load on {side.alias}")
            give_up_at = time.monotonic() + minutes * 60
            while time.monotonic() < give_up_at:
                await quiet(2 + self.dice.random() * 6)
                await self._kill(self.dice.choice(KINDS))
            self._done.set()
        await eventually(lambda: has_all(self.sides, PARTITIONS), DRAIN_SECONDS)
        ends = [await side.ends(PARTITIONS) for side in self.sides]
        await quiet(60)
        assert [await side.ends(PARTITIONS) for side in self.sides] == ends, "something is copied round"

    async def _write(self, side: Side) -> None:
        """Each record says its side and its number in its partition; some are in transactions."""
        servers = side.kafka.bootstrap_servers
        async with AsyncExitStack() as stack:
            plain: AIOKafkaProducer = await stack.enter_async_context(producer(servers, "lz4", 16_384))
            careful: AIOKafkaProducer = await stack.enter_async_context(
                producer(servers, "zstd", 16_384, transactional_id=f"both-{side.alias}")
            )
            turn = 0
            while not self._done.is_set():
                turn += 1
                # One producer writes a partition in a turn, so that the numbers are in order there.
                for partition in range(PARTITIONS):
                    batch = careful if (turn + partition) % 8 == 0 else plain
                    if batch is careful:
                        await careful.begin_transaction()
                    sent = []
                    for _ in range(round(RECORDS_PER_SECOND[side.alias] * TICK_SECONDS / PARTITIONS)):
                        value = f"{side.alias} {side.written[partition]}".encode()
                        sent.append(await batch.send(TOPIC, value, key=b"k", partition=partition))
                        side.written[partition] += 1
                    for each in sent:
                        await each
                    if batch is careful:
                        await careful.commit_transaction()
                await quiet(TICK_SECONDS)

    async def _kill(self, kind: str) -> None:
        try:
            if kind == "broker":
                kafka = self.dice.choice(self.sides).kafka
                broker = self.dice.choice(kafka.broker_ids)
                await asyncio.to_thread(kafka.kill_broker, broker)
                await asyncio.to_thread(kafka.restart_broker, broker)
            elif kind in ("task", "jvm"):
                jvms, tasks = processes(self.run.process.pid)
                for victim in jvms[:1] if kind == "jvm" else tasks and [self.dice.choice(tasks)]:
                    kill(victim)
            else:
                self.run.kill_service(kind)
        except StateError:
            return  # It is not back yet.
        self.kills[kind] += 1


async def run_chaos(
    a: BlockingCluster, b: BlockingCluster, directory: Path, *, seed: int, minutes: float
) -> Counter[str]:
    """Clusters of the caller's, which this breaks. Returns what was killed; raises AssertionError."""
    brokers = {"A": a, "B": b}
    properties = quick_mm2_properties(
        {alias: kafka.client_properties() for alias, kafka in brokers.items()},
        [Flow("A", "B"), Flow("B", "A")],
        {
            "topics": TOPIC,
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        },
    )
    async with AsyncExitStack() as stack:
        sides = []
        for alias, kafka in brokers.items():
            cluster = await stack.enter_async_context(open_cluster(alias, kafka.client_properties()))
            await make_topics(cluster, NewTopic(name=TOPIC, partition_count=PARTITIONS, replication_factor=1))
            sides.append(Side(alias, kafka, cluster, TOPIC))
        run = await stack.enter_async_context(TwinlogRun(properties, directory))
        chaos = Chaos(run=run, sides=sides, dice=random.Random(seed))
        try:
            await chaos.play(minutes)
        finally:
            written = {side.alias: sum(side.written.values()) for side in sides}
            sys.stderr.write(f"seed {seed}, killed {dict(chaos.kills)}, written {written}\n")
        return chaos.kills


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    a, b = clusters = start_clusters(ClusterSpec(name="A"), ClusterSpec(name="B"))
    try:
        with tempfile.TemporaryDirectory(prefix="twinlog-chaos-") as directory:
            played = run_chaos(a, b, Path(directory), seed=options.seed, minutes=options.minutes)
            asyncio.run(played)
    finally:
        stop_clusters(clusters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
