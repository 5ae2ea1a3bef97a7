"""The batches of a producer that are not acknowledged yet, in a queue for each partition."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
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
