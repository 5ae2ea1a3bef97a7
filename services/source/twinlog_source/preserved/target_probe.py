"""What the driver asks the target about preserved copies: who may write them, and who did."""

from collections.abc import Collection, Mapping
from typing import Protocol

from twinlog.errors import KafkaError
from twinlog.kafka.raw import DataClientPool, TransactionCoordinator
from twinlog.kafka.raw.producer_states import producer_states
from twinlog.model import TopicPartition
from twinlog_source.log.facts import WriterFact


class TargetProbe(Protocol):
    """All methods raise KafkaError when no broker can be reached."""

    async def new_writer(self) -> WriterFact:
        """A producer identity that nobody has. Raises KafkaError when the target gives none."""
        ...

    async def producers(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Collection[int] | KafkaError]:
        """Ids of the producers that each leader remembers, or why it does not tell."""
        ...


class KafkaTargetProbe:
    """Asks the leaders of the target."""

    def __init__(
        self, session: DataClientPool, *, timeout_seconds: float, transaction_timeout_seconds: float
    ) -> None:
        self._session = session
        self._timeout_seconds = timeout_seconds
        self._coordinator = TransactionCoordinator(
            session, None, transaction_timeout_seconds=transaction_timeout_seconds
        )

    async def new_writer(self) -> WriterFact:
        identity = await self._coordinator.new_identity(timeout_seconds=self._timeout_seconds)
        return WriterFact(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)

    async def producers(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Collection[int] | KafkaError]:
        return await producer_states(self._session, partitions, timeout_seconds=self._timeout_seconds)
