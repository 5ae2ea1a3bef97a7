"""The progress of every group of a flow: the table behind ListGroups. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from twinlog.errors import KafkaError, TwinlogError
from twinlog.kafka.ports import CommittedOffset
from twinlog.model import Flow, TopicPartition
from twinlog.moves.record import Moves
from twinlog.wire import Checkpoint
from twinlog_checkpoint.translation.translation import UNREADABLE, LogBounds, Translation, Verdict

# sync.group.offsets: which groups on the target are left alone because of a failover. Pure.
#
# Checkpoints may be older than what the failover has committed, and say nothing about where the group's
# own consumers or its operator have put it on the target since.

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncHold:
    """The groups for which sync.group.offsets commits nothing on the target."""

    groups: frozenset[str] | None = frozenset()
    """None = every group."""
    reason: str = "FAILED_OVER"
    why: str = ""

    def covers(self, group: str) -> bool:
        return self.groups is None or group in self.groups

    def why_of(self, group: str) -> str:
        """Return why it covers the group; empty when it does not."""
        return self.why if self.covers(group) else ""

    def message(self, groups: Collection[str]) -> str:
        """Return how many groups it covers (`groups`), the first ones by name, and why."""
        count, first = len(groups), ", ".join(sorted(groups)[:_NAMED])
        more = f" and {count - _NAMED} more" if count > _NAMED else ""
        return f"{count} {'group' if count == 1 else 'groups'} ({first}{more}): {self.why}"


def sync_hold(moves: Moves, *, running: bool) -> SyncHold:
    """Return the groups that failovers have moved, or may have moved, and no failback: their offsets on the
    target are those of the failover, or the groups' own since. `running`: a move runs in this process."""
    flow, groups = moves.flow, moves.held
    if running:
        return SyncHold(groups=None, why=f"a failover or failback of {flow} is running")
    if groups is None:
        return SyncHold(
            groups=None,
            why="failovers of an earlier release may have moved more groups than they recorded:"
            f" `twinlog failover run '{flow}'` without --group records them, and `twinlog failback run"
            f" '{flow}'` moves them back",
        )
    if not groups:
        return SyncHold()
    why = f"a failover moved groups to {flow.target}: `twinlog failback run '{flow}'` moves them back"
    if (run := moves.interrupted) is not None:
        why = (
            f"the last {run.kind} has not ended: `twinlog {run.kind} run '{flow}'` continues it, `twinlog"
            f" {run.kind} give-up '{flow}'` gives it up"
        )
    return SyncHold(groups=groups, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """The progress of one group on one partition, on both clusters."""

    flow: Flow
    group: str
    source: TopicPartition
    target: TopicPartition
    upstream_offset: int
    """Committed on the source: the next offset to read."""
    translation: Translation
    as_of_ms: int = field(compare=False)
    """When the verdict was reached. Does not count when rows are compared: a row that was only checked again
    has not changed."""
    offset_on_target: int | None = None
    """The group's committed offset on the target; None when there is none, or it could not be read."""
    source_lag: int | None = None
    """Records (offsets) between the group and the end of the source log."""
    target_lag: int | None = None
    """Records (offsets) between the translated offset and the end of the target log."""

    @property
    def committed_on_target(self) -> bool:
        """Whether the translated offset is committed for the group on the target."""
        return (
            self.translation.downstream_offset is not None
            and self.translation.downstream_offset == self.offset_on_target
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSummary:
    """Counts of a table's rows."""

    group_count: int
    partitions_by_verdict: Mapping[Verdict, int]


class ProgressTable:
    """The latest progress of each (group, partition) of one flow.

    Invariants:
    - A. a group with members on the target stays ACTIVE_ON_TARGET until it was seen without members;
    - B. while a cluster does not answer, rows keep their offsets and their age;
    - C. an event of one group costs no more than that group's rows.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.problem: TwinlogError | None = None
        """Why the last pass failed; None when it succeeded."""
        self.confirmed_ms: int | None = None
        """When the last successful pass ended."""
        self.deletions_held: tuple[str, str] = ("", "")
        """Why groups that are gone from the source are kept on the target: reason and message; empty when
        nothing keeps them."""
        self.hold = SyncHold()
        """The groups for which sync.group.offsets commits nothing."""
        self.offsets_held: tuple[str, str] = ("", "")
        """The same for users: reason and message; empty when it covers no group."""
        self._rows: dict[str, dict[TopicPartition, GroupProgress]] = {}
        """By group and source partition."""
        self._active: set[str] = set()
        self._translated: dict[str, dict[TopicPartition, Translation]] = {}
        """The last translated offset by group and target partition, of the last pass that read the group."""

    def replace_all(
        self,
        rows: Iterable[GroupProgress],
        *,
        now_ms: int,
        unreadable: Mapping[str, KafkaError] | None = None,
    ) -> None:
        """Replace the table by the result of a whole pass. Rows that are not in it are removed, except those
        of groups whose offsets cannot be read."""
        unreadable = unreadable or {}
        # Another thread reads the table for metrics, so it is replaced as a whole and never changed in place.
        before = self._rows
        found: dict[str, dict[TopicPartition, GroupProgress]] = {}
        translated, self._translated = self._translated, {}
        for group, error in unreadable.items():
            if group in translated:
                self._translated[group] = translated[group]
            if group in before:
                found[group] = {at: self._unread(row, error) for at, row in before[group].items()}
        for row in rows:
            known = translated.get(row.group, {}).get(row.target)
            if row.translation.verdict in UNREADABLE and known is not None:
                self._translated.setdefault(row.group, {})[row.target] = known
                kept = before.get(row.group, {}).get(row.source, row)
                found.setdefault(row.group, {})[row.source] = _kept(kept, known, row.translation)
                continue
            found.setdefault(row.group, {})[row.source] = self._as_active(row)
            if row.translation.downstream_offset is not None and row.translation.verdict not in UNREADABLE:
                self._translated.setdefault(row.group, {})[row.target] = row.translation
        self._rows = found
        self.problem, self.confirmed_ms = None, now_ms

    def on_all_unreadable(self, error: TwinlogError) -> None:
        """A cluster did not answer at all; the verdict tells which."""
        self.problem = error
        for group in self._rows:
            self._change(group, lambda row: self._unread(row, error))

    def on_unreadable(self, group: str, error: TwinlogError) -> None:
        """A cluster did not tell of this group."""
        self._change(group, lambda row: self._unread(row, error))

    def on_deletions_held(self, reason: str, message: str) -> None:
        """Set why groups are kept; empty texts when nothing keeps them."""
        self.deletions_held = reason, message

    def on_hold(self, hold: SyncHold, groups: Collection[str] = ()) -> None:
        """Set for which groups no offsets are committed; `groups` are the known ones among them."""
        told = (hold.reason, hold.message(groups)) if groups else ("", "")
        self.hold = hold
        self.offsets_held = told

    def on_active(self, group: str) -> None:
        """The group has members on the target, which own its offsets there."""
        if group in self._active:
            return
        self._active.add(group)
        self._change(group, self._as_active)

    def on_idle(self, group: str) -> None:
        """The group has no members on the target (any more)."""
        if group not in self._active:
            return
        self._active.discard(group)
        self._change(group, self._as_idle)

    def on_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets of the group were committed on the target; by target partition."""

        def committed(row: GroupProgress) -> GroupProgress:
            if row.target not in offsets:
                return row
            return replace(row, offset_on_target=offsets[row.target])

        self._change(group, committed)

    def rows(self, group: str = "", *, begin: str = "") -> list[GroupProgress]:
        """Rows of one group, or of all from the name `begin` on, sorted by group, topic and partition."""
        groups = [group] if group else sorted(self._rows)
        return [
            self._rows[name][at]
            for name in groups[bisect_left(groups, begin) :]
            for at in sorted(self._rows.get(name, ()))
        ]

    def summary(self, group: str = "") -> ProgressSummary:
        """Count the groups, and their partitions by verdict."""
        chosen = [rows for name, rows in self._rows.items() if rows and group in ("", name)]
        verdicts = Counter(row.translation.verdict for rows in chosen for row in rows.values())
        return ProgressSummary(group_count=len(chosen), partitions_by_verdict=verdicts)

    def last_translation(self, group: str, target: TopicPartition) -> Translation | None:
        """Return the last translation that had an offset, also while a cluster does not answer; None when
        there is none."""
        return self._translated.get(group, {}).get(target)

    def _change(self, group: str, change: Callable[[GroupProgress], GroupProgress]) -> None:
        rows = self._rows.get(group, {})
        for at, row in rows.items():
            rows[at] = change(row)

    def _as_active(self, row: GroupProgress) -> GroupProgress:
        if row.group not in self._active or row.translation.downstream_offset is None:
            return row
        active = replace(
            row.translation,
            verdict=Verdict.ACTIVE_ON_TARGET,
            message=f"the group has members on {self.flow.target}, which own its offsets there",
        )
        return replace(row, translation=active)

    def _as_idle(self, row: GroupProgress) -> GroupProgress:
        known = self.last_translation(row.group, row.target)
        if row.translation.verdict is not Verdict.ACTIVE_ON_TARGET or known is None:
            return row
        return replace(row, translation=known)

    def _unread(self, row: GroupProgress, error: TwinlogError) -> GroupProgress:
        """Return the last known row with the present problem; it keeps its age."""
        verdict = unreadable_verdict(self.flow, error)
        now = Translation(verdict=verdict, downstream_offset=None, message=str(error))
        return _kept(row, self.last_translation(row.group, row.target), now)


def _kept(row: GroupProgress, known: Translation | None, now: Translation) -> GroupProgress:
    offset = None if known is None else known.downstream_offset
    return replace(row, translation=replace(now, downstream_offset=offset))


def unreadable_verdict(flow: Flow, error: TwinlogError) -> Verdict:
    """Return the verdict for an error of a cluster; the source's if the error does not name one."""
    at_target = error.metadata.get("cluster") == flow.target
    return Verdict.TARGET_UNREADABLE if at_target else Verdict.SOURCE_UNREADABLE


# sync.group.offsets: decides which translated offsets are committed for a group on the target. Pure.
#
# Stricter than MM2: offsets of a group with members are never sent (MM2 relies on the coordinator's refusal,
# which remains the last guard); an offset before the target's log becomes its start; an offset past its end
# is not committed; and an offset that Twinlog committed is set back if a lower checkpoint proves it wrong.

WRITABLE_STATES = frozenset({"EMPTY", "DEAD"})
"""States of a group without members; DEAD also stands for one that does not exist."""


def plan_group_sync(
    *,
    desired: Mapping[TopicPartition, Checkpoint],
    state_on_target: str,
    current: Mapping[TopicPartition, CommittedOffset],
    ranges: Mapping[TopicPartition, LogBounds],
    wrote: Callable[[Checkpoint, int], bool],
) -> Mapping[TopicPartition, CommittedOffset]:
    """Decide what to commit for one group from its checkpoints.

    `current` holds the group's offsets on the target, `ranges` the target's logs; a partition without a range
    does not exist there. `wrote` tells whether an offset on the target was committed by Twinlog and is proved
    wrong by a lower checkpoint; such an offset is set back.
    """
    if state_on_target not in WRITABLE_STATES:
        return {}
    writes: dict[TopicPartition, CommittedOffset] = {}
    for partition, checkpoint in desired.items():
        log = ranges.get(partition)
        if log is None or checkpoint.downstream_offset > log.end:
            # The target has no such partition (yet), or the copy lost its tail or was created again.
            continue
        wanted = log.begin(checkpoint.downstream_offset)
        present = current.get(partition)
        if (
            present is None
            or present.next_offset < wanted
            or (present.next_offset > wanted and wrote(checkpoint, present.next_offset))
        ):
            writes[partition] = CommittedOffset(next_offset=wanted, metadata=checkpoint.metadata)
    return writes
