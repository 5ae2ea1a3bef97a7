"""Moving groups from one cluster to the other: the values of a plan. Pure.

A failover of flow A->B moves groups from A to B, a failback from B to A. Both are a `Move`: groups leave
`from_alias` and continue at `to_alias` with translated offsets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinlog.kafka.ports import AclBinding
from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog_checkpoint.journal.record import MoveKind
from twinlog_checkpoint.moves.topic_backlog import TopicBacklog, total_backlog
from twinlog_checkpoint.translation.translation import Translation

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
    grant_write: bool = False
    """For a failover: principals that may write the source's topics get WRITE on the copies."""
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
    """Topics that the fences of this move, or of the move before it, keep writers out of."""
    fenced_where_left: Sequence[str] = ()
    """The topics of these that are on the cluster that the move leaves."""
    fenced_where_entered: Sequence[str] = ()
    """The topics of these on the cluster that the move enters, fenced by the move before."""


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
    write_grants: Sequence[AclBinding] = ()
    """That let writers of the source's topics write the copies: those that are not there yet."""
    not_granted: Sequence[str] = ()
    """Rights to write that the copies do not get, and why."""
    last: LastMove | None = None
    """What is recorded of the flow's last move."""

    @property
    def records_not_copied(self) -> int | None:
        """None when a part of it is not known."""
        return total_backlog(self.backlog) if self.from_reachable and self.looked else None
