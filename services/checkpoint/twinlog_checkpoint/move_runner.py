"""Carries a move out, step by step, each recorded: a run that was cut goes on where it stopped."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import structlog

from twinlog.clock import Clock
from twinlog.errors import StateError
from twinlog.model import TopicPartition
from twinlog.service.runtime import wait_or_stop
from twinlog_checkpoint.move_arrival import commit, verify
from twinlog_checkpoint.move_ends import ends_behind_fence, ends_now
from twinlog_checkpoint.move_fence import lift_fences, missing_fences, raise_fences
from twinlog_checkpoint.move_journal import MoveJournal, MoveRecord, MoveState, Step
from twinlog_checkpoint.move_planner import MovePlanner, fences_where_left
from twinlog_checkpoint.moves import (
    MoveAction,
    MoveOptions,
    MovePartition,
    MovePlan,
    total_backlog,
)

_log = structlog.stdlib.get_logger(__name__)


class StepState(StrEnum):
    STARTED = "STARTED"
    PROGRESS = "PROGRESS"
    DONE = "DONE"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    step: Step
    state: StepState
    message: str
    at_ms: int
    records_left: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    run_id: str
    already_done: bool
    started_ms: int
    finished_ms: int
    plan: MovePlan
    """What was done: the actions as they were carried out."""


MoveEvent = StepEvent | MoveReport


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
            if last is not None and self._is_finished(last) and not (options.fence and not last.fences):
                plan = await self.planner.plan(options, without=last.moved, last=last)
                if not plan.blockers and not _has_work(plan):
                    yield self._report(last, plan, already_done=True)
                    return
            record = self._begin(last, options)
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
        yield self._event(Step.CHECK, StepState.STARTED, looking)
        plan = await self.planner.plan(options, without=record.moved, last=last)
        if plan.blockers:
            raise _blocked(plan)
        record = record.after(Step.CHECK)
        await self.journal.store(record)
        yield self._event(Step.CHECK, StepState.DONE, f"offsets to look at: {len(plan.partitions)}")
        if plan.from_reachable:
            async for entry in self._leave(record, options):
                if isinstance(entry, MoveRecord):
                    record = entry
                else:
                    yield entry
        else:
            for step in (Step.FENCE, Step.FINAL_OFFSETS, Step.DRAIN):
                yield self._event(step, StepState.SKIPPED, f"{plan.from_alias} does not answer")
        yield self._event(Step.TRANSLATE, StepState.STARTED, "reading where the groups stand now")
        partitions = await self.planner.partitions(options, without=record.moved)
        yield self._event(Step.TRANSLATE, StepState.DONE, f"offsets translated: {len(partitions)}")
        await self.require()
        yield self._event(Step.COMMIT, StepState.STARTED, f"writing on {plan.to_alias}")
        partitions = await commit(self.planner.route.to_cluster, partitions)
        yield self._event(
            Step.COMMIT,
            StepState.DONE,
            f"offsets committed: {sum(entry.action is MoveAction.WRITE for entry in partitions)}",
        )
        await verify(self.planner.route.to_cluster, partitions)
        yield self._event(Step.VERIFY, StepState.DONE, "every committed offset was read back")
        if record.former_fences:
            await lift_fences(self.planner.route.to_cluster, record.former_fences)
            record = replace(record, former_fences=()).after(Step.UNFENCE)
            await self.journal.store(record)
            yield self._event(Step.UNFENCE, StepState.DONE, f"writers on {plan.to_alias} are let in again")
        record = self._finished(record, partitions)
        await self.journal.store(record)
        fenced = sorted(fence.resource_name for fence in record.fences)
        finished = await self.planner.done(replace(plan, fenced_topics=fenced), partitions)
        _log.info(
            "move_finished",
            kind=record.kind,
            flow=str(plan.flow),
            run_id=record.run_id,
            groups=len(record.moved),
        )
        yield self._event(Step.DONE, StepState.DONE, f"groups moved to {plan.to_alias}: {len(record.moved)}")
        yield self._report(record, finished, already_done=False)

    # ------------------------------------------------------------------------- leaving the cluster

    async def _leave(
        self, record: MoveRecord, options: MoveOptions
    ) -> AsyncGenerator[StepEvent | MoveRecord, None]:
        """Keep writers out if asked, note how far the logs go, wait until that is copied."""
        newly_fenced = False
        if options.fence and Step.FENCE not in record.done:
            record = await self._fenced(record)
            newly_fenced = True
            message = f"writes are denied on {_topics(len(record.fences))}"
            yield self._event(Step.FENCE, StepState.DONE, message)
        elif record.fences:
            message = f"writers are kept out of {_topics(len(record.fences))} already"
            yield self._event(Step.FENCE, StepState.SKIPPED, message)
        else:
            yield self._event(Step.FENCE, StepState.SKIPPED, "writers are not kept out")
        if newly_fenced or Step.FINAL_OFFSETS not in record.done:
            finals = await self._final_offsets(fenced=bool(record.fences))
            record = replace(record, final_offsets=finals).after(Step.FINAL_OFFSETS)
            await self.journal.store(record)
            yield self._event(
                Step.FINAL_OFFSETS, StepState.DONE, f"the ends of {_logs(len(finals))} are noted"
            )
        if options.wait_seconds > 0:
            async for event in self._drain(record, options):
                yield event
        else:
            yield self._event(Step.DRAIN, StepState.SKIPPED, "not asked to wait")
        yield record

    async def _drain(self, record: MoveRecord, options: MoveOptions) -> AsyncGenerator[StepEvent, None]:
        """Wait until everything before the final offsets is copied."""
        give_up_at = self.clock.monotonic() + options.wait_seconds
        yield self._event(Step.DRAIN, StepState.STARTED, "waiting for the copy")
        while not self.stop.is_set():
            left = total_backlog(await self.planner.backlog(record.final_offsets))
            if left == 0:
                yield self._event(Step.DRAIN, StepState.DONE, "everything is copied", records_left=0)
                return
            words = "records left to copy" if left is not None else "the backlog cannot be counted"
            yield self._event(Step.DRAIN, StepState.PROGRESS, words, records_left=left)
            if self.clock.monotonic() >= give_up_at:
                if options.accept_loss:
                    message = f"gave up after {options.wait_seconds:g} s, as accepted"
                    yield self._event(Step.DRAIN, StepState.SKIPPED, message, records_left=left)
                    return
                count = "an unknown number of" if left is None else str(left)
                raise StateError(
                    f"{count} records are not copied after {options.wait_seconds:g} s: is the source service"
                    " running? Run it again to go on waiting, or accept the loss.",
                    reason="BACKLOG_NOT_COPIED",
                    metadata={"records": count},
                )
            await wait_or_stop(self.stop, self.drain_look_seconds)
        raise StateError("the service is stopping; run it again to go on", reason="STOPPING")

    async def _fenced(self, record: MoveRecord) -> MoveRecord:
        """Raise the fences, recorded before they are there: a run that is killed between leaves none unknown.

        One that was there before is somebody else's and stays when ours go.
        """
        route = self.planner.route
        scope = await self.planner.fence_scope()
        missing = await missing_fences(route.from_cluster, scope.topics)
        record = replace(record, fences=tuple(dict.fromkeys((*record.fences, *(missing or ())))))
        await self.journal.store(record)
        await raise_fences(route.from_cluster, record.fences)
        record = record.after(Step.FENCE)
        await self.journal.store(record)
        return record

    async def _final_offsets(self, *, fenced: bool) -> dict[TopicPartition, int]:
        route = self.planner.route
        partitions = {entry.here for entry in await route.written()}
        if not fenced:
            return await ends_now(route.here.admin, partitions)
        return await ends_behind_fence(
            route.here.admin,
            partitions,
            clock=self.clock,
            stop=self.stop,
            look_seconds=self.drain_look_seconds,
        )

    # ------------------------------------------------------------------------------------ the record

    def _is_finished(self, last: MoveRecord) -> bool:
        return last.kind is self.planner.route.kind and last.state is MoveState.DONE

    def _begin(self, last: MoveRecord | None, options: MoveOptions) -> MoveRecord:
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
            moved=last.moved if last is not None and same else (),
        )

    def _finished(self, record: MoveRecord, partitions: Sequence[MovePartition]) -> MoveRecord:
        waiting = {MoveAction.SKIP_ACTIVE_BEFORE, MoveAction.SKIP_ACTIVE_THERE}
        left = {entry.group for entry in partitions if entry.action in waiting}
        moved = {entry.group for entry in partitions} - left
        return replace(
            record.after(Step.DONE),
            state=MoveState.DONE,
            finished_ms=self.clock.now_ms(),
            moved=tuple(sorted({*record.moved, *moved})),
        )

    def _report(self, record: MoveRecord, plan: MovePlan, *, already_done: bool) -> MoveReport:
        return MoveReport(
            run_id=record.run_id,
            already_done=already_done,
            started_ms=record.started_ms,
            finished_ms=record.finished_ms or self.clock.now_ms(),
            plan=plan,
        )

    def _event(
        self, step: Step, state: StepState, message: str, *, records_left: int | None = None
    ) -> StepEvent:
        return StepEvent(
            step=step, state=state, message=message, at_ms=self.clock.now_ms(), records_left=records_left
        )


def _has_work(plan: MovePlan) -> bool:
    return any(entry.action is MoveAction.WRITE for entry in plan.partitions)


def _topics(count: int) -> str:
    return "1 topic" if count == 1 else f"{count} topics"


def _logs(count: int) -> str:
    return "1 log" if count == 1 else f"{count} logs"


def _blocked(plan: MovePlan) -> StateError:
    return StateError(
        f"{plan.kind} of {plan.flow} is not possible now: {'; '.join(plan.blockers)}",
        reason="MOVE_BLOCKED",
        metadata={"flow": str(plan.flow)},
    )


def _in_progress(message: str) -> StateError:
    return StateError(message, reason="MOVE_IN_PROGRESS")
