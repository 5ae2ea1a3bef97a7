"""Which group offsets to write on the target when sync.group.offsets is on (KIP-545), pure."""

from collections.abc import Mapping

from twinlog.model import TopicPartition
from twinlog.wire.checkpoint import Checkpoint


def offsets_to_write(
    desired: Mapping[TopicPartition, Checkpoint],
    on_target: Mapping[TopicPartition, int | None] | None,
) -> dict[TopicPartition, Checkpoint]:
    """Return the checkpoints whose downstream offset is to be committed for the group on the target.

    `on_target` holds the group's next offsets there: None when they are not known, because the group does not
    exist or has members (then everything is written, and the coordinator refuses an active group); a None
    value where some client reset the partition's offset to nothing. A group is never moved back.
    """
    if on_target is None:
        return dict(desired)
    return {
        partition: checkpoint
        for partition, checkpoint in desired.items()
        if (current := on_target.get(partition)) is None or current < checkpoint.downstream_offset
    }
