"""A finite copy whose end lies in a batch that cannot be opened stops before that batch, and says why."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from twinlog.batches import Codec, CopyPolicy, DecodedRecord
from twinlog.kafka.raw import FetchedPartition, FetchSizes, RawFetcher
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.source_batches import source_batch
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.task.partition import PartitionCopy, State
from twinlog_source.task.reading.horizon import Horizon
from twinlog_source.task.reading.source_reader import SourceReader
from twinlog_source.task.reading.throttle import Throttle

P = TopicPartition("orders", 0)
BATCHES = {
    first: source_batch(
        [DecodedRecord(first + each, 0, None, b"x" * 500, ()) for each in range(5)], codec=Codec.ZSTD
    )
    for first in (0, 5)
}


@dataclass(eq=False)
class SourceLog:
    """Two batches of five records."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def is_asked(self, partition: TopicPartition) -> bool:
        return False

    async def poll(
        self, positions: Mapping[TopicPartition, int], *, max_wait_seconds: float, sizes: FetchSizes
    ) -> dict[TopicPartition, FetchedPartition]:
        return {
            partition: FetchedPartition(
                partition=partition,
                fetch_offset=offset,
                records=memoryview(b"".join(batch for first, batch in BATCHES.items() if first >= offset)),
                aborted=(),
                high_watermark=10,
                last_stable_offset=10,
                log_start_offset=0,
            )
            for partition, offset in positions.items()
        }

    async def pause(self, seconds: float) -> None:
        await wait_or_stop(self.stop, seconds)

    def interrupt(self) -> None:
        pass


async def test_nothing_behind_the_end_of_a_finite_copy_is_read_where_its_batch_is_too_large() -> None:
    nothing: Any = None
    log, copy = SourceLog(), PartitionCopy(partition=P, target_topic="t", committed=0, random=lambda: 0.0)
    reader = SourceReader(
        fetcher=cast("RawFetcher", log),
        copies={P: copy},
        policies={P: CopyPolicy()},
        throttle=Throttle(),
        read_committed=True,
        clock=LoopClock(),
        on_out_of_range=nothing,
        on_other_leaders=nothing,
        max_buffered_bytes=1 << 20,
        horizon=Horizon(until={P: 7}, max_open_bytes=1_000),
    )
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(reader.run(log.stop), name="reader")
        while copy.state is not State.FAULTED:
            await wait_or_stop(log.stop, 0.01)
        log.stop.set()
    assert copy.reason == "BATCH_TOO_LARGE"
    assert "the copy ends within this batch" in copy.message
    read = [each.prepared.next_offset for each in reader.chunks]
    assert read == [5]
