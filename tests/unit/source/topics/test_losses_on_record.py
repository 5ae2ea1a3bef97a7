"""When a loss of a copy is on record, and what a task that writes meanwhile changes about it."""

import contextlib

import pytest

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import UNAVAILABLE, from_code, from_reason
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog_source.driver.ownership import RENEW_SECONDS
from twinlog_source.driver.state import FlowState
from unit.source.flow_rig import FlowRig, P, ledger, reported, set_position
from unit.source.topics.lost_copies_rig import TRANSLATED, copied


def lost_behind_8(state: FlowState, position: int, target_end: int) -> None:
    """The task says that the target ended at 8 when the copy stood at 10."""
    lost = {"target_shortened_to": 8, "target_shortened_at": 10}
    reported(state, position=position, source_end=20, target_end=target_end, **lost)


@pytest.mark.parametrize("operation", ["describe_topics", "append"])
async def test_a_loss_of_the_copy_is_on_record_once_the_target_answers_again(
    rig: FlowRig, operation: str
) -> None:
    """Brokers that lose records are those that do not answer just then."""
    state = await copied(rig, source_end=10)
    await state.target_logs.put_ends_on_log(state.topics)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await state.target_logs.look_at_ends(state.topics, copying=False)

    def fails(_: Call) -> None:
        raise from_reason(UNAVAILABLE, operation, alias="B")

    mend = rig.target.intercept(operation, fails)
    # That a topic is not described is no error here: the next check asks again.
    with contextlib.nullcontext() if operation == "describe_topics" else pytest.raises(KafkaError):
        await state.target_logs.put_ends_on_log(state.topics)
    mend()
    assert ledger(state) == []
    await state.target_logs.put_ends_on_log(state.topics)
    assert ledger(state) == [(6, 10, "TARGET_TRUNCATED")]
    assert ledger(await rig.owner()) == [(6, 10, "TARGET_TRUNCATED")]


async def test_a_loss_of_the_copy_is_on_record_before_the_end_it_left(rig: FlowRig) -> None:
    """A task says with its last words that the log had lost its tail: nobody would find that later."""
    state = await copied(rig, source_end=20)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await rig.write(rig.target, "A.t", 6)
    lost_behind_8(state, position=16, target_end=14)
    await state.target_logs.put_ends_on_log(state.topics)
    assert ledger(await rig.owner()) == [(6, 10, "TARGET_TRUNCATED")]


@pytest.mark.parametrize("changes_again", [False, True])
@pytest.mark.parametrize("is_seen_by_the_task", [True, False])
async def test_a_marker_behind_a_loss_does_not_make_the_loss_smaller(
    rig: FlowRig, is_seen_by_the_task: bool, changes_again: bool
) -> None:
    """What was open where the log was cut off is ended there before the task writes again. `changes_again`:
    the leader, which loses nothing."""
    state = await copied(rig, source_end=20)
    await state.target_logs.look_at_ends(state.topics, copying=False)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await rig.write(rig.target, "A.t", 1)
    if changes_again:
        rig.target.truncate(TopicPartition("A.t", 0), 9)
    if is_seen_by_the_task:
        await rig.write(rig.target, "A.t", 2)
        lost = {"target_shortened_to": 9, "target_shortened_at": 10}
        reported(state, position=12, source_end=20, target_end=11, **lost)
    else:
        await state.target_logs.look_at_ends(state.topics, copying=False)
    await state.target_logs.note_shortened(state.topics)
    assert ledger(state) == [(6, 10, "TARGET_TRUNCATED")]
    assert not state.table.rows[P].losses


async def test_a_second_loss_is_no_larger_than_it_is_after_one_that_is_on_record(rig: FlowRig) -> None:
    """The leader that had all before the first one says nothing of the second."""
    state = await copied(rig, source_end=20)
    await state.target_logs.look_at_ends(state.topics, copying=False)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await rig.write(rig.target, "A.t", 6)
    lost_behind_8(state, position=16, target_end=14)
    await state.target_logs.note_shortened(state.topics)
    rig.target.truncate(TopicPartition("A.t", 0), 12)
    await rig.write(rig.target, "A.t", 2)
    lost = {"target_shortened_to": 12, "target_shortened_at": 16, "target_shortened_times": 1}
    reported(state, position=18, source_end=20, target_end=14, **lost)
    await state.target_logs.note_shortened(state.topics)
    assert ledger(state) == [(6, 10, "TARGET_TRUNCATED"), (14, 16, "TARGET_TRUNCATED")]


async def test_a_loss_that_no_task_told_is_found_behind_one_that_is_put_on_record(rig: FlowRig) -> None:
    """The leader changed again before the first one was on record, and the task was killed."""
    state = await copied(rig, source_end=20)
    await state.target_logs.look_at_ends(state.topics, copying=False)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await rig.write(rig.target, "A.t", 6)
    lost_behind_8(state, position=16, target_end=14)
    rig.target.truncate(TopicPartition("A.t", 0), 5)
    await rig.write(rig.target, "A.t", 20)
    await state.target_logs.note_shortened(state.topics)
    await state.target_logs.look_at_ends(state.topics, copying=False)
    await state.target_logs.note_shortened(state.topics)
    assert ledger(state) == [(3, 16, "TARGET_TRUNCATED")]


@pytest.mark.parametrize("operation", ["log_ends", "epoch_ends"])
async def test_a_loss_is_on_record_where_a_leader_may_not_be_asked_for_its_beginning(
    rig: FlowRig, operation: str
) -> None:
    state = await copied(rig, source_end=20)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await rig.write(rig.target, "A.t", 6)
    lost_behind_8(state, position=16, target_end=14)

    def refuse(call: Call) -> None:
        copy = TopicPartition("A.t", 0)
        call.result[copy] = from_code(ErrorCode.topic_authorization_failed, call.operation, alias="B")

    rig.target.hooks.add(operation, refuse, after=True)
    await state.target_logs.note_shortened(state.topics)
    assert ledger(state) == [(6, 10, "TARGET_TRUNCATED")]


async def test_what_a_task_wrote_behind_a_loss_does_not_make_the_loss_smaller(rig: FlowRig) -> None:
    """The driver sees the end of the log between the task's write and its report."""
    state = await copied(rig, source_end=20)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await rig.write(rig.target, "A.t", 2)
    assert await state.target_logs.look_at_ends(state.topics, copying=True), "it looks again soon"
    await state.target_logs.note_shortened(state.topics)
    lost_behind_8(state, position=12, target_end=10)
    assert not await state.target_logs.look_at_ends(state.topics, copying=True)
    await state.target_logs.note_shortened(state.topics)
    assert ledger(state) == [(6, 10, "TARGET_TRUNCATED")]


async def test_a_second_look_gives_a_task_the_time_to_report_what_it_wrote_behind_a_loss(
    rig: FlowRig,
) -> None:
    """The owner is due to sign right after the plan of an epoch is made."""
    await rig.write(rig.target, "A.t", 12)
    state = await rig.owner(TRANSLATED)
    await state.journal.position(P, 10)
    reported(state, position=10, source_end=20, target_end=12)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await rig.write(rig.target, "A.t", 2)
    rig.clock.advance(RENEW_SECONDS)
    assert not await state.refresh(owned=frozenset([P]))
    await state.renew()
    lost_behind_8(state, position=12, target_end=10)
    rig.clock.advance(RENEW_SECONDS)
    await state.renew()
    assert ledger(state) == [(6, 10, "TARGET_TRUNCATED")]


async def test_a_loss_of_a_quiet_copy_counts_when_two_looks_saw_the_same_end(rig: FlowRig) -> None:
    state = await copied(rig, source_end=10)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    for is_suspected in (True, False):
        assert ledger(state) == []
        assert await state.target_logs.look_at_ends(state.topics, copying=True) is is_suspected
        await state.target_logs.note_shortened(state.topics)
    assert ledger(state) == [(6, 10, "TARGET_TRUNCATED")]


async def test_a_copy_whose_topic_cannot_be_described_keeps_its_loss_for_later(rig: FlowRig) -> None:
    state = await copied(rig, source_end=10)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await state.target_logs.look_at_ends(state.topics, copying=False)
    topic = rig.target.topics.pop("A.t")
    await state.target_logs.note_shortened(state.topics)
    rig.target.topics["A.t"] = topic
    await state.target_logs.note_shortened(state.topics)
    assert ledger(state) == [(6, 10, "TARGET_TRUNCATED")]


async def test_what_is_copied_while_the_targets_end_is_asked_for_is_no_loss_of_the_copy(rig: FlowRig) -> None:
    """A broker that hangs delays the answer about all copies: it is old when it comes."""
    state = await copied(rig, source_end=30)

    def goes_on(_: Call) -> None:
        reported(state, position=20, source_end=30, target_end=22)

    rig.target.intercept("list_offsets", goes_on, after=True)
    await state.target_logs.look_at_ends(state.topics, copying=False)
    await state.target_logs.note_shortened(state.topics)
    assert ledger(state) == []
    assert state.table.rows[P].target_end == 22


@pytest.mark.parametrize("is_set_back", [False, True])
async def test_records_copied_again_after_a_rewind_are_not_foreign(rig: FlowRig, is_set_back: bool) -> None:
    """The position is the one at which the end of the copy was noted: once more."""
    await rig.write(rig.target, "A.t", 5)
    state = await rig.owner()
    await state.journal.position(P, 5)
    await state.positions.refresh()
    rig.clock.advance(1)
    reported(state, position=5, source_end=5, target_end=5)
    await state.target_logs.put_ends_on_log(state.topics)
    if is_set_back:
        # Five more lie behind the end that was noted, and their owner is killed before it says so.
        rig.clock.advance(1)
        await state.journal.position(P, 0)
        await state.journal.position(P, 5)
    later = await rig.owner()
    assert later.table.rows[P].target_end == 5
    assert later.assignment(P).target_end_is_exact is not is_set_back


async def test_what_is_copied_again_in_the_same_process_is_not_taken_for_a_strangers(rig: FlowRig) -> None:
    state = await rig.owner(TRANSLATED)
    reported(state, position=5, source_end=5, target_end=5)
    assert state.assignment(P).target_end_is_exact
    await set_position(state, P, 0)
    await state.journal.position(P, 5)
    await state.reread([P])
    assert not state.assignment(P).target_end_is_exact


async def test_what_a_killed_task_wrote_is_not_taken_for_a_strangers(rig: FlowRig) -> None:
    """The next task reads the position from the log, and reports it with the last end that is known."""
    state = await rig.owner(TRANSLATED)
    reported(state, position=5, source_end=9, target_end=6)
    await state.journal.position(P, 8)
    await state.reread([P])
    reported(state, position=8, source_end=9, target_end=6, target_end_is_old=True)
    assert not state.assignment(P).target_end_is_exact
    reported(state, position=9, source_end=9, target_end=12)
    assert state.assignment(P).target_end_is_exact


async def test_a_loss_after_a_task_was_killed_begins_where_the_last_known_end_was(rig: FlowRig) -> None:
    await rig.write(rig.target, "A.t", 12)
    state = await rig.owner(TRANSLATED)
    await state.journal.position(P, 10)
    reported(state, position=5, source_end=10, target_end=6)
    reported(state, position=10, source_end=10, target_end=6, target_end_is_old=True)
    rig.target.truncate(TopicPartition("A.t", 0), 4)
    await state.target_logs.look_at_ends(state.topics, copying=False)
    await state.target_logs.note_shortened(state.topics)
    assert ledger(state) == [(3, 10, "TARGET_TRUNCATED")]


async def test_the_end_that_a_loss_left_is_remembered_with_all_that_is_known_of_it(rig: FlowRig) -> None:
    state = await copied(rig, source_end=10)
    await rig.target.delete_records({TopicPartition("A.t", 0): 5})
    await state.target_logs.look_at_ends(state.topics, copying=False)
    held_from = state.table.rows[P].held_from
    assert held_from is not None
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await state.target_logs.look_at_ends(state.topics, copying=False)
    await state.target_logs.note_shortened(state.topics)
    fact = state.target_logs.book.control.targets[P]
    assert (fact.end_offset, fact.position, fact.held_from) == (8, 6, held_from)
    assert fact.noted_at_ms is not None
