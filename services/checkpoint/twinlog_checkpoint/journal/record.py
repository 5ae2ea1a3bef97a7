"""The record of a flow's last move. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from twinlog.kafka.ports import AclBinding
from twinlog.model import TopicPartition


class MoveKind(StrEnum):
    FAILOVER = "failover"
    FAILBACK = "failback"


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
    """Shown to users, but never recorded as done: earlier releases do not know it."""
    REVOKE = "REVOKE"
    """As GRANT."""
    UNFENCE = "UNFENCE"
    DONE = "DONE"


GroupOffsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """The last move of a flow."""

    run_id: str
    kind: MoveKind
    state: MoveState
    groups: tuple[str, ...]
    """The requested groups; empty = all."""
    by: str
    started_ms: int
    finished_ms: int | None = None
    done: tuple[Step, ...] = ()
    fences: tuple[AclBinding, ...] = ()
    """ACLs that deny writes on the cluster that the groups left. They stay until the move back."""
    former_fences: tuple[AclBinding, ...] = ()
    """The fences of the previous move, on the cluster that the groups move to. This move removes them at its
    end."""
    aborted: bool = False
    """The run was given up and its fences were removed. Its state is DONE then, so nothing continues it."""
    on_target: bool = True
    """Groups may work on the flow's target because of this run or an earlier one. False before a failover has
    committed any offset, and after a failback."""
    chain: str = ""
    """Identifies the runs of one kind since the last move in the other direction. A group that one of them
    finished is not moved again."""
    chain_before: str = ""
    """The chain of the last move in the other direction."""
    earlier_chains: tuple[str, ...] = ()
    """The chains of earlier failovers since the last failback of all groups, without `chain_before`. A group
    that one of them finished, and no move since, still works on the target."""
    stood_before: Mapping[str, GroupOffsets] = field(default_factory=dict)
    """The offsets at which the last move in the other direction found the groups, without those that this
    chain has finished. For a failback also those that it finds on the target because of `earlier_chains`."""
    left_before: Mapping[str, GroupOffsets] = field(default_factory=dict)
    """Where that move left these groups, on the cluster that they leave now."""
    stood_earlier: Mapping[str, GroupOffsets] = field(default_factory=dict)
    """For a failover: the offsets at which those of `earlier_chains` found the groups that still work on the
    target. They are not in `moved`, because this chain has not moved them. Only a record that was read has
    them."""
    left_earlier: Mapping[str, GroupOffsets] = field(default_factory=dict)
    """Where they left these groups, on the target."""
    moved: tuple[str, ...] = ()
    """Groups that these runs have finished."""
    unfinished: frozenset[str] | None = frozenset()
    """Groups that failovers may have put on the target without finishing them, because they were interrupted,
    or had no translation for some of the offsets; None = every group."""
    unfinished_before: frozenset[str] | None = frozenset()
    """The same before the first attempt of this run. They are left when it is given up."""
    whole: bool = False
    """The runs of this chain have finished every group of `due`. Until a failback reaches this, groups count
    as working on the target."""
    fences_before: tuple[AclBinding, ...] = ()
    """Those of `fences` that earlier runs of the chain created. Giving up this run does not remove them."""
    left_behind: tuple[str, ...] = ()
    """Why the cluster that the groups left must not be switched off yet; set when the run is done."""
    grants: tuple[AclBinding, ...] = ()
    """ACLs that allow writers of the source to write to the copies; they stay until the move back."""
    former_grants: tuple[AclBinding, ...] = ()
    """For a failback: the grants of the failover before it, which it removes at its end."""
    stood_at: Mapping[str, GroupOffsets] = field(default_factory=dict)
    """The offsets of the groups on the cluster that they left. If an offset of a group is another one now, or
    new, the group continued to work there, or was put back, and has to be moved again."""

    left_at: Mapping[str, GroupOffsets] = field(default_factory=dict)
    """Where the runs left the groups of `stood_at`, on the cluster that they moved to. Earlier releases do
    not record it."""

    def after(self, step: Step) -> "MoveRecord":
        return self if step in self.done else replace(self, done=(*self.done, step))

    @property
    def on_target_groups(self) -> frozenset[str] | None:
        """The groups that failovers have moved and no failback; None = any group may be one of them."""
        if not self.on_target:
            return frozenset()
        if self.unfinished is None:
            return None
        if self.kind is MoveKind.FAILOVER:
            return self.unfinished.union(self.moved, self.stood_earlier)
        if not self.chain_before:
            # A record of an earlier release, which does not tell what the failover moved.
            return None
        return self.unfinished.union(self.stood_before) - frozenset(self.moved)

    @property
    def due(self) -> frozenset[str] | None:
        """The groups that runs in the other direction have moved, and runs of this chain not yet. While there
        are any, the fences and grants of those runs stay. None = it is not recorded: every group."""
        if self.kind is MoveKind.FAILBACK:
            return self.on_target_groups
        return frozenset(self.stood_before) - frozenset(self.moved) if self.chain_before else None

    @property
    def names(self) -> frozenset[str]:
        """Every group that the record names."""
        return frozenset(self.unfinished or ()).union(self.moved, self.stood_before, self.stood_earlier)

    def found_and_left(
        self, *, by: MoveKind
    ) -> tuple[Mapping[str, GroupOffsets], Mapping[str, GroupOffsets]]:
        """Where the last moves of this kind found the groups, and where they left them."""
        if self.kind is by:
            return {**self.stood_earlier, **self.stood_at}, {**self.left_earlier, **self.left_at}
        return self.stood_before, self.left_before

    def moved_from(self, kind: MoveKind) -> Mapping[str, GroupOffsets]:
        """Where runs of this kind found the groups that they moved and that no later run has moved back, as
        far as that is certain."""
        if self.kind is kind:
            return {**self.stood_earlier, **self.stood_at}
        if kind is MoveKind.FAILOVER:
            is_certain = self.on_target
        else:
            # A failover that did not end, or was given up, may have moved them again.
            is_certain = self.state is MoveState.DONE and not self.aborted
        if not is_certain or self.unfinished is None:
            return {}
        moved_back = self.unfinished.union(self.moved)
        return {group: at for group, at in self.stood_before.items() if group not in moved_back}


def went_on(then: GroupOffsets, now: GroupOffsets, *, live: bool = True) -> bool:
    """Whether a group has made progress, or was put back, since a run found it at `then`.

    `live`: `now` are its offsets; its last checkpoints may be older than the run."""
    return any(
        partition not in then or offset > then[partition] or (live and offset != then[partition])
        for partition, offset in now.items()
    )
