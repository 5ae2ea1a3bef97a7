"""Reading partitions at offsets the caller names: no group, no memory, no position that moves by itself."""

import asyncio
from dataclasses import dataclass
from typing import Any

from aiokafka.protocol.fetch import FetchRequest

from twinlog.batches.bodies import decode_record
from twinlog.batches.header import iter_batches
from twinlog.batches.records import open_records
from twinlog.batches.visibility import AbortedTransaction, Visibility, classify
from twinlog.errors import FatalKafkaError, StateError, WireFormatError
from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.connection import DataSession
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import KAFKA_REASONS, from_code
from twinlog.kafka.ports import FetchedRecords, ManagedReader
from twinlog.model import Record, TimestampType, TopicPartition

_OLDEST_FETCH_VERSION = 5
"""The first with a log start offset: Kafka 1.0."""
_UNKNOWN_TOPIC = 3
_UNSUPPORTED_VERSION = 35
_READ_COMMITTED, _READ_UNCOMMITTED = 1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """One partition of a fetch response, bytes still closed."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...]
    data: bytes


class KafkaLogReader:
    """`LogReader` over an aiokafka connection. May be used by several tasks of one event loop.

    Header names that are not UTF-8 come with surrogate escapes: `name.encode("utf-8", "surrogateescape")`
    gives their bytes back.
    """

    def __init__(
        self, session: DataSession, options: FetchOptions, *, read_committed: bool, timeout_seconds: float
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

        Returns at once when it can advance, also without records (only markers or aborted data lay there).
        Returns or raises within `max_wait_seconds` and the client's time-out.
        """
        if self._closed:
            raise StateError("the reader is closed", reason="CLIENT_CLOSED")
        doing = f"read {partition} at {offset}"
        loop = asyncio.get_running_loop()
        async with deadline(max_wait_seconds + self._timeout_seconds, doing, alias=self._session.alias):
            wait_until = loop.time() + max_wait_seconds
            retry_until = loop.time() + self._timeout_seconds / 2
            while True:
                # Half of what a request may take, or the broker's answer would come too late.
                wait_seconds = min(max(wait_until - loop.time(), 0.0), self._timeout_seconds / 4)
                fetched = await self._fetch_once(partition, offset, wait_seconds, max_bytes, doing)
                if fetched.error_code == 0:
                    read = self._open(fetched, offset, doing)
                    if read.next_offset > offset or loop.time() >= wait_until:
                        return read
                    retry_until = loop.time() + self._timeout_seconds / 2
                elif not _may_move(fetched.error_code) or loop.time() >= retry_until:
                    raise from_code(fetched.error_code, doing, alias=self._session.alias)
                else:
                    await self._session.forget_leader(doing)

    async def _fetch_once(
        self, partition: TopicPartition, offset: int, wait_seconds: float, max_bytes: int, doing: str
    ) -> FetchedPartition:
        leader = await self._session.leader(partition, doing)
        request = FetchRequest(
            int(wait_seconds * 1000),
            self._options.min_bytes,
            max_bytes,
            _READ_COMMITTED if self._read_committed else _READ_UNCOMMITTED,
            [(partition.topic, [(partition.partition, offset, max_bytes)])],
        )
        response = await self._session.send(leader, request, doing)
        return _fetched_partition(response)

    def _open(self, fetched: FetchedPartition, offset: int, doing: str) -> FetchedRecords:
        try:
            records, next_offset = read_records(
                fetched,
                offset,
                read_committed=self._read_committed,
                check_crcs=self._options.check_crcs,
            )
        except WireFormatError as error:
            raise FatalKafkaError(
                f"cluster {self._session.alias}: {doing}: {error}",
                reason=error.reason,
                metadata={"cluster": self._session.alias, **error.metadata},
            ) from error
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
    """The visible records from `offset` on and where reading goes on. Raises WireFormatError on damage."""
    records: list[Record] = []
    next_offset = offset
    batches = iter_batches(fetched.data)
    for batch, visibility in classify(batches, fetched.aborted, read_committed=read_committed):
        if visibility is Visibility.VISIBLE:
            kind = (
                TimestampType.LOG_APPEND_TIME
                if batch.header.is_log_append_time
                else TimestampType.CREATE_TIME
            )
            records += (
                _record(body, kind) for body in open_records(batch, check_crc=check_crcs) if body[0] >= offset
            )
        next_offset = max(next_offset, batch.header.next_offset)
    return records, next_offset


def _record(body: tuple[int, int, bytes], timestamp_type: TimestampType) -> Record:
    decoded = decode_record(body)
    return Record(
        offset=decoded.offset,
        timestamp_ms=decoded.timestamp_ms,
        key=decoded.key,
        value=decoded.value,
        headers=tuple((name.decode("utf-8", "surrogateescape"), value) for name, value in decoded.headers),
        timestamp_type=timestamp_type,
    )


def _may_move(code: int) -> bool:
    """Whether asking again, maybe another broker, can help."""
    return code == _UNKNOWN_TOPIC or (code in KAFKA_REASONS and KAFKA_REASONS[code].retriable)


def _fetched_partition(response: Any) -> FetchedPartition:
    """Take the one partition out of a FetchResponse of version 5 to 11."""
    if response.API_VERSION < _OLDEST_FETCH_VERSION:
        return _without_data(_UNSUPPORTED_VERSION)
    if getattr(response, "error_code", 0):
        return _without_data(response.error_code)
    ((_, ((_, code, high_watermark, last_stable_offset, log_start_offset, aborted, *_, data),)),) = (
        response.topics
    )
    return FetchedPartition(
        error_code=code,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted=tuple(AbortedTransaction(producer_id, first) for producer_id, first in aborted or ()),
        data=bytes(data or b""),
    )


def _without_data(code: int) -> FetchedPartition:
    return FetchedPartition(
        error_code=code, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1, aborted=(), data=b""
    )
