"""The checks of a leader before it appends (LogValidator.java, UnifiedLog.java)."""

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from twinlog.batches import Batch, EndMarker, crc_is_valid, decode_batch
from twinlog.batches.header import CURRENT_MAGIC
from twinlog.errors import WireFormatError
from twinlog.testing.broker.log import PartitionLog
from twinlog.testing.broker.partitions import Partition
from twinlog.testing.broker.producer_states import AppendError
from twinlog.testing.broker.stored import marker_batch, recompressed, stored, whole_batch


class Appended(NamedTuple):
    base_offset: int
    end_offset: int
    """Where the batch ends: acks=all waits until the high watermark is there."""
    append_time_ms: int
    """-1 unless the topic has LogAppendTime."""


def append_batch(partition: Partition, data: bytes, now_ms: int, *, transactions_v2: bool) -> Appended:
    """Append what a client produced to the leader's log, and let the followers copy it.

    A duplicate is answered with its offset, and not written again. Raises AppendError.
    """
    log = partition.log
    batch = checked_batch(data)
    header = batch.header
    log.expire_producers(now_ms)
    if header.producer_id >= 0:
        known = log.producers.duplicate(header)
        if known is not None:
            return Appended(known.base_offset, known.last_offset + 1, known.timestamp_ms)
    _check_records(log, batch, now_ms)
    if header.producer_id >= 0:
        log.producers.check(header, knows_every_transaction=transactions_v2 and header.is_transactional)
    append_time_ms = now_ms if log.settings.is_log_append_time else None
    written = recompressed(batch, log.settings.codec)
    _check_size(log, written)
    placed = stored(
        written,
        base_offset=log.end_offset,
        leader_epoch=partition.leader_epoch,
        append_time_ms=append_time_ms,
    )
    log.append(placed)
    partition.replicate()
    time_ms = -1 if append_time_ms is None else append_time_ms
    return Appended(placed.header.base_offset, placed.header.next_offset, time_ms)


def append_marker(
    partition: Partition,
    marker: EndMarker,
    producer_id: int,
    epoch: int,
    coordinator_epoch: int,
    now_ms: int,
) -> None:
    """End a producer's transaction on a partition. Raises AppendError."""
    log = partition.log
    log.producers.check_marker(producer_id, epoch, coordinator_epoch)
    batch = marker_batch(marker, producer_id, epoch, coordinator_epoch, now_ms)
    log.append(
        stored(batch, base_offset=log.end_offset, leader_epoch=partition.leader_epoch, append_time_ms=None),
        coordinator_epoch,
    )
    partition.replicate()


def checked_batch(data: bytes) -> Batch:
    """The only batch of a produce request's partition. Raises AppendError."""
    try:
        batch = whole_batch(data)
    except (ValueError, WireFormatError) as error:
        raise AppendError(ErrorCode.invalid_record, str(error)) from error
    header = batch.header
    if header.magic != CURRENT_MAGIC:
        raise AppendError(ErrorCode.invalid_record, f"magic {header.magic}")
    if not crc_is_valid(batch):
        raise AppendError(ErrorCode.corrupt_message, "Record is corrupt")
    if header.is_control:
        raise AppendError(ErrorCode.invalid_record, "Clients are not allowed to write control records")
    if header.record_count <= 0 or not header.is_dense:
        raise AppendError(ErrorCode.invalid_record, "Inconsistent batch offset range")
    return batch


def _check_size(log: PartitionLog, batch: Batch) -> None:
    if batch.header.size_bytes > log.settings.max_message_bytes:
        raise AppendError(
            ErrorCode.message_too_large,
            f"The record batch size is {batch.header.size_bytes} bytes, max.message.bytes is "
            f"{log.settings.max_message_bytes}.",
        )


def _check_records(log: PartitionLog, batch: Batch, now_ms: int) -> None:
    settings, header = log.settings, batch.header
    _check_size(log, batch)
    try:
        if settings.is_compacted and any(record.key is None for record in decode_batch(batch)):
            raise AppendError(ErrorCode.invalid_record, "Compacted topic cannot accept message without key")
    except WireFormatError as error:
        raise AppendError(ErrorCode.corrupt_message, str(error)) from error
    if settings.is_log_append_time:
        return
    too_new = header.max_timestamp_ms - now_ms > settings.timestamp_after_max_ms
    too_old = now_ms - header.base_timestamp_ms > settings.timestamp_before_max_ms
    if too_new or too_old:
        raise AppendError(ErrorCode.invalid_timestamp, "Timestamp is out of range")
