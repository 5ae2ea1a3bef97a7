"""How alignment reads a log: prints of visible records, or only their number; few batches are opened."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from twinlog.batches import RecordLocator, Visibility, VisibleCounter, classify, decode_batch
from twinlog.batches.transformed import ChangeRecords, transformed
from twinlog.errors import KafkaError
from twinlog.kafka.raw.fetch.reader import BatchReader, FetchedBatches
from twinlog.model import TopicPartition
from twinlog_checkpoint.translation.alignment import Print


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Part of a log as one fetch gave it."""

    prints: Sequence[Print]
    """Visible records from the offset asked for."""
    next_offset: int
    """Where reading continues, also past what is not visible."""
    log_start_offset: int
    end_offset: int
    size_bytes: int

    @property
    def ended(self) -> bool:
        return self.next_offset >= self.end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Records that one fetch passed without looking at them."""

    records: int
    next_offset: int
    ended: bool
    size_bytes: int


class AlignedLog(Protocol):
    """One cluster's side. Every call but `expect` is one fetch, bounded as the reader's."""

    async def expect(self, partitions: Collection[TopicPartition]) -> None:
        """These are about to be read: find their leaders by one request, not one for each of their topics.

        No error: who reads a partition is told what is wrong with it.
        """
        ...

    async def read(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> Stretch:
        """Visible records from `offset` on. Raises KafkaError (OFFSET_OUT_OF_RANGE below the log's start)."""
        ...

    async def count(self, partition: TopicPartition, offset: int, stop: int, *, max_bytes: int) -> Passed:
        """The number of visible records in [offset, stop), as far as one fetch goes."""
        ...

    async def skip(self, partition: TopicPartition, offset: int, records: int, *, max_bytes: int) -> Passed:
        """Pass `records` visible ones; `next_offset` is the record after them once all are passed."""
        ...


class BatchLog:
    """Over raw batches: counting looks at headers only, where records are copied unchanged."""

    def __init__(
        self, reader: BatchReader, changes: Callable[[str], ChangeRecords | None] = lambda _topic: None
    ) -> None:
        """`changes`: what the copy does to the records of each topic of this log; positions are found among
        the records that it keeps."""
        self._reader = reader
        self._changes = changes

    async def expect(self, partitions: Collection[TopicPartition]) -> None:
        with suppress(KafkaError):
            await self._reader.expect(partitions)

    async def read(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> Stretch:
        fetched = await self._fetch(partition, offset, max_bytes)
        prints: list[Print] = []
        visible = classify(fetched.batches, fetched.aborted, read_committed=self._reader.read_committed)
        for batch, visibility in visible:
            if visibility is not Visibility.VISIBLE:
                continue
            broker_time = batch.header.is_log_append_time
            prints += (
                Print(
                    record.offset,
                    None if broker_time else record.timestamp_ms,
                    hash((record.key, record.value)),
                )
                for record in decode_batch(batch)
                if record.offset >= offset
            )
        return Stretch(
            prints=prints,
            next_offset=fetched.next_offset(offset),
            log_start_offset=fetched.log_start_offset,
            end_offset=fetched.end_offset,
            size_bytes=fetched.size_bytes,
        )

    async def count(self, partition: TopicPartition, offset: int, stop: int, *, max_bytes: int) -> Passed:
        fetched = await self._fetch(partition, offset, max_bytes)
        counter = VisibleCounter(offset, stop, read_committed=self._reader.read_committed)
        counter.feed(fetched.batches, fetched.aborted)
        return self._passed(counter.records, counter.next_offset, fetched)

    async def skip(self, partition: TopicPartition, offset: int, records: int, *, max_bytes: int) -> Passed:
        fetched = await self._fetch(partition, offset, max_bytes)
        locator = RecordLocator(offset, records, read_committed=self._reader.read_committed)
        locator.feed(fetched.batches, fetched.aborted)
        return self._passed(records - locator.records_before, locator.next_offset, fetched)

    async def _fetch(self, partition: TopicPartition, offset: int, max_bytes: int) -> FetchedBatches:
        fetched = await self._reader.fetch(partition, offset, max_bytes=max_bytes)
        transform = self._changes(partition.topic)
        if transform is None:
            return fetched
        batches = [
            batch if batch.header.is_control else transformed(batch, transform) for batch in fetched.batches
        ]
        return replace(fetched, batches=tuple(batches))

    def _passed(self, records: int, next_offset: int, fetched: FetchedBatches) -> Passed:
        return Passed(
            records=records,
            next_offset=next_offset,
            ended=next_offset >= fetched.end_offset,
            size_bytes=fetched.size_bytes,
        )
