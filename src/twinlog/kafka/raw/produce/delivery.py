"""Sends batches to brokers and handles the answers.

Not aiokafka's sender, which copies large requests several times, allows one request per broker at a time,
retries without a deadline, cannot be stopped while a broker is down, and loses the codes of many refusals.
Its connection is used. The path of a batch:

    put ─▶ OpenBatches ── PartitionQueue ─▶ _next_round ──▶ _produce ──▶ broker
           all batches    order of one      one batch per   one request    │
               ▲          partition         partition,      per leader     │
               │                            room (BrokerWays)              ▼
               └──────────── retry later ◀────────────────────────────── answer ─▶ future: the base offset,
                                                                                   or the whole producer fails

`Deadlines` watches which batches are late.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial

from twinlog.backoff import backoff_seconds
from twinlog.batches.outgoing import OutgoingBatch
from twinlog.errors import KafkaError
from twinlog.kafka.codes import LEADER_MOVED, ErrorCode
from twinlog.kafka.deadline import pause
from twinlog.kafka.errors import (
    KAFKA_CLIENT_ERRORS,
    TIMEOUT,
    from_code,
    from_reason,
    translate,
)
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw.owned_tasks import OwnedTasks
from twinlog.kafka.raw.produce.answers import (
    ABOUT_THE_PRODUCER,
    may_retry,
    refusal_of,
)
from twinlog.kafka.raw.produce.partition_queue import PendingBatch
from twinlog.kafka.raw.produce.routes import BrokerWays, Routes, SentRequest
from twinlog.kafka.raw.produce.transaction_partitions import Deadlines, OpenBatches, TransactionPartitions
from twinlog.kafka.raw.produce.wire import ProduceAnswer, ProducePart, ProduceResponse, produce_request
from twinlog.kafka.raw.settings import TIMER_MARGIN_SECONDS, ProducerSettings
from twinlog.kafka.raw.transactions.coordinator import TransactionCoordinator
from twinlog.kafka.raw.transactions.wire import NO_IDENTITY, ProducerIdentity
from twinlog.model import TopicPartition

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
        self._on_failure = on_failure
        self._session = session
        self._settings = settings
        self._coordinator = coordinator
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
        self._wake = asyncio.Event()
        self._ways = BrokerWays(settings, self._wake.set)
        self._children: set[asyncio.Task[None]] = set()
        self._deadlines = Deadlines(
            self.batches,
            self._ways,
            delivery_timeout_seconds=settings.delivery_timeout_seconds,
            alias=session.alias,
            late=self._refuse,
        )
        self._loop = asyncio.get_running_loop()
        self._routes = Routes(session, settings, self._spawn, self._wake.set)
        self._transaction = TransactionPartitions(
            session,
            settings,
            coordinator,
            self._routes,
            spawn=self._spawn,
            changed=self._wake.set,
            refuse=self._refuse,
            fail=self.fail,
        )

    def start(self, tasks: OwnedTasks, identity: ProducerIdentity) -> None:
        self._tasks = tasks
        self._identity = identity
        self._transaction.start(identity)
        self._spawn(self._run(), "send batches")

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
        self._wake.set()
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
            from_code(ErrorCode.OPERATION_NOT_ATTEMPTED, "send batches", detail="the producer was closed")
        )
        for child in self._children:
            child.cancel()
        self._ways.stop()
        self._deadlines.stop()

    # ------------------------------------------------------------------------------------ sending

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self.batches.busy and not self._stopped:
                await self._dispatch()

    async def _dispatch(self) -> None:
        try:
            client = await self._session.client("send batches")
        except KafkaError as error:
            if not error.retriable:
                self.fail(error)
                return
            await pause(self._settings.retry_pause_seconds)
            self._wake.set()
            return
        entering: set[TopicPartition] = set()
        if self._transactional_id is not None:
            entering = self._transaction.enter(client, self.batches.busy.keys())
        while round_ := self._next_round(client, entering):
            for (node, connection), pending_batches in round_.items():
                self._produce(node, connection, pending_batches)
        self._routes.refresh_if_stale(client, self.batches.busy, self._refuse, self._loop.time())

    def _next_round(
        self, client: DataClient, entering: set[TopicPartition]
    ) -> dict[tuple[int, DataConnection], list[PendingBatch]]:
        """At most one batch per partition and one request per broker; in a transaction only for partitions
        that are in it, and those of `entering`, which this adds."""
        now = self._loop.time()
        chosen: dict[tuple[int, DataConnection], list[PendingBatch]] = {}
        sizes: dict[int, int] = {}
        is_open_to_all = self._transactional_id is None
        for partition, queue in self.batches.in_turn():
            if not (is_open_to_all or partition in self._transaction.added or partition in entering):
                continue
            route = self._routes.find(client, partition)
            if route is None:
                continue
            leader, connection = route
            queue.lead_to(connection)
            if not self._ways.may_send(leader, connection):
                continue
            pending = queue.peek(now, connection)
            if pending is None:
                continue
            size = sizes.get(leader, 0) + pending.batch.size_bytes
            is_first = route not in chosen
            if not self._ways.has_room(leader, size) or not (
                is_first or size <= self._ways.most_bytes(leader)
            ):
                continue
            chosen.setdefault(route, []).append(
                queue.take(*self._identity, transactional=self._transactional_id is not None)
            )
            if self._transactional_id is not None:
                self._transaction.taken(partition)
            sizes[leader] = size
            self.batches.had_turn(partition)
        return chosen

    def _produce(self, node: int, connection: DataConnection, pending_batches: list[PendingBatch]) -> None:
        """Write the request at once, so that requests are on the wire in call order."""
        request = produce_request(
            [
                ProducePart(pending.partition, pending.header, pending.batch.records)
                for pending in pending_batches
            ],
            transactional_id=self._transactional_id,
            timeout_ms=int(self._settings.request_timeout_seconds * 1000),
            adds_partitions=self._coordinator.version_2,
        )
        try:
            answered = connection.post(request)
        except KAFKA_CLIENT_ERRORS as error:
            self._undelivered(pending_batches, error)
            return
        sent = self._ways.sent(node, connection, pending_batches)
        answered.add_done_callback(partial(self._answered, sent))

    def _answered(self, sent: SentRequest, answered: "asyncio.Future[ProduceResponse]") -> None:
        error = answered.exception()
        self._ways.answered(sent, was_taken=error is None)
        if self._stopped:
            return
        if error is None:
            self._settle(sent.pending_batches, answered.result().answers)
        else:
            self._undelivered(sent.pending_batches, error)
        self._wake.set()

    def _undelivered(self, pending_batches: Sequence[PendingBatch], error: BaseException) -> None:
        self._routes.suspect(connection=True)
        failure = translate(error, "send batches", alias=self._session.alias)
        if not failure.retriable:
            self.fail(failure)
        for pending in pending_batches:
            self._send_again(pending, failure)

    # ------------------------------------------------------------------------------------ answers

    def _settle(self, pending_batches: Sequence[PendingBatch], answers: list[ProduceAnswer]) -> None:
        by_partition = {answer.partition: answer for answer in answers}
        producer_failure: KafkaError | None = None
        refused: dict[TopicPartition, KafkaError] = {}
        for pending in pending_batches:
            partition = pending.partition
            answer = by_partition.get(partition)
            if answer is None:
                self._send_again(pending, from_reason(TIMEOUT, f"send to {partition}", detail="no answer"))
                continue
            code = answer.error_code
            refusal = refusal_of(answer, pending.batch, alias=self._session.alias)
            if refusal is None:
                self.batches.queue_of(partition).acknowledge(pending)
                self.batches.finish(pending, answer.base_offset)
            elif may_retry(pending, self.batches.queue_of(partition), code):
                if code in LEADER_MOVED:
                    self._routes.suspect(connection=False)
                self._send_again(pending, refusal)
            elif code in ABOUT_THE_PRODUCER:
                producer_failure = refusal
            else:
                refused[partition] = refusal
        if producer_failure is not None:
            self.fail(producer_failure)
        elif refused:
            self._refuse(refused)

    def _send_again(self, pending: PendingBatch, error: KafkaError) -> None:
        if self._stopped:
            return
        # After its first failure a batch no longer waits for its turn.
        pending.deadline = self._deadlines.deadline_of(pending)
        pending.last_error = error
        first = self._settings.retry_pause_seconds
        pause_seconds = backoff_seconds(pending.attempts - 1, first=first, longest=_LONGEST_PAUSE * first)
        self.batches.queue_of(pending.partition).give_back(pending, self._loop.time() + pause_seconds)
        self._loop.call_later(pause_seconds + TIMER_MARGIN_SECONDS, self._wake.set)

    # ------------------------------------------------------------------------------------ around it

    def _refuse(self, refused: Mapping[TopicPartition, KafkaError]) -> None:
        if not self._stopped:
            self.partition_failures.update(refused)
            self.fail(next(iter(refused.values())))

    def _stop_with(self, error: KafkaError) -> None:
        self._stopped = True
        self._transaction.stop()
        self.batches.fail_all(error, self.partition_failures)

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        child = self._tasks.create_task(work, name=name)
        self._children.add(child)
        child.add_done_callback(self._children.discard)
