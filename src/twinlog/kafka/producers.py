"""Creates and ends aiokafka producers, also while brokers hang."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import Any

import aiokafka.errors
from aiokafka import AIOKafkaProducer

from twinlog.kafka.deadline import pause
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS
from twinlog.kafka.protocol.connection import DataClient

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
