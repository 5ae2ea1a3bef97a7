"""What becomes of the groups of a move, read off its partitions. Pure."""

from collections.abc import Mapping, Sequence

from twinlog_checkpoint.moves import MoveAction, MovePartition
from twinlog_checkpoint.translation import Verdict

_THERE = (MoveAction.WRITE, MoveAction.ALREADY_THERE, MoveAction.KEEP_AHEAD)
_STAYING = (MoveAction.SKIP_ACTIVE_BEFORE, MoveAction.SKIP_ACTIVE_THERE)


def writes(partitions: Sequence[MovePartition]) -> Mapping[str, Sequence[MovePartition]]:
    """What is to be committed, by group."""
    by_group: dict[str, list[MovePartition]] = {}
    for entry in partitions:
        if entry.action is MoveAction.WRITE:
            by_group.setdefault(entry.group, []).append(entry)
    return by_group


def going_on(partitions: Sequence[MovePartition]) -> set[str]:
    """The groups that go on where they move to, with one partition at least."""
    staying = {entry.group for entry in partitions if entry.action in _STAYING}
    return {entry.group for entry in partitions if entry.action in _THERE} - staying


def finished_with(partitions: Sequence[MovePartition]) -> set[str]:
    """The groups of which nothing is left for a later run: what no flow copies never will be."""
    left = {
        entry.group
        for entry in partitions
        if entry.action is MoveAction.SKIP_NO_PARTITION
        or (
            entry.action is MoveAction.SKIP_NO_OFFSET
            and entry.translation.verdict is not Verdict.NOT_REPLICATED
        )
    }
    return going_on(partitions) - left


def stood_at(partitions: Sequence[MovePartition]) -> dict[str, int]:
    """The sum of each group's offsets where it comes from: it rises when the group goes on there."""
    sums: dict[str, int] = {}
    for entry in partitions:
        if entry.from_offset is not None and entry.to_partition is not None:
            sums[entry.group] = sums.get(entry.group, 0) + entry.from_offset
    return sums
