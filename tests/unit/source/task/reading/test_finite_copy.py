"""A finite copy whose end lies in a batch that cannot be opened stops before that batch, and says why. If its
end lies in a compaction hole, it reaches that end."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from twinlog.batches import Codec, CopyPolicy, DecodedRecord
from twinlog.kafka.raw import FetchedPartition, FetchSizes
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.source_batches import source_batch
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.partitions.orders import PartitionState
from twinlog_source.reasons import PartitionReason
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import PreparedChunk
from twinlog_source.task.reading.bounds import Horizon
from twinlog_source.task.reading.source_reader import SourceReader
from unit.source.task.halves import reading_half
from unit.source.task.reading.test_preparing import mistaken_policy

P = TopicPartition("orders", 0)


def _five(first: int) -> list[DecodedRecord]:
    return [DecodedRecord(first + each, 0, None, b"x" * 500, ()) for each in range(5)]


BATCHES = {first: source_batch(_five(first), codec=Codec.ZSTD) for first in (0, 5)}


@dataclass(eq=False)
class SourceLog:
    batches: Mapping[int, bytes] = field(default_factory=lambda: BATCHES)
    """By first offset; each has five records."""
    end: int = 10
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def is_asked(self, partition: TopicPartition) -> bool:
        return False

    async def poll(
        self, positions: Mapping[TopicPartition, int], *, max_wait_seconds: float, sizes: FetchSizes
    ) -> dict[TopicPartition, FetchedPartition]:
        return {
            partition: FetchedPartition(
                partition=partition,
                error_code=0,
                preferred_replica=-1,
                fetch_offset=offset,
                records=memoryview(
                    b"".join(batch for first, batch in self.batches.items() if first + 5 > offset)
                ),
                aborted=(),
                high_watermark=self.end,
                last_stable_offset=self.end,
                log_start_offset=0,
            )
            for partition, offset in positions.items()
        }

    async def pause(self, seconds: float) -> None:
        await wait_or_stop(self.stop, seconds)

    def interrupt(self) -> None:
        pass


def new_copy() -> PartitionCopy:
    return PartitionCopy(partition=P, target_topic="t", committed=0, random=lambda: 0.0)


def reader_of(
    log: SourceLog, copy: PartitionCopy, horizon: Horizon, *, policy: CopyPolicy | None = None
) -> SourceReader:
    copy.policy = policy or CopyPolicy(keeps_offsets=copy.keeps_offsets)
    return reading_half(log, {P: copy}, horizon=horizon)


async def read_until(condition: Callable[[], bool], reader: SourceReader, log: SourceLog) -> None:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(reader.run(log.stop), name="reader")
        try:
            while not condition():
                await wait_or_stop(log.stop, 0.01)
        finally:
            log.stop.set()


async def test_nothing_behind_the_end_of_a_finite_copy_is_read_where_its_batch_is_too_large() -> None:
    log, copy = SourceLog(), new_copy()
    reader = reader_of(log, copy, Horizon(until={P: 7}, max_open_bytes=1_000))
    await read_until(lambda: copy.state is PartitionState.FAULTED, reader, log)
    assert copy.reason == "BATCH_TOO_LARGE"
    assert "the copy ends within this batch" in copy.message
    read = [each.prepared.next_offset for each in reader.chunks]
    assert read == [5]


@pytest.mark.parametrize("survivor", [True, False])
@pytest.mark.parametrize("is_preserved", [True, False])
async def test_a_finite_copy_that_ends_in_a_compaction_hole_reaches_its_end(
    survivor: bool, is_preserved: bool
) -> None:
    """Also if nothing before its end has survived."""
    batches = {0: BATCHES[0]} if survivor else {}
    log = SourceLog(batches={**batches, 20: source_batch(_five(20))}, end=25)
    copy, chunks = new_copy(), list[PreparedChunk]()
    copy.keeps_offsets = is_preserved
    reader = reader_of(log, copy, Horizon(until={P: 10}))
    reader.offer = chunks.append
    await read_until(lambda: copy.fetched >= 10, reader, log)
    chunks += reader.chunks
    assert [each.prepared.next_offset for each in chunks] == [10]
    assert sum(each.prepared.record_count for each in chunks) == (5 if survivor else 0)
    assert copy.waits(LoopClock().monotonic()) == PartitionReason.UNTIL_REACHED


async def test_a_batch_with_an_impossible_offset_does_not_end_a_finite_copy() -> None:
    log, copy = SourceLog(batches={0: BATCHES[0], 1 << 40: source_batch(_five(1 << 40))}, end=25), new_copy()
    reader = reader_of(log, copy, Horizon(until={P: 10}))
    await read_until(lambda: bool(reader.chunks), reader, log)
    (chunk,) = reader.chunks
    assert chunk.prepared.next_offset == 5
    assert chunk.prepared.fault is not None
    assert chunk.prepared.fault.reason == "CORRUPT_BATCH"


@pytest.mark.parametrize("end", [10, 12])
async def test_a_finite_copy_does_not_pass_a_batch_that_twinlog_cannot_prepare(end: int) -> None:
    """Only the batch before it is taken of the fetch, and the end is not reached by that."""
    batches = {0: source_batch(_five(0)), 5: BATCHES[5], 20: source_batch(_five(20))}
    log, copy = SourceLog(batches=batches, end=25), new_copy()
    reader = reader_of(log, copy, Horizon(until={P: end}), policy=mistaken_policy())
    await read_until(lambda: len(reader.chunks) > 1, reader, log)
    before, at_it = list(reader.chunks)[:2]
    assert (before.prepared.next_offset, before.prepared.record_count) == (5, 5)
    assert at_it.prepared.next_offset == 5
    assert at_it.prepared.fault is not None
