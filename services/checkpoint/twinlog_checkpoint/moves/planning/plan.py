"""The values of a plan that moves groups from one cluster to the other. Pure.

A failover of flow A->B moves groups from A to B, a failback from B to A. Both are a `Move`: groups leave
`from_alias` and continue on `to_alias` with translated offsets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinlog.kafka.ports import AclBinding
from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog.moves.record import MoveKind
from twinlog_checkpoint.moves.topic_backlog import TopicBacklog, total_backlog
from twinlog_checkpoint.translation.translation import Translation

DEFAULT_WAIT_SECONDS = 300.0


class MoveAction(StrEnum):
    """What a move does with one partition of one group; the API's enum documents each value."""

    WRITE = "WRITE"
    ALREADY_THERE = "ALREADY_THERE"
    KEEP_AHEAD = "KEEP_AHEAD"
    SKIP_ACTIVE_BEFORE = "SKIP_ACTIVE_BEFORE"
    SKIP_ACTIVE_THERE = "SKIP_ACTIVE_THERE"
    SKIP_NO_OFFSET = "SKIP_NO_OFFSET"
    SKIP_NO_PARTITION = "SKIP_NO_PARTITION"
    SKIP_UNREAD = "SKIP_UNREAD"
    SKIP_REFUSED = "SKIP_REFUSED"


THERE = (MoveAction.WRITE, MoveAction.ALREADY_THERE, MoveAction.KEEP_AHEAD)
"""The group continues on the cluster that it moves to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions:
    groups: tuple[str, ...] = ()
    """The requested groups; empty = all of the flow."""
    fence: bool = False
    """Deny writes on the cluster that the groups leave, by ACLs."""
    include_active: bool = False
    """Also move groups that have members on the cluster that they leave."""
    wait_seconds: float = DEFAULT_WAIT_SECONDS
    """How long to wait for the backlog; 0 = do not wait."""
    accept_loss: bool = False
    """Continue although records are not copied, groups have no translated offset, or the cluster is lost."""
    grant_write: bool = False
    """For a failover: principals that may write to the source's topics get WRITE on the copies."""
    by: str = ""
    """The caller, for the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePartition:
    """One partition of one group."""

    group: str
    from_partition: TopicPartition
    to_partition: TopicPartition | None
    from_offset: int | None
    """None when the cluster does not answer and only a checkpoint is known."""
    present_offset: int | None
    """The offset that was committed on the new cluster before the move."""
    translation: Translation
    action: MoveAction
    message: str = ""
    metadata: str = ""
    """The metadata of the group's commit; it is copied with the offset."""
    past_end: int | None = None
    """The end of the log that the group leaves, where the group stands past it."""

    @property
    def to_offset(self) -> int | None:
        return self.translation.downstream_offset

    @property
    def continues_at(self) -> int | None:
        """Where a group goes on that is moved, or is there already."""
        return self.present_offset if self.action is MoveAction.KEEP_AHEAD else self.to_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRange:
    """What other producers wrote into one copy: in one stretch between copied records, or behind everything
    that its original has."""

    partition: TopicPartition
    origin: TopicPartition
    begin: int
    end: int
    records: int | None
    """None when it is not known where it begins. A stretch may have copied records, too."""
    message: str = ""
    """Why it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastMove:
    """The last move of a flow, as a plan shows it."""

    run_id: str
    kind: MoveKind
    finished: bool
    steps: Sequence[str]
    by: str
    started_ms: int
    aborted: bool = False
    """The run was given up; its fences were removed."""
    left_behind: Sequence[str] = ()
    """Why the cluster that the groups left must not be switched off yet, according to the finished run."""
    fenced_topics: Sequence[str] = ()
    """Topics that are fenced by this move or the move before it."""
    fenced_where_left: Sequence[str] = ()
    """Those of `fenced_topics` on the cluster that the move leaves."""
    fenced_where_entered: Sequence[str] = ()
    """Those of `fenced_topics` on the cluster that the move enters; the previous move fenced them."""
    on_target: bool = False
    """Groups may work on the flow's target because of this run or an earlier one."""
    groups_on_target: int | None = None
    """The groups that failovers have moved and no failback; None when that is not certain."""
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    kind: MoveKind
    flow: Flow
    from_alias: ClusterAlias
    to_alias: ClusterAlias
    from_reachable: bool
    looked: bool
    """False when offsets and logs could not be read; `partitions` and `backlog` are empty then."""
    partitions: Sequence[MovePartition] = ()
    backlog: Sequence[TopicBacklog] = ()
    estimated_seconds: float | None = None
    warnings: Sequence[str] = ()
    blockers: Sequence[str] = ()
    fenced_topics: Sequence[str] = ()
    """Topics of `from_alias` whose writers are fenced now, or will be by this move."""
    write_grants: Sequence[AclBinding] = ()
    """Missing ACLs that allow writers of the source's topics to write to the copies."""
    not_granted: Sequence[str] = ()
    """Rights to write that are not granted on the copies, and why."""
    only_here: Sequence[str] = ()
    """Groups that stay, because the cluster that the others move to never had them."""
    foreign: Sequence[str] = ()
    """What other producers wrote into copies on the cluster that the groups leave, in words."""
    last: LastMove | None = None
    """The recorded last move of the flow."""

    @property
    def records_not_copied(self) -> int | None:
        """None when a part of it is unknown."""
        return total_backlog(self.backlog) if self.from_reachable and self.looked else None
