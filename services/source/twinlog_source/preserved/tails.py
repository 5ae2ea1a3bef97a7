"""Reads the end of preserved copies: where the log ends once every replica has it, and what follows there.

Three questions, each asked of all leaders at once: the high watermark and the leader epoch (ListOffsets),
the end of the leader's log (OffsetForLeaderEpoch), the writer's last sequence number (DescribeProducers).
While the first two differ, records are being replicated, and the end is not known yet.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from twinlog.batches.header import Batch, BatchHeader
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import BatchReader, DataClientPool, epoch_ends, list_offsets
from twinlog.kafka.raw.log_ends import LogEnd, log_ends
from twinlog.kafka.raw.producer_states import ProducerStates, producer_states
from twinlog.model import TopicPartition
from twinlog_source.preserved.append_log import SEQUENCE_MASK, Tail

A = TypeVar("A")

NOT_REPLICATED = "NOT_REPLICATED"
"""The leader has records that not all replicas have: the end is asked for again."""
LOOK_BYTES = 1 << 20
LOOKS_BACK = 32
"""How many batches at the end are looked at for the writer's last one, when the leader has forgotten it."""
CHECKED_BYTES = 16 << 20
"""How much behind the last checked offset is looked at for foreign records."""


OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
FILLER_BYTES_PER_RECORD = 12
"""At most, of a record without key, value and headers."""
FILLER_HEAD_BYTES = 128


def is_filler(header: BatchHeader) -> bool:
    """Whether a batch holds nothing that a consumer sees, as the filler's do: the end of a transaction, or
    empty records of one. The filler's producer id says nothing: it changes, and owners before had others."""
    if header.is_control:
        return True
    return (
        header.is_transactional
        and header.base_timestamp_ms == header.max_timestamp_ms == 0
        and header.size_bytes <= FILLER_HEAD_BYTES + FILLER_BYTES_PER_RECORD * header.record_count
    )


@dataclass(frozen=True, slots=True)
class ForeignWrite:
    """What somebody else's record did to a copy."""

    producer_id: int
    """Whose it is; -1 = of a producer that is not idempotent."""
    offset: int
    own_behind: int
    """Offsets of ours that lie behind it: they follow each other on the source."""


class CopyTails(Protocol):
    """What the writer of preserved copies asks of their logs."""

    async def read(
        self, checked_from: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, Tail | KafkaError]:
        """The tail of each copy, or why it is not known. Raises KafkaError when no broker can be reached."""
        ...

    async def foreign_write(self, partition: TopicPartition, foreign_at: int) -> ForeignWrite:
        """Look at a copy from the first offset on that is not ours, with nothing of ours in flight. Raises
        KafkaError."""
        ...


class KafkaCopyTails:
    """Asks the leaders of the target."""

    def __init__(self, session: DataClientPool, *, writer_id: int, timeout_seconds: float) -> None:
        """`writer_id` is the producer id of the flow's copies."""
        self._session = session
        self._writer_id = writer_id
        self._timeout_seconds = timeout_seconds
        self._reader = BatchReader(session, read_committed=False)

    async def read(
        self, checked_from: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, Tail | KafkaError]:
        tails: dict[TopicPartition, Tail | KafkaError] = {}
        ends = await log_ends(self._session, checked_from, timeout_seconds=self._timeout_seconds)
        known = _answers(ends, tails)
        states = await producer_states(self._session, known, timeout_seconds=self._timeout_seconds)
        remembered = _answers(states, tails)
        leader_ends = await epoch_ends(
            self._session,
            {partition: known[partition].leader_epoch for partition in remembered},
            timeout_seconds=self._timeout_seconds,
        )
        for partition, end in _answers(leader_ends, tails).items():
            high_watermark = known[partition].offset
            if end.end_offset != high_watermark:
                tails[partition] = TransientKafkaError(
                    f"{partition}: {end.end_offset - high_watermark} records are being replicated",
                    reason=NOT_REPLICATED,
                )
                continue
            try:
                tails[partition] = await self._tail(
                    partition, known[partition], remembered[partition], checked_from[partition]
                )
            except KafkaError as error:
                tails[partition] = error
        return tails

    async def _tail(
        self, partition: TopicPartition, end: LogEnd, states: ProducerStates, checked_from: int
    ) -> Tail:
        foreign = await self._foreign(partition, checked_from, end.offset)
        state = states.get(self._writer_id)
        if state is not None and state.last_sequence >= 0:
            return Tail(end.offset, (state.last_sequence + 1) & SEQUENCE_MASK, True, foreign)
        # Forgotten: it takes any number. Two owners that find the same end choose the same one.
        last = await self._last_of_writer(partition, end.offset)
        if last is None:
            return Tail(end.offset, end.offset & SEQUENCE_MASK, False, foreign)
        header = last.header
        follows = (header.base_sequence + header.record_count) & SEQUENCE_MASK
        return Tail(end.offset, follows, False, foreign)

    async def foreign_write(self, partition: TopicPartition, foreign_at: int) -> ForeignWrite:
        end = (await self.read({partition: foreign_at}))[partition]
        if isinstance(end, KafkaError):
            raise end
        first: BatchHeader | None = None
        own, strangers = 0, set[int]()
        async for header in self._headers(partition, foreign_at, end.end):
            # Also the end of a stranger's transaction: to count it as ours would leave out a record.
            if header.producer_id in strangers or not self._is_own(header):
                first = first or header
                strangers.add(header.producer_id)
            elif first is not None:
                own += header.next_offset - max(header.base_offset, foreign_at)
        if first is None:
            return ForeignWrite(-1, foreign_at, 0)
        return ForeignWrite(first.producer_id, max(first.base_offset, foreign_at), own)

    async def _foreign(self, partition: TopicPartition, checked_from: int, end: int) -> int | None:
        seen_bytes = 0
        async for header in self._headers(partition, checked_from, end):
            if not self._is_own(header):
                return max(header.base_offset, checked_from)
            seen_bytes += header.size_bytes
            if seen_bytes >= CHECKED_BYTES:
                return None
        return None

    def _is_own(self, header: BatchHeader) -> bool:
        return header.producer_id == self._writer_id or is_filler(header)

    async def _headers(self, partition: TopicPartition, begin: int, end: int) -> AsyncIterator[BatchHeader]:
        """Of the batches between two offsets that the log still holds."""
        at = begin
        while at < end:
            try:
                fetched = await self._reader.fetch(partition, at, max_bytes=LOOK_BYTES)
            except KafkaError as error:
                start = await self._start(partition) if error.reason == OUT_OF_RANGE else at
                if start <= at:
                    raise
                at = start
                continue
            if not fetched.batches:
                return
            for batch in fetched.batches:
                if batch.header.next_offset > at:
                    yield batch.header
            at = fetched.next_offset(at)

    async def _start(self, partition: TopicPartition) -> int:
        start = (await list_offsets(self._session, OffsetSpec.EARLIEST, [partition]))[partition]
        if isinstance(start, KafkaError):
            raise start
        return start

    async def _last_of_writer(self, partition: TopicPartition, end: int) -> Batch | None:
        at = end - 1
        for _ in range(LOOKS_BACK):
            if at < 0:
                return None
            try:
                fetched = await self._reader.fetch(partition, at, max_bytes=1)
            except KafkaError as error:
                if error.reason == OUT_OF_RANGE:
                    return None  # deleted
                raise
            if not fetched.batches or fetched.log_start_offset > at:
                return None
            batch = fetched.batches[0]
            if batch.header.producer_id == self._writer_id:
                return batch
            at = batch.header.base_offset - 1
        return None


def _answers(
    found: Mapping[TopicPartition, A | KafkaError], refused: dict[TopicPartition, Tail | KafkaError]
) -> dict[TopicPartition, A]:
    """Those that were answered; the others go to `refused`."""
    answered: dict[TopicPartition, A] = {}
    for partition, answer in found.items():
        if isinstance(answer, KafkaError):
            refused[partition] = answer
        else:
            answered[partition] = answer
    return answered
