"""The log of a fake cluster, which has records and no batches, as a comparison reads it."""

from collections.abc import Collection
from itertools import groupby

from twinlog.batches import DecodedRecord, iter_batches
from twinlog.comparison.sides import Chunk
from twinlog.kafka.ports import LogReader
from twinlog.model import Record, TimestampType, TopicPartition
from twinlog.testing.source_batches import source_batch


class RecordLog:
    """Over decoded records, in batches of those that follow each other."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader

    async def expect(self, partitions: Collection[TopicPartition]) -> None:
        """The reader finds each by itself."""

    async def read(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> Chunk:
        fetched = await self._reader.fetch(partition, offset, max_wait_seconds=0, max_bytes=max_bytes)
        # What follows each other has the same distance between its offset and its place.
        runs = groupby(enumerate(fetched.records), lambda at: (at[1].offset - at[0], at[1].timestamp_type))
        data = b"".join(_batch([record for _, record in run]) for _, run in runs)
        return Chunk(
            batches=tuple(iter_batches(data)),
            next_offset=fetched.next_offset,
            size_bytes=sum(map(_size, fetched.records)) or int(fetched.next_offset > offset),
        )


def _batch(records: list[Record]) -> bytes:
    decoded = [
        DecodedRecord(
            each.offset,
            each.timestamp_ms,
            each.key,
            each.value,
            tuple((key.encode(), value) for key, value in each.headers),
        )
        for each in records
    ]
    by_broker = records[0].timestamp_type is TimestampType.LOG_APPEND_TIME
    return source_batch(decoded, appended_at_ms=records[-1].timestamp_ms if by_broker else None)


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")
