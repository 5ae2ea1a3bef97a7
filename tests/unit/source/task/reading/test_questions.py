"""What the leaders are asked about logs: together, in the background, and at nobody else's cost."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import pytest

from twinlog.batches import CopyPolicy, DecodedRecord
from twinlog.batches.bodies import OpenRecord
from twinlog.batches.header import HIGHEST_OFFSET
from twinlog.batches.prepared import NOT_YET
from twinlog.errors import TransientKafkaError, WireFormatError
from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.deadline import pause
from twinlog.kafka.raw import RawFetcher
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import old_message, source_batch
from twinlog_source.log.facts import EpochStart
from twinlog_source.records.changing import Changed
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import Echoes
from twinlog_source.task.reading.source_reader import SourceReader
from unit.kafka.source_rig import SourceRig, source_rig
from unit.source.task.halves import reading_half

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH = source_batch([DecodedRecord(0, 0, None, b"v", ())])
UNKNOWN_EPOCH = 77
"""Not that of the batches."""

Copies = dict[TopicPartition, PartitionCopy]


def copies_of(partitions: Collection[TopicPartition], *, committed: int = 0) -> Copies:
    return {
        each: PartitionCopy(partition=each, target_topic="A.t", committed=committed, random=lambda: 1.0)
        for each in partitions
    }


async def reading(
    copies: Copies, story: Callable[[SourceRig, SourceReader], Awaitable[None]], **asked: Any
) -> None:
    """The reading half, with a writing half that takes whatever comes, for as long as the story lasts."""
    async with (
        source_rig(dict.fromkeys(copies, 1)) as source,
        RawFetcher(source.session, FetchOptions()) as fetcher,
        asyncio.TaskGroup() as group,
    ):
        source_reader = reading_half(fetcher, copies, max_buffered_bytes=8 << 20, **asked)

        async def write() -> None:
            while True:
                source_reader.arrived.clear()
                while source_reader.pop() is not None:
                    pass
                source_reader.release()
                await source_reader.arrived.wait()

        stop = asyncio.Event()
        writing = group.create_task(write(), name="write")
        group.create_task(source_reader.run(stop), name="source_reader")
        async with asyncio.timeout(600):
            await story(source, source_reader)
        writing.cancel()
        stop.set()
        source_reader.wake()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await pause(0.01)


async def test_a_leader_that_does_not_answer_holds_up_no_other_partition() -> None:
    copies = copies_of((ONE, OTHER))
    copies[ONE].epochs = (EpochStart(UNKNOWN_EPOCH, 0),)
    asked: list[list[TopicPartition]] = []
    answered = asyncio.Event()

    async def other_leaders(under_others: Sequence[PartitionCopy]) -> Collection[TopicPartition]:
        asked.append([copy.partition for copy in under_others])
        await answered.wait()
        return ()

    async def story(source: SourceRig, _: SourceReader) -> None:
        source.append(ONE, [BATCH])
        await until(lambda: bool(asked))
        before = len(source.asked_for(ONE))
        for number in range(5):
            source.append(OTHER, [BATCH])
            await until(lambda number=number: copies[OTHER].fetched == number + 1)  # type: ignore[misc]
        assert copies[ONE].fetched == 0
        assert len(source.asked_for(ONE)) == before
        answered.set()
        await until(lambda: copies[ONE].fetched == 1)
        assert asked == [[ONE]]

    await reading(copies, story, on_other_leaders=other_leaders)


async def test_what_was_fetched_before_a_partition_was_moved_is_not_taken_after_it() -> None:
    copies = copies_of((ONE,))
    copies[ONE].epochs = (EpochStart(UNKNOWN_EPOCH, 0),)
    asked, answered = asyncio.Event(), asyncio.Event()

    async def other_leaders(_: Sequence[PartitionCopy]) -> Collection[TopicPartition]:
        asked.set()
        await answered.wait()
        return ()

    async def story(source: SourceRig, source_reader: SourceReader) -> None:
        source.append(ONE, [BATCH])
        await asked.wait()
        copies[ONE].restart_at(0)
        copies[ONE].pause(paused=True)
        answered.set()
        await until(lambda: not source_reader.in_question)
        assert copies[ONE].fetched == 0

    await reading(copies, story, on_other_leaders=other_leaders)


async def test_what_arrives_of_a_partition_after_it_was_paused_is_not_taken() -> None:
    """A fetch was under way: its answer would be copied while the partition is told to be paused."""
    copies = copies_of((ONE, OTHER))

    async def story(source: SourceRig, source_reader: SourceReader) -> None:
        await until(lambda: bool(source.asked_for(ONE)))
        copies[ONE].pause(paused=True)
        source.append(ONE, [BATCH])
        source.append(OTHER, [BATCH])
        await until(lambda: copies[OTHER].fetched == 1)
        assert copies[ONE].fetched == 0
        copies[ONE].pause(paused=False)
        source_reader.wake()
        await until(lambda: copies[ONE].fetched == 1)

    await reading(copies, story)


async def test_partitions_that_retention_overtook_are_looked_at_together_while_others_go_on() -> None:
    overtaken = {TopicPartition("overtaken", number) for number in range(100)}
    copies = {**copies_of(overtaken, committed=5), **copies_of([OTHER])}
    looked_at: list[set[TopicPartition]] = []
    answered = asyncio.Event()

    async def out_of_range(beyond: Sequence[PartitionCopy]) -> None:
        looked_at.append({copy.partition for copy in beyond})
        await answered.wait()
        for copy in beyond:
            copy.restart_at(0)

    async def story(source: SourceRig, _: SourceReader) -> None:
        await until(lambda: bool(looked_at))
        source.append(OTHER, [BATCH])
        await until(lambda: copies[OTHER].fetched == 1)
        assert looked_at == [overtaken]
        answered.set()
        source.append(min(overtaken), [BATCH])
        await until(lambda: copies[min(overtaken)].fetched == 1)

    await reading(copies, story, on_out_of_range=out_of_range)


async def test_writers_that_are_not_known_hold_up_no_other_partition() -> None:
    copies = copies_of((ONE, OTHER))
    for copy in copies.values():
        copy.origins = {}
    is_known = False

    async def who_wrote(asked: Mapping[TopicPartition, Collection[int]]) -> Echoes:
        found = {each: dict.fromkeys(ids, (0, 0)) for each, ids in asked.items() if is_known or each != ONE}
        if not found:
            raise TransientKafkaError("nothing is known of ONE", reason="ORIGIN_UNKNOWN")
        return found

    async def story(source: SourceRig, _: SourceReader) -> None:
        nonlocal is_known
        source.append(ONE, [BATCH])
        source.append(OTHER, [BATCH])
        await until(lambda: copies[OTHER].fetched == 1)
        await until(lambda: copies[ONE].reason == "ORIGIN_UNKNOWN")
        assert copies[OTHER].failures == 0
        assert copies[ONE].fetched == 0
        is_known = True
        await until(lambda: copies[ONE].fetched == 1)

    await reading(copies, story, who_wrote=who_wrote)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("echoes", [0, 2])
async def test_old_messages_are_copies_only_where_those_of_no_known_producer_are(
    magic: int, echoes: int
) -> None:
    """Brokers refuse batches with producer ids where they would store an older format: no flow that names its
    producers has written these."""
    copies = copies_of((ONE,))
    copies[ONE].origins = {}

    async def who_wrote(asked: Mapping[TopicPartition, Collection[int]]) -> Echoes:
        assert asked == {ONE: {-1}}
        return {ONE: {-1: (0, echoes)}}

    async def story(source: SourceRig, _: SourceReader) -> None:
        source.append(ONE, [old_message(0, b"k", b"v", magic=magic)] * 3)
        await until(lambda: copies[ONE].fetched == 3)
        assert copies[ONE].counters.echoes == echoes

    await reading(copies, story, who_wrote=who_wrote)


async def test_who_may_write_copies_later_is_asked_about_again() -> None:
    """The flow back has not seen yet that its source was created again, and keeps its producer."""
    copies = copies_of((ONE,))
    copies[ONE].origins = {}
    answers = [NOT_YET, NOT_YET, (2, HIGHEST_OFFSET)]

    async def who_wrote(asked: Mapping[TopicPartition, Collection[int]]) -> Echoes:
        (ids,) = asked.values()
        return {ONE: dict.fromkeys(ids, answers.pop(0))}

    async def story(source: SourceRig, _: SourceReader) -> None:
        for number in range(5):
            source.append(ONE, [BATCH])
            await until(lambda number=number: copies[ONE].fetched == number + 1)  # type: ignore[misc]
        assert not answers
        assert copies[ONE].counters.echoes == 3

    await reading(copies, story, who_wrote=who_wrote)


@pytest.mark.parametrize("error", [WireFormatError("not readable", reason="CORRUPT_BATCH"), MemoryError()])
async def test_a_record_that_could_not_be_opened_for_spark_is_not_taken_for_a_filtered_one(
    error: Exception,
) -> None:
    copies = copies_of((ONE,))
    failing = True

    def before(records: Sequence[OpenRecord]) -> list[OpenRecord]:
        if failing and records[0][0] == 1:
            raise error
        return list(records)

    async def change(_: TopicPartition, records: Sequence[OpenRecord]) -> Changed:
        return Changed(passed={record[0]: record for record in records})

    async def story(source: SourceRig, source_reader: SourceReader) -> None:
        nonlocal failing
        copies[ONE].policy = CopyPolicy(transform=before)
        source_reader.changed_topics = lambda _: True
        source.append(ONE, [BATCH, BATCH, BATCH])
        await until(lambda: copies[ONE].fetched >= 1)
        assert copies[ONE].fetched == 1
        failing = False

    await reading(copies, story, change=change)
