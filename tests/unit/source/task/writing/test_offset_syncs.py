"""Offset syncs of a task: what counts as written."""

import asyncio
from typing import Any, Self

from twinlog.batches import NewRecord, OffsetRun, OutgoingBatch, build_batch
from twinlog.errors import TransientKafkaError
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.task.writing.round import OffsetSyncs, paced_syncs

ORDERS = TopicPartition("orders", 0)


class Producer:
    """Takes what is sent, and answers when the test says so."""

    def __init__(self) -> None:
        self.sent: list[asyncio.Future[int]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> "asyncio.Future[int]":
        self.sent.append(asyncio.get_running_loop().create_future())
        return self.sent[-1]

    async def flush(self) -> None:
        await asyncio.wait(self.sent)


async def test_only_syncs_that_the_cluster_has_acknowledged_count_as_written() -> None:
    nothing: Any = None
    producer = Producer()
    syncs = OffsetSyncs(
        topic="syncs",
        session=nothing,
        settings=nothing,
        paced=paced_syncs(0, flush_seconds=0.0),
        clock=FakeClock(),
        open_producer=lambda _session, _settings: producer,
    )
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(syncs.run(stop), name="syncs")
        for sends in (1, 2):
            batch = build_batch([NewRecord(b"k", b"v", 0)])._replace(runs=(OffsetRun(sends * 10, 1),))
            syncs.acknowledged(ORDERS, batch, sends * 100)

            async def is_sent(sends: int = sends) -> bool:
                return len(producer.sent) == sends

            await eventually(is_sent)
            assert syncs.emitted == 0
        producer.sent[0].set_exception(TransientKafkaError("refused", reason="NOT_ENOUGH_REPLICAS"))
        producer.sent[1].set_result(7)

        async def is_counted() -> bool:
            return syncs.emitted == 1

        await eventually(is_counted)
        stop.set()
