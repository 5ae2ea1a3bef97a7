"""Quiet partitions are asked for together: no record waits for the end of another partition's long poll.

The reading half as it is, before brokers that poll long, in virtual time; the writing half takes what has
arrived, and a few milliseconds for it.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from twinlog.batches import CopyPolicy, DecodedRecord
from twinlog.batches.bodies import OpenRecord
from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.raw import RawFetcher
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import source_batch
from twinlog_source.records.changing import Changed
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.fetch_schedule import Throttle
from twinlog_source.task.reading.source_reader import SourceReader
from unit.kafka.source_rig import SourceRig, source_rig
from unit.source.task.halves import reading_half

BATCH = source_batch([DecodedRecord(0, 0, None, bytes(1000), ())])
LARGE = source_batch([DecodedRecord(0, 0, None, bytes(200_000), ())])
LOAD_SECONDS = 1
ROUND_SECONDS = 0.004
ENDING_SECONDS = 0.001
"""The last request of a round."""


@dataclass(slots=True)
class Copying:
    """One task's reading half, and a writing half that keeps an account."""

    leaders: Mapping[TopicPartition, int]
    source: SourceRig = field(init=False)
    arrived: dict[TopicPartition, int] = field(default_factory=dict)
    written: dict[TopicPartition, int] = field(default_factory=dict)
    copies: dict[TopicPartition, PartitionCopy] = field(default_factory=dict)
    throttle: Throttle = field(default_factory=Throttle)
    spark_seconds: float = 0.0
    """How long Spark has the records of one fetch; 0 = it changes none."""
    options: FetchOptions = field(default_factory=FetchOptions)

    async def run(self, load: Sequence[tuple[float, TopicPartition, bytes]]) -> None:
        """Append each batch at its time, and return when everything is written."""
        self.copies = {
            each: PartitionCopy(
                partition=each,
                target_topic="A.t",
                committed=0,
                random=lambda: 1.0,
                policy=CopyPolicy(coalesce_below_bytes=0),
            )
            for each in self.leaders
        }
        async with (
            source_rig(self.leaders) as self.source,
            RawFetcher(self.source.session, self.options) as fetcher,
            asyncio.TaskGroup() as group,
        ):
            source_reader = reading_half(
                fetcher,
                self.copies,
                throttle=self.throttle,
                max_buffered_bytes=8 << 20,
                change=self._change,
                changed_topics=lambda _: self.spark_seconds > 0,
            )
            stop, loop = asyncio.Event(), asyncio.get_running_loop()
            group.create_task(source_reader.run(stop), name="source_reader")
            writing = group.create_task(self._write(source_reader), name="write")
            # Every partition has answered once, and is polled long.
            await self._until(lambda: self.source.waiting > 0 and loop.time() > 1)
            self.source.asked.clear()
            self.source.most_waiting = 0
            began = loop.time()
            for at, partition, batch in load:
                await pause(began + at - loop.time())
                self.source.append(partition, [batch])
            expected: dict[TopicPartition, int] = {}
            for _, partition, _ in load:
                expected[partition] = expected.get(partition, 0) + 1
            await self._until(lambda: self.written == expected)
            writing.cancel()
            stop.set()
            source_reader.wake()

    async def _change(self, _: TopicPartition, records: Sequence[OpenRecord]) -> Changed:
        await pause(self.spark_seconds)
        return Changed(passed={record[0]: record for record in records})

    async def _write(self, source_reader: SourceReader) -> None:
        while True:
            taken = []
            while (chunk := source_reader.pop()) is not None:
                taken.append(chunk)
            if not taken:
                source_reader.arrived.clear()
                source_reader.release()
                await source_reader.arrived.wait()
                continue
            await pause(ROUND_SECONDS - ENDING_SECONDS)
            source_reader.release()
            await pause(ENDING_SECONDS)
            for chunk in taken:
                partition = chunk.copy.partition
                chunk.copy.sent = chunk.prepared.next_offset
                chunk.copy.commit(chunk.prepared.next_offset)
                self.written[partition] = self.written.get(partition, 0) + len(chunk.prepared.batches)

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(600):
            while not condition():
                await pause(0.01)


async def pause(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)  # noqa: TID251  # in virtual time


def led_by(brokers: int, partitions: int) -> Mapping[TopicPartition, int]:
    return {TopicPartition("t", number): 1 + number % brokers for number in range(partitions)}


def steady(rate: float, seconds: float, partitions: Sequence[TopicPartition]) -> list[Any]:
    rng = random.Random(7)
    return [(number / rate, rng.choice(partitions), BATCH) for number in range(int(rate * seconds))]


@pytest.mark.parametrize("spark_seconds", [0.0, 0.003])
@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize(("rate", "partitions"), [(50, 24), (200, 24), (1000, 8)])
async def test_a_broker_gets_one_request_at_a_time_for_all_its_quiet_partitions(
    brokers: int, rate: int, partitions: int, spark_seconds: float
) -> None:
    copying = Copying(led_by(brokers, partitions), spark_seconds=spark_seconds)
    await copying.run(steady(rate, LOAD_SECONDS, list(copying.leaders)))
    assert copying.source.most_waiting == brokers
    assert all(len(asked.positions) >= partitions // brokers for asked in copying.source.asked)
    assert len(copying.source.asked) <= (rate + brokers) * LOAD_SECONDS


async def test_what_comes_while_a_round_is_written_costs_one_fetch() -> None:
    copying = Copying(led_by(1, 8))
    await copying.run(steady(1000, LOAD_SECONDS, list(copying.leaders)))
    rounds = LOAD_SECONDS / ROUND_SECONDS
    assert len(copying.source.asked) < 1.1 * rounds


@pytest.mark.parametrize("limited", [False, True])
async def test_a_backlog_is_read_beside_quiet_partitions_and_keeps_no_place_of_theirs(limited: bool) -> None:
    leaders = {**led_by(1, 24), TopicPartition("backlog", 0): 1, TopicPartition("backlog", 1): 1}
    copying = Copying(leaders)
    if limited:
        copying.throttle.set_limits(0, {"backlog": 2_000_000}, 0.0)
    quiet = [partition for partition in leaders if partition.topic == "t"]
    backlog = [(0.0, TopicPartition("backlog", number % 2), LARGE) for number in range(40)]
    load = sorted([*backlog, *steady(100, 4, quiet)], key=lambda each: each[0])
    await copying.run(load)
    assert copying.source.most_waiting < 4, "the last place ends the long polls of those that have none"


async def test_a_backlog_that_spark_has_in_small_parts_keeps_no_quiet_partition_resting() -> None:
    """Its segments, or the configured size of a fetch, are small."""
    copying = Copying(
        led_by(1, 24), spark_seconds=0.003, options=FetchOptions(max_partition_bytes=len(BATCH))
    )
    backlog, quiet, *_ = copying.leaders
    await copying.run([*[(0.0, backlog, BATCH)] * 200, (0.1, quiet, BATCH)])
    asked, of_quiet = copying.source.asked, copying.source.asked_for(quiet)
    assert asked.index(of_quiet[0]) < 10
