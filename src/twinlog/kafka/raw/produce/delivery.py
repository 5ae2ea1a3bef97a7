"""Delivers a producer's batches: in the order of their partitions, again after a failure, and not too late.

    put ─▶ OpenBatches ── PartitionQueue ──▶ Dispatcher ──▶ broker ──▶ future: the base offset,
           all batches    order of one            │                    or the whole producer fails
               ▲          partition               │
               └──────────── retry later ◀────────┘

`Deadlines` watches which batches are late.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from twinlog.backoff import backoff_seconds
from twinlog.batches.outgoing import OutgoingBatch
from twinlog.errors import KafkaError
from twinlog.kafka.codes import LEADER_MOVED, ErrorCode
from twinlog.kafka.errors import TIMEOUT, from_code, from_reason
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw.owned_tasks import OwnedTasks
from twinlog.kafka.raw.produce.answers import ABOUT_THE_PRODUCER, may_retry, refusal_of
from twinlog.kafka.raw.produce.dispatcher import Dispatcher, HasRoom
from twinlog.kafka.raw.produce.partition_queue import PendingBatch
from twinlog.kafka.raw.produce.transaction_partitions import Deadlines, OpenBatches, TransactionPartitions
from twinlog.kafka.raw.produce.wire import ProduceAnswer
from twinlog.kafka.raw.settings import TIMER_MARGIN_SECONDS, ProducerSettings
from twinlog.kafka.raw.transactions.coordinator import TransactionCoordinator
from twinlog.kafka.raw.transactions.wire import NO_IDENTITY, ProducerIdentity
from twinlog.model import TopicPartition

_LEAST_WINDOW_BYTES = 1 << 20
_END_SHARE = 0.1
"""The share of a transaction's time limit that is left for its end."""
_LONGEST_PAUSE = 32
"""As a multiple of the first pause."""


class Delivery:
    """The sending half of a producer. Starts inside the producer's TaskGroup, ends with `stop`.

    Fails as a whole: after the first refusal that no retry can heal, nothing more is sent, and every open
    future raises.
    """

    def __init__(
        self,
        session: DataClientPool,
        settings: ProducerSettings,
        coordinator: TransactionCoordinator,
        transactional_id: str | None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_failure` is called once, when `failure` is set."""
        self.failure: KafkaError | None = None
        self.partition_failures: dict[TopicPartition, KafkaError] = {}
        """The partitions that caused `failure`, if it is about partitions."""
        self.without_leader: dict[TopicPartition, KafkaError] = {}
        """What waits for a leader, and why there is none."""
        self._on_failure = on_failure
        self._alias = session.alias
        self._settings = settings
        self._transactional_id = transactional_id
        # A broker forgets a producer by the timestamps of its records, also while the producer sends old
        # records; then it would accept a batch out of order. Within a transaction it forgets no producer.
        self.batches = OpenBatches(max_in_flight=settings.max_in_flight if transactional_id else 1)
        self.idle = self.batches.idle
        """Set while everything is acknowledged."""
        self._identity = NO_IDENTITY
        self._over_at: float | None = None
        """The loop time at which the coordinator may abort the present transaction."""
        self._stopped = False
        self._entering: set[TopicPartition] = set()
        """Partitions that the batches of this round add to the transaction."""
        self._loop = asyncio.get_running_loop()
        self._dispatcher = Dispatcher(
            session,
            settings,
            self,
            doing="send batches",
            most_bytes=settings.max_request_bytes * settings.max_in_flight,
            least_bytes=_LEAST_WINDOW_BYTES,
            most_requests=settings.max_in_flight,
            transactional_id=transactional_id,
            adds_partitions=lambda: coordinator.version_2,
        )
        self._deadlines = Deadlines(
            self.batches,
            self._dispatcher.taken_until,
            self._dispatcher.throttled_until,
            delivery_timeout_seconds=settings.delivery_timeout_seconds,
            alias=session.alias,
            without_leader=self.without_leader,
            late=self.refuse,
        )
        self._transaction = TransactionPartitions(
            session,
            settings,
            coordinator,
            self._dispatcher.routes,
            spawn=self._dispatcher.spawn,
            led=lambda partition, connection: self.batches.queue_of(partition).lead_to(connection),
            changed=self._dispatcher.wake.set,
            refuse=self.refuse,
            fail=self.fail,
        )

    def start(self, tasks: OwnedTasks, identity: ProducerIdentity) -> None:
        self._dispatcher.start(tasks.create_task)
        self._identity = identity
        self._transaction.start(identity)
        self._dispatcher.spawn(self._run(), "send batches")

    def put(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]:
        """Queue a batch; the future gets the base offset."""
        now, settings = self._loop.time(), self._settings
        latest = now + settings.longest_delivery_seconds
        if self._transactional_id is not None:
            # What the coordinator aborts looks as if another producer had taken over.
            limit_seconds = settings.transaction_timeout_seconds
            if self._over_at is None:
                self._over_at = now + limit_seconds
            latest = min(latest, self._over_at - limit_seconds * _END_SHARE)
        pending = PendingBatch(
            partition=partition,
            batch=batch,
            deadline=min(now + settings.delivery_timeout_seconds, latest),
            latest=latest,
            acknowledged=self._loop.create_future(),
        )
        self.batches.put(pending)
        self._deadlines.watch(pending)
        self._dispatcher.wake.set()
        return pending.acknowledged

    @property
    def has_transaction(self) -> bool:
        """Whether the coordinator knows partitions of the present transaction, as far as they are
        acknowledged."""
        return bool(self._transaction.added)

    @property
    def end_seconds(self) -> float:
        """How long the end of the present transaction may take."""
        limit_seconds = self._settings.delivery_timeout_seconds
        if self._over_at is None:
            return limit_seconds
        return max(0.0, min(limit_seconds, self._over_at - self._loop.time()))

    def transaction_ended(self, identity: ProducerIdentity) -> None:
        """Everything is committed, and the next transaction is sent as `identity`."""
        if self._stopped:
            return
        if identity.producer_id != self._identity.producer_id:
            self.batches.forget()
        elif identity != self._identity:
            self.batches.begin_epoch(self._transaction.added)
        self._transaction.ended(identity)
        self._identity = identity
        self._over_at = None

    def fail(self, error: KafkaError) -> None:
        """Send nothing more; the first failure is kept."""
        if self._stopped:
            return
        self.failure = error
        self._stop_with(error)
        self._on_failure()

    def stop(self) -> None:
        """Stop at once; unacknowledged batches fail."""
        self._stop_with(
            from_code(ErrorCode.operation_not_attempted, "send batches", detail="the producer was closed")
        )
        self._dispatcher.stop()
        self._deadlines.stop()

    # ------------------------------------------------------------------------------------ sending

    async def _run(self) -> None:
        while True:
            await self._dispatcher.next()

    @property
    def busy(self) -> Mapping[TopicPartition, object]:
        return self.batches.busy

    def begin(self, client: DataClient) -> bool:
        if self._transactional_id is not None and not self._stopped:
            self._entering = self._transaction.enter(client, self.batches.busy.keys())
        return not self._stopped

    def turns(self) -> Iterator[TopicPartition]:
        """In a transaction only partitions that are in it, and those that may enter."""
        for partition in self.batches.in_turn():
            is_open = self._transactional_id is None or partition in self._transaction.added
            if is_open or partition in self._entering:
                yield partition

    def take(
        self, partition: TopicPartition, connection: DataConnection, has_room: HasRoom
    ) -> PendingBatch | None:
        queue = self.batches.queue_of(partition)
        queue.lead_to(connection)
        pending = queue.peek(self._loop.time(), connection)
        if pending is None or not has_room(pending.batch.size_bytes):
            return None
        queue.take(*self._identity, transactional=self._transactional_id is not None)
        if self._transactional_id is not None:
            self._transaction.taken(partition)
        self.without_leader.pop(partition, None)
        self.batches.had_turn(partition)
        return pending

    def leaderless(self, found: Mapping[TopicPartition, KafkaError]) -> None:
        busy = self.batches.busy
        self.without_leader.update(
            {each: error for each, error in found.items() if each in busy and busy[each].has_to_send}
        )
        if refused := {partition: error for partition, error in found.items() if not error.retriable}:
            self.refuse(refused)

    def not_connected(self, error: KafkaError) -> None:
        if not error.retriable:
            self.fail(error)
            return
        self._loop.call_later(self._settings.retry_pause_seconds, self._dispatcher.wake.set)

    # ------------------------------------------------------------------------------------ answers

    def lost(self, batches: Sequence[PendingBatch], error: KafkaError) -> None:
        if not error.retriable:
            self.fail(error)
        for pending in batches:
            self._send_again(pending, error)

    def settle(self, answers: Sequence[tuple[PendingBatch, ProduceAnswer | None]]) -> None:
        if self._stopped:
            return
        producer_failure: KafkaError | None = None
        refused: dict[TopicPartition, KafkaError] = {}
        for pending, answer in answers:
            partition = pending.partition
            if answer is None:
                self._send_again(pending, from_reason(TIMEOUT, f"send to {partition}", detail="no answer"))
                continue
            code, queue = answer.error_code, self.batches.queue_of(partition)
            refusal = refusal_of(answer, pending.batch, alias=self._alias)
            if refusal is None:
                queue.acknowledge(pending)
                self.batches.finish(pending, answer.base_offset)
            elif may_retry(pending, queue, code):
                if code in LEADER_MOVED:
                    self._dispatcher.routes.suspect(connection=False)
                # Out of order behind another one, it has not failed: it goes on waiting for its turn.
                self._send_again(pending, None if code == ErrorCode.out_of_order_sequence_number else refusal)
            elif code in ABOUT_THE_PRODUCER:
                producer_failure = refusal
            else:
                refused[partition] = refusal
        if producer_failure is not None:
            self.fail(producer_failure)
        elif refused:
            self.refuse(refused)

    def _send_again(self, pending: PendingBatch, error: KafkaError | None) -> None:
        """`error`: why the batch failed; None if only one before it did."""
        if self._stopped:
            return
        if error is not None:
            # After its first failure a batch no longer waits for its turn.
            pending.deadline = self._deadlines.deadline_of(pending)
            pending.last_error = error
        first = self._settings.retry_pause_seconds
        pause_seconds = backoff_seconds(pending.attempts - 1, first=first, longest=_LONGEST_PAUSE * first)
        self.batches.queue_of(pending.partition).give_back(pending, self._loop.time() + pause_seconds)
        self._loop.call_later(pause_seconds + TIMER_MARGIN_SECONDS, self._dispatcher.wake.set)

    # ------------------------------------------------------------------------------------ around it

    def refuse(self, refused: Mapping[TopicPartition, KafkaError]) -> None:
        if not self._stopped:
            self.partition_failures.update(refused)
            self.fail(next(iter(refused.values())))

    def _stop_with(self, error: KafkaError) -> None:
        self._stopped = True
        self._transaction.stop()
        self.batches.fail_all(error, self.partition_failures)
