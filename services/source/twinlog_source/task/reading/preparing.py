"""Prepares fetched bytes so that a bug of Twinlog stops one partition and not its task.

`prepare` reports damaged bytes as a fault. Any other exception is a bug that these bytes trigger. Without
this module the task would end, run again, fetch the same bytes and end again, and with it every partition of
its slot.
"""

from collections.abc import Sequence
from dataclasses import replace

import structlog

from twinlog.batches import AbortedTransaction, CopyFault, CopyPolicy, Prepared, prepare
from twinlog.batches.header import LOG_OVERHEAD_BYTES
from twinlog.model import TopicPartition

CORRUPT_BATCH, RECORD_TOO_LARGE = "CORRUPT_BATCH", "RECORD_TOO_LARGE"
_LENGTH_AT = 8
"""The position of a batch's length, which counts the bytes after it."""

log = structlog.get_logger(__name__)


def prepare_partition(
    partition: TopicPartition,
    records: bytes | memoryview,
    *,
    wanted_offset: int,
    policy: CopyPolicy,
    aborted: Sequence[AbortedTransaction],
    backlog: bool,
    log_end_offset: int | None = None,
    ends_at: int | None = None,
    room_bytes: int | None = None,
) -> Prepared:
    """As `prepare`, but never raises. If it fails, only the first batch is taken, so that the fault is
    reported for the one batch that triggers it.

    `ends_at`: nothing else lies between `records` and this offset, which is the next one once all of
    `records` are prepared."""
    try:
        prepared = prepare(
            records,
            wanted_offset=wanted_offset,
            policy=policy,
            aborted=aborted,
            backlog=backlog,
            log_end_offset=log_end_offset,
            room_bytes=room_bytes,
        )
        if ends_at is None or prepared.fault is not None or prepared.is_cut:
            return prepared
        return replace(prepared, next_offset=ends_at)
    except Exception:  # noqa: BLE001 (the boundary of one partition; the first batch is judged below)
        log.debug("fetch_taken_batch_by_batch", partition=str(partition), offset=wanted_offset)
    try:
        return prepare(
            _first_batch(records),
            wanted_offset=wanted_offset,
            policy=policy,
            aborted=aborted,
            log_end_offset=log_end_offset,
        )
    except Exception as error:
        log.exception("batch_not_understood", partition=str(partition), offset=wanted_offset)
        fault = CopyFault(
            reason=CORRUPT_BATCH,
            offset=wanted_offset,
            message=f"the batch at offset {wanted_offset} could not be read: {type(error).__name__}"
            " (the log of the task has the traceback)",
        )
        return Prepared(batches=(), next_offset=wanted_offset, fault=fault)


def _first_batch(records: bytes | memoryview) -> bytes | memoryview:
    length = int.from_bytes(records[_LENGTH_AT:LOG_OVERHEAD_BYTES], signed=True)
    return records[: LOG_OVERHEAD_BYTES + max(0, length)]
