"""The state machine of one partition in its task."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from twinlog.batches.prepared import LeaderEpoch
from twinlog.model import TopicPartition
from twinlog_source.log.facts import EpochStart
from twinlog_source.partitions.orders import PartitionState, PriorFailure
from twinlog_source.task.partition import PartitionCopy


def copy_at(position: int, random: Callable[[], float] = lambda: 1.0) -> PartitionCopy:
    return PartitionCopy(
        partition=TopicPartition("t", 0), target_topic="A.t", committed=position, random=random
    )


def test_a_partition_is_on_trial_after_a_fault_and_not_after_what_a_retry_may_heal() -> None:
    copy = copy_at(5)
    copy.fail(reason="RECORD_INVALID", message="", retriable=False, now=0.0)
    assert copy.fetchable(100.0)
    assert copy.on_trial
    copy.rewind()
    assert copy.on_trial, "the round failed because of another one"
    copy.fail(reason="LEADER_UNAVAILABLE", message="", retriable=True, now=100.0)
    assert copy.fetchable(200.0)
    assert not copy.on_trial


def test_a_second_loss_before_the_first_was_told_is_one_with_it() -> None:
    copy = copy_at(5)
    copy.target_end = 120
    copy.written(90, 50, 100)
    copy.written(135, 5, 150)
    assert (copy.target_shortened_to, copy.target_shortened_at) == (90, 150)
    copy.shortenings_told = copy.target_shortened_times
    copy.written(130, 5, 160)
    assert (copy.target_shortened_to, copy.target_shortened_at) == (130, 160)


def test_a_failure_backs_off_longer_each_time_and_comes_back_by_itself() -> None:
    copy = copy_at(5)
    waits = []
    now = 0.0
    for _ in range(9):
        copy.fail(reason="LEADER_UNAVAILABLE", message="", retriable=True, now=now)
        assert copy.retry_at is not None
        waits.append(copy.retry_at - now)
        assert not copy.fetchable(copy.retry_at - 0.01)
        now = copy.retry_at
        assert copy.fetchable(now)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_each_loss_of_the_end_of_the_target_log_is_counted() -> None:
    copy = copy_at(5)
    copy.written(10, 5, 0)
    assert copy.target_shortened_times == 0
    for times in (1, 2):
        copy.written(12, 1, 3)
        assert (copy.target_shortened_to, copy.target_shortened_at) == (12, 3)
        assert copy.target_shortened_times == times


def test_the_leader_epoch_before_the_next_fetch_is_known_also_after_a_pause() -> None:
    """A source that is truncated meanwhile, and grows again, shows it by nothing else."""
    copy = copy_at(5)
    copy.epochs = (EpochStart(3, 0),)
    copy.fetch_to(8, [LeaderEpoch(3, 5)])
    copy.send_to(8, [LeaderEpoch(3, 5)])
    copy.fetch_to(9, [LeaderEpoch(4, 8)])
    assert copy.fetched_epoch == 4
    copy.pause(paused=True)
    copy.pause(paused=False)
    assert (copy.fetched, copy.fetched_epoch) == (8, 3), "its records are in flight"
    copy.commit(8)
    assert copy.fetched_epoch == 3
    copy.restart_at(8)
    assert copy.fetched_epoch is None, "nobody knows under which leaders the records up to there were written"


def test_a_fault_in_the_first_batches_of_a_new_leader_leaves_its_epoch_known() -> None:
    copy = copy_at(5)
    copy.epochs = (EpochStart(3, 0),)
    copy.fetch_to(6, [LeaderEpoch(4, 5)])
    copy.send_to(6, [LeaderEpoch(4, 5)])
    copy.hold()
    copy.commit(6)
    copy.epochs = (EpochStart(3, 0), EpochStart(4, 5))
    copy.fail(reason="RECORD_TOO_LARGE", message="", retriable=False, now=0.0)
    assert (copy.fetched, copy.fetched_epoch) == (6, 4)


def test_success_shortens_the_next_back_off() -> None:
    copy = copy_at(5)
    for _ in range(5):
        copy.fail(reason="X", message="", retriable=True, now=0.0)
    copy.fetchable(1e9)
    copy.fetched = copy.sent = 6
    copy.commit(6)
    copy.fail(reason="X", message="", retriable=True, now=0.0)
    assert copy.retry_at == 1.0


def test_reaching_the_end_of_the_source_shortens_the_next_back_off() -> None:
    """A quiet partition has nothing to commit: it would be read once a minute after a few bad moments."""
    copy = copy_at(5)
    for now in (0.0, 100.0, 200.0):
        copy.fail(reason="LEADER_UNAVAILABLE", message="m", retriable=True, now=now, keep_in_flight=True)
        assert copy.fetchable(now + 60)
    copy.end_offset = 6
    copy.found_nothing()
    assert copy.failures == 3, "other partitions have used up the bytes of the request"
    copy.end_offset = 5
    copy.found_nothing()
    copy.fail(reason="LEADER_UNAVAILABLE", message="m", retriable=True, now=300.0, keep_in_flight=True)
    assert copy.retry_at == 301.0


def test_reaching_the_end_of_the_source_says_nothing_about_what_is_not_yet_written() -> None:
    copy = copy_at(5)
    copy.fail(reason="NOT_ENOUGH_REPLICAS", message="m", retriable=True, now=0.0)
    assert copy.fetchable(1.0)
    copy.fetched = 7
    copy.found_nothing()
    assert copy.failures == 1


def test_a_fault_that_nothing_was_copied_before_is_tried_less_and_less_often() -> None:
    """Each try commits a round that holds nothing but the fault: that is no success."""
    copy = copy_at(5)
    waits, now = [], 0.0
    for _ in range(8):
        copy.rounds = 1
        copy.commit(5)
        copy.rounds = 0
        copy.fail(reason="RECORD_TOO_LARGE", message="", retriable=False, now=now)
        assert copy.retry_at is not None
        waits.append(copy.retry_at - now)
        now = copy.retry_at
        assert copy.fetchable(now)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_partition_is_not_idle_while_its_fault_is_in_a_round() -> None:
    copy = copy_at(5)
    copy.rounds = 1
    assert not copy.is_idle
    copy.rewind()
    assert copy.is_idle


def test_what_somebody_must_heal_is_faulted_and_tried_again_all_the_same() -> None:
    copy = copy_at(5)
    copy.fail(reason="RECORD_TOO_LARGE", message="offset 5", retriable=False, now=10.0)
    assert (copy.state, copy.reason) == (PartitionState.FAULTED, "RECORD_TOO_LARGE")
    assert copy.fetchable(10.9) is False
    assert copy.fetchable(11.0) is True
    copy.fail(reason="RECORD_TOO_LARGE", message="offset 5", retriable=False, now=11.0)
    assert copy.retry_at == 13.0


def test_a_prior_failure_goes_on_growing_where_the_task_before_left_it() -> None:
    copy = copy_at(5)
    prior = PriorFailure(
        state=PartitionState.BACKOFF, reason="X", message="", failures=4, retry_in_seconds=20.0
    )
    copy.restore_failure(prior, now=0.0)
    assert copy.fetchable(20.0)
    assert copy.reason_before == "X"
    copy.fail(reason="X", message="", retriable=True, now=20.0)
    assert copy.retry_at == 36.0


def test_a_pause_survives_a_fault() -> None:
    copy = copy_at(5)
    copy.pause(paused=True)
    copy.fail(reason="X", message="", retriable=True, now=0.0)
    assert not copy.fetchable(100.0)
    assert copy.state is PartitionState.PAUSED
    copy.pause(paused=False)
    assert copy.fetchable(100.0)


def test_a_pause_drops_what_is_queued_and_keeps_what_is_sent() -> None:
    copy = copy_at(5)
    copy.fetched, copy.sent = 30, 20
    copy.pause(paused=True)
    assert (copy.committed, copy.sent, copy.fetched) == (5, 20, 20)


class Copying(RuleBasedStateMachine):
    """Fetch, send, commit, abort, pause in any order: no offset is sent twice without an abort, none is
    left out."""

    def __init__(self) -> None:
        super().__init__()
        self.copy = copy_at(0)
        self.queue: list[tuple[int, int, int]] = []
        self.target = 0
        self.open: list[int] = []

    @rule(count=st.integers(1, 5))
    def fetch(self, count: int) -> None:
        if self.copy.fetchable(0.0):
            first = self.copy.fetched
            self.copy.fetched += count
            self.queue.append((self.copy.generation, first, self.copy.fetched))

    @precondition(lambda self: self.queue)
    @rule()
    def send(self) -> None:
        generation, first, end = self.queue.pop(0)
        if generation == self.copy.generation:
            assert first == (self.open[-1] if self.open else self.target)
            self.copy.sent = end
            self.open.append(end)

    @precondition(lambda self: self.open)
    @rule()
    def commit(self) -> None:
        self.target = self.open[-1]
        self.copy.commit(self.target)
        self.open.clear()

    @rule()
    def abort(self) -> None:
        self.open.clear()
        self.copy.rewind()

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.copy.pause(paused=paused)

    @invariant()
    def ordered(self) -> None:
        assert self.copy.committed <= self.copy.sent <= self.copy.fetched
        assert self.copy.committed == self.target


TestCopying = Copying.TestCase


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_a_restart_begins_exactly_where_it_is_told(committed: int, ahead: int, position: int) -> None:
    copy = copy_at(committed)
    copy.fetched = committed + ahead
    copy.restart_at(position)
    assert copy.is_idle
    assert copy.fetched == position


def test_a_partition_whose_back_off_ends_while_it_is_paused_says_that_it_is_paused() -> None:
    """Invariant C."""
    copy = copy_at(0)
    copy.fail(reason="X", message="m", retriable=True, now=0.0)
    copy.pause(paused=True)
    assert not copy.fetchable(100.0)
    assert (copy.state, copy.reason) == (PartitionState.PAUSED, "PAUSED_BY_OPERATOR")
