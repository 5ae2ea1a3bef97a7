"""One side of a comparison, read batch by batch, and the requests of a running comparison."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct
from typing import Any, TypeVar

from twinlog.batches.codec import MAX_OPEN_BYTES
from twinlog.batches.header import UNKNOWN_COUNT, Batch, BatchHeader
from twinlog.batches.records import open_records
from twinlog.batches.transformed import ChangeRecords, transformed
from twinlog.batches.visibility import AbortedTransaction, Visibility, classify
from twinlog.comparison.model import Range, Side
from twinlog.comparison.records import Entry, entry_of

STAMPED = frozenset((Side.TARGET,))
"""The sides on which timestamps that a broker has set (LogAppendTime) do not count. A copy has the times of
its source, also those that the source's broker has set."""


@dataclass(frozen=True, slots=True)
class Read:
    """Requests the batches from an offset on; a Chunk answers."""

    side: Side
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Visible data batches in order; the first may begin before the requested offset."""

    batches: tuple[Batch, ...]
    next_offset: int
    """Where reading continues; always after the requested offset."""
    lost_until: int | None = None
    """The log's new first offset, after the requested one: retention deleted what was before."""
    size_bytes: int = 0
    """As stored."""


@dataclass(slots=True, kw_only=True)
class KeptChunks:
    """What was read of one log last: a comparison that meets a difference goes back to it."""

    most_bytes: int
    _kept: deque[tuple[int, Chunk]] = field(default_factory=deque)
    """With the offsets that were asked for; the newest last."""

    def at(self, offset: int) -> Chunk | None:
        for begin, chunk in self._kept:
            if begin <= offset < chunk.next_offset and chunk.lost_until is None:
                return chunk
        return None

    def keep(self, offset: int, chunk: Chunk) -> None:
        self._kept.append((offset, chunk))
        while len(self._kept) > 1 and sum(kept.size_bytes for _, kept in self._kept) > self.most_bytes:
            self._kept.popleft()


@dataclass(frozen=True, slots=True)
class Extend:
    """The target has ended but should have more; Extended answers, now or when records arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    target_limit: int
    """Unchanged: no records arrived, and nobody waits any longer."""
    position: int | None
    """The flow's stored position, read before the limit."""


@dataclass(frozen=True, slots=True)
class AskEnds:
    """Requests the present ends of both logs; EndsNow answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsNow:
    """The copy's end was taken before the source's: what the copy shows, the source has."""

    source: int
    target: int


Result = TypeVar("Result")
Steps = Generator[Read | Extend | AskEnds, Any, Result]


_ITEM = Struct(">qI")
_DIGEST_BYTES = 16


@dataclass(slots=True)
class OrderHash:
    """A hash of a log's batches in order: equal for equal ranges of the same log, however they are read.

    A batch belongs to the range that holds its base offset, so consecutive ranges hold every batch once.
    Batches are noted when read, perhaps repeatedly or ahead, and taken once they are compared.
    """

    begin: int
    """Batches that begin before this offset belong to another range."""
    _seen_until: int = field(init=False)
    _ahead: deque[tuple[int, int]] = field(default_factory=deque)
    _hash: Any = field(init=False)

    def __post_init__(self) -> None:
        self._seen_until = self.begin
        self._hash = blake2b(digest_size=_DIGEST_BYTES)

    def note(self, batch: Batch) -> None:
        header = batch.header
        if header.base_offset >= self._seen_until:
            self._seen_until = header.next_offset
            self._ahead.append((header.base_offset, header.crc))

    def take(self, end: int) -> None:
        """Take everything before this offset, which is compared now."""
        while self._ahead and self._ahead[0][0] < end:
            self._hash.update(_ITEM.pack(*self._ahead.popleft()))

    @property
    def hex(self) -> str:
        text: str = self._hash.hexdigest()
        return text


@dataclass(slots=True, kw_only=True)
class Cursor:
    """How far one side is compared: every visible record below `offset` is done."""

    side: Side
    offset: int
    limit: int
    max_open_bytes: int = MAX_OPEN_BYTES
    lost: list[Range] = field(default_factory=list)
    batches: deque[Batch] = field(default_factory=deque)
    """Not opened yet."""
    offsets: list[int] = field(default_factory=list)
    """Offsets of the records in the opened batch; parallel to `bodies` and `timestamps`."""
    bodies: list[bytes] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    stamped: frozenset[Side] = STAMPED
    own_timestamps: bool = False
    """Whether the timestamps of the opened batch do not count."""
    index: int = 0
    """Index of the next record in the opened batch."""
    read_offset: int = -1
    hash: OrderHash = field(init=False)

    def __post_init__(self) -> None:
        self.read_offset = self.offset
        self.hash = OrderHash(self.offset)

    @property
    def is_open(self) -> bool:
        return self.index < len(self.offsets)

    @property
    def has_records(self) -> bool:
        return self.is_open or bool(self.batches)

    @property
    def at(self) -> int:
        """Offset of the next record, as far as known without opening a batch."""
        if self.is_open:
            return self.offsets[self.index]
        if self.batches:
            return max(self.offset, _lowest_offset(self.batches[0].header))
        return max(self.offset, min(self.read_offset, self.limit))

    def fill(self) -> Steps[bool]:
        """Read until there is a record or the limit is reached; whether there is one."""
        while True:
            while self.batches and not self.is_open:
                header = self.batches[0].header
                if header.magic == 2 and header.record_count and self._is_whole(self.batches[0]):
                    return True
                self.open()
            if self.is_open:
                return True
            if self.read_offset >= self.limit:
                return False
            chunk = yield Read(self.side, self.read_offset)
            self._take(chunk)

    def open(self) -> None:
        """Open the next batch. Raises WireFormatError (CORRUPT_BATCH, BATCH_TOO_LARGE)."""
        batch = self.batches.popleft()
        records = open_records(batch, check_crc=True, max_bytes=self.max_open_bytes)
        if records and not self.offset <= records[0][0] <= records[-1][0] < self.limit:
            records = [record for record in records if self.offset <= record[0] < self.limit]
        self.offsets = [offset for offset, _, _ in records]
        self.timestamps = [timestamp_ms for _, timestamp_ms, _ in records]
        self.bodies = [body for _, _, body in records]
        self.own_timestamps = self.side in self.stamped and batch.header.is_log_append_time
        self.index = 0
        if not records:
            self.offset = max(self.offset, min(batch.header.next_offset, self.limit))

    def pass_batch(self) -> Batch:
        """Finish the next batch without opening it."""
        batch = self.batches.popleft()
        self.offset = batch.header.next_offset
        return batch

    def pass_records(self, count: int) -> None:
        """Finish so many records of the opened batch."""
        self.index += count
        self.offset = self.offsets[self.index - 1] + 1

    def seek(self, offset: int) -> None:
        """Continue at another offset: batches read beyond it are read again."""
        self.offset = self.read_offset = offset
        self.batches.clear()
        self.offsets, self.bodies, self.timestamps, self.index = [], [], [], 0

    def _is_whole(self, batch: Batch) -> bool:
        return self.offset <= batch.header.base_offset and batch.header.last_offset < self.limit

    def _take(self, chunk: Chunk) -> None:
        if chunk.lost_until is not None:
            self.lost.append(Range(self.read_offset, chunk.lost_until))
            self.offset = max(self.offset, min(chunk.lost_until, self.limit))
        for batch in chunk.batches:
            if batch.header.next_offset > self.offset and _lowest_offset(batch.header) < self.limit:
                self.batches.append(batch)
                self.hash.note(batch)
        # Records beyond the limit are dropped, and read once the limit has moved.
        self.read_offset = max(self.read_offset, min(chunk.next_offset, self.limit))


def _lowest_offset(header: BatchHeader) -> int:
    """No record of the batch has a lower offset. A compressed message of an old format (magic 0 and 1) only
    shows the offset of its last record."""
    return 0 if header.record_count == UNKNOWN_COUNT else header.base_offset


@dataclass(slots=True, kw_only=True)
class Window:
    """Records of one side from an offset on, as entries."""

    side: Side
    next_offset: int
    limit: int
    stamped: frozenset[Side] = STAMPED
    max_open_bytes: int = MAX_OPEN_BYTES
    entries: list[Entry] = field(default_factory=list)
    own_timestamps: bool = False
    lost: list[Range] = field(default_factory=list)
    hash: OrderHash | None = None
    """The hash of the compared side; None: a look-up only."""

    @property
    def is_complete(self) -> bool:
        """Whether it holds everything up to the limit."""
        return self.next_offset >= self.limit

    def behind(self, index: int, begin: int) -> int:
        """Offset after the entries before this one; `begin` for the first."""
        return self.entries[index - 1].offset + 1 if index else begin

    def grow(self, size: int) -> Steps[None]:
        """Read until there are exactly so many entries, or all.

        Equal sizes of both windows favour the shorter move where records repeat.
        """
        while len(self.entries) < size and not self.is_complete:
            chunk = yield Read(self.side, self.next_offset)
            if chunk.lost_until is not None:
                self.lost.append(Range(self.next_offset, chunk.lost_until))
            begin = self.next_offset
            for batch in chunk.batches:
                if batch.header.next_offset <= begin or _lowest_offset(batch.header) >= self.limit:
                    continue
                if self.hash is not None:
                    self.hash.note(batch)
                self._add(batch, begin)
                if len(self.entries) > size:
                    break
            if len(self.entries) > size:
                self.next_offset = self.entries[size].offset
                del self.entries[size:]
            else:
                self.next_offset = max(begin, min(chunk.next_offset, self.limit))

    def _add(self, batch: Batch, begin: int) -> None:
        is_own = self.side in self.stamped and batch.header.is_log_append_time
        self.own_timestamps = self.own_timestamps or is_own
        self.entries += [
            entry_of(record, with_timestamp=not is_own)
            for record in open_records(batch, check_crc=True, max_bytes=self.max_open_bytes)
            if begin <= record[0] < self.limit
        ]


# What a comparison sees of a log: the visible records of those writers that count, as a copy holds them.


def of_anybody(_: BatchHeader) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One side's projection: two logs are compared by what their views show of them."""

    read_committed: bool
    counts: Callable[[BatchHeader], bool] = of_anybody
    """Whether a batch is of the writers that are compared, by its producer id. A topic may hold records of
    several origins: those of the others are passed over, and are no difference."""
    change: ChangeRecords | None = None
    """What the copy does to the records of this log before it writes them: the source's side of a flow with
    transforms."""

    def of(self, batches: Iterable[Batch], aborted: Iterable[AbortedTransaction]) -> tuple[Batch, ...]:
        """The view of one fetch. Raises WireFormatError for a batch that cannot be changed."""
        seen = classify(batches, aborted, read_committed=self.read_committed)
        shown = (
            batch
            for batch, visibility in seen
            if visibility is Visibility.VISIBLE and self.counts(batch.header)
        )
        return tuple(shown if self.change is None else (transformed(batch, self.change) for batch in shown))
