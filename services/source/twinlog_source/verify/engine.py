"""A verification from the properties file to its report: several partitions at a time, on one event loop.

What a report tells of the records that differ: their contents, which are fetched only on request because
they may be confidential, and the producers of foreign ones.
"""

import asyncio
import functools
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from twinlog.batches import decode_batch
from twinlog.batches.header import Batch
from twinlog.clock import Clock
from twinlog.comparison.compare import Comparison
from twinlog.comparison.model import Bounds, Difference, DifferenceKind, NotCompared, PartitionProof, Side
from twinlog.comparison.sides import Extended
from twinlog.config import Configuration
from twinlog.errors import ConfigError, TransientKafkaError, TwinlogError, first_of
from twinlog.kafka.raw import BatchReader
from twinlog.model import TopicPartition
from twinlog.transforms.expressions import OnError, expressions_of
from twinlog.verify.report import FlowFailure, FlowReport, Writer, name_moved_records, shown_record
from twinlog_source.records.changing import Changing, MakePipe, RunPipe, kept_pipes
from twinlog_source.records.pipe import record_pipe
from twinlog_source.verify.gathering.flow import GatheredFlow, OpenClient, open_gathering
from twinlog_source.verify.proving.prover import Prover
from twinlog_source.verify.proving.reading import Sides, Waiting, offset_for_time, open_sides
from twinlog_source.verify.request import OnProgress, ProgressBoard, VerifyRequest
from twinlog_source.verify.state import ProvenRanges

MOST_SHOWN = 100
"""For how many differences records are fetched, and for how many their producers are looked up."""
_SHOWN_BYTES = 1 << 20
_NAMED_BYTES = 64 << 10
_OF_SOMEBODY = frozenset(
    (DifferenceKind.FOREIGN, DifferenceKind.DUPLICATE, DifferenceKind.CHANGED, DifferenceKind.ORDER)
)


async def shown_records(sides: Any, report: FlowReport) -> dict[tuple[TopicPartition, str, int], Any]:
    """By source partition, side and offset; unreadable records are left out, and all further ones of a side
    that does not answer."""
    found: dict[tuple[TopicPartition, str, int], Any] = {}
    away: set[Side] = set()
    for proof, difference in [*_differences(report)][:MOST_SHOWN]:
        for side, partition, reader, offset in (
            (Side.SOURCE, proof.log, sides.source_reader, difference.source_offset),
            (Side.TARGET, proof.target, sides.target_reader, difference.target_offset),
        ):
            if offset is None or side in away:
                continue
            try:
                batch = await _batch_at(reader, partition, offset, max_bytes=_SHOWN_BYTES)
                records = () if batch is None else decode_batch(batch)
            except TransientKafkaError:
                away.add(side)
                continue
            except TwinlogError:
                continue
            for record in records:
                if record.offset == offset:
                    found[proof.source, str(side), offset] = shown_record(record)
    return found


async def named_writers(sides: Any, report: FlowReport) -> dict[tuple[TopicPartition, int], Writer]:
    """By source partition and target offset; unreadable batches are left out. Waits for none once the target
    does not answer."""
    found: dict[tuple[TopicPartition, int], Writer] = {}
    wanted = [
        (proof, difference.target_offset)
        for proof, difference in _differences(report)
        if difference.kind in _OF_SOMEBODY and difference.target_offset is not None
    ]
    for proof, offset in wanted[:MOST_SHOWN]:
        try:
            batch = await _batch_at(sides.target_reader, proof.target, offset, max_bytes=_NAMED_BYTES)
        except TransientKafkaError:
            break
        except TwinlogError:
            continue
        if batch is not None:
            header = batch.header
            found[proof.source, offset] = Writer(
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                transactional=header.is_transactional,
            )
    return found


def _differences(report: FlowReport) -> Iterator[tuple[PartitionProof, Difference]]:
    return ((proof, difference) for proof in report.proofs for difference in proof.differences)


async def _batch_at(
    reader: BatchReader, partition: TopicPartition, offset: int, *, max_bytes: int
) -> Batch | None:
    fetched = await reader.fetch(partition, offset, max_bytes=max_bytes)
    return next(
        (batch for batch in fetched.batches if batch.header.base_offset <= offset < batch.header.next_offset),
        None,
    )


@dataclass(slots=True, kw_only=True)
class Verification:
    """One run. `run` does not raise for failures of a cluster."""

    configuration: Configuration
    request: VerifyRequest
    clock: Clock
    on_progress: OnProgress = lambda _: None
    memory: dict[str, str] | None = None
    """Keeps what is proven from one run to the next, instead of the request's directory."""
    open_client: OpenClient | None = None
    """Connects to a cluster; None = over the network."""
    run_pipe: RunPipe | None = None
    """The Spark that changes records as the copy does; None = one of its own, if it is needed."""
    make_pipe: MakePipe = record_pipe

    async def run(self) -> FlowReport:
        """Raises ConfigError if the requested topics or partitions do not exist."""
        began_at_ms = self.clock.now_ms()
        async with AsyncExitStack() as stack:
            gathered: GatheredFlow | None = None
            failure: TwinlogError | None = None
            report: FlowReport | None = None
            try:
                gathered = await open_gathering(
                    self.configuration, self.request, stack, open_client=self.open_client
                )
                report = await self._run(gathered, stack, began_at_ms)
            except* TwinlogError as failures:  # Also those of a task group.
                failure = first_of(failures)
            if isinstance(failure, ConfigError):
                raise failure
            if failure is not None:
                told = FlowFailure(reason=failure.reason, detail=str(failure))
                report = self._report(began_at_ms, gathered, [], [told])
            assert report is not None
            return report

    async def _run(self, gathered: GatheredFlow, stack: AsyncExitStack, began_at_ms: int) -> FlowReport:
        bounds = await gathered.gather()
        clients = gathered.flow.clients
        sides = await open_sides(
            stack,
            clients.source_consumer,
            clients.target_consumer,
            read_committed=gathered.read_committed,
            max_bytes_per_second=self.request.max_bytes_per_second,
            policy_config=gathered.flow.policy_config,
            changing=await self._changing(gathered, stack),
            most_bytes=await gathered.topics.most_bytes_of_changed(),
        )
        proofs = await self._prove_all(gathered, sides, bounds, stack)
        lost = {
            each.source: gathered.recorded.lost(gathered.topics.log_of(each.source), each.source_log_start)
            for each in bounds
            if each.source_log_start is not None and not each.head_is_free
        }
        for proof in proofs:
            others = [
                each
                for each in gathered.of_other_transforms.get(proof.source, ())
                if not proof.source_from <= each.from_offset < proof.source_to  # It was proven before.
            ]
            proof.not_compared = [*lost.get(proof.source, ()), *others, *proof.not_compared]
        changed = await gathered.topics.changed()
        for proof in proofs:
            if proof.source.topic in changed:
                _forget(proof, changed[proof.source.topic])
        name_moved_records(proofs)
        report = self._report(began_at_ms, gathered, proofs, [])
        report = replace(report, writers=await named_writers(sides, report))
        if self.request.show:
            report = replace(report, records=await shown_records(sides, report))
        return report

    async def _changing(self, gathered: GatheredFlow, stack: AsyncExitStack) -> Changing | None:
        expressions, run_pipe = expressions_of(gathered.flow.policy_config), self.run_pipe
        if expressions is None:
            return None
        # What fails is not in the copy, or behind its position.
        expressions = replace(expressions, on_error=OnError.SKIP)
        if run_pipe is None:
            if find_spec("pyspark") is None:
                raise ConfigError(
                    f"{gathered.flow.flow}: records that expressions change are compared with Spark, which"
                    " is not installed here: pip install 'twinlog-source[records]', or the image twinlog-all"
                )
            # Here, because it loads pyspark.
            from twinlog_source.pipeline.runner import own_spark

            spark = await stack.enter_async_context(own_spark(self.configuration.spark.conf, self.clock))
            run_pipe = spark.run_pipe
        changing = await stack.enter_async_context(kept_pipes(run_pipe, self.make_pipe))
        return changing(gathered.flow.flow, expressions)

    def _report(
        self,
        began_at_ms: int,
        gathered: GatheredFlow | None,
        proofs: Sequence[PartitionProof],
        failures: Sequence[FlowFailure],
    ) -> FlowReport:
        topics = None if gathered is None else gathered.topics
        refused = () if topics is None else topics.refused
        ordered = sorted((*proofs, *refused), key=lambda proof: proof.source)
        return FlowReport(
            flow=self.request.flow,
            began_at_ms=began_at_ms,
            ended_at_ms=self.clock.now_ms(),
            proofs=ordered,
            failures=[*failures, *(() if topics is None else topics.failures)],
            rules=None if gathered is None else gathered.rules,
        )

    async def _prove_all(
        self, gathered: GatheredFlow, sides: Sides, bounds: Sequence[Bounds], stack: AsyncExitStack
    ) -> list[PartitionProof]:
        state = ProvenRanges.open(
            self.request, gathered.topics.pairs, self.memory, read_committed=gathered.read_committed
        )
        stack.callback(state.close)
        logs = {each.source: gathered.topics.log_of(each.source) for each in bounds}
        await state.look_at_epochs(gathered.source, logs)
        progress = ProgressBoard(on_progress=self.on_progress)
        progress.begin(bounds)
        waiting = Waiting(
            gathered=gathered, give_up_at=asyncio.get_running_loop().time() + self.request.wait_seconds
        )
        places = asyncio.Semaphore(self.request.parallel)
        proofs: list[PartitionProof] = []

        async def prove(number: int, group: asyncio.TaskGroup) -> None:
            async with places:
                each = bounds[number]
                log = gathered.topics.log_of(each.source)
                begun = state.narrowed(each)
                patience = self.request.patience_seconds
                way = gathered.way_of(each.source)
                source, target = (
                    sides.log(
                        side,
                        at,
                        patience,
                        group,
                        gathered.counts(side, each.source),
                        too_large=each.too_large,
                        way=way if side is Side.SOURCE else None,
                    )
                    for side, at in ((Side.SOURCE, log), (Side.TARGET, each.target))
                )

                async def extend(comparison: Comparison) -> Extended:
                    return await waiting.extend(
                        each.source, at=comparison.source.at, limit=comparison.target.limit
                    )

                def note(comparison: Comparison) -> None:
                    at = min(comparison.source.at, each.source_goal)
                    read_bytes = source.read_bytes + target.read_bytes
                    progress.note(number, at - each.source_start, read_bytes)
                    state.note(comparison, begun, read_bytes)

                prover = Prover(
                    bounds=begun.bounds,
                    source=source,
                    target=target,
                    extend=extend,
                    ends=functools.partial(gathered.ends_now, each.source),
                    source_offset_for_time=offset_for_time(gathered.source.offsets_for_times, log),
                    target_offset_for_time=offset_for_time(gathered.target.offsets_for_times, each.target),
                    on_progress=note,
                    max_open_bytes=gathered.flow.source.max_uncompressed_bytes,
                )
                proof = await prover.run()
                await gathered.take_back_promise(proof)
                gathered.say_what_is_hidden(proof)
                gathered.say_what_goes_elsewhere(proof, way)
                proof = begun.completed(proof)
                proof.routed_from = gathered.topics.routed_from.get(each.source.topic, "")
                proof.one_origin = each.source.topic in gathered.projected
                state.end(proof, each)
                progress.end(number, proof)
                proofs.append(proof)

        # The largest begin first; otherwise the last one to begin would also be the last one to end.
        largest_first = sorted(
            range(len(bounds)), key=lambda number: bounds[number].source_start - bounds[number].source_goal
        )
        async with asyncio.TaskGroup() as group:
            for number in largest_first:
                group.create_task(prove(number, group), name=f"verify {bounds[number].source}")
        return proofs


def _forget(proof: PartitionProof, why: FlowFailure) -> None:
    """Offsets of one topic were compared with those of another: drop what is known."""
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
