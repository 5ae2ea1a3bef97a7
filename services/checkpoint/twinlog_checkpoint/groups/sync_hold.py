"""sync.group.offsets: which groups on the target are left alone because of a failover. Pure.

Checkpoints may be older than what the failover has committed, and say nothing about where the group's own
consumers or its operator have put it on the target since.
"""

from collections.abc import Collection
from dataclasses import dataclass

from twinlog.moves.record import Moves

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
