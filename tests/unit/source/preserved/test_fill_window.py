"""Holes of several partitions that transactions fill, a tenth of a second each."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.virtual_time import run_in_virtual_time
from twinlog_source.log.facts import FENCED
from twinlog_source.preserved.filler import Filler, FillWindow
from twinlog_source.preserved.leader_filler import Holes, LeftOut

A, B, C = (TopicPartition(name, 0) for name in "abc")
NO_LEADER = TransientKafkaError("no leader", reason="KAFKA_UNAVAILABLE")
TAKEN_OVER = FatalKafkaError("another owner", reason=FENCED)


@dataclass
class Target:
    slow_seconds: float = 0.0
    """How long the leader of A takes to show a marker."""
    look_fails: bool = False
    fenced_at: float = 1e9
    written: list[list[str]] = field(default_factory=list)
    ended: list[tuple[str, float]] = field(default_factory=list)
    later: dict[float, tuple[TopicPartition, tuple[int, int]]] = field(default_factory=dict)
    """Holes that are added at these times."""

    async def led(self, holes: Holes, left_out: LeftOut) -> Holes:
        return holes

    def markers_of(self, count: int) -> int:
        return count

    async def prepare(self, partition: TopicPartition, empty: int) -> None: ...

    async def write(self, empty: Mapping[TopicPartition, int]) -> int:
        await passed(0.1)
        self.written.append([partition.topic for partition in empty])
        if now() >= self.fenced_at:
            raise TAKEN_OVER
        return 7

    async def is_filled(self, partition: TopicPartition, last: int, producer_id: int) -> bool:
        assert producer_id == 7
        if partition == A:
            await passed(self.slow_seconds)
            if self.look_fails:
                raise NO_LEADER
        return True

    def more(self) -> Holes:
        due = [at for at in self.later if at <= now()]
        return dict(self.later.pop(at) for at in due)

    async def fill(self, holes: Holes, *, most_partitions: int = 50) -> None:
        window = FillWindow(filler=cast("Filler", self), most_partitions=most_partitions)

        def ended(partition: TopicPartition, is_filled: bool) -> None:
            assert is_filled
            self.ended.append((partition.topic, round(now(), 1)))

        await window.run(holes, ended, unexpected, self.more)


def now() -> float:
    return asyncio.get_running_loop().time()


async def passed(seconds: float) -> None:
    await wait_or_stop(asyncio.Event(), seconds)


def unexpected(partition: TopicPartition, error: KafkaError) -> None:
    raise AssertionError((partition, error))


def test_a_short_hole_waits_for_no_longer_one() -> None:
    target = Target()
    run_in_virtual_time(target.fill({B: (0, 20), A: (0, 1)}))
    assert target.ended == [("a", 0.1), ("b", 2.0)]
    assert target.written == [["a", "b"], *[["b"]] * 19]


@pytest.mark.parametrize("beside", [1, 30])
def test_a_leader_that_is_slow_to_show_a_marker_holds_up_no_other_partition(beside: int) -> None:
    """Also while nothing else is to be done, and a hole is added then."""
    target = Target(slow_seconds=60.0, later={0.95: (C, (0, 2))})
    run_in_virtual_time(target.fill({A: (0, 1), B: (0, beside)}))
    assert dict(target.ended) == {"a": 60.1, "b": round(beside / 10, 1), "c": 1.2}


def test_more_partitions_than_fit_into_a_transaction_follow_one_another() -> None:
    target = Target()
    run_in_virtual_time(target.fill({A: (0, 1), B: (0, 2), C: (0, 3)}, most_partitions=1))
    assert target.written == [["a"], ["b"], ["b"], ["c"], ["c"], ["c"]]


def test_a_take_over_is_told_although_something_else_failed_first() -> None:
    """Whoever does not hear of it initialises the id again, and fences the new owner."""
    target = Target(slow_seconds=0.05, look_fails=True, fenced_at=0.2)
    with pytest.raises(FatalKafkaError) as told:
        run_in_virtual_time(target.fill({A: (0, 1), B: (0, 100)}))
    assert told.value is TAKEN_OVER
