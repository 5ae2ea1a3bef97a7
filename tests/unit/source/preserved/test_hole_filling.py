"""Holes of several partitions that are filled in one run."""

from dataclasses import dataclass, field

from twinlog.batches import OutgoingBatch
from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog.testing.fakes.clock import FakeClock
from twinlog_source.preserved.append_log import AppendLog
from twinlog_source.preserved.append_steps import Hole, Tail
from twinlog_source.preserved.fill_limits import FillLimit
from twinlog_source.preserved.fillers import Ended, Holes, LeftOut, More, nothing_more
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.writing.hole_filling import HoleFilling
from twinlog_source.task.writing.preserved_copy import PreservedCopy

SHORT, LONG = TopicPartition("short", 0), TopicPartition("long", 0)
SECONDS_EACH = 0.1


def partition_at_rest(target: TopicPartition) -> PreservedCopy:
    appends: AppendLog[OutgoingBatch] = AppendLog.starting_at(0, max_in_flight_bytes=1 << 20)
    appends.next()
    appends.end_read(Tail(0, 0, True))
    copy = PartitionCopy(partition=target, target_topic=target.topic, committed=0, random=lambda: 1.0)
    return PreservedCopy(copy=copy, target=target, appends=appends)


@dataclass
class OffsetByOffset:
    """Fills one offset of each hole at a time, each in a tenth of a second."""

    clock: FakeClock
    offsets_until_more: int
    """So many offsets are filled until the next hole of the short one is there."""
    rig: "Rig | None" = None
    most_markers: int = 128
    is_open: bool = True
    order: list[tuple[TopicPartition, float]] = field(default_factory=list)

    def note_limit(self, partition: TopicPartition, limit: FillLimit) -> None: ...

    async def open(self) -> None: ...

    async def fill(self, holes: Holes, ended: Ended, left_out: LeftOut, more: More = nothing_more) -> None:
        assert self.rig is not None
        left = {target: count for target, (_, count) in holes.items()}
        while left:
            self.clock.advance(SECONDS_EACH)
            for target in list(left):
                left[target] -= 1
                if not left[target]:
                    del left[target]
                    self.order.append((target, self.clock.monotonic()))
                    ended(target, True)
            self.offsets_until_more -= 1
            if self.offsets_until_more == 0:
                self.rig.hole(SHORT, 1)
            left |= {target: count for target, (_, count) in more().items()}


class Rig:
    def __init__(self, offsets_until_more: int) -> None:
        self.clock = FakeClock()
        self.began = self.clock.monotonic()
        self.filler = OffsetByOffset(self.clock, offsets_until_more, self)
        self.partitions = {target: partition_at_rest(target) for target in (SHORT, LONG)}
        self.filling = HoleFilling(
            filler=self.filler,
            partitions=self.partitions,
            clock=self.clock,
            may_write=lambda: True,
            fenced=_unexpected,
            back_off=lambda _, error: _unexpected(error),
            moved=lambda _: None,
        )

    def hole(self, target: TopicPartition, count: int) -> None:
        partition = self.partitions[target]
        first = partition.appends.wanted
        partition.appends.offer([Hole(first, count)], next_offset=first + count)
        fill = partition.appends.next()
        assert isinstance(fill, Hole)
        self.filling.add(partition, fill)

    async def run(self) -> None:
        begun = self.filling.begin()
        assert begun is not None
        await begun

    def spent_seconds(self, target: TopicPartition) -> float:
        return round(sum(each.spent_seconds for each in self.partitions[target].hole_cost.buckets), 3)

    def filled_after(self, target: TopicPartition) -> list[float]:
        return [round(at - self.began, 3) for each, at in self.filler.order if each == target]


def _unexpected(error: KafkaError) -> None:
    raise AssertionError(error)


async def test_a_hole_that_is_added_meanwhile_does_not_wait_for_a_longer_one_of_another_partition() -> None:
    rig = Rig(offsets_until_more=10)
    rig.hole(SHORT, 1)
    rig.hole(LONG, 60)
    await rig.run()
    assert rig.filled_after(SHORT) == [0.1, 1.1]
    assert rig.filled_after(LONG) == [6.0]


async def test_a_partition_pays_only_for_the_filling_of_its_own_holes() -> None:
    """A copy that pays for others would become a translated one, for good."""
    rig = Rig(offsets_until_more=10)
    rig.hole(SHORT, 1)
    rig.clock.advance(3.0)  # The run before takes so long.
    rig.hole(LONG, 60)
    await rig.run()
    assert rig.spent_seconds(SHORT) == 0.2
