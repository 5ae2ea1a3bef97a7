"""How far partitions may be copied for now: in a delayed flow, and in a finite copy.

Pure: takes `now_ms`. Records are copied in the order of the log, so a record that is too young also holds
back the records behind it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from twinlog.batches.codec import MAX_OPEN_BYTES
from twinlog.batches.header import HIGHEST_OFFSET, UNKNOWN_COUNT, iter_following
from twinlog.batches.transformed import head_before
from twinlog.errors import WireFormatError
from twinlog.model import TopicPartition
from twinlog_source.log.facts import EpochStart
from twinlog_source.reasons import PartitionReason

_SHORTEST_LOOK_SHARE = 0.01
"""The share of the delay by which due records may come late. Whatever is not due is fetched again each
time."""
_LONGEST_LOOK_SECONDS = 60.0
"""How soon a record with a future timestamp is checked again."""
FOR_EVER = float("inf")


class Cut(NamedTuple):
    """What may be copied of a fetch."""

    records: bytes | memoryview
    wait_seconds: float = 0.0
    """For how long nothing more may be copied; FOR_EVER: this copy ends there."""
    reason: str = ""
    ends_at: int | None = None
    """The next source offset after `records` where this copy ends: a batch behind it shows that nothing else
    lies before it, so the end may be in a hole."""
    fault: WireFormatError | None = None
    """Why the batch at the fetch offset, in which this copy ends, cannot be cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    delay_seconds: float = 0.0
    """Only batches whose youngest record is older than this are copied."""
    until: Mapping[TopicPartition, int] | None = None
    """The source offsets at which this copy ends; partitions that are not named are not copied. None: it does
    not end."""
    max_open_bytes: int = field(default=MAX_OPEN_BYTES)

    @property
    def is_open(self) -> bool:
        return not self.delay_seconds and self.until is None

    def is_reached(self, partition: TopicPartition, offset: int) -> bool:
        """Whether the copy of the partition ends at or before this offset."""
        return self.until is not None and offset >= self.until.get(partition, 0)

    def cut(
        self,
        partition: TopicPartition,
        records: bytes | memoryview,
        *,
        offset: int,
        now_ms: int,
        log_end_offset: int = HIGHEST_OFFSET,
    ) -> Cut:
        """Remove what is not due from a fetch at `offset`. `log_end_offset` is the high watermark of the same
        answer. Raises WireFormatError when the fetch cannot be divided into batches, or the offset of one is
        impossible: such a batch does not show where the copy ends."""
        if self.is_open:
            return Cut(records)
        end = FOR_EVER if self.until is None else self.until.get(partition, 0)
        if offset >= end:
            return Cut(b"", FOR_EVER, PartitionReason.UNTIL_REACHED)
        size = 0
        for batch in iter_following(records, offset, log_end_offset):
            header = batch.header
            # The offset of an old message set is that of its last record.
            if header.base_offset >= end and header.record_count != UNKNOWN_COUNT:
                # Before its age is checked: nothing of it is copied.
                return Cut(records[:size], FOR_EVER, PartitionReason.UNTIL_REACHED, int(end))
            if not header.is_control:
                wait_seconds = header.max_timestamp_ms / 1000 + self.delay_seconds - now_ms / 1000
                if self.delay_seconds and wait_seconds > 0:
                    shortest_seconds = max(1.0, self.delay_seconds * _SHORTEST_LOOK_SHARE)
                    look_seconds = min(max(wait_seconds, shortest_seconds), _LONGEST_LOOK_SECONDS)
                    return Cut(records[:size], look_seconds, PartitionReason.DELAYED)
            if header.next_offset > end:
                try:
                    head = head_before(batch, int(end), max_open_bytes=self.max_open_bytes)
                except WireFormatError as error:
                    # What lies before it comes first; the next fetch begins with it.
                    return Cut(records[:size], fault=None if size else error)
                # An old message set has no head where all of its records lie behind the end.
                return Cut(bytes(records[:size]) + head, FOR_EVER, PartitionReason.UNTIL_REACHED, int(end))
            size += len(batch.data)
            if header.next_offset == end:
                return Cut(records[:size], FOR_EVER, PartitionReason.UNTIL_REACHED)
        return Cut(records)


# What to do when the source does not have the next offset: finds the exact gap and applies the policy. Pure.
#
# A loss is found by comparing the stored position with the log's start and end. (Reset policies of clients
# hide it, and "the next offset must be last + 1" fails on compacted and transactional topics.) If a log lost
# its tail and has grown past the position since, the leader epochs of the copied records show it: the leader
# knows where the records of an epoch end.
#
# A compacted log may have no record of an epoch that was copied, and a replica that was built from such a
# log does not know the epoch: it answers with an earlier one that ends where the next one begins. So in
# compacted topics only an end before the position is a loss, as in Java's consumer
# (SubscriptionState.maybeCompleteValidation); in other topics also an epoch that the leader should know.

KEPT_EPOCHS = 8
"""The limit for each partition. In a log with more changes of leaders since, everything from the oldest kept
epoch on counts as lost."""


class LossReason(StrEnum):
    RETENTION = "RETENTION"
    """The log starts behind the position: retention or DeleteRecords overtook the copy. The range is lost."""
    TRUNCATION = "TRUNCATION"
    """The log ended before the position: what was copied from there on no longer exists on the source."""
    CORRUPT_BATCH = "CORRUPT_BATCH"
    """A batch that cannot be read is left out, as its flow wants it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    reason: LossReason
    from_offset: int
    to_offset: int
    """First offset after the gap."""
    resume_at: int


def goes_on(position: int, leader_epoch: int, end: tuple[int, int], *, compacted: bool) -> bool:
    """Whether the log at `position` continues a record of `leader_epoch`; `end` is the leader's last epoch at
    or below that one, and where it ends."""
    epoch, end_offset = end
    return settles(leader_epoch, epoch, compacted=compacted) and end_offset >= position


def settles(asked: int, answered: int, *, compacted: bool) -> bool:
    """Whether the answer tells how far the log agrees with what was copied under the requested epoch."""
    return answered == asked or (compacted and answered >= 0)


def find_divergence(
    position: int,
    epochs: Sequence[EpochStart],
    ends: Mapping[int, tuple[int, int]],
    *,
    compacted: bool,
) -> int | None:
    """The first offset at which the log may differ from the copied records; None when it continues them.

    `epochs`: those of the copied records, oldest first; the last one is that of the record before `position`.
    `ends`: for each of them (newest first, as many as were requested) the leader's last epoch at or below it
    and where that one ends; (-1, -1) when it knows none.
    """
    diverged = position
    for start in reversed(epochs):
        if start.leader_epoch not in ends:
            break
        epoch, end_offset = ends[start.leader_epoch]
        if settles(start.leader_epoch, epoch, compacted=compacted):
            diverged = min(diverged, end_offset)
            break
        # The leader never had records of this epoch: they are lost from their first on.
        diverged = min(diverged, start.offset, end_offset if epoch >= 0 else start.offset)
    return diverged if diverged < position else None


def extended(epochs: tuple[EpochStart, ...], newer: Sequence[tuple[int, int]]) -> tuple[EpochStart, ...]:
    """The epochs of the copied records after more was copied; the same object when no leader changed."""
    for epoch, offset in newer:
        if not epochs or epochs[-1].leader_epoch != epoch:
            epochs = (*epochs, EpochStart(epoch, offset))[-KEPT_EPOCHS:]
    return epochs


def find_loss(
    *, position: int, log_start_offset: int, log_end_offset: int, diverged_at: int | None = None
) -> Loss | None:
    """Compare a position with the log's bounds. None when the log has it (also exactly at its end).

    From `diverged_at` on, the log differs from the copied records.
    """
    if position < log_start_offset:
        return Loss(
            reason=LossReason.RETENTION,
            from_offset=position,
            to_offset=log_start_offset,
            resume_at=log_start_offset,
        )
    ends_at = log_end_offset if diverged_at is None else min(diverged_at, log_end_offset)
    if position > ends_at:
        return Loss(
            reason=LossReason.TRUNCATION,
            from_offset=ends_at,
            to_offset=position,
            resume_at=max(ends_at, log_start_offset),
        )
    return None
