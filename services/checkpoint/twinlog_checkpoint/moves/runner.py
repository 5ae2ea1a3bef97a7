"""Carries a move out, step by step: a run that was cut continues, one that is asked for again looks again.

Invariants: every change is made while this process has the flow; no run is done before everything in front
of the final offsets, which it takes itself, is copied or its loss is accepted.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import structlog

from twinlog.clock import Clock
from twinlog.errors import StateError
from twinlog.model import TopicPartition
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog.telemetry.tracing import detached_span
from twinlog_checkpoint.flow.parts import LeaseGuard
from twinlog_checkpoint.journal.moves_log import MoveJournal
from twinlog_checkpoint.journal.record import MoveKind, MoveRecord, MoveState, Step
from twinlog_checkpoint.moves.commit import commit, verify
from twinlog_checkpoint.moves.departure import Departed, Departure
from twinlog_checkpoint.moves.events import Aborted, MoveEvent, MoveReport, StepEvent, StepState, step_event
from twinlog_checkpoint.moves.outcome import (
    finished_with,
    going_on,
    lacking,
    left_behind,
    staying,
    stood_at,
    unread,
    writes,
)
from twinlog_checkpoint.moves.plan import MoveAction, MoveOptions, MovePartition, MovePlan
from twinlog_checkpoint.moves.planner import MovePlanner, at_last, fences_where_left
from twinlog_checkpoint.moves.recorded import failback_due, recorded_move
from twinlog_checkpoint.moves.write_block import create_rules, delete_rules

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class MoveRunner:
    """One direction of one flow. One run at a time: a second one is refused (MOVE_IN_PROGRESS)."""

    planner: MovePlanner
    journal: MoveJournal
    reverse_journal: MoveJournal
    """Of the flow in the other direction, whether this process has it or not."""
    duty: LeaseGuard
    """Says whether this process works at the flow: nothing is written while another one does."""
    clock: Clock
    stop: asyncio.Event
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Shared by both directions of a flow."""
    drain_look_seconds: float = 1.0
    """Between two looks at the backlog."""

    async def run(self, options: MoveOptions) -> AsyncGenerator[MoveEvent, None]:
        """Yield each step as it happens, the report at the end.

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
            finished: set[str] = set()
            if last is not None and last.kind is self.planner.route.kind:
                finished = await self.planner.finished_with(last, options)
            record = self._begin(last, finished, options)
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
                async for event in self._steps(record, options, last):
                    yield event

    async def plan(self, options: MoveOptions) -> MovePlan:
        """What `run` would do now, with what is recorded of the last move. Changes nothing.

        Raises KafkaError, WireFormatError or StateError (FENCE_NOT_OURS).
        """
        return await at_last(self.look(options))

    async def look(self, options: MoveOptions) -> AsyncGenerator[str | MovePlan, None]:
        """As `plan`, which comes last; before it what is looked at, in words."""
        home = self.journal.flow.target
        last = await self.recorded() if self.planner.reachable(home) else None
        async with aclosing(self._look(options, last, ())) as told:
            async for each in told:
                yield each

    async def check_target(self, options: MoveOptions) -> None:
        """Raises StateError (MOVE_BLOCKED) when the flow's target is away: the record of moves is there, and
        who owns the flow is decided there."""
        if not self.planner.reachable(self.journal.flow.target):
            raise _blocked(await self.plan(options))

    async def recorded(self) -> MoveRecord | None:
        """The last move, with fences of ours only. Raises KafkaError, WireFormatError, or StateError
        (FENCE_NOT_OURS)."""
        return await recorded_move(self.journal, self.planner.route)

    async def abort(self, by: str) -> Aborted:
        """Give up a run that was cut: take down its fence, so that nothing is left of it but what it
        committed. The fence of a run that was finished before it stays.

        Raises StateError (NOTHING_TO_ABORT, MOVE_IN_PROGRESS, OWNED_ELSEWHERE), or KafkaError; it may then be
        asked for again.
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
            kept = tuple(fence for fence in last.fences if fence in last.fences_before)
            lifted = [fence for fence in last.fences if fence not in kept]
            await self.duty.hold(lambda: delete_rules(cluster, lifted))
            given_up = replace(
                last,
                state=MoveState.DONE,
                aborted=True,
                whole=False,
                fences=kept,
                fences_before=kept,
                finished_ms=self.clock.now_ms(),
                done=tuple(step for step in last.done if step is not Step.FENCE),
            )
            await self._store(given_up)
            _log.info("move_aborted", kind=kind, flow=str(self.journal.flow), run_id=last.run_id, by=by)
            unfenced = sorted(fence.resource_name for fence in lifted)
            return Aborted(before=last, after=given_up, unfenced_topics=unfenced)

    async def _look(
        self, options: MoveOptions, last: MoveRecord | None, without: Collection[str]
    ) -> AsyncGenerator[str | MovePlan, None]:
        due = await failback_due(self.reverse_journal, self.planner)
        async with aclosing(self.planner.look(options, without=without, last=last, due=due)) as told:
            async for each in told:
                yield each

    async def _steps(
        self, record: MoveRecord, options: MoveOptions, last: MoveRecord | None
    ) -> AsyncGenerator[MoveEvent, None]:
        goes_on = last is not None and last.run_id == record.run_id
        # What an earlier run has finished is looked at again, and recorded only if something is to be done.
        again = last is not None and not goes_on and last.kind is record.kind and not last.aborted
        looking = "looking at both clusters"
        if goes_on:
            did = ", ".join(step.lower() for step in record.done)
            looking = f"going on with run {record.run_id}, which did before: {did}"
        yield step_event(self.clock, Step.CHECK, StepState.STARTED, looking)
        plan: MovePlan | None = None
        async with aclosing(self._look(options, last, record.moved)) as told:
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
            self.clock, Step.CHECK, StepState.DONE, f"offsets to look at: {len(plan.partitions)}"
        )
        departed = Departed(record=record, fenced=False, drained=False)
        async for entry in self._leave(plan, record, options, recorded=not again):
            if isinstance(entry, Departed):
                departed = entry
            else:
                yield entry
        record = departed.record
        yield step_event(self.clock, Step.TRANSLATE, StepState.STARTED, "reading where the groups stand now")
        partitions = await self.planner.partitions(
            options, from_reachable=plan.from_reachable, without=record.moved
        )
        yield step_event(self.clock, Step.TRANSLATE, StepState.DONE, f"offsets translated: {len(partitions)}")
        unfinished = {entry.group for entry in partitions} - finished_with(partitions)
        if (
            again
            and last is not None
            and not (departed.fenced or unfinished or writes(partitions) or record.former_fences)
            and not (plan.write_grants or record.former_grants)
        ):
            if not (last.whole or options.groups):
                last = replace(last, whole=True, on_target=last.kind is MoveKind.FAILOVER)
                await self._store(last)
            finished = await self.planner.done(_fenced(plan, record), partitions)
            report = self._report(last, finished, options, departed, already_done=True)
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
        cluster = self.planner.route.to_cluster
        groups = len(writes(partitions))
        yield step_event(self.clock, Step.COMMIT, StepState.STARTED, f"writing on {plan.to_alias}")
        if record.kind is MoveKind.FAILOVER and not record.on_target:
            # Before the first offset: a run that is cut in between, and then given up, may have moved groups.
            record = replace(record, on_target=True)
            await self._store(record)
        commits = commit(cluster, partitions)
        while True:
            # Each part is held by itself: a process that lost the flow in between commits nothing more.
            told = await self.duty.hold(lambda: _next(commits))
            if isinstance(told, list):
                partitions = told
                break
            yield step_event(
                self.clock, Step.COMMIT, StepState.PROGRESS, f"groups committed: {told} of {groups}"
            )
        yield step_event(
            self.clock,
            Step.COMMIT,
            StepState.DONE,
            f"offsets committed: {sum(entry.action is MoveAction.WRITE for entry in partitions)}",
        )
        await verify(cluster, partitions)
        yield step_event(self.clock, Step.VERIFY, StepState.DONE, "every committed offset was read back")
        if record.former_fences:
            lifted = record.former_fences
            await self.duty.hold(lambda: delete_rules(cluster, lifted))
            record = replace(record, former_fences=()).after(Step.UNFENCE)
            await self._store(record)
            yield step_event(
                self.clock, Step.UNFENCE, StepState.DONE, f"writers on {plan.to_alias} are let in again"
            )
        async for entry in self._rights(record, plan):
            if isinstance(entry, MoveRecord):
                record = entry
            else:
                yield entry
        newly = finished_with(partitions)
        record = self._finished(record, newly, partitions, options)
        await self._store(record, groups=newly)
        moved = len(going_on(partitions))
        finished = await self.planner.done(_fenced(plan, record), partitions)
        _log.info(
            "move_finished",
            kind=record.kind,
            flow=str(plan.flow),
            run_id=record.run_id,
            groups=moved,
        )
        yield step_event(
            self.clock, Step.DONE, StepState.DONE, f"groups that continue on {plan.to_alias}: {moved}"
        )
        report = self._report(record, finished, options, departed, already_done=False)
        await self._note_left_behind(record, report)
        yield report

    async def _rights(
        self, record: MoveRecord, plan: MovePlan
    ) -> AsyncGenerator[StepEvent | MoveRecord, None]:
        """Let writers write the copies, or take that back; at last the record. What is granted is recorded
        before: a run that is killed between leaves no grant unknown."""
        route = self.planner.route
        if plan.write_grants:
            grants = plan.write_grants
            record = replace(record, grants=tuple(dict.fromkeys((*record.grants, *grants))))
            await self._store(record)
            await self.duty.hold(lambda: create_rules(route.to_cluster, grants))
            message = f"rights to write copies on {plan.to_alias}: {len(grants)}"
            yield step_event(self.clock, Step.GRANT, StepState.DONE, message)
        if record.former_grants:
            ours = [grant for grant in record.former_grants if route.is_copy(grant.resource_name)]
            await self.duty.hold(lambda: delete_rules(route.from_cluster, ours))
            record = replace(record, former_grants=())
            await self._store(record)
            message = f"rights to write copies on {plan.from_alias} that are taken back: {len(ours)}"
            yield step_event(self.clock, Step.REVOKE, StepState.DONE, message)
        yield record

    async def _note_left_behind(self, record: MoveRecord, report: MoveReport) -> None:
        """`status` says of a finished run what the run itself said, also after a restart."""
        if tuple(report.left_behind) != record.left_behind:
            await self._store(replace(record, left_behind=tuple(report.left_behind)))

    async def _store(self, record: MoveRecord, *, groups: Collection[str] = ()) -> None:
        await self.duty.hold(lambda: self.journal.store(record, groups=groups))

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

    def _begin(self, last: MoveRecord | None, finished: set[str], options: MoveOptions) -> MoveRecord:
        """Go on with a run that was cut, or start one. One of the other kind that was cut is given up: moving
        the groups the other way undoes it."""
        kind = self.planner.route.kind
        same = last is not None and last.kind is kind
        kept = {} if last is None or not same else _of(finished, last.stood_at)
        if last is not None and same and last.state is MoveState.RUNNING:
            return replace(
                last, groups=options.groups, by=options.by, moved=tuple(sorted(kept)), stood_at=kept
            )
        run_id = uuid.uuid4().hex[:12]
        fenced_before = same and last is not None and not last.aborted and Step.FENCE in last.done
        return MoveRecord(
            run_id=run_id,
            kind=kind,
            state=MoveState.RUNNING,
            groups=options.groups,
            by=options.by,
            started_ms=self.clock.now_ms(),
            done=(Step.FENCE,) if fenced_before else (),
            fences=tuple(fences_where_left(last, kind)),
            fences_before=tuple(fences_where_left(last, kind)),
            whole=same and last is not None and last.whole,
            former_fences=() if last is None else last.former_fences if same else last.fences,
            grants=() if last is None else last.grants if same else last.former_grants,
            former_grants=() if last is None else last.former_grants if same else last.grants,
            on_target=last is not None and last.on_target,
            chain=(last.chain or run_id) if last is not None and same else run_id,
            moved=tuple(sorted(kept)),
            stood_at=kept,
        )

    def _finished(
        self, record: MoveRecord, newly: set[str], partitions: Sequence[MovePartition], options: MoveOptions
    ) -> MoveRecord:
        left_out = staying(partitions) or unread(partitions)
        without_place = lacking(partitions) and not options.accept_loss
        whole = (record.whole or not record.groups) and not (left_out or without_place)
        return replace(
            record.after(Step.DONE),
            state=MoveState.DONE,
            finished_ms=self.clock.now_ms(),
            whole=whole,
            on_target=record.kind is MoveKind.FAILOVER or (record.on_target and not whole),
            moved=tuple(sorted({*record.moved, *newly})),
            stood_at={**record.stood_at, **_of(newly, stood_at(partitions))},
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
                open_transactions=departed.open_transactions,
            ),
        )


async def _next(commits: AsyncGenerator[int | list[MovePartition], None]) -> int | list[MovePartition]:
    return await anext(commits)


def _of(
    groups: set[str], places: Mapping[str, Mapping[TopicPartition, int]]
) -> dict[str, Mapping[TopicPartition, int]]:
    return {group: offsets for group, offsets in places.items() if group in groups}


def _fenced(plan: MovePlan, record: MoveRecord) -> MovePlan:
    return replace(plan, fenced_topics=sorted(fence.resource_name for fence in record.fences))


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
        what = f"the run that was cut is a {last.kind}: `twinlog {last.kind} abort`"
    else:
        remedy = f"`twinlog failback run '{journal.flow}'` takes the groups back and lifts its fence"
        what = f"{last.kind} run {last.run_id} is over" + (f": {remedy}" if last.fences else "")
    return StateError(
        f"there is no {kind} of {journal.flow} to abort: {what}",
        reason="NOTHING_TO_ABORT",
        metadata={"flow": str(journal.flow)},
    )
