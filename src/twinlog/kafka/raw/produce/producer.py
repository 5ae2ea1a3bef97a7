"""A producer of prepared batches: idempotent, or in transactions. acks=all, always."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Self

from twinlog.batches.outgoing import OutgoingBatch
from twinlog.errors import KafkaError, StateError
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw.owned_tasks import OwnedTasks
from twinlog.kafka.raw.produce.delivery import Delivery
from twinlog.kafka.raw.settings import ProducerSettings
from twinlog.kafka.raw.transactions.coordinator import TransactionCoordinator
from twinlog.kafka.raw.transactions.wire import LAST_EPOCH, NO_IDENTITY, ProducerIdentity
from twinlog.model import TopicPartition


class ProducerState(StrEnum):
    NEW = "NEW"
    READY = "READY"
    """Initialised; a transactional producer is outside a transaction."""
    IN_TRANSACTION = "IN_TRANSACTION"
    ENDING = "ENDING"
    """The coordinator was asked to commit."""
    FAILED = "FAILED"
    """Unusable: see `failure`."""
    CLOSED = "CLOSED"


class RawProducer:
    """One producer identity on a session. Use it in one task, with `async with`.

    It never aborts, because batches that are still in flight could arrive after the abort, and stay open for
    ever. The next owner of the id ends what is left open, and fences these batches.

    After a failure nothing more is sent, every open future raises, `state` is FAILED and `failure` has the
    cause; `partition_failures` names partitions if they are the cause. Leave it then, create a new one, and
    resume from the committed position.

    Without transactions a batch may rarely be written twice: a restarted broker forgets producers whose last
    *record* is older than producer.id.expiration.ms (a day), as copied data often is, and then does not
    recognise a batch whose acknowledgement was lost. An open transaction is never forgotten.
    """

    def __init__(
        self,
        session: DataClientPool,
        settings: ProducerSettings,
        *,
        transactional_id: str | None = None,
        identity: ProducerIdentity | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_failure` is called once when the producer fails, possibly while nothing is sent: the last
        transaction may hang. `identity`: the `next_identity` of an idempotent producer that was left; None =
        ask for one."""
        self.transactional_id = transactional_id
        self._session = session
        self._settings = settings
        self._state = ProducerState.NEW
        self._identity = identity or NO_IDENTITY
        self._coordinator = TransactionCoordinator(
            session,
            transactional_id,
            transaction_timeout_seconds=settings.transaction_timeout_seconds,
            admit=settings.admit,
        )
        self.delivery = Delivery(session, settings, self._coordinator, transactional_id, on_failure)
        self._tasks = OwnedTasks("a producer", self._failed)

    async def __aenter__(self) -> Self:
        """Get an identity, which fences earlier holders of the transactional id. Raises KafkaError."""
        if self._identity is NO_IDENTITY:
            self._identity = await self._coordinator.new_identity(
                timeout_seconds=self._settings.delivery_timeout_seconds
            )
        if self.transactional_id is not None:
            await self._coordinator.agree(timeout_seconds=self._settings.delivery_timeout_seconds)
        await self._tasks.open()
        self.delivery.start(self._tasks, self._identity)
        self._state = ProducerState.READY
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop at once; unacknowledged batches fail. An open transaction is left to the id's next owner."""
        self._state = ProducerState.CLOSED
        self.delivery.stop()
        await self._tasks.close()

    @property
    def state(self) -> ProducerState:
        if self._state is not ProducerState.CLOSED and self.delivery.failure is not None:
            return ProducerState.FAILED
        return self._state

    @property
    def failure(self) -> KafkaError | None:
        return self.delivery.failure

    @property
    def next_identity(self) -> ProducerIdentity | None:
        """With which the next idempotent producer of this process may go on (KIP-360): the same id in a
        greater epoch, so that brokers refuse what is still under way of this one. None: it needs another id.
        """
        is_refused = self.failure is not None and self.failure.reason == "PRODUCER_FENCED"
        if self._identity is NO_IDENTITY or is_refused or self._identity.producer_epoch >= LAST_EPOCH:
            return None
        return self._identity._replace(producer_epoch=self._identity.producer_epoch + 1)

    @property
    def partition_failures(self) -> Mapping[TopicPartition, KafkaError]:
        """The partitions of the target that caused `failure`; empty if it is not about partitions."""
        return self.delivery.partition_failures

    @property
    def without_leader(self) -> Mapping[TopicPartition, KafkaError]:
        """The partitions whose batches wait for a leader, and why there is none."""
        return self.delivery.without_leader

    def begin(self) -> None:
        """Open a transaction; nothing is sent yet. Raises StateError, or the earlier failure."""
        self._expect(ProducerState.READY)
        if self.transactional_id is None:
            raise StateError("an idempotent producer has no transactions")
        self._state = ProducerState.IN_TRANSACTION

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]:
        """Queue a batch and return at once. The future gets the target base offset, or raises KafkaError.

        Batches of a partition are delivered in call order; what is queued within one iteration of the event
        loop is sent together. The future need not be awaited: `flush` and `commit` do that. In a transaction
        the records exist only after `commit`. Raises StateError, or the earlier failure.
        """
        self._expect(ProducerState.IN_TRANSACTION if self.transactional_id else ProducerState.READY)
        return self.delivery.put(partition, batch)

    async def flush(self) -> None:
        """Wait until everything is acknowledged, at most as long as the longest delivery takes. Raises the
        failure."""
        await self.delivery.idle.wait()
        if self.failure is not None:
            raise self.failure
        if self._state is ProducerState.CLOSED:
            raise StateError("the producer is closed")

    async def commit(self) -> None:
        """Flush, then commit. Raises KafkaError; after a transient one the outcome is unknown until the next
        owner of the id has initialised it and read the committed position. Bounded by twice the delivery
        time-out."""
        self._expect(ProducerState.IN_TRANSACTION)
        await self.flush()
        if self.delivery.has_transaction:
            self._state = ProducerState.ENDING
            try:
                self._identity = await self._coordinator.end(
                    self._identity, commit=True, timeout_seconds=self.delivery.end_seconds
                )
            except KafkaError as error:
                self.delivery.fail(error)
                raise
            self.delivery.transaction_ended(self._identity)
        self._state = ProducerState.READY

    def _failed(self, error: Exception) -> None:
        """A bug ended the sending task: nothing more would be acknowledged."""
        self.delivery.fail(KafkaError(f"{type(error).__name__}: {error}", reason="INTERNAL"))

    def _expect(self, state: ProducerState) -> None:
        if self.state is state:
            return
        if self.failure is not None:
            raise self.failure
        raise StateError(f"the producer is {self.state}, not {state}", metadata={"state": self.state})


# Uses two transactional ids in turn, so that a transaction need not wait for the markers of the last one.
#
# After an acknowledged commit its markers are still being written, and the id's next transaction would get
# CONCURRENT_TRANSACTIONS. The other id can begin at once, even while the commit is unanswered; with a
# distant cluster this saves a round trip. A transaction that begins so early is not committed before the
# earlier one was acknowledged, so order and atomicity are those of a single id.


class TransactionRotation:
    """One open transaction at a time, over several ids; the caller need not know which one is in use.

    As with `RawProducer`, any failure makes it unusable: leave it, and create a new one with the same ids.
    """

    def __init__(
        self,
        session: DataClientPool,
        transactional_ids: Sequence[str],
        settings: ProducerSettings,
        *,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_failure` as in `RawProducer`, once for each id."""
        if not transactional_ids:
            raise ValueError("a rotation needs at least one transactional id")
        self._producers = [
            RawProducer(session, settings, transactional_id=transactional_id, on_failure=on_failure)
            for transactional_id in transactional_ids
        ]
        self._turn = 0
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Initialise every id, which fences earlier holders of all of them. Raises KafkaError."""
        async with self._stack:
            for producer in self._producers:
                await self._stack.enter_async_context(producer)
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def failure(self) -> KafkaError | None:
        """The failure of the first failed id; None if there is none."""
        return next((producer.failure for producer in self._producers if producer.failure), None)

    @property
    def partition_failures(self) -> Mapping[TopicPartition, KafkaError]:
        """The failed partitions of all ids."""
        return {
            partition: error
            for producer in self._producers
            for partition, error in producer.partition_failures.items()
        }

    @property
    def without_leader(self) -> Mapping[TopicPartition, KafkaError]:
        """Of all ids."""
        return {
            partition: error
            for producer in self._producers
            for partition, error in producer.without_leader.items()
        }

    def begin(self) -> RawProducer:
        """Open the next transaction with the other id, and return its producer. Raises StateError while one
        is open, or the failure."""
        if self._current.state in (ProducerState.READY, ProducerState.ENDING):
            self._turn = (self._turn + 1) % len(self._producers)
        self._current.begin()
        return self._current

    @property
    def _current(self) -> RawProducer:
        return self._producers[self._turn]
