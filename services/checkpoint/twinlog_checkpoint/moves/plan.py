"""Moving groups from one cluster to the other: what is planned, decided and reported. Pure.

A failover of flow A->B moves groups from A to B, a failback from B to A. Both are a `Move`: groups leave
`from_alias` and go on at `to_alias` with translated offsets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog_checkpoint.groups.sync_plan import WRITABLE_STATES
from twinlog_checkpoint.journal.record import MoveKind
from twinlog_checkpoint.translation.log_ranges import LogRange
from twinlog_checkpoint.translation.translation import COMPARED, Translation, Verdict

DEFAULT_WAIT_SECONDS = 300.0


class MoveAction(StrEnum):
    """What is done with one partition of one group; documented at the API's enum."""

    WRITE = "WRITE"
    ALREADY_THERE = "ALREADY_THERE"
    KEEP_AHEAD = "KEEP_AHEAD"
    SKIP_ACTIVE_BEFORE = "SKIP_ACTIVE_BEFORE"
    SKIP_ACTIVE_THERE = "SKIP_ACTIVE_THERE"
    SKIP_NO_OFFSET = "SKIP_NO_OFFSET"
    SKIP_NO_PARTITION = "SKIP_NO_PARTITION"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions:
    groups: tuple[str, ...] = ()
    """Empty = all of the flow."""
    fence: bool = False
    """Deny writes where the groups come from, by ACL."""
    include_active: bool = False
    """Also groups with members where they come from."""
    wait_seconds: float = DEFAULT_WAIT_SECONDS
    """For the backlog; 0 = do not wait."""
    accept_loss: bool = False
    """Go on with records not copied, with groups that have no place there, or with the cluster gone."""
    by: str = ""
    """Who asks, for the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePartition:
    """One partition of one group."""

    group: str
    from_partition: TopicPartition
    to_partition: TopicPartition | None
    from_offset: int | None
    """None when the cluster is gone and only a checkpoint is known."""
    present_offset: int | None
    """Committed where it moves to, before the move."""
    translation: Translation
    action: MoveAction
    message: str = ""
    metadata: str = ""
    """What the group committed beside its offset; it moves along."""

    @property
    def to_offset(self) -> int | None:
        return self.translation.downstream_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBacklog:
    """What the copy of one partition lacks."""

    partition: TopicPartition
    end_offset: int | None
    """End of the committed log; None when the cluster does not answer."""
    records_not_copied: int | None
    """None when it cannot be known, or is not counted yet."""
    copied_to: int | None = None
    """The source offset after the last copied record."""
    message: str = ""
    """Why it is not known, or why what is missing is not copied."""
    counting: bool = False
    """The count continues with the next look: `records_not_copied` is None, and `at_most` is known."""
    at_most: int | None = None
    """No more records than this are missing; None when even that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastMove:
    """The record of a flow's last move, as a plan shows it."""

    run_id: str
    kind: MoveKind
    finished: bool
    steps: Sequence[str]
    by: str
    started_ms: int
    aborted: bool = False
    """Given up: its fences are gone."""
    left_behind: Sequence[str] = ()
    """Why the cluster that was left must not be switched off yet, as the finished run said."""
    fenced_topics: Sequence[str] = ()
    """Whose writers its fences, or those of the move before it, keep out."""
    fenced_where_left: Sequence[str] = ()
    """Of these, those on the cluster that it leaves."""
    fenced_where_entered: Sequence[str] = ()
    """Of these, those on the cluster that it goes to: of the move before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    kind: MoveKind
    flow: Flow
    from_alias: ClusterAlias
    to_alias: ClusterAlias
    from_reachable: bool
    looked: bool
    """False when something kept from looking at offsets and logs: both are empty then."""
    partitions: Sequence[MovePartition]
    backlog: Sequence[TopicBacklog]
    estimated_seconds: float | None
    warnings: Sequence[str]
    blockers: Sequence[str]
    fenced_topics: Sequence[str] = ()
    """Whose writers are kept out of `from_alias`, now or by this move."""
    last: LastMove | None = None
    """What is recorded of the flow's last move."""

    @property
    def records_not_copied(self) -> int | None:
        """None when a part of it is not known."""
        return total_backlog(self.backlog) if self.from_reachable and self.looked else None


def total_backlog(backlog: Sequence[TopicBacklog]) -> int | None:
    total = 0
    for entry in backlog:
        if entry.records_not_copied is None:
            return None
        total += entry.records_not_copied
    return total


def counting(backlog: Sequence[TopicBacklog]) -> bool:
    """Whether counting on is all that is missing to know the backlog."""
    unknown = [entry for entry in backlog if entry.records_not_copied is None]
    return bool(unknown) and all(entry.counting for entry in unknown)


def most_missing(backlog: Sequence[TopicBacklog]) -> int | None:
    """The most records that can be missing; None when a part of it is not known."""
    total = 0
    for entry in backlog:
        most = entry.at_most if entry.records_not_copied is None else entry.records_not_copied
        if most is None:
            return None
        total += most
    return total


def blocking(backlog: Sequence[TopicBacklog], most: int = 5) -> str:
    """What is not copied, partition by partition, with the cause; empty when all is."""
    missing = [entry for entry in backlog if entry.records_not_copied != 0]
    shown = "; ".join(f"{entry.partition}: {_missing(entry)} ({entry.message})" for entry in missing[:most])
    more = f"; and {len(missing) - most} more partitions" if len(missing) > most else ""
    return shown + more


def _missing(entry: TopicBacklog) -> str:
    if entry.records_not_copied is not None:
        return "1 record" if entry.records_not_copied == 1 else f"{entry.records_not_copied} records"
    return "not known" if entry.at_most is None else f"at most {entry.at_most} records"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """Everything about one (group, partition) that the decision needs."""

    group: str
    from_partition: TopicPartition
    to_partition: TopicPartition | None
    from_offset: int | None
    translation: Translation
    state_before: str | None
    """Of the group where it comes from; None when not known."""
    state_there: str | None
    present_offset: int | None
    log_there: LogRange | None
    """None when the partition does not exist there."""
    metadata: str = ""
    wrote_present: bool = False
    """`present_offset` was committed there because of a checkpoint, no later than `from_offset`: it may go
    back."""


def decide(place: GroupPlace, *, include_active: bool) -> MovePartition:
    """What is done with it. Never under members, never outside the log, and backwards only from where Twinlog
    put the group itself.
    """
    place = replace(place, translation=_readable(place.translation, place.log_there))
    action, message = _action(place, include_active=include_active)
    translation = place.translation
    return MovePartition(
        group=place.group,
        from_partition=place.from_partition,
        to_partition=place.to_partition,
        from_offset=place.from_offset,
        present_offset=place.present_offset,
        translation=translation,
        action=action,
        message=message or translation.message,
        metadata=place.metadata,
    )


def _action(place: GroupPlace, *, include_active: bool) -> tuple[MoveAction, str]:
    wanted = place.translation.downstream_offset
    if wanted is None or place.to_partition is None:
        return MoveAction.SKIP_NO_OFFSET, ""
    if place.log_there is None:
        return MoveAction.SKIP_NO_PARTITION, f"there is no {place.to_partition} yet"
    if place.state_there is not None and place.state_there not in WRITABLE_STATES:
        return MoveAction.SKIP_ACTIVE_THERE, f"the group is {place.state_there} there and owns its offsets"
    active_before = place.state_before is not None and place.state_before not in WRITABLE_STATES
    if active_before and not include_active:
        return MoveAction.SKIP_ACTIVE_BEFORE, (
            f"the group is {place.state_before}: stop its consumers, or move what it has committed by now"
        )
    if place.present_offset is None or place.present_offset < wanted:
        return MoveAction.WRITE, ""
    if place.present_offset == wanted:
        return MoveAction.ALREADY_THERE, ""
    if place.wrote_present and (
        place.translation.verdict in COMPARED or place.present_offset > place.log_there.end
    ):
        return MoveAction.WRITE, f"from {place.present_offset}, where an earlier translation put it"
    return MoveAction.KEEP_AHEAD, f"the group is at {place.present_offset} there: it is never moved back"


_NOWHERE = frozenset({Verdict.NO_SYNC, Verdict.TOO_OLD, Verdict.FLOOR, *COMPARED})


def _readable(translation: Translation, log: LogRange | None) -> Translation:
    """A translation as the log there allows it: from its start on, and none past its end. Where that log
    holds nothing its end is the place of every group: what comes is what the group has not read."""
    offset = translation.downstream_offset
    if log is None:
        return translation
    if log.start == log.end and translation.verdict in _NOWHERE and (offset is None or offset > log.end):
        return Translation(
            verdict=Verdict.UP_TO_DATE,
            downstream_offset=log.end,
            message=f"the log there is empty and ends at {log.end}",
        )
    if offset is None:
        return translation
    if offset > log.end:
        return Translation(
            verdict=Verdict.NO_SYNC,
            downstream_offset=None,
            message=f"{offset} is past the end {log.end} of the log there, which lost records or was created"
            " again",
        )
    return replace(translation, downstream_offset=log.begin(offset))


def plan_warnings(
    partitions: Sequence[MovePartition],
    backlog: Sequence[TopicBacklog],
    *,
    from_alias: ClusterAlias,
    from_reachable: bool,
    fenced: bool,
    unsupported: Mapping[str, str] | None = None,
) -> list[str]:
    """What an operator should look at before the move; `unsupported` are groups by their type that no
    translation is for.
    """
    warnings: list[str] = []
    if not from_reachable and partitions:
        warnings.append(
            f"{from_alias} does not answer: offsets are those of the last checkpoints; what {from_alias} had"
            " and was not copied is not known"
        )
    elif from_reachable and not fenced:
        warnings.append(
            f"writers on {from_alias} are not fenced: what they write from now on may stay behind"
        )
    total = total_backlog(backlog) if from_reachable else None
    if total:
        warnings.append(f"{_records(total)} not copied yet")
    elif from_reachable and total is None and counting(backlog):
        warnings.append(f"what is not copied is still being counted: at most {most_missing(backlog)} records")
    for action, words in (
        (MoveAction.SKIP_ACTIVE_BEFORE, f"members on {from_alias}: not moved while that is so"),
        (MoveAction.SKIP_ACTIVE_THERE, "members where it would move to: left alone"),
    ):
        groups = sorted({entry.group for entry in partitions if entry.action is action})
        if groups:
            warnings.append(f"{_named(groups)}: {words}")
    moving = (MoveAction.WRITE, MoveAction.ALREADY_THERE)
    floors = [
        entry for entry in partitions if entry.translation.verdict is Verdict.FLOOR and entry.action in moving
    ]
    if floors:
        groups = sorted({entry.group for entry in floors})
        warnings.append(f"{_named(groups)}: some records may be read again (FLOOR, {_offsets(len(floors))})")
    for kind in sorted(set((unsupported or {}).values())):
        groups = sorted(group for group, its_kind in (unsupported or {}).items() if its_kind == kind)
        warnings.append(
            f"{_named(groups)}: {kind} groups are not moved, they commit no offset per partition: there their"
            " consumers begin as their configuration says"
        )
    by_rule = [entry for entry in partitions if entry.translation.verdict is Verdict.NOT_REPLICATED]
    if by_rule:
        groups = sorted({entry.group for entry in by_rule})
        topics = sorted({entry.from_partition.topic for entry in by_rule})
        warnings.append(
            f"{_named(groups)}: {_offsets(len(by_rule))} on topics that no flow copies, which stay on"
            f" {from_alias}: {_some(topics)}"
        )
    nowhere = [
        entry
        for entry in partitions
        if entry.action in (MoveAction.SKIP_NO_OFFSET, MoveAction.SKIP_NO_PARTITION)
        and entry.translation.verdict is not Verdict.NOT_REPLICATED
    ]
    if nowhere:
        groups = sorted({entry.group for entry in nowhere})
        warnings.append(
            f"{_named(groups)}: {_offsets(len(nowhere))} without a translation: there its consumers begin as"
            " their auto.offset.reset says, and a run is not complete unless that is accepted (--accept-loss)"
        )
    return warnings


def _records(count: int) -> str:
    return "1 record is" if count == 1 else f"{count} records are"


def _offsets(count: int) -> str:
    return "1 offset" if count == 1 else f"{count} offsets"


def _named(groups: Sequence[str]) -> str:
    return f"group{'s' if len(groups) > 1 else ''} {_some(groups)}"


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def estimated_seconds(
    before: Sequence[TopicBacklog], after: Sequence[TopicBacklog], elapsed_seconds: float
) -> float | None:
    """Until the backlog is copied, at the rate between two looks. None when it cannot be said."""
    total = total_backlog(after)
    if total is None:
        return None
    if total == 0:
        return 0.0
    known = {entry.partition: entry.copied_to for entry in before}
    copied = sum(
        max(0, entry.copied_to - (known.get(entry.partition) or entry.copied_to))
        for entry in after
        if entry.copied_to is not None
    )
    return total / (copied / elapsed_seconds) if copied else None
