"""Reader and writer of a fake cluster."""

import asyncio

from twinlog.errors import KafkaError, StateError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import FetchedRecords, Introduce, ManagedReader, ManagedWriter
from twinlog.model import Headers, Record, TimestampType, TopicPartition
from twinlog.testing.fakes.cluster_base import FakeClusterBase, Hooks, operation
from twinlog.testing.fakes.cluster_state import FakeTopic

_BATCH_OVERHEAD_BYTES = 70


class FakeReader:
    """`LogReader` on a fake cluster."""

    def __init__(self, cluster: FakeClusterBase, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._read_committed = read_committed
        self._closed = False

    @property
    def hooks(self) -> Hooks:
        return self._cluster.hooks

    async def __aenter__(self) -> ManagedReader:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closed = True

    @operation
    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_seconds: float, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        if self._closed:
            raise StateError("the reader is closed", reason="CLIENT_CLOSED")
        doing = f"read {partition} at {offset}"
        loop = asyncio.get_running_loop()
        wait_until = loop.time() + max_wait_seconds
        while True:
            changed = self._cluster.next_change()
            log = self._cluster.log(partition, doing)
            if not log.start <= offset <= log.end:
                raise from_code(ErrorCode.offset_out_of_range, doing, alias=self._cluster.alias)
            read = log.read(offset, read_committed=self._read_committed, max_bytes=max_bytes)
            left_seconds = wait_until - loop.time()
            if read.next_offset > offset or left_seconds <= 0:
                return read
            await asyncio.wait([changed], timeout=left_seconds)
            self.hooks.check_available("fetch")


class FakeWriter:
    """`LogWriter` on a fake cluster."""

    def __init__(self, cluster: FakeClusterBase, introduce: Introduce | None = None) -> None:
        self._cluster = cluster
        self._introduce = introduce
        self._producer_id = cluster.new_producer_id()
        self._closed = False

    @property
    def hooks(self) -> Hooks:
        return self._cluster.hooks

    async def __aenter__(self) -> ManagedWriter:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closed = True

    @operation
    async def append(
        self,
        partition: TopicPartition,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> int:
        if self._closed:
            raise StateError("the writer is closed", reason="CLIENT_CLOSED")
        introduce, self._introduce = self._introduce, None
        if introduce is not None:
            first, first_key, first_value = introduce(self._producer_id)
            try:
                await self.append(first, key=first_key, value=first_value)
            except BaseException:
                self._introduce = introduce
                raise
        doing = f"append to {partition}"
        cluster = self._cluster
        log = cluster.log(partition, doing)
        topic = cluster.topics[partition.topic]
        now_ms = cluster.clock.now_ms()
        record = _stamped(topic, key, value, timestamp_ms, headers, now_ms, self._producer_id)
        problem = _problem(topic, record, now_ms, doing, cluster.alias)
        if problem is not None:
            raise problem
        offset = log.append(record)
        cluster.changed()
        return offset


def _stamped(
    topic: FakeTopic,
    key: bytes | None,
    value: bytes | None,
    timestamp_ms: int | None,
    headers: Headers,
    now_ms: int,
    producer_id: int,
) -> Record:
    kind = TimestampType(topic.config("message.timestamp.type"))
    if timestamp_ms is None or kind is TimestampType.LOG_APPEND_TIME:
        timestamp_ms = now_ms
    return Record(
        offset=-1,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        headers=headers,
        timestamp_type=kind,
        producer_id=producer_id,
    )


def _problem(topic: FakeTopic, record: Record, now_ms: int, doing: str, alias: str) -> KafkaError | None:
    """Why a broker would refuse the record."""
    size_bytes = _BATCH_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    if size_bytes > int(topic.config("max.message.bytes")):
        return from_code(ErrorCode.message_too_large, doing, alias=alias)
    if record.key is None and "compact" in topic.config("cleanup.policy"):
        return from_code(ErrorCode.invalid_record, doing, alias=alias)
    if record.timestamp_ms > now_ms + int(topic.config("message.timestamp.after.max.ms")):
        return from_code(ErrorCode.invalid_timestamp, doing, alias=alias)
    for name, _ in record.headers:
        try:
            name.encode()
        except UnicodeEncodeError:
            return from_code(
                ErrorCode.invalid_record, doing, alias=alias, detail="a header name is not UTF-8"
            )
    return None
