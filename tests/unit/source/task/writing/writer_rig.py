"""The writing half of a task on a target that does as a test says."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from twinlog.batches import CopyPolicy, NewRecord, OutgoingBatch, Prepared, build_batch
from twinlog.batches.bodies import DecodedRecord
from twinlog.batches.header import read_batches
from twinlog.batches.outgoing import Seal, sealed
from twinlog.batches.records import decode_batch
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.raw import FetchFailure
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.task.copier import Copier
from twinlog_source.task.foreign_writes import ForeignWrites, RestingCopies
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import PreparedChunk
from twinlog_source.task.reading.fetch_schedule import Throttle
from twinlog_source.task.reading.source_reader import SourceReader
from twinlog_source.task.settings import CopySettings
from twinlog_source.task.stream.reports import Reporter
from twinlog_source.task.writing.target_writer import TargetWriter
from twinlog_source.task.writing.transport import Positions
from unit.source.task.halves import reading_half, writing_half

GOOD, BAD = TopicPartition("good", 0), TopicPartition("bad", 0)
DIALS = CopySettings(
    batches=CopyPolicy(coalesce_below_bytes=0, max_open_bytes=1 << 20),
    fail_on_data_loss=False,
    exactly_once=True,
)


@dataclass(slots=True)
class TargetLog:
    """What the target has committed, and what will go wrong next."""

    committed: list[TopicPartition] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    refused: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    silent: set[TopicPartition] = field(default_factory=set)
    """Partitions about which nothing is said."""
    commit_failures: list[tuple[KafkaError, bool]] = field(default_factory=list)
    """Each: the error, and whether the commit takes place all the same."""
    refused_with: list[set[TopicPartition]] = field(default_factory=list)
    """The partitions of each transaction that was refused."""
    stored: list[DecodedRecord] = field(default_factory=list)
    """In the positions topic, also by transactions that were aborted; but for facts."""
    opened: int = 0
    without_leader: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    on_commit: Callable[[], None] = lambda: None


class FakeTransport:
    """A transport whose commits write `ends` of the test into the target's log."""

    def __init__(
        self, target: TargetLog, ends: Mapping[TopicPartition, int], *, overlaps: bool = False
    ) -> None:
        self.overlaps = overlaps
        self.target = target
        self.ends = ends
        self.partition_failures: dict[TopicPartition, KafkaError] = {}
        self.without_leader = target.without_leader
        self.failure: KafkaError | None = None

    async def __aenter__(self) -> Self:
        self.target.opened += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    def begin(self) -> "FakeTransaction":
        return FakeTransaction(self)


class FakeTransaction:
    def __init__(self, transport: FakeTransport) -> None:
        self._transport, self._target = transport, transport.target
        self._sent: list[tuple[TopicPartition, asyncio.Future[int]]] = []

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> asyncio.Future[int]:
        acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._sent.append((partition, acknowledged))
        if partition not in self._target.silent:
            acknowledged.set_result(len(self._target.committed) + len(self._sent) - 1)
        return acknowledged

    async def store(self, positions: Positions) -> None:
        for stored in positions.values():
            (batch,) = read_batches(sealed(stored, Seal(-1, -1, -1, False)))
            self._target.stored += [
                each for each in decode_batch(batch) if b"TwinlogControl" not in (each.key or b"")
            ]
        for partition, _ in self._sent:
            if partition in self._target.refused:
                self._target.refused_with.append({each for each, _ in self._sent})
                self._transport.partition_failures = {partition: self._target.refused[partition]}
                raise self._target.refused[partition]

    async def commit(self) -> None:
        self._target.on_commit()
        ends = dict(self._transport.ends)
        await wait_or_stop(asyncio.Event(), 0.001)
        failure = self._target.commit_failures.pop(0) if self._target.commit_failures else None
        if failure is None or failure[1]:
            self._target.committed += [partition for partition, _ in self._sent]
            self._target.positions.update(ends)
        if failure is not None:
            raise failure[0]


class NothingFetched:
    """A fetcher nobody polls."""

    def interrupt(self) -> None:
        return None


@dataclass(slots=True)
class WriterRig:
    target: TargetLog = field(default_factory=TargetLog)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    clock: FakeClock = field(default_factory=FakeClock)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    refusals: list[KafkaError] = field(default_factory=list)
    """What the driver answers next to a task that wants to continue."""
    asked: int = 0
    taken_over: list[tuple[int, set[TopicPartition]]] = field(default_factory=list)
    """Of each time the ids were taken over: how many transports had been opened, and where what hangs was
    committed."""
    copies: dict[TopicPartition, PartitionCopy] = field(init=False)
    source_reader: SourceReader = field(init=False)
    target_writer: TargetWriter = field(init=False)

    def __post_init__(self) -> None:
        self.copies = {
            p: PartitionCopy(partition=p, target_topic=f"A.{p.topic}", committed=0, random=lambda: 1.0)
            for p in (GOOD, BAD)
        }
        self.source_reader = reading_half(NothingFetched(), self.copies, clock=self.clock)
        self.target_writer = writing_half(
            self.source_reader,
            lambda: FakeTransport(self.target, self.ends),
            self.ask_driver,
            clock=self.clock,
            take_over=self.take_over,
        )

    async def take_over(self, committed: Collection[TopicPartition]) -> None:
        self.taken_over.append((self.target.opened, set(committed)))

    async def ask_driver(self) -> Mapping[TopicPartition, int]:
        self.asked += 1
        if self.refusals:
            raise self.refusals.pop(0)
        return dict(self.target.positions)

    def copier(self) -> Copier:
        """Around the two halves; its partitions are assigned already."""
        nothing: Any = None
        looked = ForeignWrites(reader=nothing, found=lambda _partition, _write: None)
        return Copier(
            flow=Flow("A", "B"),
            dials=DIALS,
            source=nothing,
            clock=self.clock,
            source_reader=self.source_reader,
            target_writer=self.target_writer,
            syncs=self.target_writer.syncs,
            reporter=Reporter(
                copies=self.copies,
                target_writer=self.target_writer,
                syncs=self.target_writer.syncs,
                source_problem=lambda: None,
                source_throttled=lambda: False,
                target_throttled=lambda: False,
                clock=self.clock,
            ),
            copies=self.copies,
            source_topic_ids={},
            target_topic_ids={},
            by_target={},
            throttle=Throttle(),
            foreign_writes=looked,
            resting=RestingCopies(by_target={}, ends=nothing, foreign_writes=looked, preserved=None),
        )

    def fetched(self, partition: TopicPartition, end: int) -> None:
        """As the source_reader queues what it fetched."""
        copy = self.copies[partition]
        batch = build_batch([NewRecord(None, b"x", 0)])
        prepared = Prepared(batches=(batch,), next_offset=end)
        chunk = PreparedChunk(copy=copy, generation=copy.generation, prepared=prepared, held_bytes=10)
        copy.fetched = end
        self.ends[partition] = end
        self.source_reader.chunks.append(chunk)
        self.source_reader.arrived.set()

    def copied_again(self, partition: TopicPartition, end: int) -> bool:
        """Whether it is committed up to there; fetched once more after its round was aborted."""
        if self.copies[partition].fetched == 0 and not self.source_reader.chunks:
            self.fetched(partition, end)
        return self.copies[partition].committed == end

    async def run_until(self, condition: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.target_writer.run(self.stop), name="target_writer")
            try:
                async with asyncio.timeout(60):
                    while not condition():
                        await wait_or_stop(asyncio.Event(), 0.001)
            finally:
                self.stop.set()
                self.source_reader.arrived.set()


def away() -> KafkaError:
    return TransientKafkaError("away", reason="KAFKA_UNAVAILABLE")


@dataclass(slots=True)
class OneOutOfRange:
    """A fetcher that says of one partition that its log does not hold the position; then nothing."""

    partition: TopicPartition | None

    def interrupt(self) -> None:
        return None

    def is_asked(self, partition: TopicPartition) -> bool:
        return False

    async def pause(self, seconds: float) -> None:
        await wait_or_stop(asyncio.Event(), 0.001)

    async def poll(
        self, positions: Mapping[TopicPartition, int], *, max_wait_seconds: float, sizes: object
    ) -> Mapping[TopicPartition, FetchFailure]:
        partition, self.partition = self.partition, None
        if partition is None:
            await self.pause(0.0)
            return {}
        error = TransientKafkaError("gone", reason="OFFSET_OUT_OF_RANGE")
        return {partition: FetchFailure(partition=partition, fetch_offset=positions[partition], error=error)}
