"""Carries a move out, step by step, each recorded: a run that was cut goes on where it stopped."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from twinlog.clock import Clock
from twinlog.errors import StateError
from twinlog_checkpoint.move_arrival import commit, verify
from twinlog_checkpoint.move_departure import Departure
from twinlog_checkpoint.move_events import MoveEvent, MoveReport, StepState, step_event
from twinlog_checkpoint.move_fence import lift_fences, missing_fences
from twinlog_checkpoint.move_journal import MoveJournal, MoveRecord, MoveState, Step
from twinlog_checkpoint.move_outcome import finished_with, going_on, stood_at
from twinlog_checkpoint.move_planner import MovePlanner, fences_where_left
from twinlog_checkpoint.moves import MoveAction, MoveOptions, MovePartition, MovePlan

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class MoveRunner:
    """One direction of one flow. One run at a time: a second one is refused (MOVE_IN_PROGRESS)."""

    planner: MovePlanner
    journal: MoveJournal
    require: Callable[[], Awaitable[None]]
    """Raises TwinlogError when another process works at the flow."""
    clock: Clock
    stop: asyncio.Event
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Shared by both directions of a flow."""
    drain_look_seconds: float = 1.0
    """Between two looks at the backlog."""

    async def run(self, options: MoveOptions) -> AsyncGenerator[MoveEvent, None]:
        """Yield each step as it happens, the report at the end.

        Raises StateError (OWNED_ELSEWHERE, MOVE_IN_PROGRESS, MOVE_BLOCKED, BACKLOG_NOT_COPIED), ConflictError
        (NOT_VERIFIED) or KafkaError; the run may then be started again and goes on.
        """
        if not self.planner.reachable(self.journal.flow.target):
            # The record of moves is there, and who owns the flow is decided there.
            raise _blocked(await self.plan(options))
        await self.require()
        if self.lock.locked():
            raise _in_progress(f"a {self.planner.route.kind} of {self.planner.route.flow} is running")
        async with self.lock:
            last = await self.journal.load()
            finished: set[str] = set()
            if last is not None and self._is_finished(last):
                finished = await self.planner.finished_with(last, options)
                plan = await self.planner.plan(options, without=finished, last=last)
                if not plan.blockers and not await self._has_work(plan, options):
                    yield self._report(last, plan, already_done=True)
                    return
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
                resumed=bool(record.done),
            )
            async for event in self._steps(record, options, last):
                yield event

    async def plan(self, options: MoveOptions) -> MovePlan:
        """What `run` would do now, with what is recorded of the last move. Changes nothing.

        Raises KafkaError.
        """
        home = self.journal.flow.target
        last = await self.journal.load() if self.planner.reachable(home) else None
        return await self.planner.plan(options, last=last)

    async def _steps(
        self, record: MoveRecord, options: MoveOptions, last: MoveRecord | None
    ) -> AsyncGenerator[MoveEvent, None]:
        went_before = ", ".join(step.lower() for step in record.done)
        looking = "looking at both clusters"
        if record.done:
            looking = f"going on with run {record.run_id}, which did before: {went_before}"
        yield step_event(self.clock, Step.CHECK, StepState.STARTED, looking)
        plan = await self.planner.plan(options, without=record.moved, last=last)
        if plan.blockers:
            raise _blocked(plan)
        record = record.after(Step.CHECK)
        await self.journal.store(record)
        yield step_event(
            self.clock, Step.CHECK, StepState.DONE, f"offsets to look at: {len(plan.partitions)}"
        )
        if plan.from_reachable:
            async for entry in self._departure.leave(record, options):
                if isinstance(entry, MoveRecord):
                    record = entry
                else:
                    yield entry
        else:
            for step in (Step.FENCE, Step.FINAL_OFFSETS, Step.DRAIN):
                yield step_event(self.clock, step, StepState.SKIPPED, f"{plan.from_alias} does not answer")
        yield step_event(self.clock, Step.TRANSLATE, StepState.STARTED, "reading where the groups stand now")
        partitions = await self.planner.partitions(options, without=record.moved)
        yield step_event(self.clock, Step.TRANSLATE, StepState.DONE, f"offsets translated: {len(partitions)}")
        await self.require()
        yield step_event(self.clock, Step.COMMIT, StepState.STARTED, f"writing on {plan.to_alias}")
        partitions = await commit(self.planner.route.to_cluster, partitions)
        yield step_event(
            self.clock,
            Step.COMMIT,
            StepState.DONE,
            f"offsets committed: {sum(entry.action is MoveAction.WRITE for entry in partitions)}",
        )
        await verify(self.planner.route.to_cluster, partitions)
        yield step_event(self.clock, Step.VERIFY, StepState.DONE, "every committed offset was read back")
        if record.former_fences:
            await lift_fences(self.planner.route.to_cluster, record.former_fences)
            record = replace(record, former_fences=()).after(Step.UNFENCE)
            await self.journal.store(record)
            yield step_event(
                self.clock, Step.UNFENCE, StepState.DONE, f"writers on {plan.to_alias} are let in again"
            )
        record = self._finished(record, partitions)
        await self.journal.store(record)
        moved = len(going_on(partitions))
        fenced = sorted(fence.resource_name for fence in record.fences)
        finished = await self.planner.done(replace(plan, fenced_topics=fenced), partitions)
        _log.info(
            "move_finished",
            kind=record.kind,
            flow=str(plan.flow),
            run_id=record.run_id,
            groups=moved,
        )
        yield step_event(
            self.clock, Step.DONE, StepState.DONE, f"groups that go on at {plan.to_alias}: {moved}"
        )
        yield self._report(record, finished, already_done=False)

    @property
    def _departure(self) -> Departure:
        return Departure(
            planner=self.planner,
            journal=self.journal,
            clock=self.clock,
            stop=self.stop,
            look_seconds=self.drain_look_seconds,
        )

    def _is_finished(self, last: MoveRecord) -> bool:
        return last.kind is self.planner.route.kind and last.state is MoveState.DONE

    async def _has_work(self, plan: MovePlan, options: MoveOptions) -> bool:
        """Whether a run would change anything. Raises KafkaError."""
        if any(entry.action is MoveAction.WRITE for entry in plan.partitions):
            return True
        if not options.fence:
            return False
        scope = await self.planner.fence_scope()
        return bool(await missing_fences(self.planner.route.from_cluster, scope.topics))

    def _begin(self, last: MoveRecord | None, finished: set[str], options: MoveOptions) -> MoveRecord:
        """Go on with a run that was cut, or start one. One of the other kind that was cut is given up: moving
        the groups the other way undoes it."""
        kind = self.planner.route.kind
        same = last is not None and last.kind is kind
        if last is not None and same and last.state is MoveState.RUNNING:
            return replace(last, groups=options.groups, by=options.by)
        return MoveRecord(
            run_id=uuid.uuid4().hex[:12],
            kind=kind,
            state=MoveState.RUNNING,
            groups=options.groups,
            by=options.by,
            started_ms=self.clock.now_ms(),
            fences=tuple(fences_where_left(last, kind)),
            former_fences=() if last is None else last.former_fences if same else last.fences,
            moved=tuple(sorted(finished)),
            stood_at={} if last is None else _of(finished, last.stood_at),
        )

    def _finished(self, record: MoveRecord, partitions: Sequence[MovePartition]) -> MoveRecord:
        moved = finished_with(partitions)
        return replace(
            record.after(Step.DONE),
            state=MoveState.DONE,
            finished_ms=self.clock.now_ms(),
            moved=tuple(sorted({*record.moved, *moved})),
            stood_at={**record.stood_at, **_of(moved, stood_at(partitions))},
        )

    def _report(self, record: MoveRecord, plan: MovePlan, *, already_done: bool) -> MoveReport:
        return MoveReport(
            run_id=record.run_id,
            already_done=already_done,
            started_ms=record.started_ms,
            finished_ms=record.finished_ms or self.clock.now_ms(),
            plan=plan,
        )


def _of(groups: set[str], stood_at: Mapping[str, int]) -> dict[str, int]:
    return {group: sum_of_offsets for group, sum_of_offsets in stood_at.items() if group in groups}


def _blocked(plan: MovePlan) -> StateError:
    return StateError(
        f"{plan.kind} of {plan.flow} is not possible now: {'; '.join(plan.blockers)}",
        reason="MOVE_BLOCKED",
        metadata={"flow": str(plan.flow)},
    )


def _in_progress(message: str) -> StateError:
    return StateError(message, reason="MOVE_IN_PROGRESS")
