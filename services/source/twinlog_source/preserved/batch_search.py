"""Finds single batches of a log by offset."""

from twinlog.batches.header import BatchHeader
from twinlog.errors import KafkaError
from twinlog.kafka.raw import BatchReader
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog_source.preserved.own_batches import is_filler

LOOKS_BACK = 32
"""How many batches before an offset are searched for the writer's last one: only filler batches lie between
its batches."""


async def batch_at(reader: BatchReader, partition: TopicPartition, offset: int) -> BatchHeader | None:
    """The batch that contains an offset below the end of the log; None = the log no longer has it. Raises
    KafkaError."""
    if offset < 0:
        return None
    try:
        fetched = await reader.fetch(partition, offset, max_bytes=1, known_end=offset + 1)
    except KafkaError as error:
        if error.reason == KafkaReason.OFFSET_OUT_OF_RANGE:
            return None
        raise
    if not fetched.batches or fetched.log_start_offset > offset:
        return None
    return fetched.batches[0].header


async def record_batch_at(reader: BatchReader, partition: TopicPartition, offset: int) -> BatchHeader | None:
    """The last batch with records at or before an offset; None = there is none near, or it was deleted.
    Raises KafkaError."""
    for _ in range(LOOKS_BACK):
        header = await batch_at(reader, partition, offset)
        if header is None or not is_filler(header):
            return header
        offset = header.base_offset - 1
    return None
