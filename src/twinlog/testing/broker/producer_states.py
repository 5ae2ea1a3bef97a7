"""What a log knows of its producers: the newest sequences, and the open transaction.

After ProducerAppendInfo.java and ProducerStateManager.java; KIP-98, KIP-360, KIP-890.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from twinlog.batches import BatchHeader, EndMarker

NO_EPOCH = -1
NO_SEQUENCE = -1
_HIGHEST_SEQUENCE = (1 << 31) - 1
_REMEMBERED_BATCHES = 5


class AppendError(Exception):
    """A broker refuses the batch with this code."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


class WrittenBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int
    """When the log appended it, if the topic has LogAppendTime; otherwise -1."""


class AbortedSpan(NamedTuple):
    """An aborted transaction in the log: from its first batch to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class ProducerEntry:
    producer_id: int
    epoch: int = NO_EPOCH
    batches: deque[WrittenBatch] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))
    first_open_offset: int | None = None
    """Where its open transaction begins."""
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def take_epoch(self, epoch: int) -> None:
        """Sequences begin anew with an epoch."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch


class ProducerStates:
    """By producer id, in the order of their first batch."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.aborted: list[AbortedSpan] = []
        self._ended: list[tuple[int, int]] = []
        """(first offset, marker's offset) of transactions whose marker may not be replicated yet."""

    def duplicate(self, header: BatchHeader) -> WrittenBatch | None:
        """The same batch, if it is one of the producer's last five."""
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        wanted = header.base_sequence, last_sequence(header)
        return next((each for each in entry.batches if each[:2] == wanted), None)

    def check(self, header: BatchHeader, *, knows_every_transaction: bool) -> None:
        """Raise AppendError for a batch that may not follow what its producer wrote before.

        `knows_every_transaction`: transactions of version 2, in which an unknown producer begins at 0.
        """
        entry = self.entries.get(header.producer_id) or ProducerEntry(header.producer_id)
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch < entry.epoch:
            raise AppendError(
                ErrorCode.invalid_producer_epoch, f"epoch {epoch} is smaller than the last seen {entry.epoch}"
            )
        if entry.epoch == NO_EPOCH:
            in_order = first == 0 or not knows_every_transaction
        elif epoch != entry.epoch:
            in_order = first == 0
        else:
            in_order = first == _following(entry.last_sequence)
        if not in_order:
            raise AppendError(
                ErrorCode.out_of_order_sequence_number,
                f"{first} (incoming sequence number), {entry.last_sequence} (current end sequence number)",
            )
        if entry.first_open_offset is not None and not header.is_transactional:
            raise AppendError(ErrorCode.invalid_txn_state, "Expected a transactional batch")

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self.entries.get(producer_id)
        return entry is not None and entry.epoch == epoch and entry.first_open_offset is not None

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Raise AppendError for a marker of an older epoch, or from a coordinator that is one no more."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch:
            raise AppendError(ErrorCode.invalid_producer_epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise AppendError(ErrorCode.transaction_coordinator_fenced)

    def take(self, header: BatchHeader, marker: EndMarker | None, coordinator_epoch: int = -1) -> None:
        """Learn from a batch that was appended."""
        if header.producer_id < 0:
            return
        entry = self.entries.setdefault(header.producer_id, ProducerEntry(header.producer_id))
        entry.take_epoch(header.producer_epoch)
        entry.last_timestamp_ms = header.max_timestamp_ms
        if header.is_control:
            entry.coordinator_epoch = max(coordinator_epoch, entry.coordinator_epoch)
            self._end(entry, header.base_offset, marker)
            return
        append_time = header.max_timestamp_ms if header.is_log_append_time else -1
        entry.batches.append(
            WrittenBatch(
                header.base_sequence,
                last_sequence(header),
                header.base_offset,
                header.last_offset,
                append_time,
            )
        )
        if header.is_transactional and entry.first_open_offset is None:
            entry.first_open_offset = header.base_offset

    def _end(self, entry: ProducerEntry, offset: int, marker: EndMarker | None) -> None:
        first = entry.first_open_offset
        if first is None or marker is None:
            return
        entry.first_open_offset = None
        self._ended.append((first, offset))
        if marker is EndMarker.ABORT:
            self.aborted.append(AbortedSpan(entry.producer_id, first, offset))

    def first_unstable(self, high_watermark: int) -> int:
        """Below this offset every transaction is decided; the high watermark at most."""
        self._ended = [each for each in self._ended if each[1] >= high_watermark]
        undecided = [first for first, _ in self._ended]
        opened = [entry.first_open_offset for entry in self.entries.values()]
        undecided += [each for each in opened if each is not None]
        return min([high_watermark, *undecided])

    def forget(self, before_ms: int) -> None:
        """Drop producers whose newest record is older, without those in a transaction
        (producer.id.expiration.ms)."""
        self.entries = {
            key: entry
            for key, entry in self.entries.items()
            if entry.first_open_offset is not None or entry.last_timestamp_ms > before_ms
        }

    def drop_aborted_before(self, offset: int) -> None:
        self.aborted = [each for each in self.aborted if each.last_offset >= offset]


def last_sequence(header: BatchHeader) -> int:
    """Sequences begin again at 0 behind the highest one."""
    return (header.base_sequence + header.last_offset_delta) % (_HIGHEST_SEQUENCE + 1)


def _following(sequence: int) -> int:
    return 0 if sequence == _HIGHEST_SEQUENCE else sequence + 1
