"""Copies one partition with the raw parts only, like a task of the source service without the service."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from twinlog.batches import CopyPolicy, Lane, LaneReason, OutgoingBatch, prepare
from twinlog.kafka.clients import aiokafka_client_options, fetch_options
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw import (
    FetchedPartition,
    FetchFailure,
    ProducerSettings,
    RawFetcher,
    RawProducer,
    TransactionRotation,
)
from twinlog.model import TopicPartition


@asynccontextmanager
async def open_session(
    alias: str, properties: Mapping[str, str], *, timeout_seconds: float = 20.0
) -> AsyncIterator[DataClientPool]:
    """A session that the context closes at its end."""
    session = DataClientPool(
        alias, aiokafka_client_options(properties, alias=alias), timeout_seconds=timeout_seconds
    )
    try:
        yield session
    finally:
        await session.close()


class RawPartitionCopy:
    """A position that moves with the copy, and the exact offset map."""

    def __init__(self, source: TopicPartition, target: TopicPartition, policy: CopyPolicy) -> None:
        self.source = source
        self.target = target
        self.policy = policy
        self.position = 0
        self.target_offsets: dict[int, int] = {}
        """Source offset -> target offset."""
        self.lanes: set[tuple[Lane, LaneReason]] = set()
        self.fault_reason: str | None = None

    async def fetch(self, fetcher: RawFetcher) -> FetchedPartition | FetchFailure | None:
        """The next answer from the position."""
        answers = await fetcher.poll({self.source: self.position}, max_wait_seconds=2.0)
        return answers.get(self.source)

    async def copy(
        self, fetcher: RawFetcher, sink: RawProducer | TransactionRotation, stop_offset: int
    ) -> None:
        """Copy until the position reaches `stop_offset` or something blocks it."""
        while self.position < stop_offset and self.fault_reason is None:
            fetched = await self.fetch(fetcher)
            if isinstance(fetched, FetchFailure):
                raise fetched.error
            if fetched is not None:
                await self._send(fetched, sink)

    async def _send(self, fetched: FetchedPartition, sink: RawProducer | TransactionRotation) -> None:
        prepared = prepare(
            fetched.records,
            wanted_offset=self.position,
            policy=self.policy,
            aborted=fetched.aborted,
            backlog=True,
        )
        producer = sink.begin() if isinstance(sink, TransactionRotation) else sink
        acknowledged = [(batch, producer.send(self.target, batch)) for batch in prepared.batches]
        await (producer.flush() if producer is sink else producer.commit())
        for batch, base_offset in acknowledged:
            self._note(batch, base_offset.result())
        self.position = prepared.next_offset
        self.lanes |= {(batch.lane, batch.reason) for batch in prepared.batches}
        self.fault_reason = prepared.fault.reason if prepared.fault else None

    def _note(self, batch: OutgoingBatch, base_offset: int) -> None:
        for first, count in batch.runs:
            for source_offset in range(first, first + count):
                target_offset = batch.target_offset(source_offset, base_offset)
                assert target_offset is not None
                self.target_offsets[source_offset] = target_offset


@asynccontextmanager
async def open_fetcher(
    session: DataClientPool,
    properties: Mapping[str, str] | None = None,
    *,
    topic_ids: Mapping[str, str] | None = None,
) -> AsyncIterator[RawFetcher]:
    """A fetcher with short long polls."""
    options = fetch_options({"fetch.max.wait.ms": "200", **(properties or {})})
    async with RawFetcher(session, options, topic_ids={} if topic_ids is None else topic_ids) as fetcher:
        yield fetcher


QUICK = ProducerSettings(
    delivery_timeout_seconds=20.0, request_timeout_seconds=10.0, unknown_topic_seconds=1.0
)
"""Settings for tests that fail fast."""
