"""Who is fetched next: trickles rest together while the writing half works, limited backlogs take turns."""

from dataclasses import dataclass, field

import pytest

from twinlog.model import TopicPartition
from twinlog_source.task.fetch_schedule import (
    BACKLOG_BYTES,
    LIMIT_SECONDS,
    LONGEST_REST_SECONDS,
    LONGEST_WAIT_SECONDS,
    TRICKLE_BYTES,
    FetchSchedule,
)
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.throttle import Throttle

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
LITTLE = 1000


@dataclass(slots=True)
class Bench:
    partitions: tuple[TopicPartition, ...] = (FIRST, SECOND)
    copies: dict[TopicPartition, PartitionCopy] = field(init=False)
    throttle: Throttle = field(default_factory=Throttle)
    asked: set[TopicPartition] = field(default_factory=set)
    turns: FetchSchedule = field(init=False)

    def __post_init__(self) -> None:
        self.copies = {
            each: PartitionCopy(partition=each, target_topic="A.t", committed=7, random=lambda: 1.0)
            for each in self.partitions
        }
        self.turns = FetchSchedule(
            copies=self.copies, throttle=self.throttle, is_asked=self.asked.__contains__
        )

    def next(self, now: float = 0.0) -> set[TopicPartition]:
        return set(self.turns.next(now))


def test_every_partition_that_may_be_read_is_fetched_from_where_it_stands() -> None:
    bench = Bench()
    bench.copies[FIRST].fetched = 9
    assert bench.turns.next(0.0) == {FIRST: 9, SECOND: 7}


def test_a_paused_partition_waits_for_its_command_a_failed_one_for_its_time() -> None:
    bench = Bench()
    bench.copies[FIRST].pause(paused=True)
    bench.copies[SECOND].fail(reason="R", message="m", retriable=True, now=0.0)
    assert bench.next(0.9) == set()
    assert bench.turns.wait_seconds(0.9) == pytest.approx(0.1)
    assert bench.next(1.0) == {SECOND}
    assert bench.turns.wait_seconds(1.0) == LONGEST_WAIT_SECONDS
    bench.copies[FIRST].pause(paused=False)
    assert bench.next(1.0) == {FIRST, SECOND}


def test_who_has_no_backlog_rests_with_a_trickle_until_the_writing_half_is_about_to_be_free() -> None:
    bench = Bench()
    assert not bench.turns.end_rest()
    bench.turns.served(FIRST, LITTLE, buffered_bytes=LITTLE, now=0.0)
    assert bench.next() == set()
    assert bench.turns.end_rest()
    assert bench.next() == {FIRST, SECOND}
    assert not bench.turns.end_rest()


def test_a_rest_has_an_end_when_the_writing_half_is_not_free_for_long() -> None:
    bench = Bench()
    bench.turns.served(FIRST, LITTLE, buffered_bytes=LITTLE, now=5.0)
    assert bench.next(5.75) == set()
    assert bench.turns.wait_seconds(5.75) == 5.0 + LONGEST_REST_SECONDS - 5.75
    assert bench.next(5.0 + LONGEST_REST_SECONDS) == {FIRST, SECOND}


def test_what_is_asked_for_is_waited_for_while_others_rest() -> None:
    bench = Bench()
    bench.asked.add(SECOND)
    bench.turns.served(FIRST, LITTLE, buffered_bytes=LITTLE, now=0.0)
    assert bench.next() == {SECOND}


def test_a_backlog_does_not_rest_beside_a_trickle() -> None:
    """One that is known by its last answer, and one that is known by the end of its log."""
    third = TopicPartition("t", 2)
    bench = Bench((FIRST, SECOND, third))
    bench.copies[third].end_offset = 100
    bench.turns.served(SECOND, BACKLOG_BYTES, buffered_bytes=BACKLOG_BYTES, now=0.0)
    bench.turns.served(FIRST, LITTLE, buffered_bytes=BACKLOG_BYTES + LITTLE, now=0.0)
    assert bench.next() == {SECOND, third}
    bench.turns.served(SECOND, LITTLE, buffered_bytes=BACKLOG_BYTES + LITTLE, now=0.0)
    assert bench.next() == {third}


def test_nobody_rests_while_much_is_buffered() -> None:
    bench = Bench()
    bench.turns.served(FIRST, BACKLOG_BYTES, buffered_bytes=BACKLOG_BYTES, now=0.0)
    bench.turns.served(SECOND, LITTLE, buffered_bytes=TRICKLE_BYTES, now=0.0)
    assert bench.next() == {FIRST, SECOND}


def test_backlogs_of_a_limited_topic_take_turns_and_hold_up_nobody_else() -> None:
    limited = [TopicPartition("limited", number) for number in range(5)]
    bench = Bench((FIRST, SECOND, *limited))
    for copy in bench.copies.values():
        copy.end_offset = 100
    caught_up = limited.pop()
    bench.copies[caught_up].end_offset = 0
    bench.throttle.set_limits(0, {"limited": 2_500_000}, 0.0)
    seen = set()
    for _ in range(2):
        wanted = bench.next()
        assert wanted >= {FIRST, SECOND, caught_up}
        served = wanted & set(limited)
        assert len(served) == 2
        assert bench.turns.wait_seconds(0.0) == LIMIT_SECONDS
        seen |= served
        for partition in served:
            bench.turns.served(partition, BACKLOG_BYTES, buffered_bytes=0, now=0.0)
    assert seen == set(limited)


def test_what_is_asked_already_is_not_given_up_and_counts_as_a_turn() -> None:
    limited = tuple(TopicPartition("limited", number) for number in range(4))
    bench = Bench(limited)
    for copy in bench.copies.values():
        copy.end_offset = 100
    bench.throttle.set_limits(0, {"limited": 2_500_000}, 0.0)
    bench.asked.add(limited[3])
    assert bench.next() == {limited[0], limited[3]}
    bench.throttle.spend("limited", 10_000_000, 0.0)
    assert bench.next() == {limited[3]}


def test_preserved_copies_neither_rest_nor_let_others_rest() -> None:
    """What they read is sent at once, whatever else is on its way."""
    bench = Bench()
    bench.copies[FIRST].keeps_offsets = True
    bench.turns.served(FIRST, LITTLE, buffered_bytes=0, now=0.0)
    assert bench.next() == {FIRST, SECOND}
    bench.turns.served(SECOND, LITTLE, buffered_bytes=LITTLE, now=0.0)
    assert bench.next() == {FIRST}


def test_a_preserved_copy_with_enough_on_its_way_waits_for_room() -> None:
    bench = Bench()
    bench.copies[FIRST].keeps_offsets = bench.copies[FIRST].is_full = True
    assert bench.next() == {SECOND}
    bench.copies[FIRST].is_full = False
    assert bench.next() == {FIRST, SECOND}
