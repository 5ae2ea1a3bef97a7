"""How fast a copier empties a backlog that was there before it started."""

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from bench.comparing.copiers import RunningCopier, copier_in, copier_properties, starting
from bench.comparing.loads import BatchPool, Load
from bench.comparing.process_tree import TreeMeter
from bench.comparing.results import Copier, DrainRun, Sample, measure_drain, without_markers
from bench.comparing.stage import Stage
from twinlog.errors import StateError
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_or_stop

_SAMPLE_SECONDS = 0.2
_QUIET_SECONDS = 2.0
"""It is over when as many records as expected are there and no more came for this long."""
_STALL_SECONDS = 120.0
_START_SECONDS = 300.0
"""The same until the first record: where records pass through Spark, its SQL is loaded first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """A filled topic of the source."""

    load: Load
    topic: str
    records: tuple[int, ...]
    """By partition."""

    @property
    def wanted(self) -> tuple[int, ...]:
        """Records of the copy, by partition."""
        return tuple(count // self.load.kept_one_in for count in self.records)

    @property
    def record_count(self) -> int:
        """Records of the copy."""
        return sum(self.wanted)


async def run_drain(
    stage: Stage,
    backlog: Backlog,
    copier: Copier,
    flow: Flow,
    directory: Path,
) -> DrainRun:
    """Start the copier on the backlog, measure until all of it is on the target, and stop it.

    `flow` must be new to these clusters: then nobody has a position. Raises TwinlogError when the copier does
    not start, stands still, or lost records.
    """
    remote_topic = backlog.topic if backlog.load.keeps_names else f"{flow.source}.{backlog.topic}"
    meter = TreeMeter()
    try:
        async with stage.way_to_target(backlog.load.round_trip_ms) as far:
            properties = copier_properties(
                copier,
                flow,
                stage.source.brokers.client_properties(),
                far,
                topics=backlog.topic,
                codec=backlog.load.codec,
                more=backlog.load.settings,
            )
            async with copier_in(directory, copier, properties) as running, starting(running):
                samples = await _sample(stage, backlog, remote_topic, running, meter)
        is_whole = samples[-1].records >= backlog.record_count
        copied = await _copied(stage, backlog, remote_topic, is_whole=is_whole)
    finally:
        await stage.target.delete_topic(remote_topic)
    return DrainRun(
        load=backlog.load.name,
        copier=copier,
        drain=measure_drain(without_markers(samples, copied)),
        peak_pss_bytes=meter.peak_pss_bytes,
        surplus_records=max(copied - backlog.record_count, 0),
    )


async def _sample(
    stage: Stage,
    backlog: Backlog,
    remote_topic: str,
    running: RunningCopier,
    meter: TreeMeter,
) -> list[Sample]:
    loop = asyncio.get_running_loop()
    began = changed_at = loop.time()
    never = asyncio.Event()
    samples: list[Sample] = []
    while True:
        records = sum(await stage.target.ends(remote_topic, backlog.load.partition_count))
        now = loop.time()
        samples.append(
            Sample(
                at_seconds=now - began,
                records=records,
                cpu_seconds=meter.cpu_seconds(running.pid, now),
                source_broker_cpu_seconds=stage.source.brokers.cpu_seconds(),
                target_broker_cpu_seconds=stage.target.brokers.cpu_seconds(),
            )
        )
        if len(samples) == 1 or records != samples[-2].records:
            changed_at = now
        if records >= backlog.record_count and now - changed_at > _QUIET_SECONDS:
            return samples
        if now - began > backlog.load.most_seconds and records:
            return samples
        patience_seconds = _STALL_SECONDS if records else _START_SECONDS
        if now - changed_at > patience_seconds:
            raise StateError(
                f"{records:,} of {backlog.record_count:,} records were copied, and no more for "
                f"{patience_seconds:.0f} s"
            )
        await wait_or_stop(never, _SAMPLE_SECONDS)


async def _copied(stage: Stage, backlog: Backlog, remote_topic: str, *, is_whole: bool) -> int:
    """Records on the target. Raises StateError when some are missing of a run that copied all."""
    ends = await stage.target.ends(remote_topic, backlog.load.partition_count)
    copied = await stage.target.count_records(remote_topic, ends)
    missing = sum(max(wanted - found, 0) for wanted, found in zip(backlog.wanted, copied, strict=True))
    if missing and is_whole:
        raise StateError(f"{missing:,} records are missing on the target")
    return sum(copied)


# Batches from memory into a topic as fast as the brokers take them: fills the source, and is the ceiling.

_MOST_UNDER_WAY_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    records: tuple[int, ...]
    """By partition."""
    seconds: float
    cpu_seconds: float
    """CPU time of this process."""

    @property
    def record_count(self) -> int:
        return sum(self.records)


async def replay(
    session: DataClientPool,
    topic: str,
    pool: BatchPool,
    *,
    partition_count: int,
    record_count: int,
    most_seconds: float = math.inf,
) -> Replayed:
    """Send at least `record_count` records, or for `most_seconds`, each batch to the next partition in turn,
    and wait for all acknowledgements. Raises KafkaError.
    """
    records = [0] * partition_count
    partitions = cycle([TopicPartition(topic, number) for number in range(partition_count)])
    under_way: deque[tuple[asyncio.Future[int], int]] = deque()
    under_way_bytes = sent = 0
    began, cpu_began = time.perf_counter(), time.process_time()
    async with RawProducer(session, ProducerSettings()) as producer:
        for number, (batch, partition) in enumerate(zip(cycle(pool.batches), partitions, strict=False)):
            if sent >= record_count or time.perf_counter() - began > most_seconds:
                break
            # Times go on: the same records again and again would look like records that go round.
            times = (batch.base_timestamp_ms + number, batch.max_timestamp_ms + number)
            sent_now = batch._replace(base_timestamp_ms=times[0], max_timestamp_ms=times[1])
            under_way.append((producer.send(partition, sent_now), batch.size_bytes))
            under_way_bytes += batch.size_bytes
            records[partition.partition] += batch.record_count
            sent += batch.record_count
            while under_way_bytes > _MOST_UNDER_WAY_BYTES:
                oldest, size_bytes = under_way.popleft()
                await oldest
                under_way_bytes -= size_bytes
        await producer.flush()
    return Replayed(
        records=tuple(records),
        seconds=time.perf_counter() - began,
        cpu_seconds=time.process_time() - cpu_began,
    )
