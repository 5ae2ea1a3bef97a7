"""Carries a move out, step by step, each recorded: a run that was cut goes on where it stopped."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import structlog

from twinlog.clock import Clock
from twinlog.errors import ConflictError, KafkaError, StateError
from twinlog.kafka.ports import AclBinding, CommittedOffset
from twinlog.service.runtime import wait_or_stop
from twinlog_checkpoint.exact import log_ends
from twinlog_checkpoint.move_journal import MoveJournal, MoveRecord, MoveState, Step
from twinlog_checkpoint.move_planner import MovePlanner
from twinlog_checkpoint.moves import (
    MoveAction,
    MoveOptions,
    MovePartition,
    MovePlan,
    total_backlog,
    writes,
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
    clock: Clock
    stop: asyncio.Event
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Shared by both directions of a flow."""
    drain_look_seconds: float = 1.0
    """Between two looks at the backlog."""

    async def run(self, options: MoveOptions) -> AsyncGenerator[MoveEvent, None]:
        """Yield each step as it happens, the report at the end.

        Raises StateError (MOVE_IN_PROGRESS, MOVE_BLOCKED, BACKLOG_NOT_COPIED), ConflictError (NOT_VERIFIED)
        or KafkaError; the run may then be started again and goes on.
        """
        if self.lock.locked():
            raise _in_progress(f"a {self.planner.route.kind} of {self.planner.route.flow} is running")
        async with self.lock:
            last = await self.journal.load()
            if last is not None and self._is_finished(last):
                plan = await self.planner.plan(options, without=last.moved)
                if not any(entry.action is MoveAction.WRITE for entry in plan.partitions):
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
            async for event in self._steps(record, options):
                yield event

    async def _steps(self, record: MoveRecord, options: MoveOptions) -> AsyncGenerator[MoveEvent, None]:
        yield self._event(Step.CHECK, StepState.STARTED, "looking at both clusters")
        plan = await self.planner.plan(options, without=record.moved)
        if plan.blockers:
            raise StateError(
                f"{record.kind} of {plan.flow} is not possible now: {'; '.join(plan.blockers)}",
                reason="MOVE_BLOCKED",
                metadata={"flow": str(plan.flow)},
            )
        record = record.after(Step.CHECK)
        await self.journal.store(record)
        yield self._event(Step.CHECK, StepState.DONE, f"{len(plan.partitions)} offsets to look at")
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
        yield self._event(Step.TRANSLATE, StepState.DONE, f"{len(partitions)} offsets translated")
        yield self._event(Step.COMMIT, StepState.STARTED, f"writing on {plan.to_alias}")
        partitions = await self._commit(partitions)
        yield self._event(
            Step.COMMIT,
            StepState.DONE,
            f"{sum(entry.action is MoveAction.WRITE for entry in partitions)} offsets committed",
        )
        await self._verify(partitions)
        yield self._event(Step.VERIFY, StepState.DONE, "every committed offset was read back")
        if record.former_fences:
            await self._unfence(record.former_fences)
            yield self._event(Step.UNFENCE, StepState.DONE, f"writers on {plan.to_alias} are let in again")
        record = self._finished(record, partitions)
        await self.journal.store(record)
        finished = replace(plan, partitions=partitions, backlog=await self.planner.backlog())
        _log.info(
            "move_finished",
            kind=record.kind,
            flow=str(plan.flow),
            run_id=record.run_id,
            groups=len(record.moved),
        )
        yield self._event(Step.DONE, StepState.DONE, f"{len(record.moved)} groups moved to {plan.to_alias}")
        yield self._report(record, finished, already_done=False)

    # ------------------------------------------------------------------------- leaving the cluster

    async def _leave(
        self, record: MoveRecord, options: MoveOptions
    ) -> AsyncGenerator[StepEvent | MoveRecord, None]:
        """Keep writers out if asked, note how far the logs go, wait until that is copied."""
        if options.fence and not record.fences:
            record = replace(record, fences=await self._fence()).after(Step.FENCE)
            await self.journal.store(record)
            yield self._event(Step.FENCE, StepState.DONE, f"writes are denied on {len(record.fences)} topics")
        elif not options.fence:
            yield self._event(Step.FENCE, StepState.SKIPPED, "writers are not kept out")
        if Step.FINAL_OFFSETS not in record.done:
            written = await self.planner.route.written()
            ends = await log_ends(self.planner.route.here.admin, {entry.here for entry in written})
            finals = {partition: bounds.end for partition, bounds in ends.items()}
            record = replace(record, final_offsets=finals).after(Step.FINAL_OFFSETS)
            await self.journal.store(record)
            yield self._event(Step.FINAL_OFFSETS, StepState.DONE, f"{len(finals)} logs end here for the move")
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

    async def _fence(self) -> tuple[AclBinding, ...]:
        topics = sorted({entry.here.topic for entry in await self.planner.route.written()})
        fences = tuple(
            AclBinding(
                resource_type="TOPIC",
                resource_name=topic,
                pattern_type="LITERAL",
                principal="User:*",
                host="*",
                operation="WRITE",
                permission="DENY",
            )
            for topic in topics
        )
        results = await self.planner.route.from_cluster.create_acls(fences) if fences else {}
        for error in results.values():
            if error is not None:
                raise error
        return fences

    async def _unfence(self, fences: Sequence[AclBinding]) -> None:
        results = await self.planner.route.to_cluster.delete_acls(fences)
        for error in results.values():
            if error is not None:
                raise error

    # ------------------------------------------------------------------------ arriving on the other

    async def _commit(self, partitions: Sequence[MovePartition]) -> list[MovePartition]:
        """Write what is to be written; a group that became active meanwhile is left alone and said so."""
        refused: dict[str, KafkaError] = {}
        for group, entries in writes(partitions).items():
            offsets = {
                entry.to_partition: CommittedOffset(next_offset=entry.to_offset, metadata=entry.metadata)
                for entry in entries
                if entry.to_partition is not None and entry.to_offset is not None
            }
            results = await self.planner.route.to_cluster.alter_group_offsets(group, offsets)
            for error in results.values():
                if error is not None:
                    refused[group] = error
        for error in refused.values():
            if error.reason != "GROUP_ACTIVE":
                raise error
        return [
            replace(entry, action=MoveAction.SKIP_ACTIVE_THERE, message=str(refused[entry.group]))
            if entry.action is MoveAction.WRITE and entry.group in refused
            else entry
            for entry in partitions
        ]

    async def _verify(self, partitions: Sequence[MovePartition]) -> None:
        """Read back what was written. Raises ConflictError when something else is there."""
        written = writes(partitions)
        held = await self.planner.route.to_cluster.group_offsets(written) if written else {}
        for group, entries in written.items():
            offsets = held[group]
            if isinstance(offsets, KafkaError):
                raise offsets
            for entry in entries:
                found = offsets.get(entry.to_partition) if entry.to_partition is not None else None
                if found is None or found.next_offset < (entry.to_offset or 0):
                    there = "nothing" if found is None else str(found.next_offset)
                    raise ConflictError(
                        f"group {group} is at {there} of {entry.to_partition}, not at {entry.to_offset};"
                        " somebody else moved it",
                        reason="NOT_VERIFIED",
                        metadata={"group": group, "partition": str(entry.to_partition)},
                    )

    # ------------------------------------------------------------------------------------ the record

    def _is_finished(self, last: MoveRecord) -> bool:
        return last.kind is self.planner.route.kind and last.state is MoveState.DONE

    def _begin(self, last: MoveRecord | None, options: MoveOptions) -> MoveRecord:
        """Go on with a run that was cut, or start one. Raises StateError when another kind is under way."""
        kind = self.planner.route.kind
        if last is not None and last.state is MoveState.RUNNING:
            if last.kind is not kind:
                raise _in_progress(
                    f"the {last.kind} of run {last.run_id} is not finished: run it again first"
                )
            return replace(last, groups=options.groups, by=options.by)
        same = last is not None and last.kind is kind
        return MoveRecord(
            run_id=uuid.uuid4().hex[:12],
            kind=kind,
            state=MoveState.RUNNING,
            groups=options.groups,
            by=options.by,
            started_ms=self.clock.now_ms(),
            fences=last.fences if last is not None and same else (),
            former_fences=last.fences if last is not None and not same else (),
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


def _in_progress(message: str) -> StateError:
    return StateError(message, reason="MOVE_IN_PROGRESS")
