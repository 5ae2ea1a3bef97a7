"""One replica's log of a partition."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from twinlog.batches import BatchHeader, Codec
from twinlog.testing.broker.producer_states import AbortedSpan, ProducerStates
from twinlog.testing.broker.stored import StoredBatch

# A topic's configs as its logs read them.

_LONGEST_MS = (1 << 63) - 1
_DAY_MS = 86_400_000


class LogSettings:
    """The topic's own configs, then the brokers', then Kafka's defaults. All are read when they are used."""

    def __init__(self, configs: Mapping[str, str], broker_configs: Mapping[str, str]) -> None:
        self._configs = configs
        self._broker_configs = broker_configs

    def text(self, name: str, default: str) -> str:
        return self._configs.get(name, self._broker_configs.get(name, default))

    def _number(self, name: str, default: int) -> int:
        return int(self.text(name, str(default)))

    @property
    def max_message_bytes(self) -> int:
        return self._number("max.message.bytes", 1_048_588)

    @property
    def segment_bytes(self) -> int:
        return self._number("segment.bytes", 1 << 30)

    @property
    def segment_ms(self) -> int:
        return self._number("segment.ms", 7 * _DAY_MS)

    @property
    def retention_bytes(self) -> int:
        return self._number("retention.bytes", -1)

    @property
    def retention_ms(self) -> int:
        return self._number("retention.ms", 7 * _DAY_MS)

    @property
    def retention_check_ms(self) -> int | None:
        """None: nothing is removed by retention."""
        text = self._broker_configs.get("log.retention.check.interval.ms")
        return None if text is None else int(text)

    @property
    def is_log_append_time(self) -> bool:
        return self.text("message.timestamp.type", "CreateTime") == "LogAppendTime"

    @property
    def timestamp_before_max_ms(self) -> int:
        return self._number("message.timestamp.before.max.ms", self._timestamp_difference_max_ms)

    @property
    def timestamp_after_max_ms(self) -> int:
        return self._number("message.timestamp.after.max.ms", self._timestamp_difference_max_ms)

    @property
    def _timestamp_difference_max_ms(self) -> int:
        """Before 3.6."""
        return self._number("message.timestamp.difference.max.ms", _LONGEST_MS)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.policies

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.policies

    @property
    def policies(self) -> list[str]:
        return self.text("cleanup.policy", "delete").split(",")

    @property
    def min_insync_replicas(self) -> int:
        return self._number("min.insync.replicas", 1)

    @property
    def codec(self) -> Codec | None:
        """With which the broker writes every batch; None: as its producer did."""
        name = self.text("compression.type", "producer")
        if name == "producer":
            return None
        return Codec.NONE if name == "uncompressed" else Codec[name.upper()]

    @property
    def producer_expiration_ms(self) -> int:
        return self._number("producer.id.expiration.ms", _DAY_MS)


# Where the files of a log begin: a fetch reads from one, and retention removes whole ones.


class Segments:
    """After LogSegment.shouldRoll: by size, and by the time between the timestamps of records.

    A marker has the time of the broker: behind old records it begins a segment.
    """

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self.starts = [0]
        self._first_timestamp_ms: int | None = None
        self._size_bytes = 0
        """Of the last one."""

    def take(self, header: BatchHeader) -> None:
        """Learn of a batch before it is appended."""
        if self._first_timestamp_ms is not None and (
            self._size_bytes + header.size_bytes > self._settings.segment_bytes
            or header.max_timestamp_ms - self._first_timestamp_ms > self._settings.segment_ms
        ):
            self.roll(header.base_offset)
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = header.max_timestamp_ms
        self._size_bytes += header.size_bytes

    def roll(self, offset: int) -> None:
        if self.starts[-1] < offset:
            self.starts.append(offset)
        self._first_timestamp_ms, self._size_bytes = None, 0

    def end_of(self, offset: int) -> int | None:
        """Where the segment with this offset ends; None for the last one."""
        index = bisect_right(self.starts, offset)
        return self.starts[index] if index < len(self.starts) else None

    def restrict(self, start: int, end: int, left: Iterable[BatchHeader]) -> None:
        """Keep those between two offsets; `left` is what the log holds."""
        within = [each for each in self.starts if start < each < end]
        self.starts = [max((each for each in self.starts if each <= start), default=start), *within]
        self._first_timestamp_ms, self._size_bytes = None, 0
        for header in left:
            if header.base_offset >= self.starts[-1]:
                if self._first_timestamp_ms is None:
                    self._first_timestamp_ms = header.max_timestamp_ms
                self._size_bytes += header.size_bytes


_EXPIRATION_CHECK_MS = 600_000
"""producer.id.expiration.check.interval.ms."""


class PartitionLog:
    """Batches in the order of their offsets, and what follows from them."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.batches: list[StoredBatch] = []
        self.segments = Segments(settings)
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.epochs: list[tuple[int, int]] = []
        """Each leader epoch with the offset at which it began."""
        self.producers = ProducerStates()
        self._next_expiration_ms = 0
        self._next_retention_ms = 0

    @property
    def last_stable_offset(self) -> int:
        return self.producers.first_unstable(self.high_watermark)

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.batches)

    def append(self, batch: StoredBatch, coordinator_epoch: int = -1) -> None:
        """Take a batch whose place is written into it."""
        header = batch.header
        self.begin_epoch(header.partition_leader_epoch, header.base_offset)
        self.segments.take(header)
        self.batches.append(batch)
        self.end_offset = header.next_offset
        self.producers.take(header, batch.marker, coordinator_epoch)

    def begin_epoch(self, epoch: int, offset: int) -> None:
        if epoch >= 0 and (not self.epochs or self.epochs[-1][0] < epoch):
            self.epochs.append((epoch, offset))

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.end_offset))

    def follow(self, leader: "PartitionLog") -> None:
        """Cut what the leader does not have, copy what it has (KIP-101)."""
        self.cut(self._diverges_at(leader))
        if self.end_offset < leader.start_offset:
            self.batches.clear()
            self.end_offset = leader.start_offset
        for batch in leader.batches[leader.index_of(self.end_offset) :]:
            self.append(batch, leader.coordinator_epoch_of(batch))
        self.end_offset = leader.end_offset
        self.epochs = list(leader.epochs)
        self.delete_before(leader.start_offset)

    def _diverges_at(self, leader: "PartitionLog") -> int:
        for batch in reversed(self.batches):
            index = leader.index_of(batch.header.base_offset)
            if index < len(leader.batches) and leader.batches[index] == batch:
                return batch.header.next_offset
        return min(self.start_offset, leader.end_offset)

    def coordinator_epoch_of(self, batch: StoredBatch) -> int:
        entry = self.producers.entries.get(batch.header.producer_id)
        return entry.coordinator_epoch if entry is not None else -1

    def cut(self, offset: int) -> None:
        """Lose everything from the offset on, in whole batches, as a broker that goes down unclean does."""
        index = self.index_of(offset)
        if index < len(self.batches):
            offset = min(offset, self.batches[index].header.base_offset)
        if offset >= self.end_offset:
            return
        keep = [batch for batch in self.batches if batch.header.next_offset <= offset]
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.epochs = [each for each in self.epochs if each[1] < offset]
        self._reload(keep)

    def _reload(self, batches: Iterable[StoredBatch]) -> None:
        """Learn the producers from what is in the log, as after a restart without a snapshot."""
        self.batches = list(batches)
        self._restrict_segments()
        self.producers = ProducerStates()
        for batch in self.batches:
            self.producers.take(batch.header, batch.marker)

    def replace_batches(self, batches: Iterable[StoredBatch]) -> None:
        """What compaction leaves; producers are not touched."""
        self.batches = list(batches)
        self._restrict_segments()

    def _restrict_segments(self) -> None:
        self.segments.restrict(self.start_offset, self.end_offset, (each.header for each in self.batches))

    def delete_before(self, offset: int) -> None:
        """Move the log's start; batches that end before it are gone, one that contains it stays whole."""
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self.end_offset = max(self.end_offset, self.start_offset)
        self.high_watermark = max(self.high_watermark, self.start_offset)
        self.batches = self.batches[self.index_of(self.start_offset) :]
        self._restrict_segments()
        self.producers.drop_aborted_before(self.start_offset)

    def retain(self, now_ms: int) -> None:
        """From time to time, as a broker: remove the oldest segments that are too old, or too much."""
        check_ms = self.settings.retention_check_ms
        if check_ms is None or now_ms < self._next_retention_ms:
            return
        self._next_retention_ms = now_ms + check_ms
        if self.settings.is_deleted:
            self._delete_old_segments(now_ms)

    def _delete_old_segments(self, now_ms: int) -> None:
        longest_ms, most_bytes = self.settings.retention_ms, self.settings.retention_bytes
        start, left_bytes = self.start_offset, self.size_bytes
        while start < self.high_watermark:
            end = self.segments.end_of(start) or self.end_offset
            headers = [each.header for each in self.batches if start <= each.header.base_offset < end]
            size_bytes = sum(each.size_bytes for each in headers)
            newest_ms = max((each.max_timestamp_ms for each in headers), default=now_ms)
            is_old = 0 <= longest_ms < now_ms - newest_ms
            is_too_much = 0 <= most_bytes <= left_bytes - size_bytes
            if end > self.high_watermark or not (is_old or is_too_much):
                break
            start, left_bytes = end, left_bytes - size_bytes
        if start == self.end_offset:
            self.segments.roll(start)
        if start > self.start_offset:
            self.delete_before(start)

    def expire_producers(self, now_ms: int) -> None:
        """Every ten minutes, as a broker: forget producers by producer.id.expiration.ms."""
        if now_ms >= self._next_expiration_ms:
            self._next_expiration_ms = now_ms + _EXPIRATION_CHECK_MS
            self.producers.forget(now_ms - self.settings.producer_expiration_ms)

    def index_of(self, offset: int) -> int:
        """The index of the batch that contains the offset, or of the next one."""
        index = bisect_right(self.batches, offset, key=lambda batch: batch.header.base_offset)
        if index and self.batches[index - 1].header.next_offset > offset:
            return index - 1
        return index

    def read(self, offset: int, *, max_bytes: int, before: int, whole_first: bool) -> bytes:
        """The bytes from the batch with this offset on, as a broker: the last batch may be cut, the first one
        is whole if `whole_first` (KIP-74). Batches from `before` on are not readable yet, and those of the
        next segment are for the next fetch."""
        pieces = [each.data for each in self.following(offset, max_bytes=max_bytes, before=before)]
        limit = max(max_bytes, len(pieces[0])) if pieces and whole_first else max_bytes
        return b"".join(pieces)[: max(limit, 0)]

    def following(self, offset: int, *, max_bytes: int, before: int) -> list[StoredBatch]:
        """The batches of which a fetch may read: they begin before the given offset, and the last one may
        reach past the size."""
        found: list[StoredBatch] = []
        size = 0
        first = self.index_of(offset)
        before = min(before, self._segment_end(first))
        for batch in self.batches[first:]:
            if batch.header.base_offset >= before or size >= max_bytes:
                break
            found.append(batch)
            size += len(batch.data)
        return found

    def _segment_end(self, index: int) -> int:
        """Where the segment with this batch ends, or the log."""
        if index == len(self.batches):
            return self.end_offset
        return self.segments.end_of(self.batches[index].header.base_offset) or self.end_offset

    def aborted_from(self, first: int) -> list[AbortedSpan]:
        """The aborted transactions with records or a marker in what a fetch from this offset may read."""
        end = self._segment_end(self.index_of(first))
        return [
            each for each in self.producers.aborted if each.last_offset >= first and each.first_offset < end
        ]

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the offset was written; -1 if it is unknown."""
        return max((epoch for epoch, begin in self.epochs if begin <= offset), default=-1)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch up to the asked one; (-1, -1) if there is no answer
        (LeaderEpochFileCache.java, KIP-101 and KIP-279)."""
        if not self.epochs or epoch < 0:
            return -1, -1
        if epoch == self.epochs[-1][0]:
            return epoch, self.end_offset
        later = [begin for each, begin in self.epochs if each > epoch]
        if not later:
            return -1, -1
        return max((each for each, _ in self.epochs if each <= epoch), default=epoch), later[0]
