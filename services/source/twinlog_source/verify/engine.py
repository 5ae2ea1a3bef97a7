"""A verification in this process: several partitions at a time, on one event loop."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from twinlog.clock import Clock
from twinlog.config import Configuration
from twinlog.config.settings import ClientConfig
from twinlog.errors import KafkaError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.raw import BatchReader, DataClientPool
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.verify.compare import Comparison
from twinlog.verify.model import Bounds, NotCompared, PartitionProof, Side
from twinlog.verify.report import FlowFailure, FlowReport, name_moved_records
from twinlog.verify.sides import Extended
from twinlog_source.verify.gathering import Estate, open_estate
from twinlog_source.verify.locating import OffsetForTime
from twinlog_source.verify.pace import Pace
from twinlog_source.verify.partition_log import PartitionLog
from twinlog_source.verify.prover import Prover
from twinlog_source.verify.request import VerifyRequest
from twinlog_source.verify.shown import shown_records
from twinlog_source.verify.state import ProvenRanges

_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.5


@dataclass(slots=True)
class Progress:
    """How far a verification is; offsets of the source stand for work."""

    total: dict[TopicPartition, int] = field(default_factory=dict)
    done: dict[TopicPartition, int] = field(default_factory=dict)
    read_bytes: int = 0
    differences: int = 0

    @property
    def total_offsets(self) -> int:
        return sum(self.total.values())

    @property
    def done_offsets(self) -> int:
        return sum(self.done.values())


OnProgress = Callable[[Progress], None]


@dataclass(slots=True, kw_only=True)
class Sides:
    """The connections that records are read on."""

    source: DataClientPool
    target: DataClientPool
    source_reader: BatchReader
    target_reader: BatchReader
    source_pace: Pace
    target_pace: Pace

    def log(
        self, side: Side, partition: TopicPartition, patience: float, group: asyncio.TaskGroup
    ) -> PartitionLog:
        is_source = side is Side.SOURCE
        return PartitionLog(
            partition=partition,
            session=self.source if is_source else self.target,
            reader=self.source_reader if is_source else self.target_reader,
            pace=self.source_pace if is_source else self.target_pace,
            patience_seconds=patience,
            group=group,
        )


async def open_sides(
    stack: AsyncExitStack,
    source: ClientConfig,
    target: ClientConfig,
    *,
    read_committed: bool,
    max_bytes_per_second: int,
) -> Sides:
    """They close with the stack. Raises ConfigError."""
    pools = []
    for client in (source, target):
        options = aiokafka_client_options(client.properties, alias=client.alias, client_id_suffix="verify")
        pool = DataClientPool(client.alias, options, timeout_seconds=_TIMEOUT_SECONDS)
        stack.push_async_callback(pool.close)
        pools.append(pool)
    return Sides(
        source=pools[0],
        target=pools[1],
        source_reader=BatchReader(pools[0], read_committed=read_committed),
        target_reader=BatchReader(pools[1], read_committed=True),
        source_pace=Pace(max_bytes_per_second),
        target_pace=Pace(max_bytes_per_second),
    )


@dataclass(slots=True, kw_only=True)
class Verification:
    """One run. `run` never raises for what a cluster does once the bounds are known."""

    configuration: Configuration
    request: VerifyRequest
    clock: Clock
    on_progress: OnProgress = lambda _: None
    _progress: Progress = field(default_factory=Progress)

    async def run(self) -> FlowReport:
        """Raises ConfigError: what is asked for is not there."""
        began_at_ms = self.clock.now_ms()
        async with AsyncExitStack() as stack:
            estate = await open_estate(self.configuration, self.request, stack)
            try:
                return await self._run(estate, stack, began_at_ms)
            except KafkaError as error:
                failure = FlowFailure(reason=error.reason, detail=str(error))
                return self._report(began_at_ms, estate, [], [failure])

    async def _run(self, estate: Estate, stack: AsyncExitStack, began_at_ms: int) -> FlowReport:
        bounds = await estate.gather()
        clients = estate.flow.clients
        sides = await open_sides(
            stack,
            clients.source_consumer,
            clients.target_consumer,
            read_committed=estate.read_committed,
            max_bytes_per_second=self.request.max_bytes_per_second,
        )
        proofs = await self._prove_all(estate, sides, bounds)
        changed = await estate.changed_topics()
        for proof in proofs:
            if proof.source.topic in changed:
                _forget(proof, changed[proof.source.topic])
        name_moved_records(proofs)
        report = self._report(began_at_ms, estate, proofs, [])
        if self.request.show:
            report = replace(report, records=await shown_records(sides, report))
        return report

    def _report(
        self,
        began_at_ms: int,
        estate: Estate,
        proofs: Sequence[PartitionProof],
        failures: Sequence[FlowFailure],
    ) -> FlowReport:
        ordered = sorted((*proofs, *estate.proofs), key=lambda proof: proof.source)
        return FlowReport(
            flow=self.request.flow,
            began_at_ms=began_at_ms,
            ended_at_ms=self.clock.now_ms(),
            proofs=ordered,
            failures=[*failures, *estate.failures],
        )

    async def _prove_all(
        self, estate: Estate, sides: Sides, bounds: Sequence[Bounds]
    ) -> list[PartitionProof]:
        give_up_at = asyncio.get_running_loop().time() + self.request.wait_seconds
        state = ProvenRanges.open(self.request, estate.pairs)
        places = asyncio.Semaphore(self.request.parallel)
        proofs: list[PartitionProof] = []
        self._progress.total = {each.source: each.source_goal - each.source_start for each in bounds}

        async def prove(each: Bounds, group: asyncio.TaskGroup) -> None:
            async with places:
                proofs.append(await self._prove(estate, sides, each, state, give_up_at, group))

        try:
            async with asyncio.TaskGroup() as group:
                # The largest first: else the last one to begin is the last one to end.
                for each in sorted(bounds, key=lambda each: each.source_start - each.source_goal):
                    group.create_task(prove(each, group), name=f"verify {each.source}")
        finally:
            state.close()
        return proofs

    async def _prove(
        self,
        estate: Estate,
        sides: Sides,
        bounds: Bounds,
        state: ProvenRanges,
        give_up_at: float,
        group: asyncio.TaskGroup,
    ) -> PartitionProof:
        begun = state.narrowed(bounds)
        patience = self.request.patience_seconds
        source = sides.log(Side.SOURCE, bounds.source, patience, group)
        target = sides.log(Side.TARGET, bounds.target, patience, group)
        waiting = Waiting(estate=estate, give_up_at=give_up_at)

        def note(comparison: Comparison) -> None:
            self._note(comparison, bounds, sides)
            state.note(comparison, begun)

        prover = Prover(
            bounds=begun.bounds,
            source=source,
            target=target,
            extend=waiting.extend,
            source_offset_for_time=_offset_for_time(estate.source.offsets_for_times, bounds.source),
            target_offset_for_time=_offset_for_time(estate.target.offsets_for_times, bounds.target),
            on_progress=note,
            max_open_bytes=self.request.max_open_bytes,
        )
        proof = await prover.run()
        if bounds.source in estate.open_copies:
            proof.not_compared.append(estate.open_copies[bounds.source])
        proof = begun.completed(proof)
        state.end(proof, bounds)
        self._progress.done[bounds.source] = self._progress.total[bounds.source]
        self._progress.differences += sum(each.count for each in proof.differences)
        self.on_progress(self._progress)
        return proof

    def _note(self, comparison: Comparison, bounds: Bounds, sides: Sides) -> None:
        progress = self._progress
        progress.done[bounds.source] = min(comparison.source.at, bounds.source_goal) - bounds.source_start
        progress.read_bytes = sides.source_pace.read_bytes + sides.target_pace.read_bytes
        self.on_progress(progress)


@dataclass(slots=True, kw_only=True)
class Waiting:
    """For the copy to arrive at the ends of the source that were taken at the start."""

    estate: Estate
    give_up_at: float

    async def extend(self, comparison: Comparison) -> Extended:
        """Raises KafkaError."""
        loop = asyncio.get_running_loop()
        while True:
            positions = await self.estate.stored_positions()
            position = positions.get(comparison.bounds.source)
            end = await self.estate.target_end(comparison.bounds.target)
            is_lost = position is not None and position > comparison.source.at
            if end > comparison.target.limit or is_lost or loop.time() >= self.give_up_at:
                return Extended(target_limit=max(end, comparison.target.limit), position=position)
            await wait_or_stop(asyncio.Event(), _POLL_SECONDS)


def _offset_for_time(
    look_up: Callable[[Mapping[TopicPartition, int]], object], partition: TopicPartition
) -> OffsetForTime:
    async def offset(timestamp_ms: int) -> int | None:
        found = (await look_up({partition: max(0, timestamp_ms)}))[partition]  # type: ignore[misc]
        return found if isinstance(found, int) else None

    return offset


def _forget(proof: PartitionProof, why: FlowFailure) -> None:
    """Offsets of one topic were compared with those of another: nothing is known."""
    proof.differences = []
    proof.not_compared = [
        NotCompared(
            side=Side.SOURCE,
            from_offset=proof.source_from,
            to_offset=max(proof.source_from, proof.source_to),
            reason=why.reason,
            detail=why.detail,
        )
    ]
