"""The aligned log of a fake cluster, which has records and no batches."""

from collections.abc import Collection

from twinlog.kafka.ports import LogReader
from twinlog.model import Record, TimestampType, TopicPartition
from twinlog_checkpoint.translation.alignment import Print
from twinlog_checkpoint.translation.alignment_log import Passed, Stretch


class RecordLog:
    """Over decoded records."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader

    async def expect(self, partitions: Collection[TopicPartition]) -> None:
        """The reader finds each by itself."""

    async def read(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> Stretch:
        fetched = await self._reader.fetch(partition, offset, max_wait_seconds=0, max_bytes=max_bytes)
        return Stretch(
            prints=[_print(record) for record in fetched.records],
            next_offset=fetched.next_offset,
            log_start_offset=fetched.log_start_offset,
            end_offset=fetched.high_watermark,
            size_bytes=sum(_size(record) for record in fetched.records),
        )

    async def count(self, partition: TopicPartition, offset: int, stop: int, *, max_bytes: int) -> Passed:
        stretch = await self.read(partition, offset, max_bytes=max_bytes)
        return Passed(
            records=sum(record.offset < stop for record in stretch.prints),
            next_offset=stretch.next_offset,
            ended=stretch.ended,
            size_bytes=stretch.size_bytes,
        )

    async def skip(self, partition: TopicPartition, offset: int, records: int, *, max_bytes: int) -> Passed:
        stretch = await self.read(partition, offset, max_bytes=max_bytes)
        if records < len(stretch.prints):
            found = stretch.prints[records].offset
            return Passed(records=records, next_offset=found, ended=False, size_bytes=stretch.size_bytes)
        return Passed(
            records=len(stretch.prints),
            next_offset=stretch.next_offset,
            ended=stretch.ended,
            size_bytes=stretch.size_bytes,
        )


def _print(record: Record) -> Print:
    broker_time = record.timestamp_type is TimestampType.LOG_APPEND_TIME
    return Print(
        record.offset, None if broker_time else record.timestamp_ms, hash((record.key, record.value))
    )


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")
