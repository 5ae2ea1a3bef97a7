"""sync.group.offsets: which groups on the target are left alone because of a failover. Pure.

Checkpoints may be older than what the failover has committed, and say nothing about where the group's own
consumers or its operator have put it on the target since.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.model import Flow
from twinlog_checkpoint.journal.record import GroupOffsets, MoveKind, MoveRecord, MoveState

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


def put_back(last: MoveRecord | None) -> Mapping[str, GroupOffsets]:
    """Where the last failback left each group on the source. It took these places from the target, so they
    are no progress there: the group's own place on the target may lie before records that only the target
    has."""
    if last is None:
        return {}
    return last.left_at if last.kind is MoveKind.FAILBACK else last.left_before


def sync_hold(flow: Flow, last: MoveRecord | None, *, running: bool) -> SyncHold:
    """Return the groups that failovers have moved and no failback: their offsets on the target are those of
    the failover, or the groups' own since. `running`: a move runs in this process."""
    if running:
        return SyncHold(groups=None, why=f"a failover or failback of {flow} is running")
    if last is None or not last.on_target:
        return SyncHold()
    if last.state is MoveState.RUNNING:
        # It may have committed offsets, and does not record for which groups before its end.
        return SyncHold(
            groups=None,
            why=f"the last {last.kind} has not ended: `twinlog {last.kind} run '{flow}'` continues it,"
            f" `twinlog {last.kind} abort '{flow}'` gives it up",
        )
    if last.unfinished is None:
        return SyncHold(
            groups=None,
            why="failovers may have moved more groups than they recorded, because one was interrupted or left"
            f" very many unfinished: `twinlog failover run '{flow}'` without --group records them, and"
            f" `twinlog failback run '{flow}'` moves them back",
        )
    why = f"a failover moved groups to {flow.target}: `twinlog failback run '{flow}'` moves them back"
    return SyncHold(groups=last.on_target_groups, why=why)
