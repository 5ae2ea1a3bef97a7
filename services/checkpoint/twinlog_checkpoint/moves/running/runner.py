"""Runs a move step by step. A run continues an interrupted one; after a finished one it only moves what has
changed.

Invariants:
- every change is made while this process owns the flow;
- a run is done only after everything before its final offsets is copied, or the loss is accepted.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import structlog

from twinlog.clock import Clock
from twinlog.errors import StateError
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog.telemetry.tracing import detached_span
from twinlog_checkpoint.flow.parts import LeaseGuard
from twinlog_checkpoint.journal.moves_log import MoveJournal
from twinlog_checkpoint.journal.record import MoveKind, MoveRecord, MoveState, Step
from twinlog_checkpoint.moves.planning.outcome import (
    finished_with,
    left_behind,
)
from twinlog_checkpoint.moves.planning.plan import MoveOptions, MovePartition, MovePlan
from twinlog_checkpoint.moves.planning.planner import MovePlanner, at_last
from twinlog_checkpoint.moves.running.arrival import Arrival, Arrived, fenced_plan
from twinlog_checkpoint.moves.running.departure import Departed, Departure
from twinlog_checkpoint.moves.running.events import (
    Aborted,
    MoveEvent,
    MoveReport,
    StepEvent,
    StepState,
    step_event,
)
from twinlog_checkpoint.moves.running.recorded import failback_due, recorded_move
from twinlog_checkpoint.moves.running.run_record import begun, finished, given_up
from twinlog_checkpoint.moves.write_block import release_fences

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class MoveRunner:
    """One direction of one flow. Only one run at a time: a second one is refused (MOVE_IN_PROGRESS)."""

    planner: MovePlanner
    journal: MoveJournal
    reverse_journal: MoveJournal
    """The journal of the reverse flow, also if this process does not have that flow."""
    duty: LeaseGuard
    """Tells whether this process owns the flow; it writes only then."""
    clock: Clock
    stop: asyncio.Event
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Shared by both directions of a flow."""
    drain_look_seconds: float = 1.0
    """Time between two measurements of the backlog."""

    async def run(self, options: MoveOptions) -> AsyncGenerator[MoveEvent, None]:
        """Yield each step as it happens, then the report.

        Raises StateError (OWNED_ELSEWHERE, MOVE_IN_PROGRESS, MOVE_BLOCKED, BACKLOG_NOT_COPIED,
        FENCE_NOT_OURS), ConflictError (NOT_VERIFIED), WireFormatError or KafkaError; the run may then be
        started again and continues.
        """
        await self.check_target(options)
        await self.duty.require()
        if self.lock.locked():
            raise _in_progress(f"a {self.planner.route.kind} of {self.planner.route.flow} is running")
        async with self.lock:
            last = await self.recorded()
            done_with = await self._done_with(last, options)
            record = begun(
                self.planner.route.kind,
                last,
                done_with,
                options,
                run_id=uuid.uuid4().hex[:12],
                now_ms=self.clock.now_ms(),
            )
            _log.info(
                "move_started",
                kind=record.kind,
                flow=str(self.planner.route.flow),
                run_id=record.run_id,
                by=options.by,
                groups=list(options.groups),
                fence=options.fence,
                accept_loss=options.accept_loss,
                grant_write=options.grant_write,
                resumed=last is not None and record.run_id == last.run_id,
            )
            flow = self.planner.route.flow
            attributes = {
                **flow_attributes(flow.source, flow.target),
                "twinlog.move.kind": str(record.kind),
                "twinlog.move.run": record.run_id,
            }
            with detached_span("move", attributes):
                async for event in self._steps(record, options, last, done_with):
                    yield event

    async def plan(self, options: MoveOptions) -> MovePlan:
        """Return what `run` would do now, with the recorded last move. Changes nothing.

        Raises KafkaError, WireFormatError or StateError (FENCE_NOT_OURS).
        """
        return await at_last(self.look(options))

    async def look(self, options: MoveOptions) -> AsyncGenerator[str | MovePlan, None]:
        """As `plan`, but first yield messages about the progress, then the plan."""
        home = self.journal.flow.target
        last = None if self.planner.away(home) else await self.recorded()
        done_with = await self._done_with(last, options)
        async with aclosing(self._look(options, last, (), done_with)) as told:
            async for each in told:
                yield each

    async def check_target(self, options: MoveOptions) -> None:
        """Raises StateError (MOVE_BLOCKED) when the flow's target does not answer: the record of moves and
        the election of the flow's owner are there."""
        if self.planner.away(self.journal.flow.target):
            raise _blocked(await self.plan(options))

    async def recorded(self) -> MoveRecord | None:
        """Return the last move, with Twinlog's own fences only. Raises KafkaError, WireFormatError, or
        StateError (FENCE_NOT_OURS)."""
        return await recorded_move(self.journal, self.planner.route)

    async def abort(self, by: str) -> Aborted:
        """Give up an interrupted run: remove its fence and keep the offsets that it committed. The fence of
        an earlier, finished run stays.

        Raises StateError (NOTHING_TO_ABORT, MOVE_IN_PROGRESS, OWNED_ELSEWHERE), or KafkaError; it may then be
        called again.
        """
        kind = self.planner.route.kind
        await self.duty.require()
        if self.lock.locked():
            raise _in_progress(f"a move of {self.journal.flow} is running: cancel it first")
        async with self.lock:
            last = await self.recorded()
            if last is None or last.state is not MoveState.RUNNING or last.kind is not kind:
                raise _nothing_to_abort(self.journal, kind, last)
            cluster = self.planner.route.from_cluster
            after = given_up(last, now_ms=self.clock.now_ms())
            given = frozenset(last.fences).difference(after.fences)
            kept = await self.duty.hold(lambda: release_fences(cluster, given, self.journal.flow))
            await self._store(after)
            _log.info("move_aborted", kind=kind, flow=str(self.journal.flow), run_id=last.run_id, by=by)
            unfenced = sorted(fence.resource_name for fence in given.difference(kept))
            return Aborted(before=last, after=after, unfenced_topics=unfenced)

    async def _look(
        self,
        options: MoveOptions,
        last: MoveRecord | None,
        without: Collection[str],
        unchanged: Collection[str] = (),
    ) -> AsyncGenerator[str | MovePlan, None]:
        due = await failback_due(self.reverse_journal, self.planner)
        looking = self.planner.look(options, without=without, unchanged=unchanged, last=last, due=due)
        async with aclosing(looking) as told:
            async for each in told:
                yield each

    async def _done_with(self, last: MoveRecord | None, options: MoveOptions) -> set[str]:
        return set() if last is None else await self.planner.places.finished_with(last, options)

    async def _steps(
        self,
        record: MoveRecord,
        options: MoveOptions,
        last: MoveRecord | None,
        done_with: Collection[str],
    ) -> AsyncGenerator[MoveEvent, None]:
        """`done_with`: the groups that earlier runs have moved. They stay as they are, wherever their
        consumers or their operator have put them since."""
        goes_on = last is not None and last.run_id == record.run_id
        # A repeated run checks again what the earlier run finished, and records itself only if there is
        # something to do.
        again = last is not None and not goes_on and last.kind is record.kind and not last.aborted
        looking = "reading both clusters"
        if goes_on:
            did = ", ".join(step.lower() for step in record.done)
            looking = f"continuing run {record.run_id}; already done: {did}"
        yield step_event(self.clock, Step.CHECK, StepState.STARTED, looking)
        plan: MovePlan | None = None
        async with aclosing(self._look(options, last, done_with)) as told:
            async for each in told:
                if isinstance(each, MovePlan):
                    plan = each
                else:
                    yield step_event(self.clock, Step.CHECK, StepState.PROGRESS, each)
        assert plan is not None, "a look ends with a plan"
        if plan.blockers:
            raise _blocked(plan)
        record = record.after(Step.CHECK)
        if not again:
            await self._store(record)
        yield step_event(
            self.clock, Step.CHECK, StepState.DONE, f"offsets to translate: {len(plan.partitions)}"
        )
        departed = Departed(record=record, fenced=False, drained=False)
        async for entry in self._leave(plan, record, options, recorded=not again):
            if isinstance(entry, Departed):
                departed = entry
            else:
                yield entry
        record = departed.record
        yield step_event(self.clock, Step.TRANSLATE, StepState.STARTED, "reading the groups' current offsets")
        placed = await self.planner.places.partitions(
            options, from_reachable=plan.from_reachable, without=done_with, last=last
        )
        partitions = placed.partitions
        yield step_event(self.clock, Step.TRANSLATE, StepState.DONE, f"offsets translated: {len(partitions)}")
        newly = finished_with(partitions)
        is_whole = finished(record, newly, partitions, options, now_ms=self.clock.now_ms()).whole
        undoes = is_whole and (record.former_fences or record.former_grants)
        if again and last is not None and not (departed.fenced or partitions or undoes or plan.write_grants):
            if not (options.groups or (last.whole and last.unfinished == frozenset())):
                on_target = last.kind is MoveKind.FAILOVER
                last = replace(last, whole=True, on_target=on_target, unfinished=frozenset())
                await self._store(last)
            carried_out = await self.planner.done(fenced_plan(plan, record), partitions)
            report = self._report(last, carried_out, options, departed, already_done=True)
            await self._note_left_behind(last, report)
            yield report
            return
        if again and not departed.fenced:
            await self._store(record)
        async for event in self._arrive(record, plan, partitions, options, departed):
            yield event

    async def _leave(
        self, plan: MovePlan, record: MoveRecord, options: MoveOptions, *, recorded: bool
    ) -> AsyncGenerator[StepEvent | Departed, None]:
        if plan.from_reachable:
            async for entry in self._departure.leave(record, options, recorded=recorded):
                yield entry
            return
        for step in (Step.FENCE, Step.FINAL_OFFSETS, Step.DRAIN):
            yield step_event(self.clock, step, StepState.SKIPPED, f"{plan.from_alias} does not answer")

    async def _arrive(
        self,
        record: MoveRecord,
        plan: MovePlan,
        partitions: Sequence[MovePartition],
        options: MoveOptions,
        departed: Departed,
    ) -> AsyncGenerator[MoveEvent, None]:
        async for arrived in self._arrival.arrive(record, plan, partitions, options):
            if isinstance(arrived, Arrived):
                report = self._report(arrived.record, arrived.plan, options, departed, already_done=False)
                await self._note_left_behind(arrived.record, report)
                yield report
            else:
                yield arrived

    async def _note_left_behind(self, record: MoveRecord, report: MoveReport) -> None:
        """Store the result, so that `status` shows the same as the run itself, also after a restart."""
        if tuple(report.left_behind) != record.left_behind:
            await self._store(replace(record, left_behind=tuple(report.left_behind)))

    async def _store(self, record: MoveRecord, *, groups: Collection[str] = ()) -> None:
        await self.duty.hold(lambda: self.journal.store(record, groups=groups))

    @property
    def _arrival(self) -> Arrival:
        return Arrival(planner=self.planner, store=self._store, duty=self.duty, clock=self.clock)

    @property
    def _departure(self) -> Departure:
        return Departure(
            planner=self.planner,
            store=self._store,
            duty=self.duty,
            clock=self.clock,
            stop=self.stop,
            look_seconds=self.drain_look_seconds,
        )

    def _report(
        self,
        record: MoveRecord,
        plan: MovePlan,
        options: MoveOptions,
        departed: Departed,
        *,
        already_done: bool,
    ) -> MoveReport:
        return MoveReport(
            run_id=record.run_id,
            already_done=already_done,
            started_ms=record.started_ms,
            finished_ms=record.finished_ms or self.clock.now_ms(),
            plan=plan,
            left_behind=left_behind(
                plan.partitions,
                plan.backlog,
                drained=departed.drained,
                accepted=options.accept_loss,
                still_written=departed.still_written,
                unfenced_topics=departed.unfenced_topics,
            ),
        )


def _blocked(plan: MovePlan) -> StateError:
    return StateError(
        f"{plan.kind} of {plan.flow} is not possible now: {'; '.join(plan.blockers)}",
        reason="MOVE_BLOCKED",
        metadata={"flow": str(plan.flow)},
    )


def _in_progress(message: str) -> StateError:
    return StateError(message, reason="MOVE_IN_PROGRESS")


def _nothing_to_abort(journal: MoveJournal, kind: str, last: MoveRecord | None) -> StateError:
    if last is None:
        what = f"no move of {journal.flow} is recorded"
    elif last.state is MoveState.RUNNING:
        what = f"the interrupted run is a {last.kind}: `twinlog {last.kind} abort '{journal.flow}'`"
    else:
        remedy = f"`twinlog failback run '{journal.flow}'` moves the groups back and removes its fence"
        what = f"{last.kind} run {last.run_id} is finished" + (f": {remedy}" if last.fences else "")
    return StateError(
        f"there is no {kind} of {journal.flow} to abort: {what}",
        reason="NOTHING_TO_ABORT",
        metadata={"flow": str(journal.flow)},
    )
