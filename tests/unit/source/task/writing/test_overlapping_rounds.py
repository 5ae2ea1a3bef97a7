"""Rounds that overlap over a long way leave what one round after the other would have left."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import pytest

from twinlog.batches import NewRecord, OutgoingBatch, Prepared, build_batch
from twinlog.batches.outgoing import OffsetRun
from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.virtual_time import LoopClock
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.partitions.orders import PartitionState
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import PreparedChunk
from twinlog_source.task.writing.target_writer import TargetWriter
from twinlog_source.task.writing.transport import Positions
from unit.source.task.halves import reading_half, writing_half

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
WAY_SECONDS = 0.06
LAST = 200
"""Records of each partition."""


async def never_ending(seconds: float) -> None:
    await wait_or_stop(asyncio.Event(), seconds)


@dataclass(slots=True)
class Target:
    """What is committed, and the ways in which commits fail."""

    random: random.Random
    failing: float = 0.0
    log: dict[TopicPartition, list[int]] = field(default_factory=lambda: {each: [] for each in PARTITIONS})
    """Source offsets in the order of their commits."""
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    open_commits: int = 0
    most_open: int = 0
    """Rounds that were begun while a commit was unanswered."""
    stored: list[bytes] = field(default_factory=list)
    """The records of our own of each transaction."""

    def failure(self) -> KafkaError | None:
        if self.random.random() >= self.failing:
            return None
        return TransientKafkaError("away", reason="KAFKA_UNAVAILABLE")


class FarTransport:
    overlaps = True

    def __init__(self, target: Target) -> None:
        self.target = target
        self.partition_failures: dict[TopicPartition, KafkaError] = {}
        self.without_leader: dict[TopicPartition, KafkaError] = {}
        self.failure: KafkaError | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    def begin(self) -> "FarTransaction":
        self.target.most_open = max(self.target.most_open, self.target.open_commits)
        return FarTransaction(self.target)


class FarTransaction:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._sent: list[tuple[TopicPartition, OutgoingBatch, asyncio.Future[int]]] = []

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]:
        acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._sent.append((TopicPartition("t", partition.partition), batch, acknowledged))
        return acknowledged

    async def store(self, positions: Positions) -> None:
        self._target.stored.append(b"".join(bytes(batch.records) for batch in positions.values()))
        await never_ending(WAY_SECONDS)
        for _, _, acknowledged in self._sent:
            acknowledged.set_result(0)
        if failure := self._target.failure():
            raise failure

    async def commit(self) -> None:
        self._target.open_commits += 1
        await never_ending(WAY_SECONDS / 2)
        failure = self._target.failure()
        if failure is None or self._target.random.random() < 0.5:
            for partition, batch, _ in self._sent:
                self._target.log[partition] += [
                    first + at for first, count in batch.runs for at in range(count)
                ]
                self._target.positions[partition] = batch.next_source_offset
        await never_ending(WAY_SECONDS / 2)
        self._target.open_commits -= 1
        if failure is not None:
            raise failure


class NothingFetched:
    def interrupt(self) -> None:
        return None


def writer_to(target: Target, clock: Clock) -> TargetWriter:
    copies = {
        each: PartitionCopy(partition=each, target_topic="A.t", committed=0, random=lambda: 0.0)
        for each in PARTITIONS
    }

    async def ask_driver() -> Mapping[TopicPartition, int]:
        return dict(target.positions)

    reader = reading_half(NothingFetched(), copies, clock=clock)
    return writing_half(reader, lambda: FarTransport(target), ask_driver, clock=clock)


def feed(
    writer: TargetWriter, chooser: random.Random, partitions: Sequence[TopicPartition] = PARTITIONS
) -> None:
    """Queue a few records of one of the partitions, as a fetch would."""
    copy = writer.copies[chooser.choice(partitions)]
    count = min(chooser.randint(1, 5), LAST - copy.fetched)
    if copy.state is not PartitionState.RUNNING or not count:
        return
    batches = tuple(
        build_batch([NewRecord(None, b"%d" % offset, offset)])._replace(
            runs=(OffsetRun(offset, 1),), next_source_offset=offset + 1
        )
        for offset in range(copy.fetched, copy.fetched + count)
    )
    copy.fetched += count
    writer.source_reader.chunks.append(
        PreparedChunk(
            copy=copy,
            generation=copy.generation,
            prepared=Prepared(batches=batches, next_offset=copy.fetched),
            held_bytes=10,
        )
    )
    writer.source_reader.arrived.set()


async def copy_all(target: Target, seed: int) -> TargetWriter:
    chooser, stop = random.Random(seed), asyncio.Event()
    writer = writer_to(target, LoopClock())

    async def source() -> None:
        while any(copy.committed < LAST for copy in writer.copies.values()):
            for copy in writer.copies.values():
                copy.fetchable(asyncio.get_running_loop().time())
            feed(writer, chooser)
            await never_ending(chooser.random() * 0.02)
        stop.set()
        writer.source_reader.arrived.set()

    async with asyncio.timeout(3600), asyncio.TaskGroup() as group:
        group.create_task(source(), name="source")
        await writer.open()
        await writer.run(stop)
    return writer


async def test_the_next_round_is_sent_while_a_commit_is_unanswered() -> None:
    target = Target(random.Random(1))
    writer = await copy_all(target, seed=1)
    assert target.most_open == 1
    assert target.log == {each: list(range(LAST)) for each in PARTITIONS}
    assert not any(copy.rounds for copy in writer.copies.values())


@pytest.mark.parametrize("seed", range(40))
async def test_a_position_never_stands_for_records_of_a_round_that_was_lost(seed: int) -> None:
    target = Target(random.Random(seed), failing=0.15)
    await copy_all(target, seed)
    assert target.log == {each: list(range(LAST)) for each in PARTITIONS}
    assert target.positions == dict.fromkeys(PARTITIONS, LAST)


async def test_a_position_that_moves_once_more_is_stored_with_the_records_that_say_why() -> None:
    """One without the other would let the next task continue at the wrong place."""
    target, stop = Target(random.Random(1)), asyncio.Event()
    writer = writer_to(target, LoopClock())
    moved, others = PARTITIONS[1], writer.copies[PARTITIONS[0]]
    copy = writer.copies[moved]
    key, why = source_offset_key("A", moved, connector="C"), b"why it moved"

    async def move() -> None:
        chooser = random.Random(0)
        while others.committed < 50:
            if others.fetched < LAST:
                feed(writer, chooser, PARTITIONS[:1])
            if others.committed > 10 and copy.committed == 0:
                copy.restart_at(5)
                writer.store_soon(moved)
            elif copy.committed == 5 and key in target.stored[-1]:
                copy.restart_at(9)
                writer.store_soon(moved, [NewRecord(why, b"", 0)])
            await never_ending(WAY_SECONDS / 3)
        stop.set()
        writer.source_reader.arrived.set()

    async with asyncio.timeout(3600), asyncio.TaskGroup() as group:
        group.create_task(move(), name="move")
        await writer.open()
        await writer.run(stop)
        await writer.store_rest()
    (together,) = [records for records in target.stored if why in records]
    assert (encode_source_offset(9) or b"?") in together
    assert target.most_open == 1
