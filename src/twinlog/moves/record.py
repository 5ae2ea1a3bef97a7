"""What is recorded of a flow's moves: the last run, and for each group where it is. Pure.

A run is a saga over groups: fence the writers, read the ends of the logs, wait until they are copied, then
commit and read back the offsets of each group and record its home, and remove what the move before has left.
A group's home answers every later question about it: whether a run has moved it, where it stood before, and
whether sync.group.offsets may touch it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.kafka.ports import AclBinding
from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog.write_blocks import fence_of

GroupOffsets = Mapping[TopicPartition, int]


class MoveKind(StrEnum):
    FAILOVER = "failover"
    """From the flow's source to its target."""
    FAILBACK = "failback"
    """From the target back to the source."""


class MoveState(StrEnum):
    RUNNING = "RUNNING"
    DONE = "DONE"


class Step(StrEnum):
    """The steps of a move, in order."""

    CHECK = "CHECK"
    FENCE = "FENCE"
    FINAL_OFFSETS = "FINAL_OFFSETS"
    DRAIN = "DRAIN"
    TRANSLATE = "TRANSLATE"
    COMMIT = "COMMIT"
    VERIFY = "VERIFY"
    GRANT = "GRANT"
    """Shown to users, but not recorded."""
    REVOKE = "REVOKE"
    """As GRANT."""
    UNFENCE = "UNFENCE"
    DONE = "DONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The last run."""

    run_id: str
    kind: MoveKind
    state: MoveState
    groups: tuple[str, ...] = ()
    """The requested groups; empty = all."""
    by: str = ""
    started_ms: int = 0
    finished_ms: int | None = None
    done: tuple[Step, ...] = ()
    aborted: bool = False
    """It was given up and its fences were removed. Its state is DONE then, so nothing continues it."""
    left_behind: tuple[str, ...] = ()
    """Why the cluster that the groups left must not be switched off yet; set when the run is done."""
    on_target: bool = False
    """Applications may work on the flow's target because of this run or an earlier one: from the first
    commits of a failover until a failback has moved every group back."""
    any_group: str = ""
    """The run of an earlier release that was interrupted, or left very many groups unfinished, and did not
    record them: any group may be on the target. Until a run for all groups is done; empty = none."""
    any_given_up: bool = False
    """`any_group` is only because of a run that was given up: sync.group.offsets heeds it no more.
    A failback ends this."""


class Certainty(StrEnum):
    SURE = "SURE"
    BEGUN = "BEGUN"
    """A failover since then has begun to commit the group's offsets on the target and has not finished it: it
    was interrupted, or some of the offsets have no translation. The group may work on the target."""
    GIVEN_UP = "GIVEN_UP"
    """As BEGUN, but that run was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a group is."""

    where: ClusterAlias
    """The cluster to which the last finished move took it; the source, if none has finished."""
    run: str
    """The run that recorded it."""
    stood_at: GroupOffsets = field(default_factory=dict)
    """The group's offsets as that move found them, on the cluster that it left. If one is another now, or
    new, the group continued there, or was put back, and has to be moved again."""
    left_at: GroupOffsets = field(default_factory=dict)
    """Where that move left the group, on `where`."""
    certainty: Certainty = Certainty.SURE


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Everything that is recorded of a flow's moves."""

    flow: Flow
    run: Run | None = None
    homes: Mapping[str, Home] = field(default_factory=dict)
    """Of the groups that a run has moved, or begun to move."""
    fences: Mapping[ClusterAlias, Mapping[str, str]] = field(default_factory=dict)
    """By cluster, the topics that are fenced there, with the runs that fenced them. They stay until every
    group that left the cluster is back."""
    grants: Mapping[AclBinding, str] = field(default_factory=dict)
    """ACLs that allow writers of the source to write to the copies, with the runs that granted them. They
    stay until every group is back on the source."""

    def leaves(self, kind: MoveKind) -> ClusterAlias:
        """The cluster that groups leave by a move of this kind."""
        return self.flow.source if kind is MoveKind.FAILOVER else self.flow.target

    def enters(self, kind: MoveKind) -> ClusterAlias:
        return self.flow.target if kind is MoveKind.FAILOVER else self.flow.source

    def fenced(self, cluster: ClusterAlias) -> tuple[AclBinding, ...]:
        return tuple(map(fence_of, sorted(self.fences.get(cluster, ()))))

    @property
    def interrupted(self) -> Run | None:
        """The last run if it has not ended."""
        return self.run if self.run is not None and self.run.state is MoveState.RUNNING else None

    @property
    def on_target(self) -> bool:
        return self.run is not None and self.run.on_target

    @property
    def groups_on_target(self) -> frozenset[str] | None:
        """The groups that may be on the target because of a failover; None = any group."""
        if self.run is None or not self.run.on_target:
            return frozenset()
        if self.run.any_group:
            return None
        return frozenset(group for group, home in self.homes.items() if self._may_be_on_target(home))

    @property
    def held(self) -> frozenset[str] | None:
        """As `groups_on_target`, without those of failovers that were given up: sync.group.offsets leaves
        them alone."""
        if self.run is None or not self.run.on_target:
            return frozenset()
        if self.run.any_group and not self.run.any_given_up:
            return None
        return frozenset(
            group
            for group, home in self.homes.items()
            if home.where == self.flow.target or home.certainty is Certainty.BEGUN
        )

    def due(self, kind: MoveKind) -> frozenset[str] | None:
        """The groups that moves in the other direction have moved, and none of this kind since: while there
        are any, the fences and grants of those moves stay. None = not known: every group."""
        if self.run is not None and self.run.any_group:
            return None
        if kind is MoveKind.FAILBACK:
            return self.groups_on_target
        return frozenset(self.moved_to(self.flow.source))

    def moved_to(self, cluster: ClusterAlias) -> Mapping[str, Home]:
        """The groups whose last finished move was to this cluster."""
        return {group: home for group, home in self.homes.items() if home.where == cluster and home.stood_at}

    def finished(self, kind: MoveKind) -> Mapping[str, Home]:
        """The groups that moves of this kind have finished and that none has moved, or may have moved,
        since."""
        if kind is MoveKind.FAILBACK and self.run is not None and self.run.any_group:
            return {}
        return {
            group: home
            for group, home in self.homes.items()
            if home.where == self.enters(kind) and home.certainty is Certainty.SURE
        }

    def _may_be_on_target(self, home: Home) -> bool:
        return home.where == self.flow.target or home.certainty is not Certainty.SURE


def went_on(then: GroupOffsets, now: GroupOffsets, *, live: bool = True) -> bool:
    """Whether a group has made progress, or was put back, since a run found it at `then`.

    `live`: `now` are its offsets; its last checkpoints may be older than the run."""
    return any(
        partition not in then or offset > then[partition] or (live and offset != then[partition])
        for partition, offset in now.items()
    )
