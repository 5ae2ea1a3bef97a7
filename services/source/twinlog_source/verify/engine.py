"""A verification from the properties file to its report, in this process or on Spark."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec

from twinlog.clock import Clock
from twinlog.config import Configuration
from twinlog.errors import ConfigError, TwinlogError
from twinlog.verify.model import Bounds, NotCompared, PartitionProof, Side
from twinlog.verify.report import FlowFailure, FlowReport, name_moved_records
from twinlog_source.verify.gathering.flow import GatheredFlow, OpenClient, open_gathering
from twinlog_source.verify.progress import OnProgress, ProgressBoard
from twinlog_source.verify.proving.failures import first_of
from twinlog_source.verify.proving.in_process import InProcess
from twinlog_source.verify.proving.reading import Sides, open_sides
from twinlog_source.verify.proving.waiting import Waiting
from twinlog_source.verify.request import NO_SPARK, VerifyRequest
from twinlog_source.verify.shown import shown_records
from twinlog_source.verify.state import ProvenRanges
from twinlog_source.verify.writers import named_writers

LARGE_OFFSETS = 20_000_000
"""From this size on, Spark is worth its start, unless the request says otherwise."""


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
        )
        proofs = await self._prove_all(gathered, sides, bounds, stack)
        lost = {
            each.source: gathered.recorded.lost(each.source, each.source_log_start)
            for each in bounds
            if each.source_log_start is not None and not each.head_is_free
        }
        for proof in proofs:
            proof.not_compared = [*lost.get(proof.source, ()), *proof.not_compared]
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
        waiting = Waiting(
            gathered=gathered, give_up_at=asyncio.get_running_loop().time() + self.request.wait_seconds
        )
        state = ProvenRanges.open(
            self.request, gathered.topics.pairs, self.memory, read_committed=gathered.read_committed
        )
        stack.callback(state.close)
        progress = ProgressBoard(on_progress=self.on_progress)
        progress.begin(bounds)
        master = self._spark_master(bounds)
        if master is None:
            here = InProcess(
                gathered=gathered,
                request=self.request,
                sides=sides,
                waiting=waiting,
                state=state,
                progress=progress,
            )
            return await here.prove_all(bounds)
        from twinlog_source.verify.proving.on_spark import (
            OnSpark,
        )  # A JVM is only worth it for large comparisons.

        on_spark = OnSpark(
            gathered=gathered,
            request=self.request,
            sides=sides,
            waiting=waiting,
            state=state,
            progress=progress,
            spark=self.configuration.spark,
            master=master,
        )
        return await on_spark.prove_all(bounds)

    def _spark_master(self, bounds: Sequence[Bounds]) -> str | None:
        """None: in this process. A JVM takes seconds to start, and needs a process for each core. Raises
        ConfigError if Spark is requested and not installed."""
        asked = self.request.spark_master
        if asked == NO_SPARK:
            return None
        if asked is None and self.request.parquet_directory is not None:
            asked = self.configuration.spark.master  # Its rows are written by Spark.
        # The image of the command line has no Spark.
        installed = find_spec("pyspark") is not None
        if asked is not None:
            if not installed:
                raise ConfigError(
                    f"Spark is not installed here: install pyspark, or give --spark-master {NO_SPARK}"
                    " to compare in this process",
                    metadata={"key": "--spark-master"},
                )
            return asked
        if not installed:
            return None
        work = sum(each.source_goal - each.source_start for each in bounds)
        return self.configuration.spark.master if work >= LARGE_OFFSETS else None


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
