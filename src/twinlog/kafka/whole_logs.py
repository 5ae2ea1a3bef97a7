"""Reads a log up to an end that was told before: for as long as there is progress, and never for ever.

A log may show less than it was seen to have: a new leader learns only after a while what all replicas have,
an unclean election loses records, and an open transaction hides what lies behind it from readers of committed
records. All of them look alike here: the reader stands still before the end. That is a transient error.
"""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, replace

from twinlog.errors import KafkaError, TransientKafkaError, required
from twinlog.kafka.ports import FetchedRecords, LogAdmin, LogReader, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Record, TopicPartition

PATIENCE_SECONDS = 10.0
"""How long a reader may stand still."""
FETCH_WAIT_SECONDS = 0.5
FETCH_BYTES = 1 << 20


class StandsStillError(TransientKafkaError):
    """The reader does not reach an end that the log was seen to have."""


async def log_bounds(admin: LogAdmin, partition: TopicPartition, end: OffsetSpec) -> tuple[int, int]:
    """First offset and end of a log. Raises KafkaError."""
    start = required((await admin.list_offsets(OffsetSpec.EARLIEST, [partition]))[partition])
    return start, required((await admin.list_offsets(end, [partition]))[partition])


async def known_offsets(
    admin: LogAdmin, spec: OffsetSpec, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Raises the KafkaError of any of them."""
    found = await admin.list_offsets(spec, partitions) if partitions else {}
    return {partition: required(answer) for partition, answer in found.items()}


async def committed_records(
    admin: LogAdmin, reader: LogReader, partition: TopicPartition
) -> AsyncIterator[Record]:
    """The records of a log up to its present last stable offset, oldest first. Raises as `log_bounds` and
    `read_to`."""
    start, end = await log_bounds(admin, partition, OffsetSpec.LAST_STABLE)
    async for record in records_to(reader, partition, start, end):
        yield record


async def records_to(
    reader: LogReader,
    partition: TopicPartition,
    offset: int,
    end: int,
    *,
    max_bytes: int = FETCH_BYTES,
    patience_seconds: float = PATIENCE_SECONDS,
) -> AsyncIterator[Record]:
    """The records from `offset` to before `end`. Raises as `read_to`."""
    async for fetched in read_to(
        reader, partition, offset, end, max_bytes=max_bytes, patience_seconds=patience_seconds
    ):
        for record in fetched.records:
            if offset <= record.offset < end:
                yield record


async def read_to(
    reader: LogReader,
    partition: TopicPartition,
    offset: int,
    end: int,
    *,
    max_bytes: int = FETCH_BYTES,
    patience_seconds: float = PATIENCE_SECONDS,
) -> AsyncIterator[FetchedRecords]:
    """Fetch until `end`, which the log was seen to reach; the last fetch may bring more.

    Raises StandsStillError when the reader stands still for `patience_seconds`, and TransientKafkaError
    (OFFSET_OUT_OF_RANGE) when the log does not have the offset any more, or not yet again. Raises KafkaError
    as `LogReader.fetch` otherwise.
    """
    progress = Progress(partition=partition, end=end, patience_seconds=patience_seconds)
    while offset < end:
        try:
            fetched = await reader.fetch(
                partition, offset, max_wait_seconds=FETCH_WAIT_SECONDS, max_bytes=max_bytes
            )
        except KafkaError as error:
            if error.reason != KafkaReason.OFFSET_OUT_OF_RANGE:
                raise
            raise TransientKafkaError(
                _shows_less(partition, offset, end), reason=error.reason, metadata={"topic": partition.topic}
            ) from error
        fetched = progress.of(fetched, offset, waited_seconds=FETCH_WAIT_SECONDS)
        yield fetched
        offset = fetched.next_offset


@dataclass(slots=True, kw_only=True)
class Progress:
    """Watches a reader come closer to an end that the log was seen to reach."""

    partition: TopicPartition
    end: int
    patience_seconds: float = PATIENCE_SECONDS
    _stands_still_seconds: float = 0.0

    def of(self, fetched: FetchedRecords, offset: int, *, waited_seconds: float) -> FetchedRecords:
        """What was fetched at `offset`, in a fetch that waited for records this long.

        Raises StandsStillError when the reader has stood still for too long. If nothing follows because
        compaction has removed the last records of the log, the end is reached then.
        """
        if fetched.next_offset > offset or offset >= self.end:
            self._stands_still_seconds = 0.0
            return fetched
        self._stands_still_seconds += waited_seconds
        if self._stands_still_seconds < self.patience_seconds:
            return fetched
        if fetched.high_watermark < self.end:
            raise StandsStillError(
                _shows_less(self.partition, offset, self.end), metadata={"topic": self.partition.topic}
            )
        return replace(fetched, next_offset=self.end)


def _shows_less(partition: TopicPartition, offset: int, end: int) -> str:
    return (
        f"{partition} returned no records from offset {offset} on, although it ends at {end}: its replicas"
        " are not in sync, or a transaction is open there"
    )
