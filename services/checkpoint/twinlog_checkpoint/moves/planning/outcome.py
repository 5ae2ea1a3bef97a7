"""Derives the outcome for each group from the partitions of a move. Pure."""

import shlex
from collections.abc import Collection, Mapping, Sequence

from twinlog.model import TopicPartition
from twinlog_checkpoint.moves.planning.plan import THERE, MoveAction, MovePartition
from twinlog_checkpoint.moves.topic_backlog import TopicBacklog, blocking
from twinlog_checkpoint.translation.translation import UNREADABLE, Verdict

_STAYING = (MoveAction.SKIP_ACTIVE_BEFORE, MoveAction.SKIP_ACTIVE_THERE)
_READ_THEM_FIRST = "Read these records first where they are, or skip them (--accept-loss)"
_TOLD = 3
"""The most sentences of one kind in a blocker; rows of the plan have them all."""
_LATER = frozenset({Verdict.NOT_READY, *UNREADABLE})
"""Verdicts that are not final: a later translation may succeed."""
_WITH_THE_COPY = frozenset(Verdict) - {Verdict.TOO_OLD, Verdict.PAST_END, Verdict.SHARED_COPY}
"""Verdicts of an offset that may get its place when records are copied."""


def writes(partitions: Sequence[MovePartition]) -> Mapping[str, Sequence[MovePartition]]:
    """The offsets to commit, by group."""
    by_group: dict[str, list[MovePartition]] = {}
    for entry in partitions:
        if entry.action is MoveAction.WRITE:
            by_group.setdefault(entry.group, []).append(entry)
    return by_group


def going_on(partitions: Sequence[MovePartition]) -> set[str]:
    """The groups that continue on the new cluster with at least one partition."""
    return {entry.group for entry in partitions if entry.action in THERE} - staying(partitions)


def staying(partitions: Sequence[MovePartition]) -> set[str]:
    """The groups that are not moved because they have members on one of the clusters."""
    return {entry.group for entry in partitions if entry.action in _STAYING}


def unread(partitions: Sequence[MovePartition]) -> dict[str, str]:
    """The groups with an offset that could not be translated for now, with the reason."""
    return {
        entry.group: entry.message
        for entry in partitions
        if entry.action is MoveAction.SKIP_NO_OFFSET and entry.translation.verdict in _LATER
    }


def lacking(partitions: Sequence[MovePartition]) -> list[MovePartition]:
    """The offsets on copied topics that have no translation. Consumers of these groups would begin where
    their auto.offset.reset says."""
    return [
        entry
        for entry in partitions
        if entry.action is MoveAction.SKIP_NO_PARTITION
        or (
            entry.action is MoveAction.SKIP_NO_OFFSET
            and entry.translation.verdict is not Verdict.NOT_REPLICATED
            and entry.translation.verdict not in _LATER
        )
    ]


def _skipping(partitions: Sequence[MovePartition]) -> list[str]:
    """The groups that would skip records that only the cluster has that they leave."""
    return [
        f"{entry.group} on {entry.from_partition}: {entry.message}"
        for entry in partitions
        if entry.action is MoveAction.SKIP_UNREAD
    ]


def place_blockers(
    partitions: Sequence[MovePartition], backlog: Sequence[TopicBacklog], *, accepted: bool
) -> list[str]:
    """Why no group moves before somebody acts: a run would skip records, or leave offsets without a place.
    What is still being copied may get its place meanwhile: the run waits for it."""
    reasons, stay = unread_blockers(partitions), staying(partitions)
    if accepted:
        return reasons
    copying = {entry.partition for entry in backlog if entry.records_not_copied != 0}
    nowhere = [
        entry
        for entry in lacking(partitions)
        if entry.group not in stay
        and not (entry.translation.verdict in _WITH_THE_COPY and entry.from_partition in copying)
    ]
    if nowhere:
        reasons.append(_without_place(nowhere))
    return reasons


def waiting(partitions: Sequence[MovePartition], backlog: Sequence[TopicBacklog]) -> list[str]:
    """What is not known, or not copied, before brokers are back: a run would wait for it."""
    stuck = [entry for entry in backlog if entry.is_stuck]
    told = [f"records that cannot be copied now: {blocking(stuck)}"] if stuck else []
    return not_now(partitions) + told


def not_now(partitions: Sequence[MovePartition]) -> list[str]:
    """Name the groups that could go on with what cannot be translated for now."""
    stay = staying(partitions)
    return _not_now({group: why for group, why in unread(partitions).items() if group not in stay})


def unread_blockers(partitions: Sequence[MovePartition]) -> list[str]:
    """Why no group moves before these records are read, or their loss is accepted."""
    skipped = _skipping(partitions)
    return [f"{some(skipped, _TOLD)}. {_READ_THEM_FIRST}"] if skipped else []


def refused(partitions: Sequence[MovePartition]) -> dict[str, str]:
    """The groups whose offsets the other cluster refused, with the reason."""
    return {entry.group: entry.message for entry in partitions if entry.action is MoveAction.SKIP_REFUSED}


def skipped(partitions: Sequence[MovePartition]) -> set[str]:
    """The groups with an offset that a later run may commit."""
    return {
        entry.group
        for entry in partitions
        if entry.action in (MoveAction.SKIP_UNREAD, MoveAction.SKIP_REFUSED)
    }


def finished_with(partitions: Sequence[MovePartition], *, accepted: bool) -> set[str]:
    """The groups that need no later run. Offsets on topics that no flow copies do not count, and those
    without a translation not where that is accepted."""
    nowhere = {entry.group for entry in lacking(partitions)}
    left = unread(partitions).keys() | skipped(partitions)
    if accepted:
        # Also one that has no place at all: its consumers begin there as they are configured.
        return (going_on(partitions) | (nowhere - staying(partitions))) - left
    return going_on(partitions) - left - nowhere


def stood_at(partitions: Sequence[MovePartition]) -> dict[str, dict[TopicPartition, int]]:
    """Each group's offsets on the cluster that it leaves. If one is larger later, or new, the group is still
    working there."""
    places: dict[str, dict[TopicPartition, int]] = {}
    for entry in partitions:
        if entry.from_offset is not None and entry.to_partition is not None:
            places.setdefault(entry.group, {})[entry.from_partition] = entry.from_offset
    return places


def left_at(partitions: Sequence[MovePartition]) -> dict[str, dict[TopicPartition, int]]:
    """Each group's offsets on the cluster that it moves to, after the move."""
    places: dict[str, dict[TopicPartition, int]] = {}
    for entry in partitions:
        offset = entry.continues_at
        if entry.action in THERE and offset is not None and entry.to_partition is not None:
            places.setdefault(entry.group, {})[entry.to_partition] = offset
    return places


def left_behind(
    partitions: Sequence[MovePartition],
    backlog: Sequence[TopicBacklog],
    *,
    drained: bool,
    accepted: bool,
    still_written: Collection[TopicPartition] = (),
    unfenced_topics: Collection[str] = (),
) -> list[str]:
    """Why the cluster that the groups left must not be switched off yet: groups with members, offsets without
    a translation, records that are not copied, writers that the fence does not stop.

    Topics that no flow copies are no reason, because the rules exclude them. `accepted` means that missing
    records and groups without a translation are accepted.
    """
    reasons: list[str] = []
    stay = sorted(staying(partitions))
    if stay:
        reasons.append(f"groups with members were not moved: {some(stay)}")
    reasons += _not_now(unread(partitions))
    not_taken = [f"{group}: {message}" for group, message in sorted(refused(partitions).items())]
    if not_taken:
        reasons.append(f"commits that were refused: {some(not_taken)}. Remove the cause and run it again")
    reasons += [f"{each}, then run it again" for each in unread_blockers(partitions)]
    nowhere = lacking(partitions)
    if nowhere and not accepted:
        reasons.append(_without_place(nowhere))
    if not drained and not accepted:
        reasons.append(
            f"not copied: {blocking(backlog) or 'records that were written before the move ended'}"
        )
    if still_written and not accepted:
        names = some([str(partition) for partition in sorted(still_written)])
        reasons.append(
            f"somebody still writes behind the fence: {names}: stop the producer (ACLs do not bind a super"
            " user of the cluster), then run it again"
        )
    if unfenced_topics and not accepted:
        reasons.append(
            f"somebody removed the fence of {some(sorted(unfenced_topics))}: run it again with --fence"
        )
    return reasons


def _not_now(silent: Mapping[str, str]) -> list[str]:
    groups = sorted(silent)
    return (
        [f"offsets that could not be translated now: {some(groups)}: {silent[groups[0]]}"] if silent else []
    )


def _without_place(nowhere: Sequence[MovePartition]) -> str:
    """Name groups and partitions by cause, with the remedy."""
    by_cause: dict[tuple[str, str], list[str]] = {}
    for entry in sorted(nowhere, key=_place):
        by_cause.setdefault((entry.group, _cause(entry)), []).append(str(entry.from_partition))
    told = [f"{group} on {some(found)}: {cause}" for (group, cause), found in by_cause.items()]
    left = sum(map(len, list(by_cause.values())[_TOLD:]))
    more = f"; and {left} more" if left else ""
    return (
        f"offsets without a translation: {'; '.join(told[:_TOLD])}{more}. Remove the cause and run it again,"
        " move the others (--group), or accept that these consumers begin where their auto.offset.reset says"
        " (--accept-loss)"
    )


def _cause(entry: MovePartition) -> str:
    if entry.action is MoveAction.SKIP_NO_PARTITION:
        return f"{entry.message}: `twinlog explain topic {entry.from_partition.topic}` says why"
    told, offset = f"{entry.translation.verdict.value}, {entry.message}", entry.translation.placed_from
    if offset is None:
        return told
    topic = f"{entry.from_partition.topic}:{entry.from_partition.partition}"
    return (
        f"{told}: let its consumers read on to offset {offset}, where the records lie that were copied last;"
        f" or put the group there, which reads nothing in between: `kafka-consumer-groups --group"
        f" {shlex.quote(entry.group)} --topic {shlex.quote(topic)} --reset-offsets --to-offset {offset}"
        " --execute`"
    )


def _place(entry: MovePartition) -> tuple[str, TopicPartition]:
    return entry.group, entry.from_partition


def some(names: Sequence[str], most: int = 5) -> str:
    """`t1, t2 and 98 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
