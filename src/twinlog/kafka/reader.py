"""Reads partitions at the caller's offsets: no group, no state, no position that moves by itself.

Where partitions begin and end.
"""

import asyncio
from collections.abc import Collection, Mapping

from twinlog.batches.bodies import decode_record
from twinlog.batches.header import iter_following
from twinlog.batches.records import open_records
from twinlog.batches.visibility import Visibility, classify
from twinlog.errors import KafkaError, StateError, WireFormatError
from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.deadline import deadline
from twinlog.kafka.ports import EpochEnd, FetchedRecords, LogEnd, ManagedReader, OffsetSpec
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw.fetch.reader import fetch_from_leader
from twinlog.kafka.raw.fetch.wire import FetchedPartition
from twinlog.kafka.raw.leaders import damaged
from twinlog.kafka.raw.lookups import (
    delete_records,
    epoch_ends,
    list_offsets,
    log_ends,
    look_up_offsets,
)
from twinlog.model import Record, TimestampType, TopicPartition


class KafkaLogReader:
    """Implements `LogReader` with an aiokafka connection. Several tasks of one event loop may share it.

    Header names that are not UTF-8 have surrogate escapes: `name.encode("utf-8", "surrogateescape")` returns
    their bytes.
    """

    def __init__(
        self, session: DataClientPool, options: FetchOptions, *, read_committed: bool, timeout_seconds: float
    ) -> None:
        self._session = session
        self._options = options
        self._read_committed = read_committed
        self._timeout_seconds = timeout_seconds
        self._closed = False

    async def __aenter__(self) -> ManagedReader:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closed = True
        await self._session.close()

    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_seconds: float, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        """Records from `offset` on; see `LogReader.fetch`.

        Returns at once when it can advance, also without records (only markers or aborted data). Returns or
        raises within `max_wait_seconds` plus the client's time-out; a broker that throttles its client
        (KIP-219) gets up to a minute more.
        """
        if self._closed:
            raise StateError("the reader is closed", reason="CLIENT_CLOSED")
        doing = f"read {partition} at {offset}"
        loop = asyncio.get_running_loop()
        alias = self._session.alias
        async with deadline(max_wait_seconds + self._timeout_seconds, doing, alias=alias) as limit:
            wait_until = loop.time() + max_wait_seconds
            while True:
                # Half of a request's time-out, or the broker's answer would come too late.
                wait_seconds = min(max(wait_until - loop.time(), 0.0), self._timeout_seconds / 4)
                fetched = await fetch_from_leader(
                    self._session,
                    partition,
                    offset,
                    max_wait_seconds=wait_seconds,
                    min_bytes=self._options.min_bytes,
                    max_bytes=max_bytes,
                    read_committed=self._read_committed,
                    doing=doing,
                    limits=(limit,),
                )
                read = self._open(fetched, offset, doing)
                if read.next_offset > offset or loop.time() >= wait_until:
                    return read

    def _open(self, fetched: FetchedPartition, offset: int, doing: str) -> FetchedRecords:
        try:
            records, next_offset = read_records(
                fetched,
                offset,
                read_committed=self._read_committed,
                check_crcs=self._options.check_crcs,
            )
        except WireFormatError as error:
            raise damaged(error, doing, alias=self._session.alias) from error
        end = fetched.last_stable_offset if self._read_committed else fetched.high_watermark
        return FetchedRecords(
            records=records,
            next_offset=next_offset,
            log_start_offset=fetched.log_start_offset,
            high_watermark=end,
        )


def read_records(
    fetched: FetchedPartition, offset: int, *, read_committed: bool, check_crcs: bool
) -> tuple[list[Record], int]:
    """The visible records from `offset` on, and where reading continues. Raises WireFormatError on damage."""
    records: list[Record] = []
    next_offset = offset
    batches = iter_following(bytes(fetched.records), offset, fetched.high_watermark)
    for batch, visibility in classify(batches, fetched.aborted, read_committed=read_committed):
        if visibility is Visibility.VISIBLE:
            kind = (
                TimestampType.LOG_APPEND_TIME
                if batch.header.is_log_append_time
                else TimestampType.CREATE_TIME
            )
            records += (
                _record(body, kind, batch.header.producer_id)
                for body in open_records(batch, check_crc=check_crcs)
                if body[0] >= offset
            )
        next_offset = max(next_offset, batch.header.next_offset)
    return records, next_offset


def _record(body: tuple[int, int, bytes], timestamp_type: TimestampType, producer_id: int) -> Record:
    decoded = decode_record(body)
    return Record(
        offset=decoded.offset,
        timestamp_ms=decoded.timestamp_ms,
        key=decoded.key,
        value=decoded.value,
        headers=tuple((name.decode("utf-8", "surrogateescape"), value) for name, value in decoded.headers),
        timestamp_type=timestamp_type,
        producer_id=producer_id,
    )


class LogAdminMixin:
    """Implements `LogAdmin` with requests of our own."""

    _wire: DataClientPool

    async def list_offsets(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        return await list_offsets(self._wire, spec, partitions)

    async def log_ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, LogEnd | KafkaError]:
        return await log_ends(self._wire, partitions, timeout_seconds=self._wire.timeout_seconds)

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, EpochEnd | KafkaError]:
        return await epoch_ends(self._wire, epochs, timeout_seconds=self._wire.timeout_seconds)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        answers = await look_up_offsets(
            self._wire, timestamps_ms, read_committed=False, doing="look up offsets by time"
        )
        return {
            partition: None if isinstance(answer, int) and answer < 0 else answer
            for partition, answer in answers.items()
        }

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        answers = await delete_records(self._wire, before, timeout_seconds=self._wire.timeout_seconds)
        return {
            partition: answer if isinstance(answer, KafkaError) else None
            for partition, answer in answers.items()
        }
