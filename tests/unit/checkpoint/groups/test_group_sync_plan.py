"""sync.group.offsets: what is committed, and what is left alone."""

import pytest

from twinlog.kafka.ports import CommittedOffset
from twinlog.model import TopicPartition
from twinlog.wire import Checkpoint
from twinlog_checkpoint.groups.sync_plan import SyncOutcome, plan_group_sync
from twinlog_checkpoint.translation.translation import LogBounds

T0, T1 = TopicPartition("A.t", 0), TopicPartition("A.t", 1)
RANGES = {T0: LogBounds(start=0, end=1000), T1: LogBounds(start=0, end=1000)}


def nothing(at: Checkpoint, offset: int) -> bool:
    return False


def checkpoint(partition: TopicPartition, downstream: int) -> Checkpoint:
    return Checkpoint(
        group="g", partition=partition, upstream_offset=7, downstream_offset=downstream, metadata="m"
    )


def test_a_group_that_is_not_there_gets_everything() -> None:
    plan = plan_group_sync(
        desired={T0: checkpoint(T0, 10), T1: checkpoint(T1, 20)},
        state_on_target="DEAD",
        current={},
        ranges=RANGES,
        wrote=nothing,
    )
    assert plan.writes == {
        T0: CommittedOffset(next_offset=10, metadata="m"),
        T1: CommittedOffset(next_offset=20, metadata="m"),
    }


def test_an_idle_group_only_moves_forward() -> None:
    plan = plan_group_sync(
        desired={T0: checkpoint(T0, 10), T1: checkpoint(T1, 20)},
        state_on_target="EMPTY",
        current={T0: CommittedOffset(next_offset=11), T1: CommittedOffset(next_offset=19)},
        ranges=RANGES,
        wrote=nothing,
    )
    assert plan.writes == {T1: CommittedOffset(next_offset=20, metadata="m")}
    assert plan.outcomes == {T0: SyncOutcome.TARGET_AHEAD}


def test_what_was_written_wrongly_for_a_group_goes_back_and_its_own_offsets_stay() -> None:
    plan = plan_group_sync(
        desired={T0: checkpoint(T0, 10), T1: checkpoint(T1, 20)},
        state_on_target="EMPTY",
        current={T0: CommittedOffset(next_offset=15), T1: CommittedOffset(next_offset=25)},
        ranges=RANGES,
        wrote=lambda at, offset: (at.partition, offset) == (T0, 15),
    )
    assert plan.writes == {T0: CommittedOffset(next_offset=10, metadata="m")}
    assert plan.outcomes == {T1: SyncOutcome.TARGET_AHEAD}


def test_nothing_is_committed_past_the_end_of_a_copy_that_lost_its_tail() -> None:
    plan = plan_group_sync(
        desired={T0: checkpoint(T0, 21)},
        state_on_target="EMPTY",
        current={T0: CommittedOffset(next_offset=24)},
        ranges={T0: LogBounds(start=8, end=20)},
        wrote=lambda at, offset: True,
    )
    assert (plan.writes, plan.outcomes) == ({}, {T0: SyncOutcome.PAST_END})


def test_what_is_there_already_is_not_written_again() -> None:
    plan = plan_group_sync(
        desired={T0: checkpoint(T0, 10)},
        state_on_target="EMPTY",
        current={T0: CommittedOffset(next_offset=10)},
        ranges=RANGES,
        wrote=nothing,
    )
    assert (plan.writes, plan.outcomes) == ({}, {T0: SyncOutcome.ALREADY_THERE})


@pytest.mark.parametrize("state", ["STABLE", "PREPARING_REBALANCING", "ASSIGNING", "RECONCILING", "UNKNOWN"])
def test_a_group_with_members_is_never_touched(state: str) -> None:
    plan = plan_group_sync(
        desired={T0: checkpoint(T0, 10)}, state_on_target=state, current={}, ranges=RANGES, wrote=nothing
    )
    assert (plan.writes, plan.outcomes) == ({}, {T0: SyncOutcome.ACTIVE_ON_TARGET})


@pytest.mark.parametrize(
    ("downstream", "log", "committed"),
    [
        (5, LogBounds(start=8, end=20), 8),
        (20, LogBounds(start=8, end=20), 20),
    ],
)
def test_an_offset_before_the_targets_log_becomes_its_start(
    downstream: int, log: LogBounds, committed: int
) -> None:
    plan = plan_group_sync(
        desired={T0: checkpoint(T0, downstream)},
        state_on_target="EMPTY",
        current={},
        ranges={T0: log},
        wrote=nothing,
    )
    assert plan.writes[T0].next_offset == committed


def test_a_partition_the_target_does_not_have_is_left_out() -> None:
    plan = plan_group_sync(
        desired={T0: checkpoint(T0, 10)}, state_on_target="DEAD", current={}, ranges={}, wrote=nothing
    )
    assert (plan.writes, plan.outcomes) == ({}, {T0: SyncOutcome.NO_TARGET_PARTITION})
