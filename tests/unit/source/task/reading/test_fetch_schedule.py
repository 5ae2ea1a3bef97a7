"""Who is fetched next: trickles rest together while the writing half works, limited backlogs take turns."""

from dataclasses import dataclass, field

import pytest

from twinlog.model import TopicPartition
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.fetch_schedule import (
    BACKLOG_BYTES,
    FEW,
    LIMIT_SECONDS,
    LONGEST_IDLE_SECONDS,
    LONGEST_REST_SECONDS,
    LONGEST_WAIT_SECONDS,
    TRICKLE_BYTES,
    FetchSchedule,
    ReadShares,
    Throttle,
)

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
LITTLE = 1000


@dataclass(slots=True)
class Rig:
    partitions: tuple[TopicPartition, ...] = (FIRST, SECOND)
    copies: dict[TopicPartition, PartitionCopy] = field(init=False)
    throttle: Throttle = field(default_factory=Throttle)
    shares: ReadShares = field(default_factory=ReadShares)
    asked: set[TopicPartition] = field(default_factory=set)
    turns: FetchSchedule = field(init=False)

    def __post_init__(self) -> None:
        self.copies = {
            each: PartitionCopy(partition=each, target_topic="A.t", committed=7, random=lambda: 1.0)
            for each in self.partitions
        }
        self.turns = FetchSchedule(
            copies=self.copies,
            throttle=self.throttle,
            shares=self.shares,
            is_asked=self.asked.__contains__,
        )

    def next(self, now: float = 0.0) -> set[TopicPartition]:
        return set(self.turns.next(now))


def test_every_partition_that_may_be_read_is_fetched_from_where_it_stands() -> None:
    rig = Rig()
    rig.copies[FIRST].fetched = 9
    assert rig.turns.next(0.0) == {FIRST: 9, SECOND: 7}
    assert rig.turns.wait_seconds(0.0) == LONGEST_IDLE_SECONDS


def test_a_paused_partition_waits_for_its_command_a_failed_one_for_its_time() -> None:
    rig = Rig()
    rig.copies[FIRST].pause(paused=True)
    rig.copies[SECOND].fail(reason="R", message="m", retriable=True, now=0.0)
    assert rig.next(0.9) == set()
    assert rig.turns.wait_seconds(0.9) == pytest.approx(0.1)
    assert rig.next(1.0) == {SECOND}
    assert rig.turns.wait_seconds(1.0) == LONGEST_WAIT_SECONDS
    rig.copies[FIRST].pause(paused=False)
    assert rig.next(1.0) == {FIRST, SECOND}


def test_who_has_no_backlog_rests_with_a_trickle_until_the_writing_half_is_about_to_be_free() -> None:
    rig = Rig()
    assert not rig.turns.end_rest()
    rig.turns.served(FIRST, LITTLE, buffered_bytes=LITTLE, now=0.0)
    assert rig.next() == set()
    assert rig.turns.end_rest()
    assert rig.next() == {FIRST, SECOND}
    assert not rig.turns.end_rest()


def test_a_rest_has_an_end_when_the_writing_half_is_not_free_for_long() -> None:
    rig = Rig()
    rig.turns.served(FIRST, LITTLE, buffered_bytes=LITTLE, now=5.0)
    assert rig.next(5.75) == set()
    assert rig.turns.wait_seconds(5.75) == 5.0 + LONGEST_REST_SECONDS - 5.75
    assert rig.next(5.0 + LONGEST_REST_SECONDS) == {FIRST, SECOND}


def test_what_is_asked_for_is_waited_for_while_others_rest() -> None:
    rig = Rig()
    rig.asked.add(SECOND)
    rig.turns.served(FIRST, LITTLE, buffered_bytes=LITTLE, now=0.0)
    assert rig.next() == {SECOND}


def test_a_backlog_does_not_rest_beside_a_trickle() -> None:
    """One that is known by its last answer, and one that is known by the end of its log."""
    third = TopicPartition("t", 2)
    rig = Rig((FIRST, SECOND, third))
    rig.copies[third].end_offset = 100
    rig.turns.served(SECOND, BACKLOG_BYTES, buffered_bytes=BACKLOG_BYTES, now=0.0)
    rig.turns.served(FIRST, LITTLE, buffered_bytes=BACKLOG_BYTES + LITTLE, now=0.0)
    assert rig.next() == {SECOND, third}
    rig.turns.served(SECOND, LITTLE, buffered_bytes=BACKLOG_BYTES + LITTLE, now=0.0)
    assert rig.next() == {third}


def test_nobody_rests_while_much_is_buffered() -> None:
    rig = Rig()
    rig.turns.served(FIRST, BACKLOG_BYTES, buffered_bytes=BACKLOG_BYTES, now=0.0)
    rig.turns.served(SECOND, LITTLE, buffered_bytes=TRICKLE_BYTES, now=0.0)
    assert rig.next() == {FIRST, SECOND}


def test_backlogs_of_a_limited_topic_take_turns_and_hold_up_nobody_else() -> None:
    limited = [TopicPartition("limited", number) for number in range(5)]
    rig = Rig((FIRST, SECOND, *limited))
    for copy in rig.copies.values():
        copy.end_offset = 100
    caught_up = limited.pop()
    rig.copies[caught_up].end_offset = 0
    rig.throttle.set_limits(0, {"limited": 2_500_000}, 0.0)
    seen = set()
    for _ in range(2):
        wanted = rig.next()
        assert wanted >= {FIRST, SECOND, caught_up}
        served = wanted & set(limited)
        assert len(served) == 2
        assert rig.turns.wait_seconds(0.0) == LIMIT_SECONDS
        seen |= served
        for partition in served:
            rig.turns.served(partition, BACKLOG_BYTES, buffered_bytes=0, now=0.0)
    assert seen == set(limited)


def test_what_is_asked_already_is_not_given_up_and_counts_as_a_turn() -> None:
    limited = tuple(TopicPartition("limited", number) for number in range(4))
    rig = Rig(limited)
    for copy in rig.copies.values():
        copy.end_offset = 100
    rig.throttle.set_limits(0, {"limited": 2_500_000}, 0.0)
    rig.asked.add(limited[3])
    assert rig.next() == {limited[0], limited[3]}
    rig.throttle.spend("limited", 10_000_000, 0.0)
    assert rig.next() == {limited[3]}


def test_preserved_copies_neither_rest_nor_let_others_rest() -> None:
    """What they read is sent at once, whatever else is on its way."""
    rig = Rig()
    rig.copies[FIRST].keeps_offsets = True
    rig.turns.served(FIRST, LITTLE, buffered_bytes=0, now=0.0)
    assert rig.next() == {FIRST, SECOND}
    rig.turns.served(SECOND, LITTLE, buffered_bytes=LITTLE, now=0.0)
    assert rig.next() == {FIRST}


def test_a_preserved_copy_with_enough_on_its_way_waits_for_room() -> None:
    rig = Rig()
    rig.copies[FIRST].keeps_offsets = rig.copies[FIRST].is_full = True
    assert rig.next() == {SECOND}
    rig.copies[FIRST].is_full = False
    assert rig.next() == {FIRST, SECOND}


def test_a_few_preserved_copies_of_which_nothing_is_held_are_read_in_turn_while_enough_is_held() -> None:
    """What is held may wait for a leader of the target that does not answer."""
    many = tuple(TopicPartition("t", number) for number in range(3 * FEW))
    rig = Rig(partitions=many, shares=ReadShares(most_bytes=1000))
    for copy in rig.copies.values():
        copy.keeps_offsets, copy.end_offset = True, 100
    rig.copies[many[0]].held_bytes = 1000
    rig.shares.change(0, 1000)
    first = rig.next()
    assert (len(first), many[0] in first) == (FEW, False)
    for partition in first:
        rig.turns.served(partition, LITTLE, buffered_bytes=0, now=0.0)
    second = rig.next()
    assert (len(second), first & second) == (FEW, set())
    rig.asked = set(second)
    assert rig.next() == second, "their answers are taken, and no others are asked for meanwhile"
    quiet = rig.copies[min(first)]
    quiet.end_offset = quiet.fetched
    assert rig.next() == second | {quiet.partition}, "it has no backlog"
    rig.shares.change(0, 250)
    rig.asked.clear()
    assert rig.next() == set(), "these hold as much as they may"
    rig.shares.change(250, 0)
    rig.shares.change(1000, 999)
    assert rig.next() == set(many)
