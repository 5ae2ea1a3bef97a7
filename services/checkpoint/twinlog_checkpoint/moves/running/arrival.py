"""The second half of a move: commit the offsets, read them back, remove the old fence, finish the record."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

import structlog

from twinlog.errors import ConflictError, KafkaError, required
from twinlog.kafka.ports import CommittedOffset, GroupAdmin
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog.moves.record import MoveKind, Step
from twinlog_checkpoint.moves.planning.outcome import going_on, writes
from twinlog_checkpoint.moves.planning.plan import MoveAction, MovePartition
from twinlog_checkpoint.moves.running.run_record import StepEvent, StepState, after, committing, is_whole
from twinlog_checkpoint.moves.running.run_state import RunState
from twinlog_checkpoint.moves.write_block import create_rules, delete_rules, release_fences
from twinlog_checkpoint.side_by_side import each_at_once

# Commits a move's offsets on the new cluster, and reads them back.

COMMITS_AT_ONCE = 32
"""Groups whose offsets are committed at the same time; Kafka takes one group per request."""
COMMITS_BETWEEN_SIGNS = 256
"""Number of groups between two messages about the progress."""


async def commit(
    cluster: GroupAdmin, partitions: Sequence[MovePartition]
) -> AsyncGenerator[int | list[MovePartition], None]:
    """Commit the planned offsets. What the cluster refuses is marked, and the other groups are committed.

    Yields from time to time how many groups are done, and at the end the partitions as they were carried out.
    Raises KafkaError if a later attempt may succeed.
    """
    refused: dict[tuple[str, TopicPartition | None], KafkaError] = {}

    async def one(group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        results = await cluster.alter_group_offsets(group, offsets)
        for partition, error in results.items():
            if error is None:
                continue
            if error.retriable and error.reason != KafkaReason.GROUP_ACTIVE:
                raise error
            refused[group, partition] = error

    wanted = [(group, _offsets(entries)) for group, entries in writes(partitions).items()]
    for start in range(0, len(wanted), COMMITS_BETWEEN_SIGNS):
        chunk = wanted[start : start + COMMITS_BETWEEN_SIGNS]
        await each_at_once(
            chunk, lambda planned: one(*planned), most=COMMITS_AT_ONCE, name="commit for groups"
        )
        yield start + len(chunk)
    yield [_told(entry, refused.get((entry.group, entry.to_partition))) for entry in partitions]


def _told(entry: MovePartition, error: KafkaError | None) -> MovePartition:
    """The partition as it was carried out; `error`: why its commit was refused."""
    if error is None:
        return entry
    is_active = error.reason == KafkaReason.GROUP_ACTIVE
    action = MoveAction.SKIP_ACTIVE_THERE if is_active else MoveAction.SKIP_REFUSED
    return replace(entry, action=action, message=str(error))


async def verify(cluster: GroupAdmin, partitions: Sequence[MovePartition]) -> None:
    """Read the committed offsets back. Raises ConflictError if they are different."""
    written = writes(partitions)
    held = await cluster.group_offsets(written) if written else {}
    for group, entries in written.items():
        offsets = required(held[group])
        for entry in entries:
            found = offsets.get(entry.to_partition) if entry.to_partition is not None else None
            if found is None or found.next_offset < (entry.to_offset or 0):
                there = "nothing" if found is None else str(found.next_offset)
                raise ConflictError(
                    f"group {group} has committed {there} on {entry.to_partition} instead of"
                    f" {entry.to_offset}: somebody else changed it meanwhile",
                    reason="NOT_VERIFIED",
                    metadata={"group": group, "partition": str(entry.to_partition)},
                )


def _offsets(entries: Sequence[MovePartition]) -> dict[TopicPartition, CommittedOffset]:
    return {
        entry.to_partition: CommittedOffset(next_offset=entry.to_offset, metadata=entry.metadata)
        for entry in entries
        if entry.to_partition is not None and entry.to_offset is not None
    }


_log = structlog.stdlib.get_logger(__name__)


async def arrive(run: RunState) -> AsyncGenerator[StepEvent, None]:
    """The steps COMMIT, VERIFY, UNFENCE, GRANT, REVOKE and DONE of one move, on the cluster that groups move
    to; yields each as it happens. Raises KafkaError, StateError (OWNED_ELSEWHERE) or ConflictError
    (NOT_VERIFIED)."""
    cluster, there = run.planner.route.to_cluster, run.plan.to_alias
    groups = len(writes(run.partitions))
    yield run.event(Step.COMMIT, StepState.STARTED, f"committing offsets on {there}")
    # Recorded before the first commit: a run that is interrupted here may have moved these groups.
    await run.store(committing(run.moves, going_on(run.partitions)))
    commits = commit(cluster, run.partitions)
    while True:
        # Check the lease for each part: a process that lost the flow in between commits nothing more.
        told = await run.duty.hold(lambda: _next(commits))
        if isinstance(told, list):
            run.partitions = told
            break
        yield run.event(Step.COMMIT, StepState.PROGRESS, f"groups committed: {told} of {groups}")
    carried_out = Counter(entry.action for entry in run.partitions)
    message = f"offsets committed: {carried_out[MoveAction.WRITE]}"
    if already := carried_out[MoveAction.ALREADY_THERE]:
        message += f", there already: {already}"
    yield run.event(Step.COMMIT, StepState.DONE, message)
    await verify(cluster, run.partitions)
    yield run.event(Step.VERIFY, StepState.DONE, "every committed offset was read back")
    over = is_whole(run.finished())
    lifted = run.moves.fenced(there)
    if lifted and not over:
        message = f"the fence on {there} stays until every group that left it is back"
        yield run.event(Step.UNFENCE, StepState.SKIPPED, message)
    elif lifted:
        holder = await run.planner.route.holder()
        kept = await run.duty.hold(lambda: release_fences(cluster, lifted, holder))
        await run.store(after(replace(run.moves, fences={**run.moves.fences, there: {}}), Step.UNFENCE))
        message = f"removed the fence on {there}"
        if kept:
            holders = ", ".join(sorted({name for names in kept.values() for name in names}))
            message += f"; moves of {holders} keep it on {len(kept)} of {len(lifted)} topics"
        yield run.event(Step.UNFENCE, StepState.DONE, message)
    async for event in _rights(run, over=over):
        yield event
    await run.store(run.finished())
    moved = len(going_on(run.partitions))
    _log.info(
        "move_finished",
        kind=run.plan.kind,
        flow=str(run.plan.flow),
        run_id=run.recorded.run_id,
        groups=moved,
    )
    yield run.event(Step.DONE, StepState.DONE, f"groups moved to {there}: {moved}")


async def _rights(run: RunState, *, over: bool) -> AsyncGenerator[StepEvent, None]:
    """Grant writers the right to write to the copies, or revoke it. Grants are recorded before they are
    created, so that a killed run leaves no unknown grant.

    Only a failback after which every group is back revokes: before, applications may still write there.
    """
    route, grants = run.planner.route, run.plan.write_grants
    if grants:
        new = dict.fromkeys(grants, run.recorded.run_id)
        await run.store(replace(run.moves, grants=new | {**run.moves.grants}))
        await run.duty.hold(lambda: create_rules(route.to_cluster, grants))
        message = f"granted rights to write to copies on {route.to_alias}: {len(grants)}"
        yield run.event(Step.GRANT, StepState.DONE, message)
    if route.kind is MoveKind.FAILOVER or not run.moves.grants:
        return
    if not over:
        message = (
            f"the rights to write to copies on {route.from_alias} stay until every group that came is back"
        )
        yield run.event(Step.REVOKE, StepState.SKIPPED, message)
        return
    ours = [grant for grant in run.moves.grants if route.is_copy(grant.resource_name)]
    others = sorted({grant.resource_name for grant in run.moves.grants.keys() - set(ours)})
    await run.duty.hold(lambda: delete_rules(route.from_cluster, ours))
    await run.store(replace(run.moves, grants={}))
    message = f"revoked rights to write to copies on {route.from_alias}: {len(ours)}"
    if others:
        message += f"; not those to {', '.join(others)}, which are no copies of the flow"
    yield run.event(Step.REVOKE, StepState.DONE, message)


async def _next(commits: AsyncGenerator[int | list[MovePartition], None]) -> int | list[MovePartition]:
    return await anext(commits)
