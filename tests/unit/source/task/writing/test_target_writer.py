"""Rounds of data and positions: what counts after a failure, and after an answer that was lost."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

import pytest

from twinlog.batches import CopyFault, NewRecord, OutgoingBatch, Prepared, build_batch
from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.raw import COMMITTED, OUTCOME, FetchFailure, RawFetcher
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.clock import FakeClock
from twinlog_source.task.copier import Copier, CopySettings
from twinlog_source.task.foreign_writes import ForeignWrites
from twinlog_source.task.orders import Reposition, WithdrawReposition
from twinlog_source.task.partition import PartitionCopy, State
from twinlog_source.task.reading.source_reader import PreparedChunk, SourceReader
from twinlog_source.task.reading.throttle import Throttle
from twinlog_source.task.resting_copies import RestingCopies
from twinlog_source.task.stream.reports import Reporter
from twinlog_source.task.writing.positions_topic import PositionsTopic
from twinlog_source.task.writing.syncs import OffsetSyncs, paced_syncs
from twinlog_source.task.writing.target_writer import TargetWriter
from twinlog_source.task.writing.transport import Positions

GOOD, BAD = TopicPartition("good", 0), TopicPartition("bad", 0)
DIALS = CopySettings(
    read_committed=True,
    check_crcs=True,
    coalesce_below_bytes=0,
    max_uncompressed_bytes=1 << 20,
    recode_compression_level=None,
    forced_codec=None,
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
    opened: int = 0
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
        for partition, _ in self._sent:
            if partition in self._target.refused:
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
class Rig:
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
        nothing: Any = None
        self.source_reader = SourceReader(
            fetcher=cast("RawFetcher", NothingFetched()),
            copies=self.copies,
            policies={},
            throttle=Throttle(),
            read_committed=True,
            clock=self.clock,
            on_out_of_range=nothing,
            on_other_leaders=nothing,
            max_buffered_bytes=1 << 20,
        )
        self.target_writer = TargetWriter(
            positions_topic=PositionsTopic(
                topic="positions", partition_count=1, source_alias="A", connector_name="C"
            ),
            source_reader=self.source_reader,
            copies=self.copies,
            by_target={TopicPartition(c.target_topic, 0): c for c in self.copies.values()},
            take_over=self.take_over,
            open_transport=lambda: FakeTransport(self.target, self.ends),
            ask_driver=self.ask_driver,
            read_positions=self.read_positions,
            syncs=OffsetSyncs(
                topic="",
                session=nothing,
                settings=nothing,
                paced=paced_syncs(100, flush_seconds=60),
                clock=self.clock,
            ),
            clock=self.clock,
            random=lambda: 0.0,
        )

    async def take_over(self, committed: Collection[TopicPartition]) -> None:
        self.taken_over.append((self.target.opened, set(committed)))

    async def ask_driver(self) -> None:
        self.asked += 1
        if self.refusals:
            raise self.refusals.pop(0)

    async def read_positions(self) -> Mapping[TopicPartition, int]:
        return dict(self.target.positions)

    def found_a_fault(self, partition: TopicPartition) -> None:
        """As the source_reader queues a fault at the position."""
        copy = self.copies[partition]
        fault = CopyFault(reason="RECORD_TOO_LARGE", offset=copy.fetched, message="too large")
        prepared = Prepared(batches=(), next_offset=copy.fetched, fault=fault)
        self.source_reader.chunks.append(
            PreparedChunk(copy=copy, generation=copy.generation, prepared=prepared, fetched_bytes=10)
        )
        copy.hold()
        self.source_reader.arrived.set()

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
            policies={},
            source_topic_ids={},
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
        chunk = PreparedChunk(copy=copy, generation=copy.generation, prepared=prepared, fetched_bytes=10)
        copy.fetched = end
        self.ends[partition] = end
        self.source_reader.chunks.append(chunk)
        self.source_reader.arrived.set()

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


async def test_positions_move_when_the_round_is_committed() -> None:
    rig = Rig()
    rig.fetched(GOOD, 3)
    rig.fetched(BAD, 2)
    await rig.run_until(lambda: rig.copies[BAD].committed == 2)
    assert rig.copies[GOOD].committed == 3
    assert rig.target_writer.committed_rounds == 1


async def test_a_refused_partition_is_set_aside_and_the_others_are_sent_again() -> None:
    rig = Rig()
    refusal = FatalKafkaError("no right", reason="TOPIC_UNAUTHORIZED")
    rig.target.refused[TopicPartition("A.bad", 0)] = refusal
    rig.fetched(GOOD, 3)
    rig.fetched(BAD, 2)

    def again() -> bool:
        if rig.copies[GOOD].fetched == 0 and not rig.source_reader.chunks:
            rig.fetched(GOOD, 3)
        return rig.copies[GOOD].committed == 3

    await rig.run_until(again)
    bad = rig.copies[BAD]
    assert (bad.state, bad.reason, bad.committed) == (State.FAULTED, "TOPIC_UNAUTHORIZED", 0)
    assert rig.copies[GOOD].state is State.RUNNING
    assert rig.target.committed == [TopicPartition("A.good", 0)]


async def test_a_partition_that_failed_before_does_not_hold_up_the_others() -> None:
    """The target neither takes nor refuses it; without the others it would be awaited."""
    rig = Rig()
    rig.target.silent.add(TopicPartition("A.bad", 0))
    rig.copies[BAD].restore_failure(
        state=State.BACKOFF, reason="LEADER_UNAVAILABLE", message="", failures=3, retry_at=0.0
    )
    assert rig.copies[BAD].fetchable(0.0)
    rig.fetched(GOOD, 3)
    rig.fetched(BAD, 2)

    def again() -> bool:
        if rig.copies[GOOD].fetched == 0 and not rig.source_reader.chunks:
            rig.fetched(GOOD, 3)
        return rig.copies[GOOD].committed == 3

    await rig.run_until(again)
    bad = rig.copies[BAD]
    assert (bad.state, bad.reason, bad.failures) == (State.BACKOFF, "LEADER_UNAVAILABLE", 4)


async def test_a_commit_whose_answer_was_lost_is_found_in_the_log_and_not_sent_twice() -> None:
    rig = Rig()
    rig.target.commit_failures = [(away(), True)]
    rig.fetched(GOOD, 3)
    await rig.run_until(lambda: rig.copies[GOOD].committed == 3)
    assert rig.target.committed == [TopicPartition("A.good", 0)]
    assert rig.target.opened == 2


async def test_an_aborted_round_begins_again_at_the_committed_position() -> None:
    rig = Rig()
    rig.target.commit_failures = [(away(), False)]
    rig.fetched(GOOD, 3)
    await rig.run_until(lambda: rig.target.opened == 2 and rig.copies[GOOD].fetched == 0)
    assert rig.copies[GOOD].committed == 0
    assert not rig.target.committed


async def test_a_position_that_moves_while_it_is_stored_is_stored_again() -> None:
    rig = Rig()

    def move(position: int) -> None:
        rig.copies[GOOD].restart_at(position)
        rig.target_writer.store_soon(GOOD)

    def once_more() -> None:
        if not rig.target_writer.committed_rounds:
            move(9)
            assert not rig.target_writer.is_stored(GOOD)

    rig.target.on_commit = once_more
    move(5)
    await rig.run_until(lambda: rig.target_writer.committed_rounds == 2)
    assert rig.target_writer.is_stored(GOOD)


async def test_an_uncertain_position_at_the_end_is_an_error_not_a_guess() -> None:
    rig = Rig()
    rig.target.commit_failures = [(away(), True)]
    rig.fetched(GOOD, 3)
    rig.target.on_commit = rig.stop.set
    with pytest.raises(KafkaError, match="away"):
        await rig.target_writer.run(rig.stop)


async def test_a_position_set_meanwhile_stands_against_what_the_log_says_of_the_round_before() -> None:
    """The commit took place, its answer was lost, and an operator moved the partition before the log was
    read: the log's position must neither replace the operator's nor count as stored."""
    rig = Rig()
    rig.target.commit_failures = [(away(), True)]
    rig.fetched(GOOD, 3)
    reading = rig.target_writer.read_positions

    async def moved_meanwhile() -> Mapping[TopicPartition, int]:
        if rig.target.committed:
            rig.copies[GOOD].restart_at(1)
            rig.target_writer.store_soon(GOOD)
        return await reading()

    rig.target_writer.read_positions = moved_meanwhile
    await rig.run_until(lambda: rig.target_writer.committed_rounds == 1)
    assert rig.copies[GOOD].committed == 1
    assert rig.target_writer.is_stored(GOOD)


async def test_a_move_that_could_not_be_stored_is_stored_without_waiting_for_records() -> None:
    rig = Rig()
    rig.target.commit_failures = [(away(), False)]
    rig.copies[GOOD].restart_at(7)
    rig.target_writer.store_soon(GOOD)
    await rig.run_until(lambda: rig.target_writer.committed_rounds == 1)
    assert rig.target_writer.is_stored(GOOD)


async def test_a_partition_whose_fault_is_in_a_round_is_moved_after_the_round() -> None:
    """`positions set` over a record that is too large, as the partition is tried again."""
    rig = Rig()
    rig.fetched(BAD, 2)
    rig.found_a_fault(GOOD)
    copier, good = rig.copier(), rig.copies[GOOD]
    rig.source_reader.fetcher = cast("RawFetcher", OneOutOfRange(None))
    rig.source_reader.throttle.set_limits(0, {}, 0.0)
    told_in_round: list[int] = []

    def tell() -> None:
        if not told_in_round:
            copier.moves.order(Reposition(partition=GOOD, position=50, number=7))
            told_in_round.append(good.committed)

    rig.target.on_commit = tell
    async with asyncio.TaskGroup() as group:
        group.create_task(copier.run(rig.stop), name="copier")
        await eventually(lambda: good.repositioned == 7)
        rig.stop.set()
    assert told_in_round == [0]
    assert (good.committed, good.fetched) == (50, 50)
    left_out = [gap for each in copier.reporter.report().partitions for gap in each.gaps]
    assert [(gap.from_offset, gap.to_offset, gap.reason) for gap in left_out] == [
        (0, 50, "SKIPPED_BY_OPERATOR")
    ]


async def test_a_move_that_was_withdrawn_before_the_partition_came_to_rest_never_takes_place() -> None:
    """The target hangs, and what was fetched is in a round that nobody acknowledges."""
    rig = Rig()
    copier, good = rig.copier(), rig.copies[GOOD]
    rig.target.silent.add(TopicPartition("A.bad", 0))
    rig.fetched(GOOD, 3)
    good.rounds = 1
    async with asyncio.TaskGroup() as group:
        moving = group.create_task(copier.moves.run(rig.stop), name="moves")
        copier.moves.order(Reposition(partition=GOOD, position=50, number=7))
        copier.moves.withdraw(WithdrawReposition(partition=GOOD, number=7))
        assert good.withdrawn == 7
        good.rewind()
        rig.stop.set()
        await moving
    assert (good.committed, good.repositioned) == (0, 0)


async def test_a_move_that_was_withdrawn_while_it_was_stored_is_taken_back_behind_it() -> None:
    """The commit takes place after the command failed, and its answer is lost."""
    rig = Rig()
    rig.source_reader.fetcher = cast("RawFetcher", OneOutOfRange(None))
    copier, good = rig.copier(), rig.copies[GOOD]
    rig.target.commit_failures = [(away(), True)]

    def give_up() -> None:
        if rig.target.opened == 1 and good.withdrawn == 0:
            assert not good.fetchable(0.0), "nothing is fetched from a position that is not on the log"
            rig.target.positions[GOOD] = 50
            copier.moves.withdraw(WithdrawReposition(partition=GOOD, number=7))

    rig.target.on_commit = give_up
    copier.moves.order(Reposition(partition=GOOD, position=50, number=7))
    async with asyncio.TaskGroup() as group:
        group.create_task(copier.run(rig.stop), name="copier")
        await eventually(lambda: rig.target_writer.committed_rounds == 1)
        rig.stop.set()
    assert (good.committed, good.withdrawn, good.repositioned) == (0, 7, 0)
    assert rig.target_writer.is_stored(GOOD)
    assert good.fetchable(0.0)
    assert not [gap for each in copier.reporter.report().partitions for gap in each.gaps]


async def test_a_move_that_is_on_the_log_stands_although_it_is_withdrawn() -> None:
    rig = Rig()
    rig.source_reader.fetcher = cast("RawFetcher", OneOutOfRange(None))
    copier, good = rig.copier(), rig.copies[GOOD]
    copier.moves.order(Reposition(partition=GOOD, position=50, number=7))
    async with asyncio.TaskGroup() as group:
        group.create_task(copier.run(rig.stop), name="copier")
        await eventually(lambda: good.repositioned == 7)
        copier.moves.withdraw(WithdrawReposition(partition=GOOD, number=7))
        rig.stop.set()
    assert (good.committed, good.withdrawn) == (50, 0)


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


async def test_what_is_found_while_the_last_positions_are_stored_is_on_the_log_or_is_not_found() -> None:
    """A gap that was reported and is in no log would be gone after the next restart."""
    rig = Rig()
    gap_found, asked = asyncio.Event(), asyncio.Event()

    async def gap(copies: Sequence[PartitionCopy]) -> None:
        asked.set()
        await gap_found.wait()
        for copy in copies:
            copy.restart_at(9)
            rig.target_writer.store_soon(copy.partition, [NewRecord(b"gap", b"", 0)])

    rig.source_reader.on_out_of_range = gap
    rig.source_reader.fetcher = cast("RawFetcher", OneOutOfRange(GOOD))
    rig.copies[BAD].pause(paused=True)

    def commits() -> None:
        """The order to stop comes in the first commit, the answer about the gap in the last one."""
        if rig.stop.is_set():
            gap_found.set()
        rig.stop.set()
        move_bad(6)

    def move_bad(position: int) -> None:
        if rig.copies[BAD].committed != position:
            rig.copies[BAD].restart_at(position)
            rig.target_writer.store_soon(BAD)

    rig.target.on_commit = commits
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.copier().run(rig.stop), name="copier")
        await asked.wait()
        move_bad(5)
    assert rig.copies[BAD].committed == 6
    assert all(rig.target_writer.is_stored(partition) for partition in rig.copies)
    assert not rig.target_writer.positions.is_behind


async def test_a_fenced_task_ends_at_once() -> None:
    rig = Rig()
    rig.target.commit_failures = [(FatalKafkaError("fenced", reason="PRODUCER_FENCED"), False)]
    rig.fetched(GOOD, 3)
    with pytest.raises(KafkaError, match="fenced"):
        await rig.target_writer.run(rig.stop)


async def test_no_part_of_a_fenced_task_outlives_its_writing_half() -> None:
    """Its driver learns of it from its last words, not when it asks the task to end."""
    rig = Rig()
    rig.source_reader.fetcher = cast("RawFetcher", OneOutOfRange(None))
    rig.target.commit_failures = [(FatalKafkaError("fenced", reason="PRODUCER_FENCED"), False)]
    rig.fetched(GOOD, 3)
    async with asyncio.timeout(60):
        with pytest.raises(KafkaError, match="fenced"):
            await rig.copier().run(rig.stop)
    assert not rig.stop.is_set()


async def test_what_hangs_of_the_ids_is_ended_before_they_write_again() -> None:
    rig = Rig()
    bad = TopicPartition("A.bad", 0)
    rig.target.refused[bad] = TransientKafkaError(
        "hangs", reason="HANGING_TRANSACTION", metadata={OUTCOME: COMMITTED}
    )
    rig.fetched(BAD, 2)
    await rig.run_until(lambda: rig.target.opened == 2)
    assert rig.taken_over == [(0, set()), (1, {bad})]


async def test_after_new_ids_nothing_is_sent_before_the_driver_allowed_it() -> None:
    """It was replaced while it was silent: with its new ids it fenced the present owner, but it must not go
    on beside it."""
    rig = Rig()
    rig.target.commit_failures = [(away(), False)]
    replaced = FatalKafkaError("another process has taken the flow over", reason="PRODUCER_FENCED")
    rig.refusals = [away(), replaced]
    rig.fetched(GOOD, 3)
    rig.target.on_commit = lambda: rig.fetched(GOOD, 3)
    await rig.target_writer.open()
    with pytest.raises(FatalKafkaError, match="taken the flow over"):
        await rig.target_writer.run(rig.stop)
    assert (rig.asked, rig.target.opened, rig.target.committed) == (2, 3, [])


async def test_reading_that_waits_for_room_leaves_writing_its_turn() -> None:
    """One fetch of many partitions brought more than twice what may be buffered: one round leaves it full."""
    rig = Rig()
    rig.source_reader.limit_buffer(10)
    for end in range(1, 6):
        rig.fetched(GOOD, end)
        rig.source_reader._buffered_bytes += 10
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(rig.source_reader.run(stop), name="source_reader")
        for _ in range(3):
            await wait_or_stop(stop, 0.001)
            assert rig.source_reader.pop() is not None
        await wait_or_stop(stop, 0.001)
        assert not reading.done()
        stop.set()
        reading.cancel()
