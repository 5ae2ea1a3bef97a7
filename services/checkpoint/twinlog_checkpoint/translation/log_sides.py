"""The two logs of a translation: what is read of them, within a budget of bytes.

Also where the logs of a cluster begin and end: what of them can be read, and where groups may stand; and
`LogScan`, which follows the one partition of an internal topic from its beginning.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from twinlog.batches import VisibleCounter, open_records
from twinlog.batches.transformed import ChangeRecords
from twinlog.comparison.records import Entry, entry_of
from twinlog.comparison.sides import Chunk, KeptChunks, View
from twinlog.errors import KafkaError, TransientKafkaError, TwinlogError
from twinlog.kafka.ports import LogAdmin, LogReader, OffsetSpec
from twinlog.kafka.raw.fetch.reader import BatchReader
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import FETCH_BYTES, Progress, StandsStillError
from twinlog.kafka.whole_logs import log_bounds as bounds_of_one
from twinlog.model import Record, TopicPartition
from twinlog_checkpoint.translation.translation import LogBounds


def is_absent(answer: object) -> bool:
    """Whether a cluster says that there is no such topic or partition. Any other error says nothing of that:
    what has no leader now, or is not answered about, exists."""
    return isinstance(answer, KafkaError) and answer.reason == KafkaReason.TOPIC_UNKNOWN


async def bounds_or_errors(
    admin: LogAdmin, partitions: Collection[TopicPartition], end: OffsetSpec
) -> dict[TopicPartition, LogBounds | KafkaError]:
    """First offset and end of each log, or why they cannot be looked up; partitions that do not exist are
    left out. Two requests per broker; one about a leader that does not answer, which is waited for. Raises
    KafkaError."""
    starts = await admin.list_offsets(OffsetSpec.EARLIEST, partitions) if partitions else {}
    told = {partition: first for partition, first in starts.items() if not isinstance(first, KafkaError)}
    ends = await admin.list_offsets(end, told) if told else {}
    found: dict[TopicPartition, LogBounds | KafkaError] = {}
    for partition, first in {**starts, **ends}.items():
        if isinstance(first, KafkaError):
            if not is_absent(first):
                found[partition] = first
        else:
            found[partition] = LogBounds(start=told[partition], end=first)
    return found


async def log_bounds(
    admin: LogAdmin, partitions: Collection[TopicPartition], end: OffsetSpec = OffsetSpec.LAST_STABLE
) -> Mapping[TopicPartition, LogBounds]:
    """Those that can be looked up, for who does nothing about the others. Raises KafkaError."""
    found = await bounds_or_errors(admin, partitions, end)
    return {partition: log for partition, log in found.items() if isinstance(log, LogBounds)}


async def log_ends(admin: LogAdmin, partitions: set[TopicPartition]) -> Mapping[TopicPartition, int]:
    """The ends of all that is written, also behind open transactions; a partition that has none (deleted, not
    visible) is left out. Raises KafkaError."""
    answers = await admin.list_offsets(OffsetSpec.LATEST, partitions) if partitions else {}
    return {partition: end for partition, end in answers.items() if not isinstance(end, KafkaError)}


INTERNAL_PARTITION = 0
"""MM2 writes syncs and checkpoints to this partition of their topics."""


@dataclass(slots=True, kw_only=True)
class LogScan:
    """A position in one partition. `begin`, then `more` again and again.

    An error keeps the position, unless the log no longer has it: then `lost_position` is true and the caller
    begins again.
    """

    admin: LogAdmin
    reader: LogReader
    topic: str
    end: OffsetSpec
    """The end that the reader can see: LAST_STABLE when it reads committed records only, else LATEST."""
    next_offset: int = 0
    end_at_begin: int = 0
    """The end of the log when reading began: the first pass is done when it is reached."""
    lost_position: bool = False
    _progress: Progress = field(init=False)

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, INTERNAL_PARTITION)

    @property
    def first_pass_done(self) -> bool:
        return self.next_offset >= self.end_at_begin

    async def begin(self) -> None:
        """Go to the first record there is. Raises KafkaError (TOPIC_UNKNOWN when there is no such topic)."""
        start, end = await bounds_of_one(self.admin, self.partition, self.end)
        self.next_offset, self.end_at_begin, self.lost_position = start, end, False
        self._progress = Progress(partition=self.partition, end=end)

    async def more(self, *, max_wait_seconds: float) -> Sequence[Record]:
        """The next records; waits up to `max_wait_seconds` when there are none.

        Raises KafkaError; StandsStillError when the first pass does not reach the end that the log had when
        it began: the log has lost records, and the caller begins again.
        """
        try:
            fetched = await self.reader.fetch(
                self.partition, self.next_offset, max_wait_seconds=max_wait_seconds, max_bytes=FETCH_BYTES
            )
        except TwinlogError as error:
            self.lost_position = error.reason == KafkaReason.OFFSET_OUT_OF_RANGE
            raise
        try:
            fetched = self._progress.of(fetched, self.next_offset, waited_seconds=max_wait_seconds)
        except StandsStillError:
            self.lost_position = True
            raise
        self.next_offset = fetched.next_offset
        return fetched.records


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
        # Compaction may have removed the last records of the log.
        next_offset = fetched.next_offset(offset) if fetched.batches else max(offset, fetched.end_offset)
        return Chunk(
            batches=view.of(fetched.batches, fetched.aborted),
            next_offset=next_offset,
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
        chunk = await self._fetched(offset, max_bytes=max_bytes)
        self._kept.keep(offset, chunk)
        return chunk

    async def count(self, start: int, stop: int) -> int:
        """Visible records in [start, stop), none of which lies behind the end of the log."""
        counter = VisibleCounter(start, stop)
        while not counter.is_done:
            chunk = await self._fetched(counter.next_offset, max_bytes=COUNT_BYTES)
            counter.feed(chunk.batches)
            counter.next_offset = chunk.next_offset
        return counter.records

    async def _fetched(self, offset: int, *, max_bytes: int) -> Chunk:
        """Raises KafkaError also while a new leader does not know yet that all replicas have what lies there:
        nothing may be concluded from that."""
        self.budget.check()
        chunk = await self.log.read(self.partition, offset, max_bytes=max_bytes)
        self.budget.spend(chunk.size_bytes)
        if chunk.next_offset <= offset:
            raise TransientKafkaError(
                f"{self.partition} ends at {offset} on its leader, where it was longer: its replicas are not"
                " in sync, or it has lost records",
                reason="KAFKA_UNAVAILABLE",
            )
        return chunk

    async def find(self, offset: int, is_it: Callable[[Entry], bool]) -> Entry | None:
        """The first visible record at or after an offset of which this is so; None when there is none."""
        max_bytes = PEEK_BYTES
        while offset < self.bounds.end:
            chunk = await self.read(offset, max_bytes=max_bytes)
            for batch in chunk.batches:
                for record in open_records(batch):
                    if record[0] >= offset:
                        entry = entry_of(record, with_timestamp=not batch.header.is_log_append_time)
                        if is_it(entry):
                            return entry
            offset, max_bytes = chunk.next_offset, READ_BYTES
        return None

    async def first(self, offset: int) -> Entry | None:
        """The first visible record at or after an offset; None when there is none."""
        return await self.find(offset, lambda _entry: True)
