"""The second half of a move: commit the offsets, read them back, remove the old fence, finish the record."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from twinlog.clock import Clock
from twinlog.moves.record import MoveKind, Moves, Step
from twinlog_checkpoint.flow.parts import LeaseGuard
from twinlog_checkpoint.moves.planning.outcome import finished_with, going_on, writes
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePartition, MovePlan
from twinlog_checkpoint.moves.planning.planner import MovePlanner
from twinlog_checkpoint.moves.running.commit import commit, verify
from twinlog_checkpoint.moves.running.events import StepEvent, StepState, step_event
from twinlog_checkpoint.moves.running.run_record import after, committing, finished, is_whole, run_of
from twinlog_checkpoint.moves.write_block import create_rules, delete_rules, release_fences

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """The groups have been moved."""

    moves: Moves
    plan: MovePlan
    """The plan as it was carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The steps COMMIT, VERIFY, UNFENCE, GRANT, REVOKE and DONE of one move, on the cluster that groups move
    to."""

    planner: MovePlanner
    store: Callable[[Moves], Awaitable[None]]
    duty: LeaseGuard
    clock: Clock

    async def arrive(
        self,
        moves: Moves,
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
        # Recorded before the first commit: a run that is interrupted here may have moved these groups.
        moves = committing(moves, going_on(partitions))
        await self.store(moves)
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
        newly = finished_with(partitions, accepted=options.accept_loss)
        over = is_whole(finished(moves, newly, partitions, options, now_ms=self.clock.now_ms()))
        lifted = moves.fenced(plan.to_alias)
        if lifted and not over:
            message = f"the fence on {plan.to_alias} stays until every group that left it is back"
            yield step_event(self.clock, Step.UNFENCE, StepState.SKIPPED, message)
        elif lifted:
            holder = await self.planner.route.holder()
            kept = await self.duty.hold(lambda: release_fences(cluster, lifted, holder))
            moves = after(replace(moves, fences={**moves.fences, plan.to_alias: {}}), Step.UNFENCE)
            await self.store(moves)
            message = f"removed the fence on {plan.to_alias}"
            if kept:
                holders = ", ".join(sorted({name for names in kept.values() for name in names}))
                message += f"; moves of {holders} keep it on {len(kept)} of {len(lifted)} topics"
            yield step_event(self.clock, Step.UNFENCE, StepState.DONE, message)
        async for entry in self._rights(moves, plan, over=over):
            if isinstance(entry, Moves):
                moves = entry
            else:
                yield entry
        moves = finished(moves, newly, partitions, options, now_ms=self.clock.now_ms())
        await self.store(moves)
        moved = len(going_on(partitions))
        carried_out = await self.planner.done(fenced_plan(plan, moves), partitions)
        _log.info(
            "move_finished",
            kind=plan.kind,
            flow=str(plan.flow),
            run_id=run_of(moves).run_id,
            groups=moved,
        )
        yield step_event(self.clock, Step.DONE, StepState.DONE, f"groups moved to {plan.to_alias}: {moved}")
        yield Arrived(moves=moves, plan=carried_out)

    async def _rights(
        self, moves: Moves, plan: MovePlan, *, over: bool
    ) -> AsyncGenerator[StepEvent | Moves, None]:
        """Grant writers the right to write to the copies, or revoke it; yield the record last. Grants are
        recorded before they are created, so that a killed run leaves no unknown grant.

        Only a failback after which every group is back revokes: before, applications may still write there.
        """
        route = self.planner.route
        if plan.write_grants:
            grants = plan.write_grants
            new = dict.fromkeys(grants, run_of(moves).run_id)
            moves = replace(moves, grants=new | {**moves.grants})
            await self.store(moves)
            await self.duty.hold(lambda: create_rules(route.to_cluster, grants))
            message = f"granted rights to write to copies on {plan.to_alias}: {len(grants)}"
            yield step_event(self.clock, Step.GRANT, StepState.DONE, message)
        if plan.kind is MoveKind.FAILOVER or not moves.grants:
            yield moves
            return
        if not over:
            message = (
                f"the rights to write to copies on {plan.from_alias} stay until every group that came is back"
            )
            yield step_event(self.clock, Step.REVOKE, StepState.SKIPPED, message)
        else:
            ours = [grant for grant in moves.grants if route.is_copy(grant.resource_name)]
            others = sorted({grant.resource_name for grant in moves.grants.keys() - set(ours)})
            await self.duty.hold(lambda: delete_rules(route.from_cluster, ours))
            moves = replace(moves, grants={})
            await self.store(moves)
            message = f"revoked rights to write to copies on {plan.from_alias}: {len(ours)}"
            if others:
                message += f"; not those to {', '.join(others)}, which are no copies of the flow"
            yield step_event(self.clock, Step.REVOKE, StepState.DONE, message)
        yield moves


def fenced_plan(plan: MovePlan, moves: Moves) -> MovePlan:
    """The plan with the topics that are fenced now."""
    return replace(plan, fenced_topics=sorted(moves.fences.get(plan.from_alias, ())))


async def _next(commits: AsyncGenerator[int | list[MovePartition], None]) -> int | list[MovePartition]:
    return await anext(commits)
