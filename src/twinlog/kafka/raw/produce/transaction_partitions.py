"""Which partitions are in a producer's transaction, which may enter it, and whether the last one ended there.

A partition enters when its leader has reported that nothing of this producer hangs there (`HangingGuard`). In
transactions of version 2 the broker that gets the first batch adds the partition; otherwise the coordinator
is told before.

The batches of a producer that are not acknowledged yet, in a queue for each partition.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import KW_ONLY, dataclass, field

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import TIMEOUT, from_code, from_reason
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw.leaders import about, leader_of
from twinlog.kafka.raw.produce.partition_queue import PartitionQueue, PendingBatch, Routes, Spawn
from twinlog.kafka.raw.settings import TIMER_MARGIN_SECONDS, ProducerSettings
from twinlog.kafka.raw.transactions.coordinator import RefusedPartitionsError, TransactionCoordinator
from twinlog.kafka.raw.transactions.hanging_guard import HangingGuard
from twinlog.kafka.raw.transactions.wire import ProducerIdentity
from twinlog.model import TopicPartition


class OpenBatches:
    def __init__(self, *, max_in_flight: int) -> None:
        """`max_in_flight`: how many batches of a partition may be unanswered."""
        self.busy: dict[TopicPartition, PartitionQueue] = {}
        """Queues that may have something to send, in order of their turns."""
        self.idle = asyncio.Event()
        """Set while everything is acknowledged."""
        self.idle.set()
        self._max_in_flight = max_in_flight
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._count = 0

    def put(self, pending: PendingBatch) -> None:
        queue = self._queues.get(pending.partition)
        if queue is None:
            queue = PartitionQueue(max_in_flight=self._max_in_flight)
            self._queues[pending.partition] = queue
        queue.put(pending)
        self.busy[pending.partition] = queue
        self._count += 1
        self.idle.clear()

    def queue_of(self, partition: TopicPartition) -> PartitionQueue:
        return self._queues[partition]

    def in_turn(self) -> Iterator[TopicPartition]:
        """The partitions with batches, in order of their turns."""
        for partition, queue in list(self.busy.items()):
            if queue.is_empty:
                del self.busy[partition]
            else:
                yield partition

    def had_turn(self, partition: TopicPartition) -> None:
        """Move the queue to the end, so that no partition starves the others."""
        self.busy[partition] = self.busy.pop(partition)

    def oldest(self, deadline_of: Callable[[PendingBatch], float]) -> list[PendingBatch]:
        """The batch of each partition that must be acknowledged first."""
        return [pending for queue in self._queues.values() if (pending := queue.oldest(deadline_of))]

    def begin_epoch(self, partitions: Iterable[TopicPartition]) -> None:
        """Send batches of these partitions as the producer's next epoch. Only while no batch is open."""
        for partition in partitions:
            self._queues[partition].begin_epoch()

    def forget(self) -> None:
        """Begin as a producer that no broker knows. Only while no batch is open."""
        self._queues.clear()
        self.busy.clear()

    def finish(self, pending: PendingBatch, outcome: int | KafkaError) -> None:
        """`outcome`: the base offset on the target, or the error."""
        if not pending.acknowledged.done():
            if isinstance(outcome, KafkaError):
                pending.acknowledged.set_exception(outcome)
                # Retrieve it, or asyncio would report futures that are never awaited.
                pending.acknowledged.exception()
            else:
                pending.acknowledged.set_result(outcome)
        self._count -= 1
        if self._count == 0:
            self.idle.set()

    def fail_all(self, error: KafkaError, partition_failures: Mapping[TopicPartition, KafkaError]) -> None:
        """Nothing more is sent because of `error`; partitions may have failures of their own."""
        for partition, queue in self._queues.items():
            own = partition_failures.get(partition)
            other = from_code(ErrorCode.operation_not_attempted, f"send to {partition}", detail=str(error))
            for pending in (*queue.in_flight, *queue.returned, *queue.waiting):
                self.finish(pending, own or other)
        self.forget()


# Which batches are late. A batch that waits for its turn is not late as long as its broker accepts
# others, and none is while its broker throttles.


@dataclass(slots=True, eq=False, repr=False)
class Deadlines:
    batches: OpenBatches
    taken_until: Callable[[object], float]
    throttled_until: Callable[[object], float]
    _: KW_ONLY
    delivery_timeout_seconds: float
    alias: str
    without_leader: Mapping[TopicPartition, KafkaError]
    late: Callable[[Mapping[TopicPartition, KafkaError]], None]
    """Called with the partitions whose oldest batch is late, and why each is: what `without_leader` says, its
    last failure, or a TIMEOUT."""
    _timer: asyncio.TimerHandle | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def watch(self, pending: PendingBatch) -> None:
        """The batch was queued."""
        if self._timer is None:
            self._timer = self._loop.call_at(pending.deadline, self._check)

    def deadline_of(self, pending: PendingBatch) -> float:
        """A loop time that moves while the broker accepts what is before this batch; once the batch has
        failed, only while the broker reads nothing (KIP-219)."""
        moved_by = self.taken_until if pending.last_error is None else self.throttled_until
        until = moved_by(self.batches.queue_of(pending.partition).connection)
        return min(max(pending.deadline, until + self.delivery_timeout_seconds), pending.latest)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        """Runs at the deadline of what was then the oldest batch; mostly it was delivered long ago."""
        self._timer = None
        now = self._loop.time()
        oldest = self.batches.oldest(self.deadline_of)
        late = {
            pending.partition: self._lateness(pending)
            for pending in oldest
            if self.deadline_of(pending) <= now
        }
        if late:
            self.late(late)
        elif oldest:
            self._timer = self._loop.call_at(min(map(self.deadline_of, oldest)), self._check)

    def _lateness(self, pending: PendingBatch) -> KafkaError:
        failed = self.without_leader.get(pending.partition) or pending.last_error
        error = failed or from_reason(
            TIMEOUT,
            f"send a batch to {pending.partition}",
            alias=self.alias,
            detail=f"{self.delivery_timeout_seconds:g} s",
        )
        return about(pending.partition, error)


class TransactionPartitions:
    def __init__(
        self,
        session: DataClientPool,
        settings: ProducerSettings,
        coordinator: TransactionCoordinator,
        routes: Routes,
        *,
        spawn: Spawn,
        led: Callable[[TopicPartition, DataConnection], None],
        changed: Callable[[], None],
        refuse: Callable[[Mapping[TopicPartition, KafkaError]], None],
        fail: Callable[[KafkaError], None],
    ) -> None:
        """`led` is called with the connection over which a leader that throttles is asked, `changed` when
        more may be sent, `refuse` with partitions that cannot be written, `fail` when the producer cannot
        continue."""
        self.added: set[TopicPartition] = set()
        """The partitions in the transaction, as far as the coordinator or a broker was told."""
        self._session = session
        self._settings = settings
        self._coordinator = coordinator
        self._routes = routes
        self._spawn = spawn
        self._led = led
        self._changed = changed
        self._refuse = refuse
        self._fail = fail
        self._identity = ProducerIdentity(-1, -1)
        self._stopped = False
        self._adding: set[TopicPartition] = set()
        self._look_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._guard = HangingGuard(
            session.alias,
            pause_seconds=settings.retry_pause_seconds,
            refuse=refuse,
            not_clear=self._not_clear,
            changed=changed,
            now=self._loop.time,
        )

    def start(self, identity: ProducerIdentity) -> None:
        self._identity = identity
        self._guard.all_committed_from(identity.producer_epoch)

    def enter(self, client: DataClient, busy: Set[TopicPartition]) -> set[TopicPartition]:
        """The partitions with something to send that may be in the transaction, and that a batch adds to it.
        For others the leaders are asked, or the coordinator is told."""
        entering = self._clear_of(client, busy - self.added - self._adding)
        if entering and self._must_add(client, busy):
            self._adding |= entering
            self._spawn(self._add_partitions(entering), "add partitions")
            return set()
        return entering

    def taken(self, partition: TopicPartition) -> None:
        """A batch was sent to it."""
        if partition not in self.added:
            self.added.add(partition)  # At the latest, the broker that gets it adds it.
            self._guard.begun(partition)

    def ended(self, identity: ProducerIdentity) -> None:
        """It is committed, and the next one is sent as `identity`."""
        if identity.producer_id != self._identity.producer_id:
            self._guard.forget()
            self._guard.all_committed_from(identity.producer_epoch)
        else:
            self._guard.ended(self.added)
            self._look_later()
        self._identity = identity
        self.added.clear()

    def stop(self) -> None:
        self._stopped = True
        if self._look_timer is not None:
            self._look_timer.cancel()

    def _clear_of(self, client: DataClient, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those that may be in the transaction; the leaders of the others are asked.

        The others are not added either, because the end of the transaction would be written to them.
        """
        clear: set[TopicPartition] = set()
        unclear: dict[DataConnection, set[TopicPartition]] = {}
        for connection, led in self._connections(client, partitions).items():
            here = {partition for partition in led if self._guard.is_clear(partition, connection)}
            clear |= here
            if led - here:
                unclear[connection] = led - here
                for partition in led - here if connection.throttled_seconds > 0 else ():
                    self._led(partition, connection)
        if unclear:
            self._guard.ask(unclear, self._identity.producer_id)
        return clear

    def _must_add(self, client: DataClient, busy: Collection[TopicPartition]) -> bool:
        """Whether the coordinator has to be told about partitions before anything is sent to them.

        In transactions of version 2 a broker adds the partitions of its batches. If several brokers do so at
        the same time, all but one find the coordinator busy and wait 20 ms (KAFKA-18654): one request is
        faster.
        """
        if not self._coordinator.version_2:
            return True
        return len({leader_of(client, partition) for partition in busy}) > 1

    def _not_clear(self, error: KafkaError | None) -> None:
        """A leader did not report whether something hangs, or (None) it may just be ending."""
        if self._stopped:
            return
        if error is not None:
            self._routes.suspect(connection=error.code is None)
        self._loop.call_later(self._settings.retry_pause_seconds + TIMER_MARGIN_SECONDS, self._changed)

    def _look_later(self) -> None:
        """Check when the first of the ended transactions is old enough; soon, if a check failed."""
        if self._look_timer is not None or self._stopped:
            return
        first, after_seconds = self._guard.first_ended_at, self._settings.end_look_seconds
        if first is not None:
            at = max(first + after_seconds, self._loop.time() + after_seconds / 5)
            self._look_timer = self._loop.call_at(
                at, lambda: self._spawn(self._look(), "look for transactions that hang")
            )

    async def _look(self) -> None:
        """Ask whether transactions have ended on partitions on which no other followed."""
        try:
            client = await self._session.client("look for transactions that hang")
            ended = self._guard.ended_before(self._loop.time() - self._settings.end_look_seconds)
            if ended:
                self._guard.look(self._connections(client, ended), self._identity.producer_id)
                self._routes.refresh_if_stale(client, ended, self._leaderless, self._loop.time())
        except KafkaError as error:
            if not error.retriable:
                self._fail(error)
        finally:
            self._look_timer = None
            self._look_later()

    def _leaderless(self, found: Mapping[TopicPartition, KafkaError]) -> None:
        """Nothing is sent to those that may get a leader: they are looked at again."""
        if gone := {partition: error for partition, error in found.items() if not error.retriable}:
            self._refuse(gone)

    def _connections(
        self, client: DataClient, partitions: Iterable[TopicPartition]
    ) -> dict[DataConnection, set[TopicPartition]]:
        """The connections to the partitions' leaders, as far as they exist."""
        found: dict[DataConnection, set[TopicPartition]] = {}
        for partition in partitions:
            route = self._routes.find(client, partition)
            if route is not None:
                found.setdefault(route[1], set()).add(partition)
        return found

    async def _add_partitions(self, partitions: set[TopicPartition]) -> None:
        try:
            await self._coordinator.add_partitions(
                self._identity,
                partitions,
                timeout_seconds=self._settings.delivery_timeout_seconds,
                unknown_topic_seconds=self._settings.unknown_topic_seconds,
            )
            for partition in partitions:
                self._guard.begun(partition)
            self.added |= partitions
        except RefusedPartitionsError as refused:
            self._refuse(refused.partitions)
        except KafkaError as error:
            self._fail(error)
        finally:
            self._adding -= partitions
            self._changed()
