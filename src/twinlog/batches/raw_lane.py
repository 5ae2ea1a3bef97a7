"""The raw lane: a batch is copied unopened, with one copy of its bytes and two passes of CRC-32C (20
GB/s)."""

from twinlog.batches.header import Batch
from twinlog.batches.lanes import Lane, LaneReason
from twinlog.batches.outgoing import OffsetRun, OutgoingBatch
from twinlog.batches.records import payload


def take_raw(batch: Batch, *, check_crc: bool = True) -> OutgoingBatch:
    """Prepare a batch with lane RAW for sending.

    With `check_crc` (Kafka's check.crcs) damage is found here, before a new checksum would hide it. Raises
    WireFormatError (CORRUPT_BATCH).
    """
    header = batch.header
    return OutgoingBatch(
        codec=header.codec,
        record_count=header.record_count,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        records=payload(batch, check_crc=check_crc),
        runs=(OffsetRun(header.base_offset, header.record_count),),
        next_source_offset=header.next_offset,
        lane=Lane.RAW,
        reason=LaneReason.UNOPENED,
    )
