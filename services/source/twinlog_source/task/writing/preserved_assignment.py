"""A preserved copy as a task begins it: by what the driver knows about it."""

from collections.abc import Callable

from twinlog.batches import OutgoingBatch
from twinlog.model import TopicPartition
from twinlog_source.partitions.orders import TaskAssignment
from twinlog_source.preserved.append_log import AppendLog
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.read_shares import ReadShares
from twinlog_source.task.writing.preserved_copy import PreservedCopy

IN_FLIGHT_BYTES = 8 << 20
"""The limit for one partition: 150 ms of latency at 50 MB/s. The writer bounds the sum."""
PACK_BELOW_BYTES = 64 << 10


def preserved_copy_of(
    assignment: TaskAssignment,
    copy: PartitionCopy,
    *,
    now: float,
    fill_after_seconds: float,
    shares: ReadShares,
    settle: Callable[[PartitionCopy, OutgoingBatch, int], None],
    is_stored: Callable[[], bool],
    fill_later: Callable[[PreservedCopy], None],
) -> PreservedCopy:
    """The copy of a partition whose end on the target is not known yet. `now` is in monotonic seconds;
    `fill_after_seconds` is how long a task that lost its partitions may still write."""
    terms = assignment.preserved
    assert terms is not None
    appends: AppendLog[OutgoingBatch] = AppendLog.starting_at(
        assignment.position,
        max_in_flight_bytes=IN_FLIGHT_BYTES,
        pack_below_bytes=min(PACK_BELOW_BYTES, assignment.max_message_bytes // 2),
        leader_epoch=terms.leader_epoch,
    )

    def no_longer_written(former_task_seconds: float | None) -> float:
        """When a task that lost its partition this long ago has stopped writing; None = there is none."""
        if former_task_seconds is None:
            return now
        return now + max(0.0, fill_after_seconds - former_task_seconds)

    return PreservedCopy(
        copy=copy,
        target=TopicPartition(assignment.target_topic, copy.partition.partition),
        appends=appends,
        topic_id=assignment.target_topic_id,
        common_until=terms.common_until,
        skip_from=terms.skip_from,
        skip_to=terms.skip_to,
        since=terms.since,
        required=terms.required,
        may_fill_at=no_longer_written(terms.skip_former_task_seconds),
        alone_at=no_longer_written(terms.former_task_seconds),
        shares=shares,
        giving_up=(terms.end_reason, terms.end_message) if terms.end_reason else None,
        settle=settle,
        is_stored=is_stored,
        fill_later=fill_later,
    )
