"""The two ways to write: with transactions (exactly once), or records before positions (at least once).

The settings of the copying producers, from the file's Java names.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

from twinlog.batches import OutgoingBatch
from twinlog.errors import ConfigError, KafkaError
from twinlog.kafka.clients import delivery_timeout_seconds
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer, TransactionRotation
from twinlog.model import TopicPartition

DELIVERY_SECONDS = 15.0
"""The default: a partition that cannot be written is set aside after this, so that others are not delayed."""
TRANSACTION_SECONDS = 60.0
UNKNOWN_TOPIC_SECONDS = 1.0
"""configsync has seen a topic before it is copied, so an unknown one was deleted, or will appear soon; other
partitions wait meanwhile."""


def producer_settings(
    properties: Mapping[str, str], *, alias: str, delivery_seconds: float = DELIVERY_SECONDS
) -> ProducerSettings:
    """`delivery.timeout.ms`, `transaction.timeout.ms`, `request.timeout.ms`, `retry.backoff.ms` and
    `max.request.size` as configured. acks is always `all`, because a position may only follow records that
    the target cannot lose.

    Raises ConfigError.
    """

    def number(key: str, default: float) -> float:
        text = properties.get(key, "").strip()
        if not text:
            return default
        if not text.isdecimal() or int(text) == 0:
            raise ConfigError(f"{alias}.producer.{key}: {text!r} is not a whole number above 0", key=key)
        return float(text)

    defaults = ProducerSettings()
    request_seconds = min(delivery_seconds, defaults.request_timeout_seconds)
    return ProducerSettings(
        delivery_timeout_seconds=delivery_timeout_seconds(properties, alias=alias, default=delivery_seconds),
        transaction_timeout_seconds=number("transaction.timeout.ms", TRANSACTION_SECONDS * 1000) / 1000,
        request_timeout_seconds=number("request.timeout.ms", request_seconds * 1000) / 1000,
        retry_pause_seconds=number("retry.backoff.ms", defaults.retry_pause_seconds * 1000) / 1000,
        unknown_topic_seconds=UNKNOWN_TOPIC_SECONDS,
        max_request_bytes=int(number("max.request.size", defaults.max_request_bytes)),
    )


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

    @property
    def without_leader(self) -> Mapping[TopicPartition, KafkaError]:
        """What the round waits for: target partitions without a leader, and why there is none."""
        ...


class Rounds:
    """Writes to Kafka. With transactional ids, data and positions are in one transaction of the target: both
    exist, or neither. Without, positions follow their data: a crash in between repeats records, and never
    loses any; after a failure it keeps its producer id if brokers accept that."""

    def __init__(
        self,
        session: DataClientPool,
        transactional_ids: Sequence[str],
        settings: ProducerSettings,
        *,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.overlaps = len(transactional_ids) > 1
        self._session, self._ids, self._settings = session, transactional_ids, settings
        self._on_failure = on_failure
        self._producer: TransactionRotation | RawProducer = RawProducer(session, settings)

    async def __aenter__(self) -> Self:
        if self._ids:
            self._producer = TransactionRotation(
                self._session, self._ids, self._settings, on_failure=self._on_failure
            )
        elif isinstance(self._producer, RawProducer):
            identity = self._producer.next_identity
            self._producer = RawProducer(self._session, self._settings, identity=identity)
        await self._producer.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._producer.__aexit__(*exc)

    def begin(self) -> Transaction:
        producer = self._producer
        if isinstance(producer, TransactionRotation):
            return _KafkaTransaction(producer.begin(), is_transactional=True)
        return _KafkaTransaction(producer, is_transactional=False)

    @property
    def failure(self) -> KafkaError | None:
        return self._producer.failure

    @property
    def partition_failures(self) -> Mapping[TopicPartition, KafkaError]:
        return self._producer.partition_failures

    @property
    def without_leader(self) -> Mapping[TopicPartition, KafkaError]:
        return self._producer.without_leader


class _KafkaTransaction:
    def __init__(self, producer: RawProducer, *, is_transactional: bool) -> None:
        self._producer, self._is_transactional = producer, is_transactional
        self._positions: Positions = {}
        """Those to send only when everything else is on the target."""

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]:
        return self._producer.send(partition, batch)

    async def store(self, positions: Positions) -> None:
        if self._is_transactional:
            self._send_all(positions)
        else:
            self._positions = positions
        await self._producer.flush()

    async def commit(self) -> None:
        if self._is_transactional:
            await self._producer.commit()
            return
        self._send_all(self._positions)
        await self._producer.flush()

    def _send_all(self, positions: Positions) -> None:
        for partition, batch in positions.items():
            self._producer.send(partition, batch)
