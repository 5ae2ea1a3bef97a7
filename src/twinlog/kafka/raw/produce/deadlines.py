"""Which batches are late. A batch that waits for its turn is not late as long as its broker accepts
others."""

import asyncio
from collections.abc import Callable, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.errors import TIMEOUT, from_reason
from twinlog.kafka.raw.errors import about
from twinlog.kafka.raw.produce.broker_ways import BrokerWays
from twinlog.kafka.raw.produce.open_batches import OpenBatches
from twinlog.kafka.raw.produce.partition_queue import PendingBatch
from twinlog.model import TopicPartition


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
