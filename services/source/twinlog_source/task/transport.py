"""The two ways to write: with transactions (exactly once), or acknowledged before positions (at least
once)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Protocol, Self

from twinlog.batches import OutgoingBatch
from twinlog.errors import KafkaError
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer, TransactionRotation
from twinlog.model import TopicPartition

Positions = Mapping[TopicPartition, OutgoingBatch]
"""One batch of position records for each partition of the positions topic."""


class Transport(Protocol):
    """One round of writing after the other: begin, send, commit. After a failure: take a new one."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    def begin(self) -> None: ...

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]: ...

    async def commit(self, positions: Positions, *, ending: Callable[[], None]) -> None:
        """Return when the round is on the target, and its positions with it; `ending` is called when only the
        last request is still to be answered. Raises KafkaError."""
        ...

    @property
    def partition_failures(self) -> Mapping[TopicPartition, KafkaError]: ...


class ExactlyOnce:
    """Data and positions in one transaction of the target: both exist, or neither."""

    def __init__(
        self, session: DataClientPool, transactional_ids: Sequence[str], settings: ProducerSettings
    ) -> None:
        self._rotation = TransactionRotation(session, transactional_ids, settings)

    async def __aenter__(self) -> Self:
        await self._rotation.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._rotation.__aexit__(*exc)

    def begin(self) -> None:
        self._rotation.begin()

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]:
        return self._rotation.send(partition, batch)

    async def commit(self, positions: Positions, *, ending: Callable[[], None]) -> None:
        for partition, batch in positions.items():
            self._rotation.send(partition, batch)
        await self._rotation.flush()
        ending()
        await self._rotation.commit()

    @property
    def partition_failures(self) -> Mapping[TopicPartition, KafkaError]:
        return self._rotation.partition_failures


class AtLeastOnce:
    """Positions follow the data they speak of: a crash between the two repeats, never loses."""

    def __init__(self, session: DataClientPool, settings: ProducerSettings) -> None:
        self._producer = RawProducer(session, settings)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._producer)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def begin(self) -> None:
        """Nothing: every batch stands for itself."""

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]:
        return self._producer.send(partition, batch)

    async def commit(self, positions: Positions, *, ending: Callable[[], None]) -> None:
        await self._producer.flush()
        ending()
        for partition, batch in positions.items():
            self._producer.send(partition, batch)
        await self._producer.flush()

    @property
    def partition_failures(self) -> Mapping[TopicPartition, KafkaError]:
        return self._producer.partition_failures
