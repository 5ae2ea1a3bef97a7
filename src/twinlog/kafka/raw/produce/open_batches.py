"""The batches of a producer that are not acknowledged yet, in a queue for each partition."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import TIMEOUT, from_code, from_reason
from twinlog.kafka.raw.errors import about
from twinlog.kafka.raw.produce.broker_ways import BrokerWays
from twinlog.kafka.raw.produce.partition_queue import PartitionQueue, PendingBatch
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

    def in_turn(self) -> Iterator[tuple[TopicPartition, PartitionQueue]]:
        """The queues with batches, in order of their turns."""
        for partition, queue in list(self.busy.items()):
            if queue.is_empty:
                del self.busy[partition]
            else:
                yield partition, queue

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
            other = from_code(ErrorCode.OPERATION_NOT_ATTEMPTED, f"send to {partition}", detail=str(error))
            for pending in (*queue.in_flight, *queue.returned, *queue.waiting):
                self.finish(pending, own or other)
        self.forget()


# Which batches are late. A batch that waits for its turn is not late as long as its broker accepts
# others.


class Deadlines:
    def __init__(
        self,
        batches: OpenBatches,
        ways: BrokerWays,
        *,
        delivery_timeout_seconds: float,
        alias: str,
        late: Callable[[Mapping[TopicPartition, KafkaError]], None],
    ) -> None:
        """`late` is called with the partitions whose oldest batch is late, and a TIMEOUT for each."""
        self._batches = batches
        self._ways = ways
        self._delivery_timeout_seconds = delivery_timeout_seconds
        self._alias = alias
        self._late = late
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def watch(self, pending: PendingBatch) -> None:
        """The batch was queued."""
        if self._timer is None:
            self._timer = self._loop.call_at(pending.deadline, self._check)

    def deadline_of(self, pending: PendingBatch) -> float:
        """A loop time that moves while the broker accepts what is before this batch, until the batch has
        failed once."""
        if pending.last_error is not None:
            return pending.deadline
        taken_until = self._ways.taken_until(self._batches.queue_of(pending.partition).connection)
        moved = max(pending.deadline, taken_until + self._delivery_timeout_seconds)
        return min(moved, pending.latest)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        """Runs at the deadline of what was then the oldest batch; mostly it was delivered long ago."""
        self._timer = None
        now = self._loop.time()
        oldest = self._batches.oldest(self.deadline_of)
        late = {
            pending.partition: self._lateness(pending)
            for pending in oldest
            if self.deadline_of(pending) <= now
        }
        if late:
            self._late(late)
        elif oldest:
            self._timer = self._loop.call_at(min(map(self.deadline_of, oldest)), self._check)

    def _lateness(self, pending: PendingBatch) -> KafkaError:
        error = pending.last_error or from_reason(
            TIMEOUT,
            f"send a batch to {pending.partition}",
            alias=self._alias,
            detail=f"{self._delivery_timeout_seconds:g} s",
        )
        return about(pending.partition, error)
