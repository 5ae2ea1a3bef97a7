"""Who fills which hole, by what the target lets us do."""

from dataclasses import dataclass, field

import pytest

from twinlog.model import TopicPartition
from twinlog_source.preserved.fill_limits import MOST_AT_LEADER, MOST_MARKERS, FillLimit
from twinlog_source.preserved.fillers import ChosenFiller, Ended, Holes, LeftOut, More, nothing_more

SHORT, LONG, LONGEST = (TopicPartition("t", number) for number in range(3))
HOLES = {SHORT: (5, MOST_MARKERS), LONG: (5, MOST_MARKERS + 1), LONGEST: (5, MOST_AT_LEADER + 1)}


@dataclass
class Transactions:
    opened: int = 0
    is_open: bool = False
    most_markers: int = MOST_MARKERS
    filled: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def note_limit(self, partition: TopicPartition, limit: FillLimit) -> None: ...

    async def open(self) -> None:
        self.opened, self.is_open = self.opened + 1, True

    async def fill(self, holes: Holes, ended: Ended, left_out: LeftOut, more: More = nothing_more) -> None:
        self.filled = {**self.filled, **holes, **more()}


@dataclass
class AtLeader:
    is_allowed: bool
    opened: int = 0
    is_open: bool = False

    async def open(self) -> None:
        self.opened, self.is_open = self.opened + 1, True

    async def fill(
        self, holes: Holes, ended: Ended, left_out: LeftOut
    ) -> dict[TopicPartition, tuple[int, int]]:
        return {partition: hole for partition, hole in holes.items() if hole[1] > MOST_AT_LEADER}


async def test_what_leaders_do_not_fill_is_left_to_transactions() -> None:
    transactions = Transactions()
    filler = ChosenFiller(transactions, AtLeader(is_allowed=True))
    await filler.open()
    await filler.fill(HOLES, lambda *_: None, lambda *_: None)
    assert transactions.filled == {LONGEST: HOLES[LONGEST]}
    # What is promised to be unseen stays so where leaders leave it, for whatever reason.
    assert filler.most_markers == transactions.most_markers == MOST_AT_LEADER


async def test_without_the_right_holes_are_filled_as_transactions_do() -> None:
    transactions = Transactions()
    filler = ChosenFiller(transactions, AtLeader(is_allowed=False))
    await filler.open()
    assert filler.most_markers == transactions.most_markers == MOST_MARKERS


async def test_after_a_failure_only_what_failed_is_opened_again() -> None:
    transactions, markers = Transactions(), AtLeader(is_allowed=True)
    filler = ChosenFiller(transactions, markers)
    assert not filler.is_open
    await filler.open()
    markers.is_open = False
    assert not filler.is_open
    await filler.open()
    assert filler.is_open
    assert (transactions.opened, markers.opened) == (1, 2)


@pytest.mark.parametrize("is_allowed", [False, True])
async def test_holes_added_meanwhile_join_transactions_only_where_leaders_write_no_markers(
    is_allowed: bool,
) -> None:
    transactions = Transactions()
    filler = ChosenFiller(transactions, AtLeader(is_allowed=is_allowed))
    await filler.open()
    late = TopicPartition("late", 0)
    await filler.fill(HOLES, lambda *_: None, lambda *_: None, lambda: {late: (7, 1)})
    assert (late in transactions.filled) is not is_allowed
