"""Commits a move's offsets on the new cluster, and reads them back."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

from twinlog.errors import ConflictError, KafkaError
from twinlog.kafka.ports import CommittedOffset, GroupAdmin
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog_checkpoint.moves.planning.outcome import writes
from twinlog_checkpoint.moves.planning.plan import MoveAction, MovePartition
from twinlog_checkpoint.side_by_side import each_at_once

COMMITS_AT_ONCE = 32
"""Groups whose offsets are committed at the same time; Kafka takes one group per request."""
COMMITS_BETWEEN_SIGNS = 256
"""Number of groups between two messages about the progress."""


async def commit(
    cluster: GroupAdmin, partitions: Sequence[MovePartition]
) -> AsyncGenerator[int | list[MovePartition], None]:
    """Commit the planned offsets. What the cluster refuses is marked, and the other groups are committed.

    Yields from time to time how many groups are done, and at the end the partitions as they were carried out.
    Raises KafkaError if a later attempt may succeed.
    """
    refused: dict[tuple[str, TopicPartition | None], KafkaError] = {}

    async def one(group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        results = await cluster.alter_group_offsets(group, offsets)
        for partition, error in results.items():
            if error is None:
                continue
            if error.retriable and error.reason != KafkaReason.GROUP_ACTIVE:
                raise error
            refused[group, partition] = error

    wanted = [(group, _offsets(entries)) for group, entries in writes(partitions).items()]
    for start in range(0, len(wanted), COMMITS_BETWEEN_SIGNS):
        chunk = wanted[start : start + COMMITS_BETWEEN_SIGNS]
        await each_at_once(
            chunk, lambda planned: one(*planned), most=COMMITS_AT_ONCE, name="commit for groups"
        )
        yield start + len(chunk)
    yield [_told(entry, refused.get((entry.group, entry.to_partition))) for entry in partitions]


def _told(entry: MovePartition, error: KafkaError | None) -> MovePartition:
    """The partition as it was carried out; `error`: why its commit was refused."""
    if error is None:
        return entry
    is_active = error.reason == KafkaReason.GROUP_ACTIVE
    action = MoveAction.SKIP_ACTIVE_THERE if is_active else MoveAction.SKIP_REFUSED
    return replace(entry, action=action, message=str(error))


async def verify(cluster: GroupAdmin, partitions: Sequence[MovePartition]) -> None:
    """Read the committed offsets back. Raises ConflictError if they are different."""
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
                    f"group {group} has committed {there} on {entry.to_partition} instead of"
                    f" {entry.to_offset}: somebody else changed it meanwhile",
                    reason="NOT_VERIFIED",
                    metadata={"group": group, "partition": str(entry.to_partition)},
                )


def _offsets(entries: Sequence[MovePartition]) -> dict[TopicPartition, CommittedOffset]:
    return {
        entry.to_partition: CommittedOffset(next_offset=entry.to_offset, metadata=entry.metadata)
        for entry in entries
        if entry.to_partition is not None and entry.to_offset is not None
    }
