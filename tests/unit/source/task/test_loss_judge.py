"""Sources that lost records of preserved copies: when the copy fills the range, waits, or ends."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twinlog.batches import NewRecord
from twinlog.errors import KafkaError
from twinlog.kafka.deadline import pause
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import Flow, TopicPartition
from twinlog.policy.expected_offsets import MOST_MARKERS
from twinlog_source.log.facts import EpochStart
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.orders import PartitionState
from twinlog_source.preserved.append_log import Phase
from twinlog_source.preserved.append_steps import Hole, ReadEnd
from twinlog_source.task.loss_judge import (
    AGAIN_SECONDS,
    LATE_LOOK_SECONDS,
    TRUNCATION_DOUBT_SECONDS,
    LossJudge,
)
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.writing.preserved_copy import PreservedCopy
from unit.source.preserved.preserved_rig import FIRST, PreservedRig


@dataclass(slots=True, kw_only=True)
class Source:
    """Its log has the offsets from `start` to `end`, from `diverged_at` on with other records than before."""

    start: int
    end: int
    diverged_at: int | None

    async def offsets(
        self, spec: OffsetSpec, copies: Collection[PartitionCopy]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        return {copy.partition: self.start if spec is OffsetSpec.EARLIEST else self.end for copy in copies}

    async def divergences(
        self, copies: Collection[PartitionCopy]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        return {copy.partition: self.diverged_at if copy.epochs else None for copy in copies}


@dataclass(slots=True)
class Rig:
    start: int
    end: int
    diverged_at: int | None = None
    fail_on_data_loss: bool = False
    preserved: PreservedRig = field(default_factory=PreservedRig)
    gaps: list[Gap] = field(default_factory=list)

    def store_soon(self, partition: TopicPartition, records: Sequence[NewRecord]) -> None:
        self.preserved.store_position(partition, records)

    @property
    def copy(self) -> PartitionCopy:
        return self.preserved.copies[FIRST]

    async def judge(self) -> None:
        """A fetch was out of range."""
        questions: Any = Source(start=self.start, end=self.end, diverged_at=self.diverged_at)
        target_writer: Any = self
        judge = LossJudge(
            flow=Flow("A", "B"),
            questions=questions,
            target_writer=target_writer,
            preserved=self.preserved.preserved,
            topic_ids={FIRST.topic: "id"},
            on_gap=self.gaps.append,
            fail_on_data_loss=self.fail_on_data_loss,
            clock=self.preserved.clock,
        )
        await judge.on_out_of_range([self.copy])

    def wait(self, seconds: float) -> None:
        """As the task does: it tries the partition again then, and the timer reads the end of the copy."""
        self.preserved.clock.advance(seconds)
        assert self.copy.fetchable(self.preserved.clock.monotonic())


async def test_only_the_filled_offsets_that_the_source_lost_are_believed() -> None:
    rig = Rig(start=14, end=30)
    at_target = rig.preserved.assigned(FIRST, 20, stored=10, filled=(Hole(12, 1), Hole(15, 2)))
    assert (rig.copy.committed, rig.copy.fetched) == (12, 12)
    await rig.judge()
    assert at_target.appends.is_proving
    assert (rig.copy.committed, rig.copy.fetched) == (15, 15)
    rig.preserved.fetched(FIRST, 15, 1)
    assert (at_target.appends.phase, at_target.appends.foreign_at) == (Phase.FOREIGN, 15)
    assert rig.gaps == []


def comparing(rig: Rig, *, has_former_task: bool = False) -> PreservedCopy:
    """A copy that ends at 20 and compares what is filled, of a source that lost what follows offset 8 and has
    grown again: only its leader epochs show it."""
    filled = Hole(12, 1), Hole(15, 2)
    at_target = rig.preserved.assigned(FIRST, 20, stored=10, filled=filled, has_former_task=has_former_task)
    rig.copy.epochs = (EpochStart(3, 0),)
    rig.diverged_at = 8
    return at_target


async def test_a_truncated_source_ends_a_copy_whose_filled_offsets_are_being_compared() -> None:
    rig = Rig(start=0, end=30)
    at_target = comparing(rig)
    await rig.judge()
    assert at_target.appends.is_proving, "the topic may have been recreated"
    rig.wait(TRUNCATION_DOUBT_SECONDS)
    await rig.judge()
    assert (rig.copy.needs_translation, rig.copy.committed) == (True, 8)
    assert [(gap.from_offset, gap.to_offset, gap.reason) for gap in rig.gaps] == [(8, 20, "TRUNCATION")]


async def test_a_truncated_source_ends_such_a_copy_also_after_late_batches_were_waited_for() -> None:
    rig = Rig(start=0, end=30)
    comparing(rig, has_former_task=True)
    await rig.judge()
    rig.wait(TRUNCATION_DOUBT_SECONDS)
    await rig.judge()
    assert not rig.copy.needs_translation
    rig.wait(rig.preserved.preserved.fill_after_seconds + LATE_LOOK_SECONDS)
    await rig.judge()
    assert (rig.copy.needs_translation, rig.copy.committed) == (True, 8)
    assert [(gap.from_offset, gap.to_offset, gap.reason) for gap in rig.gaps] == [(8, 20, "TRUNCATION")]


async def test_a_copy_that_compares_and_has_to_stop_names_all_that_the_source_lost() -> None:
    rig = Rig(start=0, end=30, fail_on_data_loss=True)
    at_target = comparing(rig)
    await rig.judge()
    rig.wait(TRUNCATION_DOUBT_SECONDS)
    await rig.judge()
    assert (rig.copy.state, rig.copy.reason) == (PartitionState.FAULTED, "DATA_LOSS")
    assert "offsets 8 to 19" in rig.copy.message
    assert (rig.copy.committed, rig.copy.source_lost_from) == (20, 8)
    assert not at_target.appends.is_proving


async def test_what_an_operator_has_to_decide_stays_when_the_comparison_is_left_out() -> None:
    """A later task compares, and an order to move comes meanwhile."""
    rig = Rig(start=0, end=30)
    comparing(rig)
    rig.copy.source_lost_from = 8
    assert rig.preserved.preserved.believe(FIRST)
    assert (rig.copy.committed, rig.copy.source_lost_from) == (20, 8)


async def test_a_copy_whose_source_was_truncated_ends_once_nothing_late_can_lengthen_it() -> None:
    rig = Rig(start=0, end=6)
    at_target = rig.preserved.assigned(FIRST, 9, has_former_task=True)
    await rig.judge()
    rig.wait(TRUNCATION_DOUBT_SECONDS)
    await rig.judge()
    assert not rig.copy.needs_translation
    rig.wait(rig.preserved.preserved.fill_after_seconds - TRUNCATION_DOUBT_SECONDS + LATE_LOOK_SECONDS)
    rig.preserved.preserved.doubt(rig.preserved.preserved.by_source[FIRST])  # as the timer does then
    assert at_target.appends.next() == ReadEnd(9)
    await rig.judge()
    assert not rig.copy.needs_translation, "its end is being read"
    rig.preserved.end_read(at_target, 11)
    assert rig.copy.committed == 11, "a batch came late"
    await rig.judge()
    assert (rig.copy.needs_translation, rig.copy.committed) == (True, 6)
    assert [(gap.from_offset, gap.to_offset) for gap in rig.gaps] == [(6, 11)]


async def test_a_range_that_consumers_would_see_ends_the_copy_once_no_answer_is_missing() -> None:
    rig = Rig(start=10 + MOST_MARKERS, end=500)
    at_target = rig.preserved.assigned(FIRST, 9)
    at_target.lost_at = rig.preserved.clock.monotonic()
    await rig.judge()
    assert (rig.copy.needs_translation, rig.copy.reason, rig.gaps) == (False, "HOLE_TOO_LONG", [])
    rig.wait(rig.preserved.preserved.writer.settings.request_timeout_seconds + LATE_LOOK_SECONDS)
    await rig.judge()
    assert (rig.copy.needs_translation, rig.copy.committed) == (True, 10 + MOST_MARKERS)


async def test_the_end_of_the_copy_is_read_again_once_nothing_late_can_come() -> None:
    rig = Rig(start=10 + MOST_MARKERS, end=500)
    at_target = rig.preserved.assigned(FIRST, 9, has_former_task=True)
    await rig.judge()
    await pause(rig.preserved.preserved.fill_after_seconds - 1)
    assert at_target.appends.phase is Phase.SURE
    await pause(2)
    assert at_target.appends.next() == ReadEnd(9)


async def test_what_cannot_be_judged_while_the_end_is_read_is_not_asked_for_again_and_again() -> None:
    rig = Rig(start=10 + MOST_MARKERS, end=500)
    rig.preserved.assigned(FIRST, 9)
    rig.preserved.preserved.doubt(rig.preserved.preserved.by_source[FIRST])
    await rig.judge()
    now = rig.preserved.clock.monotonic()
    assert not rig.copy.fetchable(now)
    assert rig.copy.fetchable(now + AGAIN_SECONDS)


async def test_a_lost_range_is_filled_only_once_no_answer_is_missing() -> None:
    """The batch would lie behind the range that was filled in its place."""
    rig = Rig(start=20, end=500)
    at_target = rig.preserved.assigned(FIRST, 9)
    at_target.lost_at = rig.preserved.clock.monotonic()
    await rig.judge()
    taken = rig.preserved.preserved.by_source[FIRST]
    assert (taken.skipped, taken.waits_to_fill) == ((9, 20), True)
    timeout_seconds = rig.preserved.preserved.writer.settings.request_timeout_seconds
    assert taken.may_fill_at == rig.preserved.clock.monotonic() + timeout_seconds
