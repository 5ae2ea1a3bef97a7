"""What was read of a partition whose copy keeps the offsets, and what of that is on the target."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from twinlog.batches import CopyFault, NewRecord, OutgoingBatch, Prepared, build_batch
from twinlog.batches.outgoing import OffsetRun
from twinlog.batches.prepared import LeaderEpoch
from twinlog.model import TopicPartition
from twinlog_source.log.facts import EpochStart
from twinlog_source.partitions.orders import PartitionState
from twinlog_source.preserved.append_log import AppendLog
from twinlog_source.preserved.append_steps import Hole, ReadEnd, Send, Tail
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import PreparedChunk
from twinlog_source.task.writing.preserved_copy import PreservedCopy

PARTITION = TopicPartition("t", 0)


def _batch(first: int, count: int) -> OutgoingBatch:
    batch = build_batch([NewRecord(None, b"x", 0)] * count)
    return batch._replace(runs=(OffsetRun(first, count),), next_source_offset=first + count)


@dataclass(eq=False)
class Rig:
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
        self.log: AppendLog = AppendLog.starting_at(self.position, max_in_flight_bytes=1 << 20)
        self.preserved = PreservedCopy(
            copy=self.copy,
            appends=self.log,
            skip_from=self.skip[0],
            skip_to=self.skip[1],
            topic_id="id",
            may_fill_at=self.may_fill_at,
            alone_at=self.alone_at,
            settle=lambda _, batch, base: self.settled.append((batch.first, base)),
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
            copy=self.copy, generation=self.copy.generation, prepared=prepared, held_bytes=100
        )
        self.preserved.offer(chunk, 0.0)

    def send(self) -> Send:
        sent = self.log.next()
        assert isinstance(sent, Send)
        return sent

    def answer(self, sent: Send) -> None:
        self.log.answered(sent, sent.first)
        self.preserved.changed(0.0)


def test_nothing_is_read_before_the_end_of_the_copy_is_known() -> None:
    rig = Rig(position=5)
    assert not rig.copy.fetchable(0.0)
    assert not rig.preserved.is_end_known


def test_a_copy_that_reaches_further_than_its_position_is_continued_at_its_end() -> None:
    rig = Rig(position=5)
    rig.copy.epochs = (EpochStart(1, 0),)
    rig.end_is(9)
    assert (rig.copy.committed, rig.copy.fetched) == (9, 9)
    assert not rig.copy.epochs, "nobody knows under which leaders the records up to there were written"


@pytest.mark.parametrize(("end", "known"), [(0, None), (9, 9)])
def test_how_far_a_copy_was_written_is_known_before_this_task_writes(end: int, known: int | None) -> None:
    rig = Rig(position=5)
    rig.end_is(end)
    assert rig.copy.target_end == known


def test_what_the_target_lost_is_copied_again_and_is_no_gap() -> None:
    rig = Rig(position=9)
    rig.end_is(5)
    assert (rig.copy.committed, rig.copy.fetched) == (5, 5)
    assert rig.copy.counters.failures_by_reason == {"TARGET_LOST_TAIL": 1}
    assert rig.log.next() is None


@pytest.mark.parametrize("known", [80, None])
def test_what_is_compared_again_has_been_written_all_the_same(known: int | None) -> None:
    """Who trusts that end takes a group of a log that ends before it for one that has not read everything."""
    rig = Rig(position=80)
    rig.copy.target_end = known
    assert isinstance(rig.log.next(), ReadEnd)
    rig.log.end_read(Tail(80, 0, True, filled=(Hole(50, 30),)))
    rig.preserved.changed(0.0)
    assert (rig.log.is_proving, rig.copy.committed, rig.copy.target_end) == (True, 50, known)
    rig.fetch([], 80)
    rig.preserved.changed(0.0)
    assert (rig.log.is_proving, rig.copy.committed, rig.copy.target_end) == (False, 80, 80)


def test_a_copy_that_lost_its_end_was_written_up_to_where_it_ends_once_that_is_compared() -> None:
    rig = Rig(position=90)
    rig.copy.target_end = 90
    assert isinstance(rig.log.next(), ReadEnd)
    rig.log.end_read(Tail(80, 0, True, filled=(Hole(50, 30),)))
    rig.preserved.changed(0.0)
    rig.fetch([], 90)
    rig.preserved.changed(0.0)
    assert (rig.log.is_proving, rig.copy.target_end) == (False, 80)


def test_what_lies_before_the_beginning_is_filled_and_the_position_is_the_beginning() -> None:
    rig = Rig(position=700, skip=(0, 700), may_fill_at=99.0)
    rig.end_is(0)
    assert (rig.copy.committed, rig.copy.fetched) == (700, 700)
    assert not rig.copy.is_idle, "it is not at rest before that is filled"
    assert rig.log.next() == Hole(0, 700)
    rig.log.filled(for_certain=True)
    rig.preserved.changed(0.0)
    assert rig.copy.is_idle
    assert rig.copy.counters.failures_by_reason == {}


def test_a_range_that_is_filled_in_part_is_filled_on() -> None:
    rig = Rig(position=700, skip=(0, 700))
    rig.end_is(300)
    assert rig.log.next() == Hole(300, 400)


def test_the_rest_of_a_range_is_filled_once_what_is_filled_is_proven() -> None:
    rig = Rig(position=50, skip=(50, 100))
    assert isinstance(rig.log.next(), ReadEnd)
    rig.log.end_read(Tail(80, 0, True, filled=(Hole(50, 30),)))
    rig.preserved.changed(0.0)
    assert not rig.log.is_proving
    assert rig.log.next() == Hole(80, 20)


def test_p6_a_lost_range_is_filled_only_when_no_owner_before_can_write_any_more() -> None:
    rig = Rig(position=40, skip=(20, 40), may_fill_at=30.0)
    rig.end_is(20, now=10.0)
    assert rig.preserved.waits_to_fill
    assert rig.log.next() is None
    assert rig.later == [rig.preserved]
    rig.preserved.fill_skipped(30.0)
    assert rig.later == [rig.preserved]
    assert rig.log.next() == Hole(20, 20)


def test_p6_a_range_that_is_new_waits_for_the_owner_before_however_long_an_older_one_is_known() -> None:
    rig = Rig(position=40, skip=(20, 40), may_fill_at=10.0, alone_at=30.0)
    rig.end_is(40, now=10.0)
    rig.preserved.skip(60, 11.0, may_fill_at=30.0)
    assert rig.preserved.waits_to_fill
    assert rig.log.next() is None
    rig.preserved.fill_skipped(30.0)
    assert rig.log.next() == Hole(40, 20)


def test_a_fault_is_told_once_everything_before_it_is_acknowledged() -> None:
    rig = Rig()
    rig.end_is(0)
    fault = CopyFault(reason="RECORD_TOO_LARGE", offset=3, message="too large")
    rig.fetch([(0, 2), (2, 1)], 3, fault=fault)
    first, second = rig.send(), rig.send()
    rig.answer(first)
    assert rig.copy.state is PartitionState.RUNNING
    rig.answer(second)
    assert (rig.copy.state, rig.copy.reason) == (PartitionState.FAULTED, "RECORD_TOO_LARGE")
    assert rig.copy.committed == 3
    assert rig.copy.fetched == 3


def test_a_fault_with_nothing_before_it_is_told_at_once() -> None:
    rig = Rig()
    rig.end_is(0)
    rig.fetch([], 0, fault=CopyFault(reason="CORRUPT_BATCH", offset=0, message="broken"))
    assert rig.copy.reason == "CORRUPT_BATCH"
    assert rig.copy.held_bytes == 0


def test_a_batch_whose_answer_was_lost_and_that_is_on_the_log_counts_once() -> None:
    rig = Rig()
    rig.end_is(0)
    rig.fetch([(0, 2), (2, 2)], 4)
    first, second = rig.send(), rig.send()
    rig.log.refused(first)
    rig.log.refused(second)
    rig.preserved.changed(0.0)
    rig.end_is(2)
    assert rig.settled == [(0, 0)]
    assert rig.copy.committed == 2
    rig.answer(rig.send())
    assert rig.settled == [(0, 0), (2, 2)]
    assert (rig.copy.committed, rig.copy.held_bytes) == (4, 0)


def test_a_batch_of_which_another_owner_wrote_only_the_beginning_counts_once_and_where_it_is() -> None:
    """The owner before packed the same records into other batches."""
    rig = Rig()
    rig.end_is(0)
    rig.fetch([(0, 10), (10, 2)], 12)
    rig.log.refused(rig.send())
    rig.preserved.changed(0.0)
    rig.end_is(5)
    assert (rig.copy.committed, rig.copy.fetched, rig.copy.held_bytes) == (5, 5, 0)
    assert rig.settled == [], "whoever counted it would also tell where consumers go on in records to come"
    rig.fetch([(5, 5), (10, 2)], 12)
    rig.answer(rig.send())
    rig.answer(rig.send())
    assert rig.settled == [(5, 5), (10, 10)]


def test_room_is_free_when_the_whole_chunk_is_acknowledged() -> None:
    rig = Rig()
    rig.end_is(0)
    rig.fetch([(0, 2), (2, 2)], 4)
    first, second = rig.send(), rig.send()
    rig.answer(first)
    assert rig.copy.held_bytes == 100
    rig.answer(second)
    assert rig.copy.held_bytes == 0


def test_the_leader_epochs_are_always_those_of_what_is_acknowledged() -> None:
    rig = Rig()
    rig.end_is(0)
    rig.fetch([(0, 2), (2, 2)], 4, epochs=[LeaderEpoch(1, 0), LeaderEpoch(2, 2)])
    first, second = rig.send(), rig.send()
    rig.answer(first)
    assert list(rig.copy.epochs) == [EpochStart(1, 0)]
    rig.answer(second)
    assert list(rig.copy.epochs) == [EpochStart(1, 0), EpochStart(2, 2)]


def test_what_was_only_queued_is_read_again_after_it_was_forgotten() -> None:
    rig = Rig()
    rig.end_is(0)
    rig.fetch([(0, 2), (2, 2)], 4)
    first = rig.send()
    rig.preserved.forget_queued(0.0)
    assert (rig.copy.fetched, rig.copy.sent) == (2, 2)
    assert not rig.copy.is_idle
    rig.answer(first)
    assert rig.copy.is_idle
    assert rig.copy.committed == 2


def test_a_range_that_is_left_out_later_is_filled_from_where_the_copy_ends() -> None:
    rig = Rig()
    rig.end_is(10)
    rig.preserved.skip(25, 50.0, may_fill_at=0.0)
    assert rig.preserved.skipped == (10, 25)
    assert (rig.copy.committed, rig.copy.fetched) == (25, 25)
    assert rig.log.next() == Hole(10, 15)


def test_what_is_left_out_is_filled_only_once_that_is_on_the_log() -> None:
    """The end of a copy that is filled says nothing of what it lacks."""
    rig = Rig()
    rig.end_is(10)
    rig.stored = False
    rig.preserved.skip(25, 50.0, may_fill_at=0.0)
    assert rig.log.next() is None
    assert not rig.copy.fetchable(0.0) or rig.preserved.waits_to_fill
    assert rig.later == [rig.preserved]
    rig.stored = True
    rig.preserved.waits_to_fill = False
    rig.preserved.fill_skipped(50.0)
    assert rig.log.next() == Hole(10, 15)


def test_nothing_is_read_of_a_copy_that_cannot_keep_the_offsets() -> None:
    rig = Rig()
    rig.end_is(0)
    rig.preserved.end(7, 7, ("FOREIGN_WRITE", "who"))
    rig.copy.is_full = False
    assert not rig.copy.fetchable(1e9)
    assert (rig.copy.state, rig.copy.reason, rig.copy.committed) == (
        PartitionState.WAITING,
        "FOREIGN_WRITE",
        7,
    ), "it becomes translated: no fault"
