"""Appends single records: idempotent, acks=all, with a deadline, and without later surprises.

aiokafka's idempotent producer retries for ever while a broker is down, and a refused batch leaves a gap in
its sequence numbers, because of which all later ones are refused. So a producer that failed in one of these
ways is discarded: after a time-out or a cancelled call at once, so that nothing that was given up is written
later; after a refused record as soon as its other records are done. The next append opens a new one, with the
same id where that can be.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import aiokafka.errors
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaTopicPartition

from twinlog.errors import KafkaError, StateError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS, OFFSET_UNKNOWN, from_code, from_reason, translate
from twinlog.kafka.ports import Introduce, ManagedWriter
from twinlog.kafka.protocol.connection import DataClient, request_timeout_ms
from twinlog.kafka.raw.transactions.wire import LAST_EPOCH
from twinlog.model import Headers, TopicPartition

# Creates and ends aiokafka producers, also while brokers hang.

_CLOSE_SECONDS = 1.0


def new_producer(options: Mapping[str, Any]) -> AIOKafkaProducer:
    """A producer, not started, whose client bootstraps like `DataClient`.

    `options` are those of `aiokafka_producer_options`, plus `transactional_id` for a transactional one. End
    it with `close_producer` or `abandon_producer`, also when its start failed.
    """
    producer = AIOKafkaProducer(**options)
    # The library creates its own client; this class only adds methods, so it can replace that class.
    producer.client.__class__ = _ProducerClient
    return producer


class _ProducerClient(DataClient):
    _forgets_unknown_topics = False  # The library names a topic once, and waits for it.
    _last_topics: Collection[str] | None = None
    _ask_again_at = 0.0

    async def _metadata_update(self, cluster_metadata: Any, topics: Collection[str] | None) -> bool:
        """Asks about the same topics again after a pause only: the library makes none while a partition has
        no leader, or no broker gives it a producer id."""
        if topics == self._last_topics:
            await pause(self._ask_again_at - self._loop.time())
        self._last_topics = topics
        try:
            return await super()._metadata_update(cluster_metadata, topics)
        finally:
            self._ask_again_at = self._loop.time() + self._retry_backoff

    async def bootstrap(self) -> None:
        """Also connects to a broker: the library asks a single one for the producer's id."""
        await super().bootstrap()
        await self.reachable_node()


async def close_producer(producer: AIOKafkaProducer) -> None:
    """Close a producer within about a second. Records in flight get that time; then unacknowledged ones fail
    with ProducerClosed. An open transaction is not ended."""
    if producer._closed:
        return
    with contextlib.suppress(TimeoutError, *KAFKA_CLIENT_ERRORS):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await producer.stop()
    abandon_producer(producer)


def abandon_producer(producer: AIOKafkaProducer) -> None:
    """End a producer at once: nothing that it still has is sent, and waiting sends fail with ProducerClosed.
    Returns at once; its last task ends by itself within a retry back-off."""
    producer._closed = True
    producer.client.abandon()
    accumulator = producer._message_accumulator
    accumulator._closed = True
    sender = producer._sender.sender_task
    if sender is None or sender.done():
        _fail_waiting(producer)
    else:
        # Not before its end: it would put batches back that are failed already.
        sender.add_done_callback(lambda _: _fail_waiting(producer))
        sender.cancel()


def _fail_waiting(producer: AIOKafkaProducer) -> None:
    accumulator = producer._message_accumulator
    batches = [batch for queue in accumulator._batches.values() for batch in queue]
    # A batch removes itself from this set when it ends; a batch that waits for a retry is not in the set.
    accumulator._pending_batches.update(batch for batch in batches if batch.retry_count)
    accumulator.fail_all(aiokafka.errors.ProducerClosed())
    for batch in batches:
        if batch._drain_waiter.done():
            # Retrieve it, or asyncio reports an exception that was never retrieved.
            batch._drain_waiter.exception()


_NEW_PRODUCER_HELPS = frozenset({"PRODUCER_STATE_LOST", "PRODUCER_FENCED"})
"""Refusals of a producer's id or sequence, which a new producer does not have."""


def system_ms() -> int:
    """The wall clock of this machine, in milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True, eq=False)
class _Generation:
    """One producer from its start to its end."""

    producer: AIOKafkaProducer
    in_flight: int = 0
    retired: bool = False
    is_introduced: bool = False
    is_refused: bool = False
    """Brokers take nothing more from its id."""
    turns: defaultdict[TopicPartition, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )
    """Records of a partition enter the producer in call order, also while one waits for metadata."""

    def follow(self, before: "_Generation | None") -> None:
        """Go on with the id of the one before in its next epoch (KIP-360), so that brokers refuse what is
        still under way of it. Not while that one has records to send, and only before the start."""
        if before is None or before.is_refused or (before.in_flight and not before.producer._closed):
            return
        identity = before.producer._txn_manager._pid_and_epoch
        if identity.pid >= 0 and identity.epoch < LAST_EPOCH:
            self.producer._txn_manager.set_pid_and_epoch(identity.pid, identity.epoch + 1)
            self.is_introduced = before.is_introduced


@dataclass(slots=True, eq=False, repr=False)
class KafkaLogWriter:
    """Implements `LogWriter` with aiokafka's producer. Several tasks of one event loop may share it; their
    records share batches."""

    alias: str
    options: Mapping[str, Any]
    """Those of `aiokafka_producer_options`."""
    _: KW_ONLY
    timeout_seconds: float
    now_ms: Callable[[], int] = system_ms
    """Gives records their time."""
    introduce: Introduce | None = None
    _generation: _Generation | None = None
    _last: _Generation | None = None
    """The present one, or the one before."""
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _closed: bool = False

    async def __aenter__(self) -> ManagedWriter:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close; unacknowledged records fail with CLIENT_CLOSED, and may or may not be in the log."""
        self._closed = True
        generation, self._generation = self._generation, None
        if generation is not None:
            await close_producer(generation.producer)

    async def append(
        self,
        partition: TopicPartition,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> int:
        """Append one record; see `LogWriter.append`.

        Raises FatalKafkaError (RECORD_TOO_LARGE, TIMESTAMP_REFUSED, TOPIC_UNKNOWN, TOPIC_UNAUTHORIZED, or
        RECORD_INVALID for a header name that is not UTF-8) or TransientKafkaError. After a transient error
        the record may be in the log, so appending it again may duplicate it.
        """
        if self._closed:
            raise StateError("the writer is closed", reason="CLIENT_CLOSED")
        doing = f"append to {partition}"
        self._check_names(headers, doing)
        time_ms = self.now_ms() if timestamp_ms is None else timestamp_ms
        fields = {"key": key, "value": value, "timestamp_ms": time_ms, "headers": list(headers)}
        generation: _Generation | None = None
        try:
            async with deadline(self.timeout_seconds, doing, alias=self.alias):
                generation = await self._opened(doing)
                return await self._append(generation, partition, fields, doing)
        except (TransientKafkaError, asyncio.CancelledError):
            if generation is not None:
                self._retire(generation)
                abandon_producer(generation.producer)
            raise

    async def _opened(self, doing: str) -> _Generation:
        async with self._opening:
            if self._generation is None:
                longest_ms = request_timeout_ms(self.timeout_seconds)
                producer = new_producer({"request_timeout_ms": longest_ms, **self.options})
                generation = _Generation(producer)
                generation.follow(self._last)
                try:
                    await producer.start()
                    self._last = generation
                    await self._introduced(generation, doing)
                    self._generation = generation
                except KAFKA_CLIENT_ERRORS as error:
                    raise translate(error, doing, alias=self.alias) from error
                finally:
                    if self._generation is None:
                        abandon_producer(producer)
            return self._generation

    async def _introduced(self, generation: _Generation, doing: str) -> None:
        if self.introduce is None or generation.is_introduced:
            return
        partition, key, value = self.introduce(generation.producer._txn_manager.producer_id)
        fields: dict[str, Any] = {"key": key, "value": value, "timestamp_ms": self.now_ms(), "headers": []}
        await self._append(generation, partition, fields, doing)
        generation.is_introduced = True

    async def _append(
        self, generation: _Generation, partition: TopicPartition, fields: Mapping[str, Any], doing: str
    ) -> int:
        generation.in_flight += 1
        try:
            async with generation.turns[partition]:
                # The producer itself would wait without end for an unknown topic, or fail an assertion.
                await generation.producer.client.leader(partition, doing, alias=self.alias)
                sent = await self._enqueue(generation.producer, partition, fields, doing)
            return await self._acknowledged(generation, sent, doing)
        finally:
            generation.in_flight -= 1
            if generation.retired and not generation.in_flight:
                await close_producer(generation.producer)

    async def _enqueue(
        self, producer: AIOKafkaProducer, partition: TopicPartition, fields: Mapping[str, Any], doing: str
    ) -> "asyncio.Future[Any]":
        try:
            # What producer.send does once it knows the partition, but also for records whose fields are all
            # null.
            producer._serialize(fields["key"], fields["value"], fields["headers"])
            future: asyncio.Future[Any] = await producer._message_accumulator.add_message(
                AiokafkaTopicPartition(partition.topic, partition.partition),
                timeout=self.timeout_seconds,
                **fields,
            )
        except KAFKA_CLIENT_ERRORS as error:
            raise translate(error, doing, alias=self.alias) from error
        return future

    async def _acknowledged(self, generation: _Generation, sent: "asyncio.Future[Any]", doing: str) -> int:
        try:
            offset = int((await sent).offset)
        except KAFKA_CLIENT_ERRORS as error:
            failure = translate(error, doing, alias=self.alias)
            self._retire(generation)
            if failure.reason in _NEW_PRODUCER_HELPS:
                generation.is_refused = True
                failure = _transient(failure)
            raise failure from error
        if offset < 0:
            raise from_reason(OFFSET_UNKNOWN, doing, alias=self.alias)
        return offset

    def _retire(self, generation: _Generation) -> None:
        generation.retired = True
        if self._generation is generation:
            self._generation = None

    def _check_names(self, headers: Headers, doing: str) -> None:
        for name, _ in headers:
            try:
                name.encode()
            except UnicodeEncodeError as error:
                detail = "a header name is not UTF-8"
                raise from_code(ErrorCode.invalid_record, doing, alias=self.alias, detail=detail) from error


def _transient(failure: KafkaError) -> TransientKafkaError:
    return TransientKafkaError(
        str(failure), reason=failure.reason, metadata=failure.metadata, code=failure.code
    )
