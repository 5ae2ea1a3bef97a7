"""What is held of many preserved copies with a backlog, while their target is slow."""

import asyncio
from typing import cast

import pytest

from twinlog.batches import CopyPolicy, DecodedRecord
from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.deadline import pause
from twinlog.kafka.errors import TIMEOUT, from_reason
from twinlog.kafka.raw import RawFetcher
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import source_batch
from twinlog.testing.virtual_time import FakeClock, LoopClock
from twinlog_source.preserved.append_steps import Send
from twinlog_source.task.reading.fetch_schedule import ReadShares
from unit.kafka.source_rig import source_rig
from unit.source.preserved.preserved_rig import PreservedRig
from unit.source.task.halves import reading_half

PARTITIONS = [TopicPartition("t", number) for number in range(150)]
BATCH = source_batch([DecodedRecord(0, 0, None, b"x" * (32 << 10), ())])
BATCHES = 4
MOST_BYTES = 4 << 20
ANSWER_BYTES = 512 << 10
REQUESTS = 4
"""In flight to the only broker."""
NO_ANSWER = from_reason(TIMEOUT, "write preserved copies")


@pytest.mark.parametrize(("count", "silent"), [(150, 0), (150, 8), (100, 60)])
async def test_what_is_held_stays_bounded_and_every_partition_goes_on(count: int, silent: int) -> None:
    """Leaders of the target do not answer for `silent` partitions, which may have more than the limit alone,
    and slowly for the others."""
    partitions = PARTITIONS[:count]
    rig = PreservedRig(shares=ReadShares(most_bytes=MOST_BYTES), clock=cast("FakeClock", LoopClock()))
    at_target = {each: rig.assigned(each) for each in partitions}
    for each in partitions:
        rig.copies[each].policy = CopyPolicy(keeps_offsets=True)
    held: list[int] = []
    stop = asyncio.Event()
    async with (
        source_rig(dict.fromkeys(partitions, 1)) as source,
        RawFetcher(source.session, FetchOptions()) as fetcher,
        asyncio.TaskGroup() as group,
    ):
        for each in partitions:
            source.append(each, [BATCH] * BATCHES)
        reader = reading_half(
            fetcher,
            rig.copies,
            max_buffered_bytes=2 * ANSWER_BYTES,
            offer=rig.preserved.offer,
            shares=rig.shares,
        )
        rig.preserved.wake_reader = reader.wake
        group.create_task(reader.run(stop), name="reader")
        await pause(60)
        held.append(rig.shares.held_bytes)
        async with asyncio.timeout(60):
            while any(rig.copies[each].committed < BATCHES for each in partitions[silent:]):
                for each in partitions[silent:]:
                    match at_target[each].appends.next():
                        case Send() as send:
                            await pause(0.005)
                            rig.answered(at_target[each], send, send.first)
                            held.append(rig.shares.held_bytes)
                await pause(0.005)
                for each in partitions[:silent]:
                    if rig.copies[each].held_bytes:
                        rig.failed(at_target[each], NO_ANSWER)
        stop.set()
        reader.wake()
    assert MOST_BYTES <= max(held) <= 1.25 * MOST_BYTES + (REQUESTS + 1) * ANSWER_BYTES
    assert rig.shares.held_bytes == sum(rig.copies[each].held_bytes for each in partitions[:silent])
