"""The two ways to write: with transactions (exactly once), or records before positions (at least once)."""

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


class Transaction(Protocol):
    """One round: send, store, commit."""

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]: ...

    async def store(self, positions: Positions) -> None:
        """Send the positions too, and return when everything is on the target that has to be there before
        `commit`. Raises KafkaError."""
        ...

    async def commit(self) -> None:
        """Return when the round and its positions are on the target. Raises KafkaError."""
        ...


class Transport(Protocol):
    """Writes one round after the other. After a failure leave it, and enter a new one."""

    @property
    def overlaps(self) -> bool:
        """Whether the next round may be begun, sent and stored while the commit of one is unanswered."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    def begin(self) -> Transaction: ...

    @property
    def failure(self) -> KafkaError | None:
        """Why no further round can begin. Also found while nothing is written, because the last round may
        hang."""
        ...

    @property
    def partition_failures(self) -> Mapping[TopicPartition, KafkaError]: ...


class ExactlyOnce:
    """Data and positions in one transaction of the target: both exist, or neither."""

    def __init__(
        self,
        session: DataClientPool,
        transactional_ids: Sequence[str],
        settings: ProducerSettings,
        *,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.overlaps = len(transactional_ids) > 1
        self._rotation = TransactionRotation(session, transactional_ids, settings, on_failure=on_failure)

    async def __aenter__(self) -> Self:
        await self._rotation.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._rotation.__aexit__(*exc)

    def begin(self) -> Transaction:
        return _KafkaTransaction(self._rotation.begin())

    @property
    def failure(self) -> KafkaError | None:
        return self._rotation.failure

    @property
    def partition_failures(self) -> Mapping[TopicPartition, KafkaError]:
        return self._rotation.partition_failures


class _KafkaTransaction:
    def __init__(self, producer: RawProducer) -> None:
        self._producer = producer

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]:
        return self._producer.send(partition, batch)

    async def store(self, positions: Positions) -> None:
        for partition, batch in positions.items():
            self._producer.send(partition, batch)
        await self._producer.flush()

    async def commit(self) -> None:
        await self._producer.commit()


class AtLeastOnce:
    """Positions follow their data: a crash in between repeats records, and never loses any. After a failure
    it can be entered again, and keeps its producer id if brokers accept that."""

    overlaps = False

    def __init__(self, session: DataClientPool, settings: ProducerSettings) -> None:
        self._session = session
        self._settings = settings
        self._producer = RawProducer(session, settings)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        identity = self._producer.next_identity
        self._producer = RawProducer(self._session, self._settings, identity=identity)
        await self._stack.enter_async_context(self._producer)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def begin(self) -> Transaction:
        return _DataFirst(self._producer)

    @property
    def failure(self) -> KafkaError | None:
        return self._producer.failure

    @property
    def partition_failures(self) -> Mapping[TopicPartition, KafkaError]:
        return self._producer.partition_failures


class _DataFirst:
    def __init__(self, producer: RawProducer) -> None:
        self._producer = producer
        self._positions: Positions = {}

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]:
        return self._producer.send(partition, batch)

    async def store(self, positions: Positions) -> None:
        self._positions = positions
        await self._producer.flush()

    async def commit(self) -> None:
        for partition, batch in self._positions.items():
            self._producer.send(partition, batch)
        await self._producer.flush()
