"""Continuous verification of a flow: its copies are verified again and again while they are written.

Each run verifies what is new, and one partition from its beginning, in turn, so that all of them are verified
again. It uses its own event loop in a thread, because comparing keeps a loop busy. The results are stored on
the positions topic (`ProofFact`), so that verification continues after a restart, or in the process that
takes the flow over.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
import uvloop

from twinlog.clock import Clock
from twinlog.config import Configuration
from twinlog.errors import TwinlogError, first_of
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.transforms.expressions import Expressions
from twinlog.verify.report import FlowReport
from twinlog.verify.standing import ProofStanding, advanced, standings
from twinlog_source.log.facts import ProofFact
from twinlog_source.records.changing import MakePipe, RunPipe
from twinlog_source.records.pipe import PipeJob, record_pipe
from twinlog_source.verify.engine import Verification
from twinlog_source.verify.request import VerifyRequest, range_key, to_fact, to_standing, to_store

_ARRIVAL_SECONDS = 5.0
"""How long to wait until the copy has reached the source's ends; records that are missing after that are
lag."""
_STOP_POLL_SECONDS = 0.2
_SOONEST_SECONDS = 5.0
"""The delay after a process became the owner."""
_PROGRESS_SECONDS = 10.0
"""How often progress is reported and stored while a run lasts: with its limit, the first run of a large flow
may take days."""

Work = Callable[[], Coroutine[Any, Any, FlowReport]]

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class StandingProof:
    """The continuous verification of one flow, in the process that copies it."""

    configuration: Configuration
    flow: Flow
    interval_seconds: float
    max_bytes_per_second: int
    is_owned: Callable[[], bool]
    tell: Callable[[Mapping[TopicPartition, ProofStanding]], None]
    stored: Callable[[], Mapping[TopicPartition, ProofFact]]
    """The results on the log, from any owner."""
    store: Callable[[Collection[ProofFact], Collection[TopicPartition]], Awaitable[None]]
    """Store results on the log, and remove those of partitions that no longer exist. Raises KafkaError."""
    run_pipe: RunPipe
    """The service's Spark."""
    make_pipe: MakePipe = record_pipe
    may_route: bool = False
    """Whether records of some topic may go to other topics than its copy."""
    clock: Clock
    memory: dict[str, str] = field(default_factory=dict)
    """The proven ranges, for `ProvenRanges`."""
    _found: dict[TopicPartition, ProofStanding] = field(default_factory=dict)
    _on_log: dict[TopicPartition, ProofFact] = field(default_factory=dict)
    _was_owned: bool = False
    _sampled: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`."""
        wait_seconds = min(self.interval_seconds, _SOONEST_SECONDS)
        while not await wait_or_stop(stop, wait_seconds):
            wait_seconds = self.interval_seconds
            if not self.is_owned():
                wait_seconds = min(self.interval_seconds, _SOONEST_SECONDS)
                self._recall()
                self._was_owned = False
                continue
            if not self._was_owned:
                self._recall()
                self._was_owned = True
            try:
                report = await self._verified(stop)
            except TwinlogError as error:
                log.warning(
                    "standing_proof_failed", flow=str(self.flow), reason=error.reason, message=str(error)
                )
                continue
            except Exception:
                # Verification is optional: a bug in it must not end the copy.
                log.exception("standing_proof_crashed", flow=str(self.flow))
                continue
            if report is not None:
                self._take(report)
                await self._store()

    def _recall(self) -> None:
        """Read the results on the log, of this process or another one."""
        self._on_log = dict(self.stored())
        known = {partition: to_standing(fact) for partition, fact in self._on_log.items()}
        self._found = {partition: standing for partition, standing in known.items() if standing is not None}
        self.memory.clear()
        self.memory |= {
            range_key(fact.partition): fact.ranges for fact in self._on_log.values() if fact.ranges
        }
        self.tell(self._found)

    async def _store(self, only: Collection[TopicPartition] | None = None) -> None:
        """Store the results that changed enough; with `only`, of these partitions. A failed write is repeated
        with the next result."""
        facts = [
            to_fact(partition, standing, self.memory.get(range_key(partition), ""))
            for partition, standing in self._found.items()
            if only is None or partition in only
        ]
        new = to_store(facts, self._on_log)
        gone = self._on_log.keys() - self._found.keys() if only is None else set()
        if not (new or gone) or not self.is_owned():
            return
        try:
            await self.store(new, gone)
        except TwinlogError as error:
            log.warning(
                "standing_proof_not_stored", flow=str(self.flow), reason=error.reason, message=str(error)
            )
            return
        self._on_log |= {fact.partition: fact for fact in new}
        for partition in gone:
            del self._on_log[partition]

    def _take(self, report: FlowReport) -> None:
        before = self._found
        self._found = standings(before, report.proofs, now_ms=self.clock.now_ms())
        if not report.failures:
            # The run covered the whole flow: partitions without a result are no longer copied.
            there = {proof.source for proof in report.proofs}
            self._found = {each: standing for each, standing in self._found.items() if each in there}
        self.tell(self._found)
        for failure in report.failures:
            # A whole flow that is not compared keeps its proofs, which grow older in silence.
            tell = log.warning if failure.topic is None else log.debug
            tell(
                "standing_proof_incomplete",
                flow=str(self.flow),
                reason=failure.reason,
                message=failure.detail,
            )
        for proof in report.proofs:
            known = before.get(proof.source)
            # A difference stays, and is found in each run: log it when it is new.
            if proof.differences and (
                known is None or known.differences != self._found[proof.source].differences
            ):
                first = proof.differences[0]
                writer = report.writers.get((proof.source, first.target_offset or 0))
                log.error(
                    "copy_differs",
                    flow=str(self.flow),
                    topic=proof.source.topic,
                    partition=proof.source.partition,
                    differences=sum(each.count for each in proof.differences),
                    kind=str(first.kind),
                    source_offset=first.source_offset,
                    target_offset=first.target_offset,
                    producer_id=None if writer is None else writer.producer_id,
                )

    async def _verified(self, stop: asyncio.Event) -> FlowReport | None:
        """None: it was stopped."""
        self._forget_one()
        verification = Verification(
            configuration=self.configuration,
            request=VerifyRequest(
                flow=self.flow,
                max_bytes_per_second=self.max_bytes_per_second,
                wait_seconds=_ARRIVAL_SECONDS,
                parallel=1,
            ),
            clock=self.clock,
            memory=self.memory,
            run_pipe=self._run_pipe_in(asyncio.get_running_loop()),
            make_pipe=self.make_pipe,
        )
        known = set(self.memory.values())

        async def ended() -> FlowReport | TwinlogError | None:
            """Return the error as a value, not in a group."""
            try:
                return await in_its_own_loop(verification.run, stop)
            except TwinlogError as error:
                return error

        async with asyncio.TaskGroup() as group:
            run = group.create_task(ended(), name="verification of the flow")
            while not (await asyncio.wait([run], timeout=_PROGRESS_SECONDS))[0]:
                await self._tell_progress(known)
        outcome = run.result()
        if isinstance(outcome, TwinlogError):
            raise outcome
        return outcome

    def _run_pipe_in(self, loop: asyncio.AbstractEventLoop) -> RunPipe:
        """`run_pipe`, for callers in another loop."""

        async def run_pipe(flow: Flow, expressions: Expressions, job: PipeJob) -> None:
            running = asyncio.run_coroutine_threadsafe(self.run_pipe(flow, expressions, job), loop)
            await asyncio.wrap_future(running)

        return run_pipe

    async def _tell_progress(self, known: Collection[str]) -> None:
        """Report what the running verification has proven; `known` is from before it began."""
        # The verification adds to it meanwhile, in its thread.
        lines = [json.loads(line) for line in [*self.memory.values()] if line not in known]
        reached = {TopicPartition(told["topic"], told["partition"]): int(told["source_to"]) for told in lines}
        if self.may_route:
            # A copy that is not known yet says nothing of the topics to which other records of its topic go.
            reached = {partition: until for partition, until in reached.items() if partition in self._found}
        news = advanced(self._found, reached, now_ms=self.clock.now_ms())
        if news:
            self._found |= news
            self.tell(self._found)
            await self._store(news)

    def _forget_one(self) -> None:
        """Verify the next partition in turn from its beginning."""
        if self.memory:
            keys = sorted(self.memory)
            self._sampled = (self._sampled + 1) % len(keys)
            del self.memory[keys[self._sampled]]


async def in_its_own_loop(work: Work, stop: asyncio.Event) -> FlowReport | None:
    """Run a coroutine in a thread; None when `stop` came first. Raises TwinlogError as the coroutine does."""
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[FlowReport]]] = []

    async def main() -> FlowReport | TwinlogError | None:
        loop = asyncio.get_running_loop()
        outcome: FlowReport | TwinlogError | None = None
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(work(), name="verification")
                running.append((loop, task))
            outcome = None if task.cancelled() else task.result()
        except* TwinlogError as failures:
            outcome = first_of(failures)
        return outcome

    def run() -> FlowReport | TwinlogError | None:
        outcome: FlowReport | TwinlogError | None = uvloop.run(main())
        return outcome

    async with asyncio.TaskGroup() as group:
        thread = group.create_task(asyncio.to_thread(run), name="standing proof")
        while not (await asyncio.wait([thread], timeout=_STOP_POLL_SECONDS))[0]:
            if stop.is_set() and running:
                loop, task = running.pop()
                with contextlib.suppress(RuntimeError):  # It has just ended.
                    loop.call_soon_threadsafe(task.cancel)
    outcome = thread.result()
    if isinstance(outcome, TwinlogError):
        raise outcome
    return outcome
