"""What the driver asks the target about preserved copies: who may write them, who did, where they end."""

from collections.abc import Collection, Mapping
from typing import Protocol

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.raw import DataClientPool, TransactionCoordinator, epoch_ends
from twinlog.kafka.raw.log_ends import log_ends
from twinlog.kafka.raw.producer_states import producer_states
from twinlog.model import TopicPartition
from twinlog_source.log.facts import WriterFact
from twinlog_source.preserved.tails import NOT_REPLICATED


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

    async def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
        """Where each log ends on every replica in sync; a KafkaError while records are being replicated."""
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

    async def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
        found: dict[TopicPartition, int | KafkaError] = {}
        seen = await log_ends(self._session, partitions, timeout_seconds=self._timeout_seconds)
        epochs: dict[TopicPartition, int] = {}
        for partition, end in seen.items():
            if isinstance(end, KafkaError):
                found[partition] = end
            else:
                found[partition], epochs[partition] = end.offset, end.leader_epoch
        leaders = await epoch_ends(self._session, epochs, timeout_seconds=self._timeout_seconds)
        for partition, answer in leaders.items():
            if isinstance(answer, KafkaError):
                found[partition] = answer
            elif answer.end_offset != found[partition]:
                found[partition] = TransientKafkaError(
                    f"{partition}: records are being replicated", reason=NOT_REPLICATED
                )
        return found
