"""A broker that throttles its client has nothing yet: no failure, and no request before that is over."""

import asyncio
from typing import Any

import pytest

from twinlog.batches import DecodedRecord
from twinlog.errors import TransientKafkaError
from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.deadline import deadline
from twinlog.kafka.raw import BatchReader, FetchedPartition, RawFetcher
from twinlog.kafka.reader import KafkaLogReader
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import source_batch
from unit.kafka.source_rig import SourceRig, source_rig

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH = source_batch([DecodedRecord(0, 0, None, b"v", ())])


def throttle(source: SourceRig, seconds: int, *, times: int | None) -> None:
    """The next answers of the first broker."""
    source.kafka.faults.begin(api="fetch", node_id=1, throttle_ms=1000 * seconds, times=times)


async def test_a_throttled_answer_is_no_failure_and_the_broker_is_asked_when_it_is_over() -> None:
    async with source_rig({ONE: 1, OTHER: 2}) as source:
        throttle(source, 5, times=2)
        source.append(ONE, [BATCH])
        answers: dict[TopicPartition, Any] = {}
        async with RawFetcher(source.session, FetchOptions()) as fetcher:
            while ONE not in answers:
                answers |= await fetcher.poll({ONE: 0, OTHER: 0}, max_wait_seconds=1.0)
        assert all(isinstance(answer, FetchedPartition) for answer in answers.values())
        assert len(answers[ONE].records) == len(BATCH)
        first, second, third = (asked.at for asked in source.asked if asked.node == 1)
        assert second - first >= 5.0
        assert third - second >= 5.0
        # The broker that does not throttle answers meanwhile.
        assert len([asked for asked in source.asked if asked.node == 2]) > 2


@pytest.mark.parametrize("kind", ["batches", "records"])
async def test_readers_wait_out_a_throttle_beyond_their_time_out(kind: str) -> None:
    async with source_rig({ONE: 1}, timeout_seconds=4.0) as source:
        throttle(source, 20, times=2)
        source.append(ONE, [BATCH])
        if kind == "batches":
            batches = await BatchReader(source.session, read_committed=True).fetch(ONE, 0, max_bytes=1000)
            assert len(batches.batches) == 1
        else:
            reader = KafkaLogReader(source.session, FetchOptions(), read_committed=True, timeout_seconds=4.0)
            fetched = await reader.fetch(ONE, 0, max_wait_seconds=0)
            assert [record.value for record in fetched.records] == [b"v"]
        assert asyncio.get_running_loop().time() >= 40


async def test_a_throttle_moves_the_deadline_of_who_asked() -> None:
    """As of a filler, which looks for its marker and must not doubt a leader that only throttles it."""
    async with source_rig({ONE: 1}) as source:
        throttle(source, 20, times=2)
        source.append(ONE, [BATCH])
        reader = BatchReader(source.session, read_committed=False)
        async with deadline(5.0, "look") as limit:
            fetched = await reader.fetch(ONE, 0, max_bytes=1, limit=limit)
        assert len(fetched.batches) == 1


async def test_a_reader_that_is_throttled_without_end_says_so() -> None:
    async with source_rig({ONE: 1}, timeout_seconds=4.0) as source:
        throttle(source, 30, times=None)
        reader = BatchReader(source.session, read_committed=True)
        with pytest.raises(TransientKafkaError) as caught:
            await reader.fetch(ONE, 0, max_bytes=1000)
        assert caught.value.reason == "QUOTA_EXCEEDED"
