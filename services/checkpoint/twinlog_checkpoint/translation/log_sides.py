"""The two logs of a translation: what is read of them, within a budget of bytes."""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from twinlog.batches import VisibleCounter, open_records
from twinlog.batches.transformed import ChangeRecords
from twinlog.comparison.records import Entry, entry_of
from twinlog.comparison.sides import Chunk, KeptChunks
from twinlog.comparison.view import View
from twinlog.errors import KafkaError
from twinlog.kafka.raw.fetch.reader import BatchReader
from twinlog.model import TopicPartition
from twinlog_checkpoint.translation.log_bounds import LogBounds

FIRST_READ_BYTES = 16 << 10
"""The first fetch of a comparison, as most end near; the next ones are four times as large, up to
READ_BYTES."""
READ_BYTES = 256 << 10
PEEK_BYTES = 4 << 10
"""One fetch for a single record; a broker gives at least one batch."""
COUNT_BYTES = 1 << 20
"""One fetch of records to count."""
_KEPT_BYTES = 4 << 20


class BudgetSpent(Exception):  # noqa: N818  # a signal, not an error
    """The bytes that may be read in this interval are used up."""


@dataclass(slots=True)
class ByteBudget:
    """Bytes that may still be read."""

    left_bytes: int
    spent_bytes: int = 0

    def spend(self, size_bytes: int) -> None:
        self.left_bytes -= size_bytes
        self.spent_bytes += size_bytes

    def check(self) -> None:
        """Raises BudgetSpent."""
        if self.left_bytes <= 0:
            raise BudgetSpent


class ComparedLog(Protocol):
    """One cluster's side."""

    async def expect(self, partitions: Collection[TopicPartition]) -> None:
        """These are about to be read: find their leaders by one request, not one for each of their topics.

        No error: who reads a partition is told what is wrong with it.
        """
        ...

    async def read(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> Chunk:
        """One fetch; `next_offset` is the offset asked for where nothing follows. Raises KafkaError
        (OFFSET_OUT_OF_RANGE below the log's start)."""
        ...


class BatchLog:
    """Over raw batches, which are opened only where they differ."""

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

    async def read(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> Chunk:
        fetched = await self._reader.fetch(partition, offset, max_bytes=max_bytes)
        view = View(read_committed=self._reader.read_committed, change=self._changes(partition.topic))
        return Chunk(
            batches=view.of(fetched.batches, fetched.aborted),
            next_offset=fetched.next_offset(offset),
            size_bytes=fetched.size_bytes,
        )


@dataclass(slots=True, kw_only=True)
class ComparedPartition:
    """One log of a comparison. All methods that read raise BudgetSpent, or KafkaError when the log cannot be
    read."""

    log: ComparedLog
    partition: TopicPartition
    bounds: LogBounds
    budget: ByteBudget
    _kept: KeptChunks = field(default_factory=lambda: KeptChunks(most_bytes=_KEPT_BYTES))

    async def read(self, offset: int, *, max_bytes: int) -> Chunk:
        """What follows an offset below the end; it may have been read before."""
        if (kept := self._kept.at(offset)) is not None:
            return kept
        self.budget.check()
        chunk = await self.log.read(self.partition, offset, max_bytes=max_bytes)
        self.budget.spend(chunk.size_bytes)
        if chunk.next_offset <= offset:
            # Nothing follows, or a new leader does not know yet how much all replicas have.
            chunk = Chunk(batches=(), next_offset=self.bounds.end)
        self._kept.keep(offset, chunk)
        return chunk

    async def count(self, start: int, stop: int) -> int:
        """Visible records in [start, stop)."""
        counter = VisibleCounter(start, stop)
        while not counter.is_done:
            self.budget.check()
            at = counter.next_offset
            chunk = await self.log.read(self.partition, at, max_bytes=COUNT_BYTES)
            self.budget.spend(chunk.size_bytes)
            counter.feed(chunk.batches)
            if chunk.next_offset <= at:
                break
            counter.next_offset = chunk.next_offset
        return counter.records

    async def first(self, offset: int) -> Entry | None:
        """The first visible record at or after an offset; None when there is none."""
        max_bytes = PEEK_BYTES
        while offset < self.bounds.end:
            chunk = await self.read(offset, max_bytes=max_bytes)
            for batch in chunk.batches:
                for record in open_records(batch):
                    if record[0] >= offset:
                        return entry_of(record, with_timestamp=not batch.header.is_log_append_time)
            offset, max_bytes = chunk.next_offset, READ_BYTES
        return None
