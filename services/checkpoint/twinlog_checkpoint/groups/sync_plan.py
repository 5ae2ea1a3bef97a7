"""sync.group.offsets: decides which translated offsets are committed for a group on the target. Pure.

Stricter than MM2: offsets of a group with members are never sent (MM2 relies on the coordinator's refusal,
which remains the last guard); an offset before the target's log becomes its start; an offset past its end is
not committed; and an offset that Twinlog committed is set back if a lower checkpoint proves it wrong.
"""

from collections.abc import Callable, Mapping

from twinlog.kafka.ports import CommittedOffset
from twinlog.model import TopicPartition
from twinlog.wire import Checkpoint
from twinlog_checkpoint.translation.translation import LogBounds

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
