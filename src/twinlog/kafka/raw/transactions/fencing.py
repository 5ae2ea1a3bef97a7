"""Fencing: initialise transactional ids so that their former holders can never commit again."""

import asyncio
from collections.abc import Collection

from twinlog.errors import KafkaError
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw.transactions.coordinator import TransactionCoordinator
from twinlog.kafka.raw.transactions.wire import ProducerIdentity

_AT_ONCE = 16


async def fence(
    session: DataClientPool,
    transactional_ids: Collection[str],
    *,
    timeout_seconds: float,
    transaction_timeout_seconds: float,
) -> dict[str, ProducerIdentity | KafkaError]:
    """InitProducerId for every id, without keeping a producer. The result has one entry per id: its new
    identity, or the error.

    An id with an identity is safe: its earlier holders are fenced, and its coordinator has committed or
    aborted what they left open; partitions without a leader may have been left out (`open_transactions`).
    Takes at most `timeout_seconds` per id, 16 ids at a time. `transaction_timeout_seconds` is that of the
    producers with these ids: brokers refuse one above their transaction.max.timeout.ms.
    """
    outcome: dict[str, ProducerIdentity | KafkaError] = {}
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(transactional_id: str) -> None:
        coordinator = TransactionCoordinator(
            session, transactional_id, transaction_timeout_seconds=transaction_timeout_seconds
        )
        async with places:
            try:
                outcome[transactional_id] = await coordinator.new_identity(timeout_seconds=timeout_seconds)
            except KafkaError as error:
                outcome[transactional_id] = error

    async with asyncio.TaskGroup() as group:
        for transactional_id in transactional_ids:
            group.create_task(one(transactional_id), name=f"fence {transactional_id}")
    return outcome
