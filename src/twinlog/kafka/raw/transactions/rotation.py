"""Uses two transactional ids in turn, so that a transaction need not wait for the markers of the last one.

After an acknowledged commit its markers are still being written, and the id's next transaction would get
CONCURRENT_TRANSACTIONS. The other id can begin at once, even while the commit is unanswered; with a distant
cluster this saves a round trip. A transaction that begins so early is not committed before the earlier one
was acknowledged, so order and atomicity are those of a single id.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from twinlog.errors import KafkaError
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw.produce.producer import ProducerState, RawProducer
from twinlog.kafka.raw.settings import ProducerSettings
from twinlog.model import TopicPartition


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
