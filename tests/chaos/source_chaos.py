"""Kill what copies, at random moments under load, and compare both sides at the end: nothing lost, nothing
repeated.

    python tests/chaos/source_chaos.py --seed 7 --kills 200
    python tests/chaos/source_chaos.py --kinds hang --kills 10
    python tests/chaos/source_chaos.py --kinds absence absence service --target-brokers 3 --kills 30
    python tests/chaos/source_chaos.py --kinds broker --target-brokers 3 --target-replicas 3 --kills 30
    python tests/chaos/source_chaos.py --round-trip-ms 60 --lost-every-seconds 5 --kills 100
    python tests/chaos/source_chaos.py --changed --kinds task feed drain jvm service --kills 15

Kills with SIGKILL, chosen by the seed: a task, all tasks, Spark's JVM, the whole service, the target broker.
A rival is a second service that stands by, and takes the flow over when the one that runs is killed or
silent; a pause stops a process for a while, the longest one for more than an owner may be silent, so that it
comes back to a flow that others copy. A freeze stops a task for good: its worker must be killed. A hang stops
the target's broker for longer than its session lasts, so that it is fenced as it wakes up; an absence kills
it and starts it again only then. With --changed Spark changes records on the way; the worker that
feeds its plan and the one that drains it are killed, too, each alone. With three target brokers an absent one
takes partitions without another replica along while the coordinators of their transactions continue; it must
be asked for. Between the services and the target there may be a distance, on which connections are lost. The
same seed makes the same choices; moments differ with the machine. Exit code 0 only if every partition is
identical, and of each kind that was chosen something was killed.
"""

import asyncio
import math
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from aiokafka import AIOKafkaProducer

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.distance import distance

from chaos.played import Outcome, far_listener, parser_of, play, processes, signal_to
from integration.source.source_rig import GrowingLog, Rig, compare, open_rig, producer, quiet
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ADDRESS, ClusterSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually
from twinlog.testing.service_process import ServiceProcess

TOPIC = "chaos"
PARTITIONS = 4
RECORDS_PER_SECOND = 2000
DRAIN_SECONDS = 300.0
LOG_LINES = 100
"""Shown of a service that ended by itself."""
KINDS = (
    "task",
    "task",
    "task",
    "all tasks",
    "jvm",
    "service",
    "service",
    "broker",
    "rival",
    "pause",
    "pause",
    "freeze",
    "hang",
)
"""What a run does that names no kinds."""
HANG, ABSENCE = "hang", "absence"
FEED, DRAIN = "feed", "drain"
"""The two workers of the job through which records pass."""
OWNER_TIMEOUT_SECONDS = 6
"""The least that brokers allow."""
PAUSE_SECONDS = (0.2, 1.0, 3.0, OWNER_TIMEOUT_SECONDS + 3.0)
HANG_SECONDS = (3.5, 5.0, 8.0)
"""More than `broker.session.timeout.ms` of brokers in tests."""
SERVICES_AT_ONCE = 2
LONG_AGO_MS = 1_600_000_000_000
"""The records of partition 0 are so old that brokers forget their producers at each start."""
CHANGES = {
    "twinlog.transform.topics": TOPIC,
    "twinlog.transform.where": "NOT endswith(CAST(value AS string), '7')",
    "twinlog.transform.value": "upper(CAST(value AS string))",
}
CHANGED_EPOCH_SECONDS = "60"
LOOK_SECONDS = 1.0
EPOCH_SECONDS = ("1", "5")
"""Each life of the service has one of these: in short epochs many kills hit a hand-over from one to the
next."""


@dataclass(slots=True, kw_only=True)
class SourceOutcome(Outcome):
    preserved: int = 0
    """Partitions that were compared offset by offset, too."""
    translated: dict[int, str] = field(default_factory=dict)
    """Why the others have offsets of their own, and from which offset on, by partition."""
    identical: bool = False
    difference: str = ""
    missed: Counter[str] = field(default_factory=Counter)
    """How often there was nothing of a kind to kill."""

    @property
    def is_good(self) -> bool:
        return self.identical and self.missed.keys() <= self.kills.keys()


@dataclass(slots=True, kw_only=True)
class Chaos:
    rig: Rig
    target: BlockingCluster
    seed: int
    kills: int
    kinds: Sequence[str] = KINDS
    longest_pause_seconds: float = 3.0
    target_replicas: int = 1
    is_changed: bool = False
    longest_seconds: float = math.inf
    """After that nothing is killed any more."""
    outcome: SourceOutcome = field(init=False)
    dice: random.Random = field(init=False)
    """What is killed: the load has dice of its own, which do not depend on how fast it is."""
    frozen: list[psutil.Process] = field(init=False)
    records_per_second: int = RECORDS_PER_SECOND
    _done: asyncio.Event = field(default_factory=asyncio.Event)
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.outcome, self.frozen = SourceOutcome(seed=self.seed), []
        self.dice = random.Random(self.seed)

    @property
    def _is_over(self) -> bool:
        is_late = time.monotonic() - self._began >= self.longest_seconds
        return is_late or self.outcome.kills.total() >= self.kills

    async def run(self) -> SourceOutcome:
        self.rig.extra |= {"topics": TOPIC, "twinlog.offsets": "auto"}
        self.rig.extra |= CHANGES if self.is_changed else {}
        self.rig.extra["twinlog.owner.timeout.seconds"] = str(OWNER_TIMEOUT_SECONDS)
        for factor in ("replication.factor", "offset.storage.replication.factor"):
            self.rig.extra[factor] = str(self.target_replicas)
        await self.rig.create(TOPIC, PARTITIONS, retention_ms="-1")
        async with self.rig.configsync() as configsync, asyncio.TaskGroup() as group:
            load = group.create_task(self._load(), name="load")
            while not self._is_over:
                await self._one_life(configsync)
            self._done.set()
            await load
            async with self.rig.running(configsync) as service:
                try:
                    for flow in self.flows:
                        await eventually(partial(self._is_drained, flow, service), DRAIN_SECONDS)
                    await eventually(self._frozen_are_gone)
                    for flow in self.flows:
                        preserved = await self._preserved(flow, service)
                        for number in range(PARTITIONS):
                            await self._compare(flow, number, by_offset=number in preserved)
                    self.outcome.identical = True
                except (AssertionError, ValueError) as error:
                    self.outcome.difference = str(error)[:500]
        return self.outcome

    @property
    def flows(self) -> list[Rig]:
        """All of one source and one target."""
        return [self.rig]

    async def _is_drained(self, flow: Rig, service: ServiceProcess) -> bool:
        """Whether everything is copied, as far as the service knows. What it knows is compared then."""
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        ends = await flow.source.list_offsets(OffsetSpec.LAST_STABLE, partitions)
        stands = {each.source.partition: each for each in await flow.partitions(service, TOPIC)}
        assert stands.keys() == {partition.partition for partition in partitions}, stands
        for partition, end in ends.items():
            stand = stands[partition.partition]
            assert (stand.source_end_offset, stand.lag_records) == (end, 0), stand
        return True

    async def _frozen_are_gone(self) -> bool:
        assert not [each for each in self.frozen if each.is_running()], "a frozen worker was not killed"
        return True

    async def _compare(self, flow: Rig, number: int, *, by_offset: bool) -> None:
        """Raises ValueError with the first difference of a partition."""
        if by_offset:
            source = await self._offsets(flow.source, TOPIC, number)
            target = await self._offsets(flow.target, flow.remote(TOPIC), number)
            for mine, copied in zip(source, target, strict=False):
                if mine != copied:
                    raise ValueError(f"{TOPIC}-{number}: the record of offset {mine} lies at {copied}")
        here = await flow.source_content(TOPIC, number)
        if self.is_changed:
            here = [
                (at_ms, key, value.upper(), headers)
                for at_ms, key, value, headers in here
                if value is not None and not value.endswith(b"7")
            ]
        there = await flow.target_content(TOPIC, number)
        compare(here, there, f"{TOPIC}-{number}")
        if len(there) < len(here):
            raise ValueError(f"{TOPIC}-{number}: {len(here) - len(there)} records are missing at the end")

    async def _offsets(self, cluster: KafkaCluster, topic: str, number: int) -> list[int]:
        return [
            record.offset for record in await GrowingLog(cluster, TopicPartition(topic, number)).records()
        ]

    async def _preserved(self, flow: Rig, service: ServiceProcess) -> set[int]:
        """The partitions whose copies have kept the offsets to the end; notes why others have not."""
        stands = await flow.partitions(service, TOPIC)
        preserved = {each.source.partition for each in stands if each.offsets == "preserved"}
        self.outcome.preserved += len(preserved)
        self.outcome.translated |= {
            each.source.partition: f"{each.offsets_reason} since offset {each.offsets_since}"
            for each in stands
            if each.source.partition not in preserved
        }
        return preserved

    async def _one_life(self, configsync: ServiceProcess) -> None:
        """Run the service and its rivals, kill parts of them until it is they themselves."""
        seconds = self.dice.choice(EPOCH_SECONDS)
        if self.is_changed:
            # A task has a Spark job of its own, which takes longer to start than these epochs last.
            seconds = CHANGED_EPOCH_SECONDS
        epochs = {"twinlog.epoch.seconds": seconds, "twinlog.epoch.max.seconds": "0"}
        async with AsyncExitStack() as stack:
            services = [await stack.enter_async_context(self.rig.running(configsync, **epochs))]
            await quiet(6 + self.dice.random() * 2)
            while not self._is_over:
                if self.is_changed:
                    await self._copies_again(services[0])
                kind = self.dice.choice(self.kinds)
                if kind == "rival":
                    services.append(await stack.enter_async_context(self.rig.running(configsync, **epochs)))
                    for oldest in services[:-SERVICES_AT_ONCE]:
                        await self._end(oldest)
                        services.remove(oldest)
                if kind == "rival" or await self._kill(kind, self.dice.choice(services)):
                    self.outcome.kills[kind] += 1
                    sys.stderr.write(f"{self.outcome.kills.total()}/{self.kills} killed: {kind}\n")
                else:
                    self.outcome.missed[kind] += 1
                if kind == "service":
                    for each in services:
                        await self._end(each)
                    return
                await quiet(self.dice.random() * self.longest_pause_seconds)

    async def _copies_again(self, service: ServiceProcess) -> None:
        """Spark needs longer for its SQL than a kill leaves it: none would hit records on their way."""
        before = (await self.rig.flow_status(service)).records

        async def more() -> bool:
            self._must_run(service)
            return (await self.rig.flow_status(service)).records > before

        await eventually(more, DRAIN_SECONDS)

    async def _end(self, service: ServiceProcess) -> None:
        self._must_run(service)
        await service.kill()

    def _must_run(self, service: ServiceProcess) -> None:
        if service.process.returncode is not None:
            log = "\n".join(service.log().splitlines()[-LOG_LINES:])
            raise RuntimeError(f"the service ended by itself ({service.process.returncode}):\n{log}")

    async def _kill(self, kind: str, service: ServiceProcess) -> bool:
        """False when there was nothing of the kind to kill just then."""
        self._must_run(service)
        if kind == "service":
            return True
        if kind == "broker":
            await self._bounce_broker(0.0)
            return True
        if kind == ABSENCE:
            await self._bounce_broker(self.dice.choice(HANG_SECONDS))
            return True
        if kind == HANG:
            await self._hang_broker()
            return True
        if kind == "pause":
            await self._pause(service)
            return True
        jvms, tasks = processes(service.process.pid)
        victims = {"jvm": jvms[:1], "all tasks": tasks}.get(kind)
        if victims is None:
            parts = await parts_of(tasks) if self.is_changed else {"task": tasks}
            some = parts.get("task" if kind == "freeze" else kind, ())
            victims = [self.dice.choice(some)] if some else []
        for victim in victims:
            signal_to(victim, signal.SIGSTOP if kind == "freeze" else signal.SIGKILL)
        if kind == "freeze":
            self.frozen += victims
        return bool(victims)

    async def _pause(self, service: ServiceProcess) -> None:
        jvms, tasks = processes(service.process.pid)
        asleep = self.dice.choice([[psutil.Process(service.process.pid)], jvms, tasks])
        for process in asleep:
            signal_to(process, signal.SIGSTOP)
        await quiet(self.dice.choice(PAUSE_SECONDS))
        for process in asleep:
            signal_to(process, signal.SIGCONT)

    async def _bounce_broker(self, absent_seconds: float) -> None:
        broker = self.dice.choice(self.target.broker_ids)
        await asyncio.to_thread(self.target.kill_broker, broker)
        await quiet(absent_seconds)
        await asyncio.to_thread(self.target.restart_broker, broker)

    async def _hang_broker(self) -> None:
        broker = self.dice.choice(self.target.broker_ids)
        await asyncio.to_thread(self.target.pause_broker, broker)
        await quiet(self.dice.choice(HANG_SECONDS))
        self.target.resume_broker(broker)

    async def _load(self) -> None:
        """Plain and transactional records, some transactions aborted; every record says who it is."""
        number = 0
        dice = random.Random(self.seed)
        async with AsyncExitStack() as stack:
            plain: AIOKafkaProducer = await stack.enter_async_context(
                producer(self.rig.source_servers, "lz4", 16_384)
            )
            careful: AIOKafkaProducer = await stack.enter_async_context(
                producer(self.rig.source_servers, "zstd", 16_384, transactional_id=f"chaos-{self.seed}")
            )
            while not self._done.is_set():
                for _ in range(self.records_per_second // 20):
                    await plain.send(TOPIC, b"plain %d" % number, **described(number))
                    number += 1
                await careful.begin_transaction()
                for _ in range(10):
                    await careful.send(TOPIC, b"careful %d" % number, **described(number))
                    number += 1
                if dice.random() < 0.2:
                    await careful.abort_transaction()
                    self.outcome.aborted += 1
                else:
                    await careful.commit_transaction()
                await quiet(0.05)
            self.outcome.records = number


async def parts_of(workers: Sequence[psutil.Process]) -> Mapping[str, Sequence[psutil.Process]]:
    """Python workers by what they do while records pass. Reads and writes that the system counts are those of
    tasks' clients, and of Spark: one end of a pipe only writes to its JVM, the other only reads from it."""
    before = {worker: moved for worker in workers if (moved := moved_bytes(worker))}
    await quiet(LOOK_SECONDS)
    parts: dict[str, list[psutil.Process]] = {"task": [], FEED: [], DRAIN: []}
    for worker, (read, written) in before.items():
        after = moved_bytes(worker)
        if after and after != (read, written):
            kind = FEED if after[0] == read else DRAIN if after[1] == written else "task"
            parts[kind].append(worker)
    return parts


def moved_bytes(process: psutil.Process) -> tuple[int, int] | None:
    """Read and written so far; None = it has ended."""
    try:
        counters = process.io_counters()
    except psutil.NoSuchProcess:
        return None
    return counters.read_chars, counters.write_chars


def described(number: int) -> dict[str, Any]:
    """The partition of a record, and its key, headers and time, which are not the same for all."""
    partition = number % PARTITIONS
    return {
        "partition": partition,
        "key": b"key %d" % (number % 7) if number % 3 else None,
        "headers": [("number", b"%d" % number), ("empty", b"")] if number % 5 == 0 else None,
        "timestamp_ms": LONG_AGO_MS + number if partition == 0 else None,
    }


async def run_chaos(
    source: BlockingCluster,
    target: BlockingCluster,
    directory: Path,
    *,
    round_trip_ms: float = 0.0,
    lost_every_seconds: float = 0.0,
    **chosen: Any,
) -> SourceOutcome:
    """Clusters of the caller's, which this breaks; `chosen`: of Chaos. With a far listener, the services use
    it to get to the target."""
    async with open_rig(source, target, directory) as rig, AsyncExitStack() as stack:
        far = target.spec.far
        if far is not None:
            rig.target_servers = f"{ADDRESS}:{far.advertised_port}"
            way = distance(
                far.advertised_port,
                far.port,
                round_trip_ms=round_trip_ms,
                lost_every_seconds=lost_every_seconds,
            )
            await stack.enter_async_context(way)
        return await Chaos(rig=rig, target=target, **chosen).run()


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--kills", type=int, default=200)
    kinds = sorted({*KINDS, ABSENCE, FEED, DRAIN})
    parser.add_argument(
        "--kinds",
        nargs="+",
        metavar="KIND",
        choices=kinds,
        default=KINDS,
        help=f"only these, each as often as it is named: {', '.join(kinds)}"
        f" (default: all but {ABSENCE}, {FEED} and {DRAIN}, tasks the most)",
    )
    parser.add_argument("--target-brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--target-replicas",
        type=int,
        choices=(1, 3),
        default=1,
        help="of copies and positions: with 3, a broker that is killed is a change of leaders",
    )
    parser.add_argument(
        "--changed", dest="is_changed", action="store_true", help="Spark changes the records on the way"
    )
    parser.add_argument(
        "--minutes",
        dest="longest_seconds",
        type=lambda text: float(text) * 60,
        default=math.inf,
        help="kill no more after so long, and compare",
    )
    parser.add_argument(
        "--round-trip-ms", type=float, default=0.0, help="from the services to the target (one broker only)"
    )
    parser.add_argument(
        "--lost-every-seconds",
        type=float,
        default=0.0,
        help="how often one of their connections is lost (default: 0 = none)",
    )
    options = vars(parser.parse_args())
    target = ClusterSpec(
        name="B",
        broker_count=options.pop("target_brokers"),
        properties={"min.insync.replicas": "2" if options["target_replicas"] > 1 else "1"},
        far=far_listener() if options["round_trip_ms"] or options["lost_every_seconds"] else None,
    )
    return play(lambda at, here: run_chaos(at[0], at[1], here, **options), ClusterSpec(name="A"), target)


if __name__ == "__main__":
    sys.exit(main())
