"""When groups that are gone from the source may be deleted on the target: after a grace period, a few at a
time, and not while the source itself may be lost. Pure."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from twinlog_checkpoint.journal.source_record import SourceRecord

SOURCE_LOST, SOURCE_REPLACED, FAILED_OVER = "SOURCE_LOST", "SOURCE_REPLACED", "FAILED_OVER"
HOUR_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleteRules:
    grace_seconds: float
    """How long a group has to be gone before it may be deleted."""
    max_per_hour: int


def source_now(
    known: SourceRecord, *, cluster_id: str, missing: Collection[str], present: Collection[str]
) -> SourceRecord:
    """Return the record of the source after this check.

    `missing` are translated groups that exist on the target only, `present` the groups of the source. The
    source counts as lost when it has none of the groups it had. A loss stays recorded until no group is
    missing: until each one is back on the source or was deleted on the target by hand.
    """
    if not missing:
        return SourceRecord(cluster_id=cluster_id or known.cluster_id)
    held = known.held
    if not held and known.cluster_id and cluster_id and known.cluster_id != cluster_id:
        held = SOURCE_REPLACED
    if not held and not present:
        held = SOURCE_LOST
    return SourceRecord(cluster_id=known.cluster_id or cluster_id, held=held)


@dataclass(slots=True)
class DeletePace:
    """The grace period and the hourly limit. Takes monotonic seconds."""

    _gone_since: dict[str, float] = field(default_factory=dict)
    _deleted_at: deque[float] = field(default_factory=deque)

    def see(self, gone: Collection[str], *, now: float, since: Mapping[str, float] | None = None) -> None:
        """Record the groups that are missing now. `since` tells since when, as seen by earlier processes."""
        before = {**(since or {}), **self._gone_since}
        self._gone_since = {group: before.get(group, now) for group in gone}

    def due(self, groups: Collection[str], rules: GroupDeleteRules, *, now: float) -> list[str]:
        """The groups whose grace period is over; those that are gone longest come first."""
        return sorted(
            (group for group in groups if now - self._gone_since.get(group, now) >= rules.grace_seconds),
            key=lambda group: (self._gone_since.get(group, now), group),
        )

    def budget(self, rules: GroupDeleteRules, *, now: float) -> int:
        """How many groups may be deleted now."""
        while self._deleted_at and now - self._deleted_at[0] >= HOUR_SECONDS:
            self._deleted_at.popleft()
        return max(0, rules.max_per_hour - len(self._deleted_at))

    def on_deleted(self, count: int, *, now: float) -> None:
        self._deleted_at.extend([now] * count)
