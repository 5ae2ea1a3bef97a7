"""Decides what a move does with one partition of a group. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from twinlog.model import Flow, TopicPartition
from twinlog.moves.record import Moves, MoveState
from twinlog.wire import TopicIds
from twinlog_checkpoint.groups.progress import WRITABLE_STATES
from twinlog_checkpoint.moves.group_place import GroupPlace
from twinlog_checkpoint.moves.planning.plan import THERE, LastMove, MoveAction, MovePartition
from twinlog_checkpoint.translation.translation import (
    COMPARED,
    UNREADABLE,
    LogBounds,
    Translation,
    Verdict,
)


def decide(place: GroupPlace, *, include_active: bool, accept_loss: bool = False) -> MovePartition:
    """Decide what to do with the partition. A move never changes a group with members, never sets an offset
    outside the log, never skips records that only the other cluster has, unless that loss is accepted, and
    sets an offset back only if Twinlog committed it."""
    wanted = place.translation.downstream_offset
    if place.translation.verdict not in UNREADABLE:
        translation = _as_it_was(place, _readable(place.translation, place.log_there))
        place = replace(place, translation=_taken_back(place, translation))
    action, message = _action(place, include_active=include_active)
    if action is MoveAction.KEEP_AHEAD and _is_past_end(place):
        # The records of this offset are gone; the operator decides where the group continues.
        place = replace(place, translation=_without_place(place))
        action, message = MoveAction.SKIP_NO_OFFSET, ""
    translation = place.translation
    # sync.group.offsets may have put the group at the first record already.
    before = 0 if action is MoveAction.KEEP_AHEAD else place.unread_before_start
    if before is None:
        before = 0
        if action in THERE and (began_at := _cut(wanted, place.log_there)) is not None:
            message = (
                f"the log there begins at {began_at}: what the group has not read before that is skipped"
            )
            translation = replace(translation, verdict=Verdict.BEFORE_START)
    foreign = place.unread_foreign
    if action in THERE and before:
        translation = replace(translation, verdict=Verdict.BEFORE_START)
    if action in THERE and before + foreign:
        action = action if accept_loss else MoveAction.SKIP_UNREAD
        message = _only_here(before, foreign, start=translation.downstream_offset)
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
        past_end=place.end_here if _is_past(place.from_offset, place.end_here) else None,
    )


def _cut(wanted: int | None, log: LogBounds | None) -> int | None:
    """Where the log begins, if that is behind the wanted offset."""
    return log.start if log is not None and wanted is not None and wanted < log.start else None


def _is_past(offset: int | None, end: int | None) -> bool:
    return offset is not None and end is not None and offset > end


def _action(place: GroupPlace, *, include_active: bool) -> tuple[MoveAction, str]:
    wanted = place.translation.downstream_offset
    if wanted is None or place.to_partition is None or place.translation.verdict in UNREADABLE:
        return MoveAction.SKIP_NO_OFFSET, ""
    if place.log_there is None:
        return MoveAction.SKIP_NO_PARTITION, f"partition {place.to_partition} does not exist yet"
    if place.state_there is not None and place.state_there not in WRITABLE_STATES:
        return (
            MoveAction.SKIP_ACTIVE_THERE,
            f"the group is {place.state_there} on the other cluster, so its offsets there are its own",
        )
    active_before = place.state_before is not None and place.state_before not in WRITABLE_STATES
    if active_before and not include_active:
        return MoveAction.SKIP_ACTIVE_BEFORE, (
            f"the group is {place.state_before}: stop its consumers (one that died counts until its session"
            " time-out, 45 s by default), or move what it has committed so far (--include-active)"
        )
    if place.present_offset is None or place.present_offset < wanted:
        return MoveAction.WRITE, ""
    if place.present_offset == wanted:
        return MoveAction.ALREADY_THERE, ""
    if place.wrote_present and (place.translation.is_certain or place.present_offset > place.log_there.end):
        return (
            MoveAction.WRITE,
            f"set back from {place.present_offset}, which an earlier translation committed",
        )
    if place.wrote_further:
        return (
            MoveAction.WRITE,
            f"set back from {place.present_offset}: the group was put back where it comes from",
        )
    return (
        MoveAction.KEEP_AHEAD,
        f"the group has committed {place.present_offset} there, and is never moved back",
    )


def _only_here(before: int, foreign: int, *, start: int | None) -> str:
    """Name the records that a group would skip."""
    where = []
    if before:
        where.append(f"{before} before the start {start} of the log there")
    if foreign:
        where.append(f"{foreign} that other producers wrote into the copy (FOREIGN)")
    unread = _records(before + foreign)
    return f"{unread} that it has not read are only on the cluster that it leaves: {', '.join(where)}"


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _is_past_end(place: GroupPlace) -> bool:
    """Whether the group's offset is past the end of the log there: its consumers would begin where their
    auto.offset.reset says."""
    return _is_past(place.present_offset, None if place.log_there is None else place.log_there.end)


def _without_place(place: GroupPlace) -> Translation:
    translated, topic = place.translation, place.to_partition.topic if place.to_partition else ""
    return Translation(
        verdict=Verdict.PAST_END,
        downstream_offset=None,
        message=f"the group's own offset {place.present_offset} there is past the end of the log"
        f" ({place.log_there.end if place.log_there else '?'}), which lost records or was created again; it"
        f" would continue at {translated.downstream_offset} ({translated.verdict.value}). Delete its offset"
        f" there (kafka-consumer-groups --delete-offsets --group {place.group} --topic {topic})",
    )


def _as_it_was(place: GroupPlace, translation: Translation) -> Translation:
    """The translation; of an offset past the end of its log, where Twinlog had put the group before that log
    lost records: what is copied since lies behind."""
    present, log = place.present_offset if place.wrote_present else None, place.log_there
    if translation.verdict is not Verdict.PAST_END or present is None or log is None:
        return translation
    if not log.start <= present <= log.end:
        return translation
    message = f"{translation.message}; the group stays where an earlier checkpoint put it"
    return Translation(verdict=Verdict.FLOOR, downstream_offset=present, message=message)


def _taken_back(place: GroupPlace, translation: Translation) -> Translation:
    """The translation, unless it would skip what the group has not read where the last move took it from,
    because that move accepted the loss."""
    offset, before, log = translation.downstream_offset, place.came_from, place.log_there
    if offset is None or before is None or log is None or before != place.present_offset:
        return translation
    if not log.start <= before < offset:
        return translation
    return replace(translation, downstream_offset=before, message="the last move took the group from there")


_NOWHERE = frozenset({Verdict.NO_SYNC, Verdict.TOO_OLD, Verdict.FLOOR, Verdict.MAPPED, *COMPARED})


def _readable(translation: Translation, log: LogBounds | None) -> Translation:
    """Limit a translation to the log there: not before its start, and none past its end. If the log is empty,
    every group continues at its end, because no group has read the records to come."""
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


# The recorded moves as a plan shows them. Pure.


def shown_move(moves: Moves) -> LastMove | None:
    """The last run; None if there was none."""
    last = moves.run
    if last is None:
        return None
    left = moves.fences.get(moves.leaves(last.kind), {})
    entered = moves.fences.get(moves.enters(last.kind), {})
    there = moves.groups_on_target
    return LastMove(
        run_id=last.run_id,
        kind=last.kind,
        finished=last.state is MoveState.DONE,
        steps=tuple(last.done),
        by=last.by,
        started_ms=last.started_ms,
        aborted=last.aborted,
        left_behind=last.left_behind,
        fenced_topics=sorted({*left, *entered}),
        fenced_where_left=sorted(left),
        fenced_where_entered=sorted(entered),
        on_target=last.on_target,
        groups_on_target=None if there is None else len(there),
        ended_ms=last.finished_ms,
    )


# What the source service reports about the copy of each partition, including why it does not progress.


class LostRange(NamedTuple):
    """Source offsets whose records the copy had and lost, as the ledger of gaps says."""

    begin: int
    end: int
    reason: str


class ForeignStretch(NamedTuple):
    """Offsets of a copy between which other producers wrote records."""

    begin: int
    end: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """The copy of one partition."""

    state: str
    """RUNNING, PAUSED, BACKOFF, FAULTED, WAITING, …: names of the API's states."""
    position: int | None
    """The next source offset to copy, as committed on the target; None while unknown."""
    reason: str = ""
    message: str = ""
    equal_below: int | None = 0
    """Below this offset the copy has the source's offsets; None = everywhere."""
    target_end: int | None = None
    """The copy had records up to this offset of its own; None while unknown."""
    topic_ids: TopicIds | None = None
    """Of the topic and its copy, as the source service knows them."""
    foreign: Sequence[ForeignStretch] = ()
    """What other producers wrote into it, since the source service started."""

    @property
    def equal_back(self) -> int | None:
        """The same for an offset of the copy: behind what is copied, others may have written."""
        if self.equal_below is not None:
            return self.equal_below
        return 0 if self.position is None else self.position + 1

    @property
    def cause(self) -> str:
        """Why the copy does not progress, or that it does."""
        told = " ".join(part for part in (self.reason, self.message) if part)
        if self.state == "RUNNING":
            return told or "it is being copied"
        return f"{self.state}: {told}" if told else self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """All partitions of one flow."""

    partitions: Mapping[TopicPartition, CopyState] = field(default_factory=dict)
    """By source partition."""
    lost: Mapping[TopicPartition, Sequence[LostRange]] = field(default_factory=dict)
    """By source partition, in order: what nobody acknowledged. Only if it was asked for."""
    away: str = ""
    """Why the source service did not answer; empty when it did."""

    def cause(self, partition: TopicPartition) -> str:
        """Why records before the end of a partition are not copied."""
        if self.away:
            return self.away
        state = self.partitions.get(partition)
        return "the source service does not copy this partition" if state is None else state.cause


class CopyStates(Protocol):
    """Reads copy states within a bounded time. A failure is part of the report, never an error."""

    async def of(self, flow: Flow, *, with_losses: bool = False) -> CopyReport: ...
