"""What one look into a log takes for its end."""

import asyncio

import pytest

from twinlog.batches import DecodedRecord
from twinlog.errors import FatalKafkaError, TransientKafkaError
from twinlog.kafka.deadline import pause
from twinlog.kafka.raw import BatchReader
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import source_batch
from unit.kafka.source_rig import source_rig

P = TopicPartition("t", 0)
BATCH = source_batch([DecodedRecord(0, 0, None, b"x", ())])
MAX_BYTES = 1 << 20


async def test_a_leader_that_does_not_know_of_an_end_yet_is_asked_again() -> None:
    """After a change of leaders the high watermark is behind for a while: what is above it is not shown."""
    async with source_rig({P: 1}) as source:
        source.append(P, [BATCH])
        reader = BatchReader(source.session, read_committed=False)

        async def replicate() -> None:
            await pause(2.0)
            source.append(P, [BATCH, BATCH])

        async with asyncio.TaskGroup() as group:
            group.create_task(replicate(), name="replicate")
            fetched = await reader.fetch(P, 1, max_bytes=MAX_BYTES, known_end=3)
    assert [batch.header.base_offset for batch in fetched.batches] == [1, 2]


async def test_an_end_that_is_never_reached_is_an_error_and_no_end() -> None:
    async with source_rig({P: 1}, timeout_seconds=5.0) as source:
        source.append(P, [BATCH])
        reader = BatchReader(source.session, read_committed=False)
        with pytest.raises(TransientKafkaError) as raised:
            await reader.fetch(P, 1, max_bytes=MAX_BYTES, known_end=2)
    assert raised.value.reason == "KAFKA_TIMEOUT"


@pytest.mark.parametrize("known_end", [None, 1])
async def test_the_end_of_the_log_is_told_at_once(known_end: int | None) -> None:
    async with source_rig({P: 1}) as source:
        source.append(P, [BATCH])
        reader = BatchReader(source.session, read_committed=False)
        fetched = await reader.fetch(P, 1, max_bytes=MAX_BYTES, known_end=known_end)
        assert (fetched.batches, fetched.end_offset, len(source.asked)) == ((), 1, 1)


async def test_a_header_that_cannot_be_true_is_an_error_of_its_partition() -> None:
    """Brokers send what lies on their disks."""
    async with source_rig({P: 1}) as source:
        source.append(P, [BATCH])
        damaged = bytearray(BATCH)
        damaged[16] = 7  # the magic byte
        batches = source.partition(P).log.batches
        batches[0] = batches[0]._replace(data=bytes(damaged))
        with pytest.raises(FatalKafkaError, match="magic 7 is unknown"):
            await BatchReader(source.session, read_committed=False).fetch(P, 0, max_bytes=MAX_BYTES)
