"""What is read while the writing half has enough of what it writes in rounds."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from twinlog.batches import CopyPolicy, DecodedRecord
from twinlog.clock import Clock
from twinlog.kafka.raw import FetchedPartition, FetchSizes, RawFetcher
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.source_batches import source_batch
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.source_reader import PreparedChunk, SourceReader
from twinlog_source.task.reading.throttle import Throttle

ROUNDS, PRESERVED = TopicPartition("rounds", 0), TopicPartition("preserved", 0)
BATCH = source_batch([DecodedRecord(0, 0, None, b"x" * 1_000, ())])
BUFFER_BYTES = 20_000


@dataclass(eq=False)
class EndlessLogs:
    """Each poll brings one batch of each partition that is wanted, after a round trip."""

    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    paused: int = 0

    def is_asked(self, partition: TopicPartition) -> bool:
        return False

    async def poll(
        self, positions: Mapping[TopicPartition, int], *, max_wait_seconds: float, sizes: FetchSizes
    ) -> dict[TopicPartition, FetchedPartition]:
        await wait_or_stop(asyncio.Event(), 0.001)
        return {
            partition: FetchedPartition(
                partition=partition,
                fetch_offset=offset,
                records=memoryview(offset.to_bytes(8) + BATCH[8:]),
                aborted=(),
                high_watermark=1 << 40,
                last_stable_offset=1 << 40,
                log_start_offset=0,
            )
            for partition, offset in positions.items()
        }

    async def pause(self, seconds: float) -> None:
        self.paused += 1
        await wait_or_stop(self.interrupted, seconds)
        self.interrupted.clear()

    def interrupt(self) -> None:
        self.interrupted.set()


def reader_of(fetcher: EndlessLogs, offered: list[PreparedChunk], clock: Clock) -> SourceReader:
    nothing: Any = None
    copies = {
        each: PartitionCopy(partition=each, target_topic=each.topic, committed=0, random=lambda: 0.0)
        for each in (ROUNDS, PRESERVED)
    }
    copies[PRESERVED].keeps_offsets = True
    return SourceReader(
        fetcher=cast("RawFetcher", fetcher),
        copies=copies,
        policies=dict.fromkeys(copies, CopyPolicy()),
        throttle=Throttle(),
        read_committed=True,
        clock=clock,
        on_out_of_range=nothing,
        on_other_leaders=nothing,
        max_buffered_bytes=BUFFER_BYTES,
        offer=offered.append,
    )


async def test_preserved_copies_are_read_on_while_what_is_written_in_rounds_has_no_room() -> None:
    fetcher, offered, stop = EndlessLogs(), list[PreparedChunk](), asyncio.Event()
    reader = reader_of(fetcher, offered, LoopClock())
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(reader.run(stop), name="reader")
        while len(offered) < 500:
            await wait_or_stop(stop, 0.01)
        buffered = len(reader.chunks)
        assert BUFFER_BYTES <= buffered * len(BATCH) <= BUFFER_BYTES + len(BATCH)
        # And what is written in rounds is read again as soon as it has room.
        assert reader.pop() is not None
        while len(reader.chunks) < buffered:
            await wait_or_stop(stop, 0.01)
        stop.set()


async def test_a_full_buffer_is_no_busy_loop_while_preserved_copies_have_enough() -> None:
    fetcher, offered, stop = EndlessLogs(), list[PreparedChunk](), asyncio.Event()
    reader = reader_of(fetcher, offered, LoopClock())
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(reader.run(stop), name="reader")
        while not reader.chunks or sum(each.fetched_bytes for each in reader.chunks) < BUFFER_BYTES:
            await wait_or_stop(stop, 0.01)
        reader.copies[PRESERVED].is_full = True
        await wait_or_stop(stop, 10.0)
        assert fetcher.paused < 100
        before = len(offered)
        reader.copies[PRESERVED].is_full = False
        reader.wake()
        while len(offered) == before:
            await wait_or_stop(stop, 0.001)
        stop.set()
