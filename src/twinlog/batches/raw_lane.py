"""The raw lane: a batch goes over unopened. One copy of its bytes, two passes of CRC-32C (20 GB/s)."""

from twinlog.batches.header import Batch
from twinlog.batches.lanes import Lane, LaneReason
from twinlog.batches.outgoing import OffsetRun, OutgoingBatch
from twinlog.batches.records import payload


def take_raw(batch: Batch, *, check_crc: bool = True) -> OutgoingBatch:
    """Make a batch for which `choose_lane` said RAW ready for sending.

    With `check_crc` (Kafka's check.crcs) damage on the way is found here, before a new checksum would hide
    it. Raises WireFormatError (CORRUPT_BATCH).
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
