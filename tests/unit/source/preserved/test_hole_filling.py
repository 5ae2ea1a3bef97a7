"""Holes of several partitions that are filled in one run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog.policy.expected_offsets import MOST_AT_LEADER, MOST_MARKERS
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.preserved.append_log import AppendLog
from twinlog_source.preserved.append_steps import Hole, Tail
from twinlog_source.preserved.filler import Filler
from twinlog_source.preserved.leader_filler import Ended, Holes, LeaderFiller, LeftOut, More, nothing_more
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.writing.hole_filling import HoleFilling
from twinlog_source.task.writing.preserved_copy import PreservedCopy

SHORT, LONG = TopicPartition("short", 0), TopicPartition("long", 0)
SECONDS_EACH = 0.1


def partition_at_rest(target: TopicPartition) -> PreservedCopy:
    appends: AppendLog = AppendLog.starting_at(0, max_in_flight_bytes=1 << 20)
    appends.next()
    appends.end_read(Tail(0, 0, True))
    copy = PartitionCopy(partition=target, target_topic=target.topic, committed=0, random=lambda: 1.0)
    return PreservedCopy(copy=copy, appends=appends)


@dataclass
class OffsetByOffset:
    """Fills one offset of each hole at a time, each in a tenth of a second."""

    clock: FakeClock
    offsets_until_more: int
    """So many offsets are filled until the next hole of the short one is there."""
    rig: "Rig | None" = None
    is_open: bool = True
    order: list[tuple[TopicPartition, float]] = field(default_factory=list)

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
                add(self.rig.filling, SHORT, 1)
            left |= {target: count for target, (_, count) in more().items()}


def hole_filling(
    transactions: object,
    markers: object,
    partitions: Mapping[TopicPartition, PreservedCopy],
    clock: FakeClock,
) -> HoleFilling:
    return HoleFilling(
        transactions=cast("Filler", transactions),
        markers=cast("LeaderFiller | None", markers),
        partitions=partitions,
        clock=clock,
        may_write=lambda: True,
        fenced=_unexpected,
        back_off=lambda _, error: _unexpected(error),
        moved=lambda _: None,
    )


class Rig:
    def __init__(self, offsets_until_more: int) -> None:
        self.clock = FakeClock()
        self.began = self.clock.monotonic()
        self.filler = OffsetByOffset(self.clock, offsets_until_more, self)
        self.partitions = {target: partition_at_rest(target) for target in (SHORT, LONG)}
        self.filling = hole_filling(self.filler, None, self.partitions, self.clock)

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
    add(rig.filling, SHORT, 1)
    add(rig.filling, LONG, 60)
    await rig.run()
    assert rig.filled_after(SHORT) == [0.1, 1.1]
    assert rig.filled_after(LONG) == [6.0]


async def test_a_partition_pays_only_for_the_filling_of_its_own_holes() -> None:
    """A copy that pays for others would become a translated one, for good."""
    rig = Rig(offsets_until_more=10)
    add(rig.filling, SHORT, 1)
    rig.clock.advance(3.0)  # The run before takes so long.
    add(rig.filling, LONG, 60)
    await rig.run()
    assert rig.spent_seconds(SHORT) == 0.2


LONGEST = TopicPartition("longest", 0)


@dataclass
class Transactions:
    most_markers: int = MOST_MARKERS
    is_open: bool = False
    opened: int = 0
    filled: dict[TopicPartition, int] = field(default_factory=dict)
    """The lengths of holes."""

    async def open(self) -> None:
        self.opened, self.is_open = self.opened + 1, True

    async def fill(self, holes: Holes, ended: Ended, left_out: LeftOut, more: More = nothing_more) -> None:
        holes = {**holes, **more()}
        self.filled |= {target: count for target, (_, count) in holes.items()}
        for target in holes:
            ended(target, True)


@dataclass
class AtLeader:
    is_allowed: bool
    late: "HoleFilling | None" = None
    """Gets a hole meanwhile."""
    is_open: bool = False
    opened: int = 0

    async def open(self) -> None:
        self.opened, self.is_open = self.opened + 1, True

    async def fill(self, holes: Holes, ended: Ended, left_out: LeftOut) -> Holes:
        if self.late is not None:
            add(self.late, SHORT, 1)
            self.late = None
        if not self.is_allowed:
            return dict(holes)
        short = [target for target, (_, count) in holes.items() if count <= MOST_AT_LEADER]
        for target in short:
            ended(target, True)
        return {target: hole for target, hole in holes.items() if target not in short}


def add(filling: HoleFilling, target: TopicPartition, count: int) -> None:
    partition = filling.partitions[target]
    first = partition.appends.wanted
    partition.appends.offer([Hole(first, count)], next_offset=first + count)
    fill = partition.appends.next()
    assert isinstance(fill, Hole)
    filling.add(partition, fill)


def chosen(transactions: Transactions, markers: AtLeader) -> HoleFilling:
    partitions = {target: partition_at_rest(target) for target in (SHORT, LONG, LONGEST)}
    return hole_filling(transactions, markers, partitions, FakeClock())


@pytest.mark.parametrize("is_allowed", [False, True])
async def test_what_leaders_do_not_fill_is_left_to_transactions(is_allowed: bool) -> None:
    """Holes that are added meanwhile join them only where leaders write no markers."""
    transactions, markers = Transactions(), AtLeader(is_allowed)
    filling = chosen(transactions, markers)
    await filling.open()
    markers.late = filling
    add(filling, LONG, MOST_AT_LEADER)
    add(filling, LONGEST, MOST_AT_LEADER + 1)
    begun = filling.begin()
    assert begun is not None
    await begun
    others = {} if is_allowed else {LONG: MOST_AT_LEADER, SHORT: 1}
    assert transactions.filled == {LONGEST: MOST_AT_LEADER + 1, **others}
    assert all(partition.appends.is_idle for partition in filling.partitions.values())
    # What is promised to be unseen stays so where leaders leave it, for whatever reason.
    assert transactions.most_markers == (MOST_AT_LEADER if is_allowed else MOST_MARKERS)


async def test_after_a_failure_only_what_failed_is_opened_again() -> None:
    transactions, markers = Transactions(), AtLeader(is_allowed=True)
    filling = chosen(transactions, markers)
    await filling.open()
    markers.is_open = False
    await filling.open()
    assert (transactions.opened, markers.opened) == (1, 2)
    assert filling.is_open
