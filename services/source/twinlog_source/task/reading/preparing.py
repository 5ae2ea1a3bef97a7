"""Prepares fetched bytes so that a bug of Twinlog stops one partition and not its task.

`prepare` reports damaged bytes as a fault. Any other exception is a bug that these bytes trigger. Without
this module the task would end, run again, fetch the same bytes and end again, and with it every partition of
its slot.
"""

from dataclasses import replace

import structlog

from twinlog.batches import CopyFault, CopyPolicy, Prepared, crc_is_valid, prepare
from twinlog.batches.header import CURRENT_MAGIC, LOG_OVERHEAD_BYTES, read_batch
from twinlog.errors import WireFormatError
from twinlog.kafka.raw import FetchedPartition
from twinlog_source.task.reading.bounds import Cut
from twinlog_source.task.reading.fetch_schedule import BACKLOG_BYTES

CORRUPT_BATCH, RECORD_TOO_LARGE = "CORRUPT_BATCH", "RECORD_TOO_LARGE"
_LENGTH_AT = 8
"""The position of a batch's length, which counts the bytes after it."""

log = structlog.get_logger(__name__)


def prepare_answer(
    answer: FetchedPartition, cut: Cut, policy: CopyPolicy, room_bytes: int | None = None
) -> Prepared:
    """As `prepare`, of what may be copied of an answer, but never raises. If it fails, only the first batch
    is taken, so that the fault is reported for the one batch that triggers it."""
    records, wanted_offset, partition = cut.records, answer.fetch_offset, str(answer.partition)
    try:
        prepared = prepare(
            records,
            wanted_offset=wanted_offset,
            policy=policy,
            aborted=answer.aborted,
            backlog=len(records) >= BACKLOG_BYTES,
            log_end_offset=answer.high_watermark,
            room_bytes=room_bytes,
        )
        if cut.ends_at is None or prepared.fault is not None or prepared.is_cut:
            return prepared
        return replace(prepared, next_offset=cut.ends_at)
    except Exception:  # noqa: BLE001 (the boundary of one partition; the first batch is judged below)
        log.debug("fetch_taken_batch_by_batch", partition=partition, offset=wanted_offset)
    try:
        return prepare(
            _first_batch(records),
            wanted_offset=wanted_offset,
            policy=policy,
            aborted=answer.aborted,
            log_end_offset=answer.high_watermark,
        )
    except Exception as error:
        log.exception("batch_not_understood", partition=partition, offset=wanted_offset)
        fault = CopyFault(
            reason=CORRUPT_BATCH,
            offset=wanted_offset,
            message=f"the batch at offset {wanted_offset} could not be read: {type(error).__name__}"
            " (the log of the task has the traceback)",
        )
        return Prepared(batches=(), next_offset=wanted_offset, fault=fault)


def end_of_first_batch(answer: FetchedPartition) -> int | None:
    """The offset behind a batch that does not match its checksum, if others tell it: the checksum covers what
    the batch itself says. None: nobody tells it yet, or the batch is sound, and a mistake of ours."""
    view = memoryview(answer.records)
    try:
        first = read_batch(view, 0)
        following = None if first is None else read_batch(view, len(first.data))
    except WireFormatError:
        return None
    if first is None or crc_is_valid(first):
        return None
    if following is None:
        end = first.header.next_offset
        return end if end in (answer.last_stable_offset, answer.high_watermark) else None
    end = following.header.base_offset
    is_told = following.header.magic == CURRENT_MAGIC and crc_is_valid(following)
    return end if is_told and answer.fetch_offset < end < answer.high_watermark else None


def _first_batch(records: bytes | memoryview) -> bytes | memoryview:
    length = int.from_bytes(records[_LENGTH_AT:LOG_OVERHEAD_BYTES], signed=True)
    return records[: LOG_OVERHEAD_BYTES + max(0, length)]
