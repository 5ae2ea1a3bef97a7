"""What was read of a partition whose copy keeps the offsets, and what of that is on the target."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from twinlog.batches import CopyFault, NewRecord, OutgoingBatch, Prepared, build_batch
from twinlog.batches.outgoing import OffsetRun
from twinlog.batches.prepare import LeaderEpoch
from twinlog.model import TopicPartition
from twinlog_source.log.facts import EpochStart
from twinlog_source.preserved.append_log import AppendLog, Fill, Hole, ReadEnd, Send, Tail
from twinlog_source.preserved.writer import PreservedPartition
from twinlog_source.task.partition import PartitionCopy, State
from twinlog_source.task.preserved_copy import PreservedCopy
from twinlog_source.task.source_reader import PreparedChunk

PARTITION = TopicPartition("t", 0)


def _batch(first: int, count: int) -> OutgoingBatch:
    batch = build_batch([NewRecord(None, b"x", 0)] * count)
    return batch._replace(runs=(OffsetRun(first, count),), next_source_offset=first + count)


@dataclass(eq=False)
class Bench:
    position: int = 0
    skip: tuple[int, int] = (0, 0)
    may_fill_at: float = 0.0
    alone_at: float = 0.0
    stored: bool = True
    settled: list[tuple[int, int]] = field(default_factory=list)
    """First offsets of batches, and where they lie."""
    later: list[PreservedCopy] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.copy = PartitionCopy(
            partition=PARTITION, target_topic="t", committed=self.position, random=lambda: 1.0
        )
        self.log: AppendLog[OutgoingBatch] = AppendLog.starting_at(self.position, max_in_flight_bytes=1 << 20)
        self.preserved = PreservedCopy(
            copy=self.copy,
            at_target=PreservedPartition(target=PARTITION, appends=self.log),
            skip_from=self.skip[0],
            skip_to=self.skip[1],
            target_topic_id="id",
            may_fill_at=self.may_fill_at,
            alone_at=self.alone_at,
            settle=lambda _, batch, base: self.settled.append((batch.first_source_offset, base)),
            is_stored=lambda: self.stored,
            fill_later=self.later.append,
        )

    def end_is(self, end: int, *, now: float = 0.0) -> None:
        assert isinstance(self.log.next(), ReadEnd)
        self.log.end_read(Tail(end, 0, True))
        self.preserved.changed(now)

    def fetch(
        self,
        batches: Sequence[tuple[int, int]],
        next_offset: int,
        *,
        fault: CopyFault | None = None,
        epochs: Sequence[LeaderEpoch] = (),
    ) -> None:
        prepared = Prepared(
            batches=tuple(_batch(*each) for each in batches),
            next_offset=next_offset,
            fault=fault,
            leader_epochs=tuple(epochs),
        )
        self.copy.fetched = next_offset
        if fault is not None:
            self.copy.hold()
        chunk = PreparedChunk(
            copy=self.copy, generation=self.copy.generation, prepared=prepared, fetched_bytes=100
        )
        self.preserved.offer(chunk, 0.0)

    def send(self) -> Send[OutgoingBatch]:
        sent = self.log.next()
        assert isinstance(sent, Send)
        return sent

    def answer(self, sent: Send[OutgoingBatch]) -> None:
        self.log.answered(sent, sent.first)
        self.preserved.changed(0.0)


def test_nothing_is_read_before_the_end_of_the_copy_is_known() -> None:
    bench = Bench(position=5)
    assert not bench.copy.fetchable(0.0)
    assert not bench.preserved.is_end_known


def test_a_copy_that_reaches_further_than_its_position_is_continued_at_its_end() -> None:
    bench = Bench(position=5)
    bench.copy.epochs = (EpochStart(1, 0),)
    bench.end_is(9)
    assert (bench.copy.committed, bench.copy.fetched) == (9, 9)
    assert not bench.copy.epochs, "nobody knows under which leaders the records up to there were written"


def test_what_the_target_lost_is_copied_again_and_is_no_gap() -> None:
    bench = Bench(position=9)
    bench.end_is(5)
    assert (bench.copy.committed, bench.copy.fetched) == (5, 5)
    assert bench.copy.counters.setbacks == {"TARGET_LOST_TAIL": 1}
    assert bench.log.next() is None


def test_what_lies_before_the_beginning_is_filled_and_the_position_is_the_beginning() -> None:
    bench = Bench(position=700, skip=(0, 700), may_fill_at=99.0)
    bench.end_is(0)
    assert (bench.copy.committed, bench.copy.fetched) == (700, 700)
    assert not bench.copy.is_idle, "it is not at rest before that is filled"
    assert bench.log.next() == Fill(0, 700)
    bench.log.filled(for_certain=True)
    bench.preserved.changed(0.0)
    assert bench.copy.is_idle
    assert bench.copy.counters.setbacks == {}


def test_a_range_that_is_filled_in_part_is_filled_on() -> None:
    bench = Bench(position=700, skip=(0, 700))
    bench.end_is(300)
    assert bench.log.next() == Fill(300, 400)


def test_the_rest_of_a_range_is_filled_once_what_is_filled_is_proven() -> None:
    bench = Bench(position=50, skip=(50, 100))
    assert isinstance(bench.log.next(), ReadEnd)
    bench.log.end_read(Tail(80, 0, True, filled=(Hole(50, 30),)))
    bench.preserved.changed(0.0)
    assert not bench.log.is_proving
    assert bench.log.next() == Fill(80, 20)


def test_p6_a_lost_range_is_filled_only_when_no_owner_before_can_write_any_more() -> None:
    bench = Bench(position=40, skip=(20, 40), may_fill_at=30.0)
    bench.end_is(20, now=10.0)
    assert bench.preserved.waits_to_fill
    assert bench.log.next() is None
    assert bench.later == [bench.preserved]
    bench.preserved.fill_skipped(30.0)
    assert bench.later == [bench.preserved]
    assert bench.log.next() == Fill(20, 20)


def test_p6_a_range_that_is_new_waits_for_the_owner_before_however_long_an_older_one_is_known() -> None:
    bench = Bench(position=40, skip=(20, 40), may_fill_at=10.0, alone_at=30.0)
    bench.end_is(40, now=10.0)
    bench.preserved.skip(60, 11.0)
    assert bench.preserved.waits_to_fill
    assert bench.log.next() is None
    bench.preserved.fill_skipped(30.0)
    assert bench.log.next() == Fill(40, 20)


def test_a_fault_is_told_once_everything_before_it_is_acknowledged() -> None:
    bench = Bench()
    bench.end_is(0)
    fault = CopyFault(reason="RECORD_TOO_LARGE", offset=3, message="too large")
    bench.fetch([(0, 2), (2, 1)], 3, fault=fault)
    first, second = bench.send(), bench.send()
    bench.answer(first)
    assert bench.copy.state is State.RUNNING
    bench.answer(second)
    assert (bench.copy.state, bench.copy.reason) == (State.FAULTED, "RECORD_TOO_LARGE")
    assert bench.copy.committed == 3
    assert bench.copy.fetched == 3


def test_a_fault_with_nothing_before_it_is_told_at_once() -> None:
    bench = Bench()
    bench.end_is(0)
    bench.fetch([], 0, fault=CopyFault(reason="CORRUPT_BATCH", offset=0, message="broken"))
    assert bench.copy.reason == "CORRUPT_BATCH"
    assert bench.preserved.outstanding_bytes == 0


def test_a_batch_whose_answer_was_lost_and_that_is_on_the_log_counts_once() -> None:
    bench = Bench()
    bench.end_is(0)
    bench.fetch([(0, 2), (2, 2)], 4)
    first, second = bench.send(), bench.send()
    bench.log.refused(first)
    bench.log.refused(second)
    bench.preserved.changed(0.0)
    bench.end_is(2)
    assert bench.settled == [(0, 0)]
    assert bench.copy.committed == 2
    bench.answer(bench.send())
    assert bench.settled == [(0, 0), (2, 2)]
    assert (bench.copy.committed, bench.preserved.outstanding_bytes) == (4, 0)


def test_room_is_free_when_the_whole_chunk_is_acknowledged() -> None:
    bench = Bench()
    bench.end_is(0)
    bench.fetch([(0, 2), (2, 2)], 4)
    first, second = bench.send(), bench.send()
    bench.answer(first)
    assert bench.preserved.outstanding_bytes == 100
    bench.answer(second)
    assert bench.preserved.outstanding_bytes == 0


def test_the_leader_epochs_are_always_those_of_what_is_acknowledged() -> None:
    bench = Bench()
    bench.end_is(0)
    bench.fetch([(0, 2), (2, 2)], 4, epochs=[LeaderEpoch(1, 0), LeaderEpoch(2, 2)])
    first, second = bench.send(), bench.send()
    bench.answer(first)
    assert list(bench.copy.epochs) == [EpochStart(1, 0)]
    bench.answer(second)
    assert list(bench.copy.epochs) == [EpochStart(1, 0), EpochStart(2, 2)]


def test_what_was_only_queued_is_read_again_after_it_was_forgotten() -> None:
    bench = Bench()
    bench.end_is(0)
    bench.fetch([(0, 2), (2, 2)], 4)
    first = bench.send()
    bench.preserved.forget_queued(0.0)
    assert (bench.copy.fetched, bench.copy.sent) == (2, 2)
    assert not bench.copy.is_idle
    bench.answer(first)
    assert bench.copy.is_idle
    assert bench.copy.committed == 2


def test_a_range_that_is_left_out_later_is_filled_from_where_the_copy_ends() -> None:
    bench = Bench()
    bench.end_is(10)
    bench.preserved.skip(25, 50.0)
    assert bench.preserved.skipped == (10, 25)
    assert (bench.copy.committed, bench.copy.fetched) == (25, 25)
    assert bench.log.next() == Fill(10, 15)


def test_what_is_left_out_is_filled_only_once_that_is_on_the_log() -> None:
    """The end of a copy that is filled says nothing of what it lacks."""
    bench = Bench()
    bench.end_is(10)
    bench.stored = False
    bench.preserved.skip(25, 50.0)
    assert bench.log.next() is None
    assert not bench.copy.fetchable(0.0) or bench.preserved.waits_to_fill
    assert bench.later == [bench.preserved]
    bench.stored = True
    bench.preserved.waits_to_fill = False
    bench.preserved.fill_skipped(50.0)
    assert bench.log.next() == Fill(10, 15)


def test_nothing_is_read_of_a_copy_that_cannot_keep_the_offsets() -> None:
    bench = Bench()
    bench.end_is(0)
    bench.preserved.give_up(7, until=7, reason="FOREIGN_WRITE", message="who")
    bench.copy.is_full = False
    assert not bench.copy.fetchable(1e9)
    bench.copy.forgive()
    assert (bench.copy.state, bench.copy.reason, bench.copy.committed) == (
        State.FAULTED,
        "FOREIGN_WRITE",
        7,
    )
