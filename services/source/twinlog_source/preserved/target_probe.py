"""The driver's questions to the target about preserved copies: which producer may write them, and which one
did."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol, TypeVar

from twinlog.batches.header import BatchHeader
from twinlog.batches.visibility import Visibility, classify
from twinlog.errors import KafkaError
from twinlog.kafka.raw import BatchReader, DataClientPool, TransactionCoordinator
from twinlog.kafka.raw.lookups import producer_states
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog_source.log.facts import WriterFact
from twinlog_source.preserved.own_batches import is_filler

LOOKS_AT_ONCE = 64
"""How many logs are read at the same time."""
LOOKS_AHEAD, LOOK_BYTES = 128, 128 << 10
"""How far a log is searched from its beginning."""


T = TypeVar("T")


class TargetProbe(Protocol):
    """All methods raise KafkaError when no broker can be reached."""

    async def new_writer(self) -> WriterFact:
        """A new producer identity. Raises KafkaError when the target gives none."""
        ...

    async def producers(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Collection[int] | KafkaError]:
        """The ids of the producers that each leader remembers, or the error."""
        ...

    async def last_producers(
        self, ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        """The producer id of the last records before an offset that were not aborted, -1 for a producer that
        is not idempotent; None if there are none."""
        ...

    async def may_have_committed(
        self, producers: Collection[int], ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, bool | KafkaError]:
        """Whether these producers have records before an offset that were not aborted; also where that does
        not show: behind an open transaction or much that others wrote, or where the log was cut."""
        ...


class KafkaTargetProbe:
    """Asks the leaders of the target."""

    def __init__(
        self, session: DataClientPool, *, timeout_seconds: float, transaction_timeout_seconds: float
    ) -> None:
        self._session = session
        self._timeout_seconds = timeout_seconds
        self._reader = BatchReader(session, read_committed=False)
        self._committed = BatchReader(session, read_committed=True)
        self._coordinator = TransactionCoordinator(
            session, None, transaction_timeout_seconds=transaction_timeout_seconds
        )

    async def new_writer(self) -> WriterFact:
        identity = await self._coordinator.new_identity(timeout_seconds=self._timeout_seconds)
        return WriterFact(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)

    async def producers(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Collection[int] | KafkaError]:
        return await producer_states(self._session, partitions, timeout_seconds=self._timeout_seconds)

    async def last_producers(
        self, ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        async def look(partition: TopicPartition) -> int | None:
            last = await self._last_record_batch(partition, ends[partition])
            return None if last is None else last.producer_id

        return await _of_each(ends, look)

    async def may_have_committed(
        self, producers: Collection[int], ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, bool | KafkaError]:
        async def look(partition: TopicPartition) -> bool:
            try:
                return await self._may_have_committed(producers, partition, ends[partition])
            except KafkaError as error:
                if error.reason == KafkaReason.OFFSET_OUT_OF_RANGE:
                    return True
                raise

        return await _of_each(ends, look)

    async def _may_have_committed(
        self, producers: Collection[int], partition: TopicPartition, end: int
    ) -> bool:
        offset = 0
        for _ in range(LOOKS_AHEAD):
            fetched = await self._committed.fetch(partition, offset, max_bytes=LOOK_BYTES)
            for batch, how in classify(fetched.batches, fetched.aborted):
                if how is Visibility.VISIBLE and batch.header.producer_id in producers:
                    return True
            behind = fetched.next_offset(offset)
            if behind >= end or behind == offset:
                return behind == offset
            offset = behind
        return True

    async def _last_record_batch(self, partition: TopicPartition, end: int) -> BatchHeader | None:
        for _ in range(LOOKS_BACK):
            header = await record_batch_at(self._reader, partition, end - 1)
            if header is None or not header.is_transactional:
                return header
            if (began := await self._aborted_from(partition, header)) is None:
                return header
            end = began
        return None

    async def _aborted_from(self, partition: TopicPartition, header: BatchHeader) -> int | None:
        """Where the transaction of a batch began, which may have many, if it was aborted."""
        fetched = await self._committed.fetch(partition, header.base_offset, max_bytes=1)
        if not any(how is Visibility.ABORTED for _, how in classify(fetched.batches[:1], fetched.aborted)):
            return None
        begun = (each.first_offset for each in fetched.aborted if each.producer_id == header.producer_id)
        return max(offset for offset in begun if offset <= header.base_offset)


async def _of_each(
    partitions: Collection[TopicPartition], look: Callable[[TopicPartition], Awaitable[T]]
) -> dict[TopicPartition, T | KafkaError]:
    found: dict[TopicPartition, T | KafkaError] = {}
    at_once = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def look_at(partition: TopicPartition) -> None:
        async with at_once:
            try:
                found[partition] = await look(partition)
            except KafkaError as error:
                found[partition] = error

    async with asyncio.TaskGroup() as group:
        for partition in partitions:
            group.create_task(look_at(partition), name=f"look at the records of {partition}")
    return found


LOOKS_BACK = 32
"""How many batches, or aborted transactions, before an offset are searched for the writer's last batch: only
filler batches lie between its batches."""


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
