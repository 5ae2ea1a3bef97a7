"""What is run, in which order: everything one after the other, on the same two clusters."""

import asyncio
import itertools
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from bench.comparing.drain import Backlog, replay, run_drain
from bench.comparing.idle import PARTITIONS, IdlePlan, run_idle
from bench.comparing.latency import LatencyPlan, run_latency
from bench.comparing.loads import LOADS, BatchPool, Load, make_pool
from bench.comparing.results import CeilingRun, Copier, LoadFacts, Results
from bench.comparing.stage import Display, Side, Stage
from twinlog.errors import TwinlogError
from twinlog.kafka.raw import ProducerSettings, TransactionRotation
from twinlog.local.processes.process import last_lines
from twinlog.local.spec import KafkaVersion
from twinlog.model import Flow, TopicPartition

# Brokers that are warm: their JVMs compile while they run, and the copier that is measured first would pay
# for it.
#
# Each way to write is warmed that anybody measured takes: what one alone uses would be compiled during its
# own run. Idempotent producers warm nothing of transactions: a target that had only seen those spent 6.2 us
# of user time on each record of the first gigabyte in transactions, and 1.4 on those of the eighth.

_PARTITIONS = 8
_TURN_RECORDS = 300_000
_TRANSACTIONAL_TURN_RECORDS = 600_000
"""More, as a transaction runs through more code."""
_TRANSACTION_BYTES = 8 << 20
_TRANSACTIONAL_IDS = ("warm-up-0", "warm-up-1")


async def warm_brokers(stage: Stage, pool: BatchPool, seconds: float) -> None:
    """Write and read on both sides for that long, in transactions on the target. Raises KafkaError."""
    began = time.monotonic()
    for number in itertools.count():
        if time.monotonic() - began >= seconds:
            return
        for side, in_transactions in ((stage.source, False), (stage.target, False), (stage.target, True)):
            topic = f"warm-up-{number}-{'transactions' if in_transactions else 'plain'}"
            await side.create_topic(topic, _PARTITIONS)
            if in_transactions:
                await _write_in_transactions(side, topic, pool)
            else:
                await replay(
                    side.session,
                    topic,
                    pool,
                    partition_count=_PARTITIONS,
                    record_count=_TURN_RECORDS,
                )
            await side.count_records(topic, await side.ends(topic, _PARTITIONS))
            await side.delete_topic(topic)


async def _write_in_transactions(side: Side, topic: str, pool: BatchPool) -> None:
    batches = itertools.cycle(pool.batches)
    partitions = itertools.cycle([TopicPartition(topic, number) for number in range(_PARTITIONS)])
    left = _TRANSACTIONAL_TURN_RECORDS
    async with TransactionRotation(side.session, _TRANSACTIONAL_IDS, ProducerSettings()) as rotation:
        while left > 0:
            producer = rotation.begin()
            size_bytes = 0
            while size_bytes < _TRANSACTION_BYTES:
                batch = next(batches)
                producer.send(next(partitions), batch)
                size_bytes += batch.size_bytes
                left -= batch.record_count
            await producer.commit()


_POOL_BYTES = 48 << 20
_LOG_LINES = 20
_CEILING_SECONDS = 10.0


class Part(StrEnum):
    """What can be measured by itself."""

    CEILING = "ceiling"
    THROUGHPUT = "throughput"
    LATENCY = "latency"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    parts: frozenset[Part]
    copiers: Sequence[Copier]
    loads: Sequence[Load]
    repeat: int
    batch_bytes: int
    broker_warm_up_seconds: float
    latency: LatencyPlan
    idle: IdlePlan


def describe_machine() -> dict[str, str]:
    """What figures depend on."""
    return {
        "cores": str(psutil.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "kafka": KafkaVersion.V4_3.value,
        "load average at the start": f"{os.getloadavg()[0]:.2f}",
    }


def describe_plan(plan: Plan) -> dict[str, str]:
    return {
        "parts": ", ".join(sorted(plan.parts)),
        "copiers": ", ".join(plan.copiers),
        "repeat": str(plan.repeat),
        "batch bytes on the wire": str(plan.batch_bytes),
        "broker warm-up": f"{plan.broker_warm_up_seconds:g} s",
        "latency": f"{plan.latency.warm_up_seconds:g} s to warm up, "
        f"{plan.latency.measured_seconds:g} s measured",
        "idle": f"{plan.idle.settle_seconds:g} s to settle, {plan.idle.measured_seconds:g} s measured",
    }


class Comparison:
    """Fills `results` as it goes; a run that fails is noted there and the next one starts."""

    def __init__(self, stage: Stage, plan: Plan, directory: Path, display: Display) -> None:
        self.results = Results(machine=describe_machine(), settings=describe_plan(plan))
        self._stage = stage
        self._plan = plan
        self._directory = directory
        self._display = display
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        """Raises TwinlogError when the clusters themselves fail."""
        plan = self._plan
        await self._warm_brokers()
        if plan.parts & {Part.CEILING, Part.THROUGHPUT}:
            for load in plan.loads:
                await self._run_load(load)
        for _ in range(plan.repeat):
            if Part.LATENCY in plan.parts:
                await self._run_latencies()
            if Part.IDLE in plan.parts:
                await self._run_idles()

    async def _warm_brokers(self) -> None:
        seconds = self._plan.broker_warm_up_seconds
        self._display.fact("warming the brokers")
        await warm_brokers(self._stage, self._pool(LOADS[0]), seconds)

    async def _run_load(self, load: Load) -> None:
        self._display.step(f"{load.title}: {load.record_count:,} records")
        pool = self._pool(load)
        self.results.loads[load.name] = LoadFacts(
            load=load.name,
            title=load.title,
            records=load.record_count,
            bytes_per_record=pool.bytes_per_record,
            mean_batch_bytes=pool.mean_batch_bytes,
        )
        await self._run_ceiling(load, pool)
        if Part.THROUGHPUT in self._plan.parts:
            await self._run_drains(load, pool)
            # Once more, as brokers get faster while they run: the faster one counts.
            await self._run_ceiling(load, pool)

    async def _run_drains(self, load: Load, pool: BatchPool) -> None:
        topic = f"load-{load.name}"
        self._display.fact("filling the source")
        backlog = await self._fill(self._stage.source, topic, load, pool)
        for _ in range(self._plan.repeat):
            for copier in self._copiers(load.round_trip_ms):
                await self._run_drain(backlog, copier)
        await self._stage.source.delete_topic(topic)

    async def _run_ceiling(self, load: Load, pool: BatchPool) -> None:
        if Part.CEILING not in self._plan.parts:
            return
        target = self._stage.target
        topic = f"ceiling-{next(self._numbers)}"
        await _write_back()
        await target.create_topic(topic, load.partition_count)
        broker_cpu_seconds = target.brokers.cpu_seconds()
        done = await replay(
            target.session,
            topic,
            pool,
            partition_count=load.partition_count,
            record_count=load.record_count,
            most_seconds=_CEILING_SECONDS,
        )
        run = CeilingRun(
            load=load.name,
            records_per_second=done.record_count / done.seconds,
            records_per_cpu_second=done.record_count / done.cpu_seconds,
            target_broker_cpu_seconds=target.brokers.cpu_seconds() - broker_cpu_seconds,
        )
        await target.delete_topic(topic)
        self.results.ceilings.append(run)
        self._display.fact(f"ceiling: {run.records_per_second:,.0f} records/s")

    async def _run_drain(self, backlog: Backlog, copier: Copier) -> None:
        with self._noting_failure(f"{backlog.load.title}: {copier.label}", copier) as directory:
            await _write_back()
            run = await run_drain(self._stage, backlog, copier, self._new_flow(), directory)
            self.results.drains.append(run)
            warm = run.drain.warm
            self._display.fact(
                f"{copier.label}: {run.drain.whole.records_per_second:,.0f} records/s, warm "
                f"{warm.records_per_second:,.0f}; {warm.records_per_cpu_second:,.0f} per CPU-second warm"
            )

    async def _run_latencies(self) -> None:
        plan = self._plan.latency
        runs = [(load, copier) for load in plan.loads for copier in self._copiers(load.round_trip_ms)]
        for load, copier in runs:
            self._display.step(f"latency, {load.title}")
            with self._noting_failure(f"latency, {load.name}: {copier.label}", copier) as directory:
                flow = self._new_flow()
                await _write_back()
                run = await run_latency(self._stage, copier, flow, load, plan, directory)
                self.results.latencies.append(run)
                self._display.fact(
                    f"{copier.label}: p50 {run.p50_ms:.1f} ms, p90 {run.p90_ms:.1f}, p99 {run.p99_ms:.1f},"
                    f" p99.9 {run.p999_ms:.1f}"
                )

    def _copiers(self, round_trip_ms: float) -> Sequence[Copier]:
        """What offsets copies have matters where clusters are apart."""
        return [
            copier
            for copier in self._plan.copiers
            if round_trip_ms or copier is not Copier.TWINLOG_TRANSLATED
        ]

    async def _run_idles(self) -> None:
        plan = self._plan.idle
        self._display.step(f"idle, {PARTITIONS} partitions")
        for copier in self._copiers(0.0):
            if copier is Copier.MM2_TUNED:
                continue  # its settings are about records
            with self._noting_failure(f"idle: {copier.label}", copier) as directory:
                run = await run_idle(self._stage, copier, self._new_flow(), plan, directory)
                self.results.idles.append(run)
                self._display.fact(f"{copier.label}: {run.cpu_share:.1%} of a core")

    async def _fill(self, side: Side, topic: str, load: Load, pool: BatchPool) -> Backlog:
        await side.create_topic(topic, load.partition_count)
        filled = await replay(
            side.session,
            topic,
            pool,
            partition_count=load.partition_count,
            record_count=load.record_count,
        )
        return Backlog(load=load, topic=topic, records=filled.records)

    @contextmanager
    def _noting_failure(self, name: str, copier: Copier) -> Iterator[Path]:
        """A directory for the run; when it fails, the end of the log there tells why."""
        self._display.fact(copier.label)
        directory = self._directory / f"{copier}-{next(self._numbers)}"
        directory.mkdir(parents=True)
        try:
            yield directory
        except (TwinlogError, TimeoutError) as error:
            text = f"{name}: {str(error) or 'timed out'}"
            self.results.failures.append(text)
            self._display.failure(text)
            for log in sorted(directory.glob("*.log")):
                self._display.fact(f"the end of {log.name}:\n{last_lines(log, _LOG_LINES)}")

    def _pool(self, load: Load) -> BatchPool:
        return make_pool(
            load,
            batch_bytes=self._plan.batch_bytes,
            pool_bytes=_POOL_BYTES,
            now_ms=time.time_ns() // 1_000_000,
        )

    def _new_flow(self) -> Flow:
        """Aliases nobody had: the flow starts without positions, on topics of its own."""
        number = next(self._numbers)
        return Flow(f"a{number}", f"b{number}")


async def _write_back() -> None:
    """Wait until the kernel has written to the disk what former runs left, so that no run finds less room for
    unwritten pages than the first."""
    await asyncio.to_thread(os.sync)
