"""sync.group.offsets: decides which translated offsets are committed for a group on the target. Pure.

Stricter than MM2: offsets of a group with members are never sent (MM2 relies on the coordinator's refusal,
which remains the last guard); an offset before the target's log becomes its start; an offset past its end is
not committed; and an offset that Twinlog committed is set back if a lower checkpoint proves it wrong.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.kafka.ports import CommittedOffset
from twinlog.model import TopicPartition
from twinlog.wire import Checkpoint
from twinlog_checkpoint.translation.translation import LogBounds

WRITABLE_STATES = frozenset({"EMPTY", "DEAD"})
"""States of a group without members; DEAD also stands for one that does not exist."""


class SyncOutcome(StrEnum):
    """What happens to one partition of one group; an attribute of the metric, and part of the explanation."""

    COMMITTED = "COMMITTED"
    ALREADY_THERE = "ALREADY_THERE"
    """The group's offset on the target is already this one."""
    TARGET_AHEAD = "TARGET_AHEAD"
    """The group's own offset on the target is larger; it is never moved back."""
    PAST_END = "PAST_END"
    """The copy ends before the checkpoint: it lost its tail or was created again."""
    ACTIVE_ON_TARGET = "ACTIVE_ON_TARGET"
    NO_TARGET_PARTITION = "NO_TARGET_PARTITION"
    """The target has no such topic or partition (yet), so there is no log to commit into."""
    REFUSED = "REFUSED"
    """The target's coordinator refused the commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSyncPlan:
    """What to commit for one group, and why other offsets are not committed."""

    writes: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    outcomes: Mapping[TopicPartition, SyncOutcome] = field(default_factory=dict)
    """The outcome of every checkpoint that is not committed."""


def plan_group_sync(
    *,
    desired: Mapping[TopicPartition, Checkpoint],
    state_on_target: str,
    current: Mapping[TopicPartition, CommittedOffset],
    ranges: Mapping[TopicPartition, LogBounds],
    wrote: Callable[[Checkpoint, int], bool],
) -> GroupSyncPlan:
    """Decide what to commit for one group from its checkpoints.

    `current` holds the group's offsets on the target, `ranges` the target's logs; a partition without a range
    does not exist there. `wrote` tells whether an offset on the target was committed by Twinlog and is proved
    wrong by a lower checkpoint; such an offset is set back.
    """
    if state_on_target not in WRITABLE_STATES:
        return GroupSyncPlan(outcomes=dict.fromkeys(desired, SyncOutcome.ACTIVE_ON_TARGET))
    writes: dict[TopicPartition, CommittedOffset] = {}
    outcomes: dict[TopicPartition, SyncOutcome] = {}
    for partition, checkpoint in desired.items():
        log = ranges.get(partition)
        if log is None:
            outcomes[partition] = SyncOutcome.NO_TARGET_PARTITION
            continue
        if checkpoint.downstream_offset > log.end:
            outcomes[partition] = SyncOutcome.PAST_END
            continue
        wanted = log.begin(checkpoint.downstream_offset)
        present = current.get(partition)
        if (
            present is None
            or present.next_offset < wanted
            or (present.next_offset > wanted and wrote(checkpoint, present.next_offset))
        ):
            writes[partition] = CommittedOffset(next_offset=wanted, metadata=checkpoint.metadata)
        elif present.next_offset == wanted:
            outcomes[partition] = SyncOutcome.ALREADY_THERE
        else:
            outcomes[partition] = SyncOutcome.TARGET_AHEAD
    return GroupSyncPlan(writes=writes, outcomes=outcomes)
