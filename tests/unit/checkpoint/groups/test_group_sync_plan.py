"""sync.group.offsets: what is committed, and what is left alone."""

from collections.abc import Callable, Mapping

import pytest

from twinlog.kafka.ports import CommittedOffset
from twinlog.model import TopicPartition
from twinlog.wire import Checkpoint
from twinlog_checkpoint.groups.progress import plan_group_sync
from twinlog_checkpoint.translation.translation import LogBounds

T0, T1 = TopicPartition("A.t", 0), TopicPartition("A.t", 1)
RANGES = {T0: LogBounds(start=0, end=1000), T1: LogBounds(start=0, end=1000)}


def checkpoint(partition: TopicPartition, downstream: int) -> Checkpoint:
    return Checkpoint(
        group="g", partition=partition, upstream_offset=7, downstream_offset=downstream, metadata="m"
    )


def planned(
    desired: Mapping[TopicPartition, int],
    current: Mapping[TopicPartition, int],
    *,
    state: str = "EMPTY",
    ranges: Mapping[TopicPartition, LogBounds] = RANGES,
    wrote: Callable[[Checkpoint, int], bool] = lambda at, offset: False,
) -> Mapping[TopicPartition, int]:
    """The offsets that are committed, all with the checkpoint's metadata."""
    writes = plan_group_sync(
        desired={partition: checkpoint(partition, offset) for partition, offset in desired.items()},
        state_on_target=state,
        current={partition: CommittedOffset(next_offset=offset) for partition, offset in current.items()},
        ranges=ranges,
        wrote=wrote,
    )
    assert all(each.metadata == "m" for each in writes.values())
    return {partition: each.next_offset for partition, each in writes.items()}


def test_a_group_that_is_not_there_gets_everything() -> None:
    assert planned({T0: 10, T1: 20}, {}, state="DEAD") == {T0: 10, T1: 20}


def test_an_idle_group_only_moves_forward() -> None:
    assert planned({T0: 10, T1: 20}, {T0: 11, T1: 19}) == {T1: 20}


def test_what_was_written_wrongly_for_a_group_goes_back_and_its_own_offsets_stay() -> None:
    def wrote(at: Checkpoint, offset: int) -> bool:
        return (at.partition, offset) == (T0, 15)

    assert planned({T0: 10, T1: 20}, {T0: 15, T1: 25}, wrote=wrote) == {T0: 10}


def test_nothing_is_committed_past_the_end_of_a_copy_that_lost_its_tail() -> None:
    ranges = {T0: LogBounds(start=8, end=20)}
    assert planned({T0: 21}, {T0: 24}, ranges=ranges, wrote=lambda at, offset: True) == {}


def test_what_is_there_already_is_not_written_again() -> None:
    assert planned({T0: 10}, {T0: 10}) == {}


@pytest.mark.parametrize("state", ["STABLE", "PREPARING_REBALANCING", "ASSIGNING", "RECONCILING", "UNKNOWN"])
def test_a_group_with_members_is_never_touched(state: str) -> None:
    assert planned({T0: 10}, {}, state=state) == {}


@pytest.mark.parametrize(("downstream", "committed"), [(5, 8), (20, 20)])
def test_an_offset_before_the_targets_log_becomes_its_start(downstream: int, committed: int) -> None:
    assert planned({T0: downstream}, {}, ranges={T0: LogBounds(start=8, end=20)}) == {T0: committed}


def test_a_partition_the_target_does_not_have_is_left_out() -> None:
    assert planned({T0: 10}, {}, state="DEAD", ranges={}) == {}
