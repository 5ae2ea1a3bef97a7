"""What an acknowledged batch means for its partition, however it was written."""

from twinlog.batches import Lane, OutgoingBatch
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.writing.syncs import OffsetSyncs


def settle_batch(
    copy: PartitionCopy, batch: OutgoingBatch, base_offset: int, *, syncs: OffsetSyncs, now_ms: int
) -> tuple[int, int] | None:
    """The target has the batch at `base_offset`: count it, and queue its offset syncs. The caller moves the
    position. Returns the result of `PartitionCopy.written`."""
    unexplained = copy.written(base_offset, batch.record_count, batch.first_source_offset)
    counters = copy.counters
    counters.records += batch.record_count
    counters.bytes += batch.size_bytes
    if batch.lane is Lane.RAW:
        counters.raw_records += batch.record_count
    else:
        recoded = counters.recoded_records
        recoded[batch.reason] = recoded.get(batch.reason, 0) + batch.record_count
    copy.lane = batch.lane
    copy.latency_seconds = max(0.0, (now_ms - batch.max_timestamp_ms) / 1000)
    counters.latency.add_batch(batch.max_timestamp_ms, batch.record_count, now_ms=now_ms)
    syncs.acknowledged(copy.partition, batch, base_offset)
    return unexplained
