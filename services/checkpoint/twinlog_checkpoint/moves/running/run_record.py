"""How the record of a run begins, continues an earlier run, and ends. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from twinlog.model import TopicPartition
from twinlog_checkpoint.journal.record import GroupOffsets, MoveKind, MoveRecord, MoveState, Step
from twinlog_checkpoint.moves.planning.last_move import fences_where_left
from twinlog_checkpoint.moves.planning.outcome import (
    going_on,
    lacking,
    left_at,
    skipped,
    staying,
    stood_at,
    unread,
)
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePartition

MOST_UNFINISHED_BYTES = 100_000
"""The limit for all names. More would not fit into a record that earlier releases read: then it means every
group."""


def begun(
    kind: MoveKind,
    last: MoveRecord | None,
    finished: Collection[str],
    options: MoveOptions,
    *,
    run_id: str,
    now_ms: int,
) -> MoveRecord:
    """Continue an interrupted run, or start one called `run_id`. An interrupted run of the other kind is
    given up: moving the groups in the other direction undoes it."""
    same = last is not None and last.kind is kind
    kept = {} if last is None or not same else _of(finished, last.stood_at)
    left = {} if last is None or not same else _of(finished, last.left_at)
    if last is not None and same and last.state is MoveState.RUNNING:
        return replace(
            last,
            groups=options.groups,
            by=options.by,
            unfinished=_unfinished_before(last),
            moved=tuple(sorted(kept)),
            stood_at=kept,
            left_at=left,
        )
    stood: Mapping[str, GroupOffsets] = {}
    left_before: Mapping[str, GroupOffsets] = {}
    if last is not None:
        stood = last.stood_before if same else {**last.stood_earlier, **last.stood_at}
        left_before = last.left_before if same else {**last.left_earlier, **last.left_at}
    fenced_before = same and last is not None and not last.aborted and Step.FENCE in last.done
    return MoveRecord(
        run_id=run_id,
        kind=kind,
        state=MoveState.RUNNING,
        groups=options.groups,
        by=options.by,
        started_ms=now_ms,
        done=(Step.FENCE,) if fenced_before else (),
        fences=tuple(fences_where_left(last, kind)),
        fences_before=tuple(fences_where_left(last, kind)),
        whole=same and last is not None and last.whole,
        former_fences=() if last is None else last.former_fences if same else last.fences,
        grants=() if last is None else last.grants if same else last.former_grants,
        former_grants=() if last is None else last.former_grants if same else last.grants,
        on_target=last is not None and last.on_target,
        chain=(last.chain or run_id) if last is not None and same else run_id,
        chain_before="" if last is None else last.chain_before if same else last.chain,
        earlier_chains=_earlier_chains(kind, last),
        stood_before=stood,
        left_before=left_before,
        unfinished=_unfinished_before(last, given_up=kind is MoveKind.FAILBACK),
        unfinished_before=_unfinished_before(last),
        moved=tuple(sorted(kept)),
        stood_at=kept,
        left_at=left,
    )


def finished(
    record: MoveRecord,
    newly: Collection[str],
    partitions: Sequence[MovePartition],
    options: MoveOptions,
    *,
    now_ms: int,
) -> MoveRecord:
    """Mark the run as done; it has finished the groups `newly`."""
    whole = _is_whole(record, newly, partitions, options)
    return replace(
        record.after(Step.DONE),
        state=MoveState.DONE,
        finished_ms=now_ms,
        whole=whole,
        on_target=record.kind is MoveKind.FAILOVER or (record.on_target and not whole),
        unfinished=_unfinished_after(record, newly, partitions),
        moved=tuple(sorted({*record.moved, *newly})),
        stood_at={**record.stood_at, **_of(newly, stood_at(partitions))},
        left_at={**record.left_at, **_of(newly, left_at(partitions))},
    )


def given_up(last: MoveRecord, *, now_ms: int) -> MoveRecord:
    """Give up an interrupted run. The fence of an earlier, finished run stays."""
    before = frozenset(last.fences_before)
    kept = tuple(fence for fence in last.fences if fence in before)
    return replace(
        last,
        state=MoveState.DONE,
        aborted=True,
        whole=False,
        unfinished=last.unfinished_before,
        fences=kept,
        fences_before=kept,
        finished_ms=now_ms,
        done=tuple(step for step in last.done if step is not Step.FENCE),
    )


def _is_whole(
    record: MoveRecord, newly: Collection[str], partitions: Sequence[MovePartition], options: MoveOptions
) -> bool:
    """Whether the chain has moved every group of `due`. One with members on the other cluster works there
    already, and one that a run for it does not find has nothing left to move."""
    left_out = staying(partitions) | unread(partitions).keys() | skipped(partitions)
    if not options.accept_loss:
        left_out |= {entry.group for entry in lacking(partitions)}
    left_out -= {entry.group for entry in partitions if entry.action is MoveAction.SKIP_ACTIVE_THERE}
    due = record.due
    if due is None:
        return (record.whole or not record.groups) and not left_out
    if record.groups:
        left_out |= due - set(record.groups)
    return not left_out & due - set(newly)


def _earlier_chains(kind: MoveKind, last: MoveRecord | None) -> tuple[str, ...]:
    """The chains whose groups still work on the target, besides the last one in the other direction."""
    if last is None or not last.on_target:
        return ()
    if kind is MoveKind.FAILOVER and last.kind is MoveKind.FAILBACK and last.chain_before:
        return (*last.earlier_chains, last.chain_before)
    return last.earlier_chains


def _unfinished_before(last: MoveRecord | None, *, given_up: bool = False) -> frozenset[str] | None:
    """Those of the runs before. An interrupted run does not record for which groups it has committed offsets.
    `given_up`: those of a run that was given up count, too."""
    if last is None or not last.on_target:
        return frozenset()
    is_cut = last.state is MoveState.RUNNING or (given_up and last.aborted)
    if last.kind is not MoveKind.FAILOVER or not is_cut:
        return last.unfinished
    return None if last.unfinished is None or not last.groups else last.unfinished | frozenset(last.groups)


def _unfinished_after(
    record: MoveRecord, newly: Collection[str], partitions: Sequence[MovePartition]
) -> frozenset[str] | None:
    """Those after a run that has finished the groups `newly`."""
    left = {entry.group for entry in partitions} - set(newly)
    before = record.unfinished
    if record.groups:
        if before is None:
            return None
        after = before - set(newly)
    else:
        after = frozenset(left) if before is None else before & left
    is_failover = record.kind is MoveKind.FAILOVER
    works_on_source = MoveAction.SKIP_ACTIVE_BEFORE if is_failover else MoveAction.SKIP_ACTIVE_THERE
    after -= {entry.group for entry in partitions if entry.action is works_on_source}
    if is_failover:
        after |= going_on(partitions) & left
    return after if sum(len(name.encode()) for name in after) <= MOST_UNFINISHED_BYTES else None


def _of(
    groups: Collection[str], places: Mapping[str, Mapping[TopicPartition, int]]
) -> dict[str, Mapping[TopicPartition, int]]:
    return {group: offsets for group, offsets in places.items() if group in groups}
