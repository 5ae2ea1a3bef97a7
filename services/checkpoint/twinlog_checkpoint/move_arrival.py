"""Committing a move's offsets where the groups go on, and reading them back."""

from collections.abc import Sequence
from dataclasses import replace

from twinlog.errors import ConflictError, KafkaError
from twinlog.kafka.ports import CommittedOffset, GroupAdmin
from twinlog_checkpoint.move_outcome import writes
from twinlog_checkpoint.moves import MoveAction, MovePartition


async def commit(cluster: GroupAdmin, partitions: Sequence[MovePartition]) -> list[MovePartition]:
    """Write what is to be written; a group that became active meanwhile is left alone and said so."""
    refused: dict[str, KafkaError] = {}
    for group, entries in writes(partitions).items():
        offsets = {
            entry.to_partition: CommittedOffset(next_offset=entry.to_offset, metadata=entry.metadata)
            for entry in entries
            if entry.to_partition is not None and entry.to_offset is not None
        }
        results = await cluster.alter_group_offsets(group, offsets)
        for error in results.values():
            if error is not None:
                refused[group] = error
    for error in refused.values():
        if error.reason != "GROUP_ACTIVE":
            raise error
    return [
        replace(entry, action=MoveAction.SKIP_ACTIVE_THERE, message=str(refused[entry.group]))
        if entry.action is MoveAction.WRITE and entry.group in refused
        else entry
        for entry in partitions
    ]


async def verify(cluster: GroupAdmin, partitions: Sequence[MovePartition]) -> None:
    """Read back what was written. Raises ConflictError when something else is there."""
    written = writes(partitions)
    held = await cluster.group_offsets(written) if written else {}
    for group, entries in written.items():
        offsets = held[group]
        if isinstance(offsets, KafkaError):
            raise offsets
        for entry in entries:
            found = offsets.get(entry.to_partition) if entry.to_partition is not None else None
            if found is None or found.next_offset < (entry.to_offset or 0):
                there = "nothing" if found is None else str(found.next_offset)
                raise ConflictError(
                    f"group {group} is at {there} of {entry.to_partition}, not at {entry.to_offset};"
                    " somebody else moved it",
                    reason="NOT_VERIFIED",
                    metadata={"group": group, "partition": str(entry.to_partition)},
                )
