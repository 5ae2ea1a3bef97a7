"""What is read while the writing half has enough of what it writes in rounds."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from twinlog.batches import Codec, CopyPolicy, DecodedRecord, TargetTopicLimits
from twinlog.clock import Clock
from twinlog.kafka.raw import FetchedPartition, FetchSizes
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.source_batches import source_batch
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import PreparedChunk
from twinlog_source.task.reading.source_reader import OVERFULL, SourceReader
from unit.source.task.halves import reading_half

ROUNDS, PRESERVED = TopicPartition("rounds", 0), TopicPartition("preserved", 0)
BATCH = source_batch([DecodedRecord(0, 0, None, b"x" * 1_000, ())])
BUFFER_BYTES = 20_000
AS_IT_IS = CopyPolicy()


@dataclass(eq=False)
class EndlessLogs:
    """Each poll brings one batch of each partition that is wanted, after a round trip."""

    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    batch: bytes = BATCH
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
                error_code=0,
                preferred_replica=-1,
                fetch_offset=offset,
                records=memoryview(offset.to_bytes(8) + self.batch[8:]),
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


def reader_of(
    fetcher: EndlessLogs,
    offered: list[PreparedChunk],
    clock: Clock,
    *,
    partitions: Collection[TopicPartition] = (ROUNDS, PRESERVED),
    policy: CopyPolicy = AS_IT_IS,
) -> SourceReader:
    copies = {
        each: PartitionCopy(
            partition=each, target_topic=each.topic, committed=0, random=lambda: 0.0, policy=policy
        )
        for each in partitions
    }
    for each, copy in copies.items():
        copy.keeps_offsets = each == PRESERVED
    return reading_half(fetcher, copies, clock=clock, max_buffered_bytes=BUFFER_BYTES, offer=offered.append)


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
        while not reader.chunks or sum(each.held_bytes for each in reader.chunks) < BUFFER_BYTES:
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


async def test_what_grows_when_it_is_packed_anew_does_not_overfill_the_buffer() -> None:
    """The target stores uncompressed what the source has compressed."""
    fetcher, offered, stop = EndlessLogs(), list[PreparedChunk](), asyncio.Event()
    fetcher.batch = source_batch([DecodedRecord(0, 0, None, b"x" * 12_000, ())], codec=Codec.ZSTD)
    many = {TopicPartition("rounds", number) for number in range(100)}
    policy = CopyPolicy(target=TargetTopicLimits(codec=Codec.NONE))
    reader = reader_of(fetcher, offered, LoopClock(), partitions=many, policy=policy)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(reader.run(stop), name="reader")
        while not reader.chunks:
            await wait_or_stop(stop, 0.001)
        assert reader.buffered_bytes == sum(each.prepared.size_bytes for each in reader.chunks)
        assert OVERFULL * BUFFER_BYTES <= reader.buffered_bytes <= OVERFULL * BUFFER_BYTES + 13_000
        copied = set[TopicPartition]()
        while copied != many:
            chunk = reader.pop()
            if chunk is None:
                await wait_or_stop(stop, 0.001)
            else:
                copied.add(chunk.copy.partition)
        stop.set()
