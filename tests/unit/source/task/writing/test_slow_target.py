"""A target that takes little, as under a producer quota: rounds last a moment, and quiet partitions do not
wait for the backlogs of others.

The reading and the writing half as they are, in virtual time.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import CopyPolicy, DecodedRecord, OutgoingBatch
from twinlog.errors import KafkaError
from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.raw import RawFetcher
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import source_batch
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.source_reader import SourceReader
from twinlog_source.task.writing.round import (
    ROUND_FIRST_BYTES,
    ROUND_LEAST_BYTES,
    ROUND_MAX_BYTES,
    ROUND_SECONDS,
    RoundSize,
)
from twinlog_source.task.writing.target_writer import TargetWriter
from twinlog_source.task.writing.transport import Positions
from unit.kafka.source_rig import source_rig
from unit.source.task.halves import reading_half, writing_half

QUOTA = 200_000
"""Bytes a second."""
BURST_SECONDS = 10.0
"""A broker takes this much of its quota at once before it throttles."""
LARGE = source_batch([DecodedRecord(0, 0, None, bytes(100_000), ())])
SMALL = source_batch([DecodedRecord(0, 0, None, bytes(100), ())])
BUSY = [TopicPartition("busy", number) for number in range(4)]
QUIET = TopicPartition("quiet", 0)


@dataclass(slots=True)
class Quota:
    """A target's, over all its transports."""

    bytes_per_second: float
    debt_bytes: float = field(init=False)
    at: float = 0.0

    def __post_init__(self) -> None:
        self.debt_bytes = -BURST_SECONDS * self.bytes_per_second

    def passed_at(self, size_bytes: int) -> float:
        """When what is sent now has got through; loop time."""
        now = asyncio.get_running_loop().time()
        burst = BURST_SECONDS * self.bytes_per_second
        self.debt_bytes = max(-burst, self.debt_bytes - (now - self.at) * self.bytes_per_second) + size_bytes
        self.at = now
        return now + max(0.0, self.debt_bytes / self.bytes_per_second)


@dataclass(slots=True)
class LimitedTransport:
    quota: Quota
    committed: Callable[[list[TopicPartition], float], None]
    overlaps: bool = False
    partition_failures: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    without_leader: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    failure: KafkaError | None = None
    _sent: list[TopicPartition] = field(default_factory=list)
    _over_at: float = 0.0
    _began: float = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    def begin(self) -> "LimitedTransport":
        self._sent = []
        self._began = asyncio.get_running_loop().time()
        return self

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]:
        acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        acknowledged.set_result(0)
        self._sent.append(partition)
        self._over_at = self.quota.passed_at(batch.size_bytes)
        return acknowledged

    async def store(self, positions: Positions) -> None:
        await pause(self._over_at - asyncio.get_running_loop().time())

    async def commit(self) -> None:
        self.committed(self._sent, asyncio.get_running_loop().time() - self._began)


async def pause(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)  # noqa: TID251  # in virtual time


@dataclass(slots=True)
class Copying:
    quota: Quota = field(default_factory=lambda: Quota(QUOTA))
    rounds_seconds: list[float] = field(default_factory=list)
    quiet_at: list[float] = field(default_factory=list)
    """When each round with records of the quiet partition was committed."""

    async def run(self, *, quiet_every_seconds: float, count: int) -> list[float]:
        """What each record of the quiet partition waited, beside backlogs that do not end."""
        loop = asyncio.get_running_loop()
        copies = {
            each: PartitionCopy(
                partition=each,
                target_topic=f"A.{each.topic}",
                committed=0,
                random=lambda: 1.0,
                policy=CopyPolicy(coalesce_below_bytes=0),
            )
            for each in (*BUSY, QUIET)
        }
        waited = []
        async with (
            source_rig({**dict.fromkeys(BUSY, 1), QUIET: 1}) as source,
            RawFetcher(source.session, FetchOptions()) as fetcher,
            asyncio.TaskGroup() as group,
        ):
            for partition in BUSY:
                source.append(partition, [LARGE] * 300)
            writer = self._writer(reading_half(fetcher, copies, max_buffered_bytes=8 << 20))
            stop = asyncio.Event()
            await writer.open()
            reading = group.create_task(writer.source_reader.run(stop), name="source_reader")
            writing = group.create_task(writer.run(stop), name="target_writer")
            for number in range(count):
                await pause(quiet_every_seconds)
                sent_at = loop.time()
                source.append(QUIET, [SMALL])
                async with asyncio.timeout(3600):
                    while copies[QUIET].committed <= number:
                        await pause(0.01)
                waited.append(loop.time() - sent_at)
            for task in (reading, writing):
                task.cancel()
        return waited

    def _writer(self, reader: SourceReader) -> TargetWriter:
        async def ask_driver() -> Mapping[TopicPartition, int]:
            return {}

        def committed(_sent: list[TopicPartition], seconds: float) -> None:
            self.rounds_seconds.append(seconds)

        return writing_half(
            reader, lambda: LimitedTransport(self.quota, committed), ask_driver, clock=LoopClock()
        )


async def test_a_quiet_partition_does_not_wait_for_the_backlogs_of_others_under_a_producer_quota() -> None:
    waited = await Copying().run(quiet_every_seconds=20.0, count=10)
    assert max(waited) < 15
    assert max(waited[3:]) < 4 * ROUND_SECONDS


async def test_rounds_last_a_moment_once_the_target_has_throttled() -> None:
    copying = Copying()
    await copying.run(quiet_every_seconds=20.0, count=5)
    first_slow = next(at for at, seconds in enumerate(copying.rounds_seconds) if seconds > ROUND_SECONDS)
    assert max(copying.rounds_seconds[first_slow + 3 :]) < 2 * ROUND_SECONDS


# ---------------------------------------------------------------------------------------------------- sizes


def settled(bytes_per_second: float, latency: float, rounds: int = 2000) -> RoundSize:
    size = RoundSize()
    for _ in range(rounds):
        tried = size.size_bytes
        size.passed(tried, latency + tried / bytes_per_second)
    return size


@given(bytes_per_second=st.floats(1000, 1e9), latency=st.floats(0, 1))
def test_a_round_settles_at_what_gets_through_in_a_moment(bytes_per_second: float, latency: float) -> None:
    size = settled(bytes_per_second, latency).size_bytes
    takes = latency + size / bytes_per_second
    assert size == ROUND_LEAST_BYTES or takes <= ROUND_SECONDS * 1.1
    assert size == ROUND_MAX_BYTES or size >= 0.4 * bytes_per_second * (ROUND_SECONDS - latency)


def test_a_target_that_takes_everything_soon_gets_large_rounds() -> None:
    size = RoundSize()
    assert size.size_bytes == ROUND_FIRST_BYTES
    for _ in range(40):
        size.passed(size.size_bytes, 0.05)
    assert size.size_bytes == ROUND_MAX_BYTES


def test_a_burst_that_a_quota_lets_pass_makes_no_round_larger() -> None:
    size = RoundSize()
    for _ in range(20):
        size.passed(size.size_bytes, 0.01)
    assert size.size_bytes == ROUND_FIRST_BYTES


def test_rounds_grow_where_the_source_is_what_limits_them() -> None:
    """It is asked for half of a round, and the last batch of its answer is cut."""
    size = RoundSize()
    for _ in range(40):
        size.passed(int(size.size_bytes * 0.45), 0.05)
    assert size.size_bytes == ROUND_MAX_BYTES


def test_a_small_round_shows_nothing_of_a_large_one() -> None:
    size = settled(1e9, 0)
    for seconds in (0.01, 1.9, 60.0):
        size.passed(1000, seconds)
        assert size.size_bytes == ROUND_MAX_BYTES


@pytest.mark.parametrize("round_bytes", [ROUND_MAX_BYTES, ROUND_MAX_BYTES // 2, 1000])
def test_what_was_given_up_is_tried_with_half(round_bytes: int) -> None:
    size = settled(1e9, 0)
    size.timed_out(round_bytes)
    assert size.size_bytes == max(round_bytes // 2, ROUND_LEAST_BYTES)
