"""Two or three clusters write to a topic of one name, services, tasks, JVM, brokers and whole processes are
killed, `verify` finds each flow EQUAL while both sides write, and at the end each cluster has every record
once, in the order of its cluster, and nothing is copied round. One begins alone: its copies have its offsets
until the next one joins.

    python tests/chaos/both_ways_chaos.py --seed 7 --minutes 5
    python tests/chaos/both_ways_chaos.py --clusters 3 --minutes 5
    python tests/chaos/both_ways_chaos.py --files --minutes 5
    python tests/chaos/both_ways_chaos.py --standby --minutes 5
    python tests/chaos/both_ways_chaos.py --load 0.1 --minutes 2 --idle-minutes 60

The same seed makes the same choices; moments differ with the machine.
"""

import asyncio
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaProducer

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from chaos.played import Outcome, kill, parser_of, play, processes
from integration.source.source_rig import producer, quiet
from twinlog.clock import SystemClock
from twinlog.config import load
from twinlog.errors import StateError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.kafka.whole_logs import committed_records
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import eventually, make_topics
from twinlog.testing.java.mm2 import quick_mm2_properties
from twinlog.verify.report import FlowVerdict
from twinlog_source.verify.engine import Verification
from twinlog_source.verify.request import VerifyRequest

TOPIC, PARTITIONS = "both", 4
RECORDS_PER_SECOND = {"A": 500, "B": 300, "C": 100}
TICK_SECONDS = 0.1
KINDS = ("source", "source", "checkpoint", "configsync", "task", "task", "jvm", "broker", "process")
JOINS_AFTER = 0.25
"""Of the minutes, each further side."""
DRAIN_SECONDS = 300.0


class Side:
    """One cluster and its applications, which number their records in each partition."""

    def __init__(self, alias: str, kafka: BlockingCluster, cluster: KafkaCluster, topic: str) -> None:
        self.alias, self.kafka, self.cluster, self.topic = alias, kafka, cluster, topic
        self.written = Counter[int]()

    async def read(self) -> list[list[str]]:
        """The values of each partition."""
        found = []
        async with self.cluster.reader() as reader:
            for number in range(PARTITIONS):
                at = TopicPartition(self.topic, number)
                found.append(
                    [
                        (record.value or b"").decode()
                        async for record in committed_records(self.cluster, reader, at)
                    ]
                )
        return found

    async def ends(self) -> list[int]:
        at = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        ends = await self.cluster.list_offsets(OffsetSpec.LATEST, at)
        return [end for each in at if isinstance(end := ends[each], int)]


def wanted(sides: list[Side], partition: int) -> dict[str, list[str]]:
    """What each partition has of each side, in order."""
    return {
        side.alias: [f"{side.alias} {number}" for number in range(side.written[partition])] for side in sides
    }


async def has_all(sides: list[Side]) -> bool:
    for side in sides:
        for partition, values in enumerate(await side.read()):
            found = {
                each.alias: [value for value in values if value.startswith(f"{each.alias} ")]
                for each in sides
            }
            goal = wanted(sides, partition)
            assert all(len(found[alias]) <= len(goal[alias]) for alias in goal), "something is there twice"
            if found != goal:
                return False
    return True


@dataclass(slots=True, kw_only=True)
class BothWaysOutcome(Outcome):
    """Of a game to its end: what is wrong ends it."""

    @property
    def is_good(self) -> bool:
        return True


@dataclass(slots=True, kw_only=True)
class Chaos:
    runs: Sequence[TwinlogRun]
    files: Mapping[Flow, Path]
    sides: list[Side]
    dice: random.Random
    load: float
    """As a multiple of the usual one."""
    kills: Counter[str] = field(default_factory=Counter)
    _done: asyncio.Event = field(default_factory=asyncio.Event)
    _brokers_serve: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a broker is away, and while applications begin: they do not wait for one then."""

    async def play(self, minutes: float, idle_minutes: float) -> None:
        """Raises AssertionError with what is wrong."""
        async with asyncio.TaskGroup() as group:
            for number, side in enumerate(self.sides):
                later_seconds = number * minutes * 60 * JOINS_AFTER
                group.create_task(self._write(side, later_seconds), name=f"load on {side.alias}")
            give_up_at = time.monotonic() + minutes * 60
            while time.monotonic() < give_up_at:
                await quiet(2 + self.dice.random() * 6)
                await self._kill(self.dice.choice(KINDS))
            if len(self.sides) == 2:  # The records of a third cluster are not compared.
                for flow, file in self.files.items():
                    await _verify(flow, file)
            self._done.set()
        await eventually(lambda: has_all(self.sides), DRAIN_SECONDS)
        ends = [await side.ends() for side in self.sides]
        await quiet(idle_minutes * 60)
        assert [await side.ends() for side in self.sides] == ends, "something is copied round"
        async with asyncio.TaskGroup() as group:
            for side in self.sides:
                group.create_task(self._write(side), name=f"last load on {side.alias}")
        await eventually(lambda: has_all(self.sides), DRAIN_SECONDS)

    async def _write(self, side: Side, later_seconds: float = 0.0) -> None:
        """From then on until the end, one turn at least. Each record says its side and its number in its
        partition; some are in transactions."""
        count = max(1, round(RECORDS_PER_SECOND[side.alias] * self.load * TICK_SECONDS / PARTITIONS))
        servers = side.kafka.bootstrap_servers
        await quiet(later_seconds)
        async with AsyncExitStack() as stack:
            async with self._brokers_serve:
                plain: AIOKafkaProducer = await stack.enter_async_context(producer(servers, "lz4", 16_384))
                careful: AIOKafkaProducer = await stack.enter_async_context(
                    producer(servers, "zstd", 16_384, transactional_id=f"both-{side.alias}")
                )
            for turn in itertools.count(1):
                # One producer writes a partition in a turn, so that the numbers are in order there.
                for partition in range(PARTITIONS):
                    batch = careful if (turn + partition) % 8 == 0 else plain
                    if batch is careful:
                        await careful.begin_transaction()
                    sent = []
                    for _ in range(count):
                        value = f"{side.alias} {side.written[partition]}".encode()
                        sent.append(await batch.send(TOPIC, value, key=b"k", partition=partition))
                        side.written[partition] += 1
                    for each in sent:
                        await each
                    if batch is careful:
                        await careful.commit_transaction()
                if self._done.is_set():
                    return
                await quiet(TICK_SECONDS)

    async def _kill(self, kind: str) -> None:
        run = self.dice.choice(self.runs)
        try:
            if kind == "broker":
                kafka = self.dice.choice(self.sides).kafka
                broker = self.dice.choice(kafka.broker_ids)
                async with self._brokers_serve:
                    await asyncio.to_thread(kafka.kill_broker, broker)
                    await asyncio.to_thread(kafka.restart_broker, broker)
            elif kind == "process":
                await asyncio.to_thread(run.process.kill)
                await run.start()
            elif kind in ("task", "jvm"):
                jvms, tasks = processes(run.process.pid)
                for victim in jvms[:1] if kind == "jvm" else tasks and [self.dice.choice(tasks)]:
                    kill(victim)
            else:
                run.kill_service(kind)
        except StateError:
            return  # It is not back yet.
        self.kills[kind] += 1


async def _verify(flow: Flow, file: Path) -> None:
    """While both sides write."""
    request = VerifyRequest(flow=flow, topics=frozenset({TOPIC}), wait_seconds=DRAIN_SECONDS)
    report = await Verification(
        configuration=load(file, environ={}), request=request, clock=SystemClock()
    ).run()
    not_compared = [each for proof in report.proofs for each in proof.not_compared]
    assert report.verdict is FlowVerdict.EQUAL, report
    assert not not_compared, report
    records = sum(proof.records for proof in report.proofs)
    sys.stderr.write(f"verify {flow}: {report.verdict}, {records} records\n")


async def run_chaos(
    brokers: Mapping[str, BlockingCluster],
    directory: Path,
    *,
    seed: int,
    minutes: float,
    idle_minutes: float = 1.0,
    load: float = 1.0,
    has_files: bool = False,
    has_standby: bool = False,
) -> BothWaysOutcome:
    """Clusters of the caller's, which this breaks. `has_files`: the flows to each target are in a file of
    their own; `has_standby`: two processes for each file. Raises AssertionError."""
    clients = {alias: kafka.client_properties() for alias, kafka in brokers.items()}
    flows = [Flow(*ends) for ends in itertools.permutations(brokers, 2)]
    files = [[each for each in flows if each.target == alias] for alias in brokers] if has_files else [flows]
    async with AsyncExitStack() as stack:
        sides = []
        for alias, kafka in brokers.items():
            cluster = await stack.enter_async_context(open_cluster(alias, clients[alias]))
            await make_topics(cluster, NewTopic(name=TOPIC, partition_count=PARTITIONS, replication_factor=1))
            sides.append(Side(alias, kafka, cluster, TOPIC))
        runs, places = [], dict[Flow, Path]()
        for number, (file, _) in enumerate(itertools.product(files, range(1 + has_standby))):
            extra = {
                "topics": TOPIC,
                "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
                "sync.topic.configs.enabled": str(file is files[0]).lower(),
                "twinlog.owner.timeout.seconds": "6",
            }
            (place := directory / str(number)).mkdir()
            run = TwinlogRun(quick_mm2_properties(clients, file, extra), place)
            places |= dict.fromkeys(file, run.file)
            runs.append(await stack.enter_async_context(run))
        chaos = Chaos(runs=runs, files=places, sides=sides, dice=random.Random(seed), load=load)
        try:
            await chaos.play(minutes, idle_minutes)
        finally:
            written = {side.alias: sum(side.written.values()) for side in sides}
            sys.stderr.write(f"seed {seed}, killed {dict(chaos.kills)}, written {written}\n")
        return BothWaysOutcome(seed=seed, kills=chaos.kills, records=sum(written.values()))


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of load and kills")
    parser.add_argument(
        "--idle-minutes",
        type=float,
        default=1.0,
        help="without load or kills, in which nothing may be copied",
    )
    parser.add_argument("--load", type=float, default=1.0, help="as a multiple of 500, 300 and 100 records/s")
    parser.add_argument("--clusters", type=int, choices=(2, 3), default=2, help="each copies to each other")
    parser.add_argument(
        "--files", dest="has_files", action="store_true", help="a file and a process for each target"
    )
    parser.add_argument(
        "--standby", dest="has_standby", action="store_true", help="a second process of each file stands by"
    )
    options = vars(parser.parse_args())
    aliases = list(RECORDS_PER_SECOND)[: options.pop("clusters")]
    return play(
        lambda at, here: run_chaos(dict(zip(aliases, at, strict=True)), here, **options),
        *(ClusterSpec(name=alias) for alias in aliases),
    )


if __name__ == "__main__":
    sys.exit(main())
