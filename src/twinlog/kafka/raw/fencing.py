"""Fencing: take transactional ids over so that whoever held them can never commit again."""

import asyncio
from collections.abc import Collection

from twinlog.errors import KafkaError
from twinlog.kafka.connection import DataSession
from twinlog.kafka.raw.coordinator import TransactionCoordinator

_AT_ONCE = 16


async def fence(
    session: DataSession,
    transactional_ids: Collection[str],
    *,
    timeout_seconds: float,
    transaction_timeout_seconds: float = 60.0,
) -> dict[str, KafkaError | None]:
    """InitProducerId for every id, without keeping a producer. One entry per id: None, or why it failed.

    An id with None is safe: its earlier transactions are committed or aborted everywhere and its earlier
    holders are fenced, so positions may be read. Takes at most `timeout_seconds` per id, 16 ids at a time.
    """
    outcome: dict[str, KafkaError | None] = {}
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(transactional_id: str) -> None:
        coordinator = TransactionCoordinator(
            session, transactional_id, transaction_timeout_seconds=transaction_timeout_seconds
        )
        async with places:
            try:
                await coordinator.new_identity(timeout_seconds=timeout_seconds)
                outcome[transactional_id] = None
            except KafkaError as error:
                outcome[transactional_id] = error

    async with asyncio.TaskGroup() as group:
        for transactional_id in transactional_ids:
            group.create_task(one(transactional_id), name=f"fence {transactional_id}")
    return outcome
