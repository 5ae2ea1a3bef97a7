"""The second half of a move: commit the offsets, read them back, remove the old fence, finish the record."""

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from twinlog.clock import Clock
from twinlog_checkpoint.flow.parts import LeaseGuard
from twinlog_checkpoint.journal.record import MoveKind, MoveRecord, Step
from twinlog_checkpoint.moves.planning.outcome import finished_with, going_on, writes
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePartition, MovePlan
from twinlog_checkpoint.moves.planning.planner import MovePlanner
from twinlog_checkpoint.moves.running.commit import commit, verify
from twinlog_checkpoint.moves.running.events import StepEvent, StepState, step_event
from twinlog_checkpoint.moves.running.run_record import finished
from twinlog_checkpoint.moves.write_block import create_rules, delete_rules, release_fences

_log = structlog.stdlib.get_logger(__name__)


class StoreRecord(Protocol):
    """Stores the record of the run, with the groups that it has finished."""

    async def __call__(self, record: MoveRecord, *, groups: Collection[str] = ()) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """The groups have been moved."""

    record: MoveRecord
    plan: MovePlan
    """The plan as it was carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The steps COMMIT, VERIFY, UNFENCE, GRANT, REVOKE and DONE of one move, on the cluster that groups move
    to."""

    planner: MovePlanner
    store: StoreRecord
    duty: LeaseGuard
    clock: Clock

    async def arrive(
        self,
        record: MoveRecord,
        plan: MovePlan,
        partitions: Sequence[MovePartition],
        options: MoveOptions,
    ) -> AsyncGenerator[StepEvent | Arrived, None]:
        """Yield each step as it happens, then the result.

        Raises KafkaError, StateError (OWNED_ELSEWHERE) or ConflictError (NOT_VERIFIED).
        """
        cluster = self.planner.route.to_cluster
        groups = len(writes(partitions))
        yield step_event(self.clock, Step.COMMIT, StepState.STARTED, f"committing offsets on {plan.to_alias}")
        if record.kind is MoveKind.FAILOVER and not record.on_target:
            # Record it before the first commit: a run that is interrupted here and then given up may have
            # moved groups.
            record = replace(record, on_target=True)
            await self.store(record)
        commits = commit(cluster, partitions)
        while True:
            # Check the lease for each part: a process that lost the flow in between commits nothing more.
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
        newly = finished_with(partitions)
        is_whole = finished(record, newly, partitions, options, now_ms=self.clock.now_ms()).whole
        if record.former_fences and not is_whole:
            message = f"the fence on {plan.to_alias} stays until every group that left it is back"
            yield step_event(self.clock, Step.UNFENCE, StepState.SKIPPED, message)
        elif record.former_fences:
            lifted = record.former_fences
            kept = await self.duty.hold(lambda: release_fences(cluster, lifted, plan.flow))
            record = replace(record, former_fences=()).after(Step.UNFENCE)
            await self.store(record)
            message = f"removed the fence on {plan.to_alias}"
            if kept:
                holders = ", ".join(sorted({flow for flows in kept.values() for flow in flows}))
                message += f"; moves of {holders} keep it on {len(kept)} of {len(lifted)} topics"
            yield step_event(self.clock, Step.UNFENCE, StepState.DONE, message)
        async for entry in self._rights(record, plan, is_whole=is_whole):
            if isinstance(entry, MoveRecord):
                record = entry
            else:
                yield entry
        record = finished(record, newly, partitions, options, now_ms=self.clock.now_ms())
        await self.store(record, groups=newly)
        moved = len(going_on(partitions))
        carried_out = await self.planner.done(fenced_plan(plan, record), partitions)
        _log.info(
            "move_finished",
            kind=record.kind,
            flow=str(plan.flow),
            run_id=record.run_id,
            groups=moved,
        )
        yield step_event(self.clock, Step.DONE, StepState.DONE, f"groups moved to {plan.to_alias}: {moved}")
        yield Arrived(record=record, plan=carried_out)

    async def _rights(
        self, record: MoveRecord, plan: MovePlan, *, is_whole: bool
    ) -> AsyncGenerator[StepEvent | MoveRecord, None]:
        """Grant writers the right to write to the copies, or revoke it; yield the record last. Grants are
        recorded before they are created, so that a killed run leaves no unknown grant.

        Only a run after which every group is back revokes: before, applications may still write there."""
        route = self.planner.route
        if plan.write_grants:
            grants = plan.write_grants
            record = replace(record, grants=tuple(dict.fromkeys((*record.grants, *grants))))
            await self.store(record)
            await self.duty.hold(lambda: create_rules(route.to_cluster, grants))
            message = f"granted rights to write to copies on {plan.to_alias}: {len(grants)}"
            yield step_event(self.clock, Step.GRANT, StepState.DONE, message)
        if record.former_grants and not is_whole:
            message = (
                f"the rights to write to copies on {plan.from_alias} stay until every group that came is back"
            )
            yield step_event(self.clock, Step.REVOKE, StepState.SKIPPED, message)
        elif record.former_grants:
            former = record.former_grants
            ours = [grant for grant in former if route.is_copy(grant.resource_name)]
            await self.duty.hold(lambda: delete_rules(route.from_cluster, ours))
            record = replace(record, former_grants=())
            await self.store(record)
            message = f"revoked rights to write to copies on {plan.from_alias}: {len(ours)}"
            if others := sorted(
                {each.resource_name for each in former} - {each.resource_name for each in ours}
            ):
                message += f"; not those to {', '.join(others)}, which are no copies of the flow"
            yield step_event(self.clock, Step.REVOKE, StepState.DONE, message)
        yield record


def fenced_plan(plan: MovePlan, record: MoveRecord) -> MovePlan:
    """The plan with the topics that are fenced now."""
    return replace(plan, fenced_topics=sorted(fence.resource_name for fence in record.fences))


async def _next(commits: AsyncGenerator[int | list[MovePartition], None]) -> int | list[MovePartition]:
    return await anext(commits)
