"""Copies that lost what was written: a gap, and the copy continues."""

from dataclasses import replace

import pytest

from twinlog.errors import KafkaError
from twinlog.kafka.errors import UNAVAILABLE, from_reason
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster_hooks import Call
from twinlog_source.driver.ownership import RENEW_SECONDS
from twinlog_source.driver.state import FlowState
from twinlog_source.log.facts import CopyFact
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.equal_offsets import translated_since
from twinlog_source.partitions.events import CopyChanged, SetAside
from unit.source.flow_rig import FlowRig, P, ledger, reported

COPY = TopicPartition("A.t", 0)
AUTO, TRANSLATED = "twinlog.offsets = auto", "twinlog.offsets = translated"


async def copied(rig: FlowRig, *, source_end: int) -> FlowState:
    """An owner whose task has copied ten records, the last of which lies below offset 12 of the copy."""
    await rig.write(rig.target, "A.t", 12)
    state = await rig.owner()
    await state.journal.position(P, 10)
    reported(state, position=10, source_end_offset=source_end, target_end_offset=12)
    return state


async def test_a_copy_recreated_while_nobody_copied_is_a_gap(rig: FlowRig) -> None:
    first = await rig.owner(TRANSLATED)
    await first.journal.position(P, 5)
    rig.target.add_topic("A.t")
    assert ledger(await rig.owner(TRANSLATED)) == [(0, 5, "TARGET_RECREATED")]
    assert ledger(await rig.owner(TRANSLATED)) == [(0, 5, "TARGET_RECREATED")], "only once"


async def test_a_recreated_target_topic_is_not_also_reported_as_truncated(rig: FlowRig) -> None:
    """Its new, shorter log is seen before it is known to be another one."""
    await rig.write(rig.target, "A.t", 5)
    await (await rig.owner(TRANSLATED)).journal.position(P, 5)
    state = await rig.owner(TRANSLATED)
    reported(state, position=5, source_end_offset=5, target_end_offset=5)
    rig.target.add_topic("A.t")
    await state.target_logs.look_at_ends(state.topics, copying=False)
    rig.say(state.watch)
    await state.refresh(owned=frozenset())
    assert ledger(state) == [(0, 5, "TARGET_RECREATED")]


async def test_the_gap_includes_records_that_only_the_deleted_target_topic_held(rig: FlowRig) -> None:
    """Retention took it from the source after it was copied. What it took from both before is no gap."""
    await rig.write(rig.source, "t", 20)
    await rig.write(rig.target, "A.t", 20)
    await (await rig.owner(TRANSLATED)).journal.position(P, 20)
    state = await rig.owner(TRANSLATED)
    reported(state, position=20, source_end_offset=20, target_end_offset=20)
    await rig.target.delete_records({TopicPartition("A.t", 0): 3})
    await rig.source.delete_records({P: 12})
    await state.leave()
    rig.target.add_topic("A.t")
    later = await rig.owner(TRANSLATED)
    assert ledger(later) == [(3, 20, "TARGET_RECREATED")]


async def test_what_only_a_copy_held_that_is_made_again_from_the_beginning_is_a_gap(rig: FlowRig) -> None:
    """The new copy gets the source's offsets, and all that the source still holds."""
    await rig.write(rig.source, "t", 20)
    await rig.write(rig.target, "A.t", 20)
    await (await rig.owner(TRANSLATED)).journal.position(P, 20)
    state = await rig.owner(TRANSLATED)
    reported(state, position=20, source_end_offset=20, target_end_offset=20)
    await rig.target.delete_records({TopicPartition("A.t", 0): 3})
    await rig.source.delete_records({P: 12})
    await state.leave()
    rig.target.add_topic("A.t")
    for _ in range(2):
        later = await rig.owner(AUTO)
        assert later.table.rows[P].position == 12
        assert ledger(later) == [(3, 12, "TARGET_RECREATED")]


async def test_what_was_never_copied_before_a_copy_is_made_again_is_a_gap(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 20)
    await (await rig.owner(AUTO)).journal.position(P, 6)
    await rig.source.delete_records({P: 12})
    rig.target.add_topic("A.t")
    assert ledger(await rig.owner(AUTO)) == [(6, 12, "TARGET_RECREATED")]


@pytest.mark.parametrize("offsets", ["auto", "preserved"])
async def test_a_suspended_copy_restarts_when_its_target_topic_id_changes(rig: FlowRig, offsets: str) -> None:
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(f"twinlog.offsets = {offsets}")
    await state.journal.position(P, 6)
    await state.reread([P])
    state.table.apply(CopyChanged(partition=P, copy=None), 0.0)
    aside = SetAside(partition=P, reason="FOREIGN_WRITE", message="who", retry_at=1e9)
    state.table.apply(aside, 0.0)
    rig.target.add_topic("A.t")
    rig.say(state.watch)
    await state.refresh(owned=frozenset())
    row = state.table.rows[P]
    assert row.copy is not None
    assert (row.copy.preserved, row.position, row.blocker) == (True, 0, None)
    assert ledger(state) == []


async def test_a_gap_of_no_offsets_is_not_written(rig: FlowRig) -> None:
    """A copy that held nothing was created again: the source had nothing left when it was copied."""
    await rig.write(rig.source, "t", 5)
    await (await rig.owner()).journal.position(P, 5)
    await rig.source.delete_records({P: 5})
    rig.target.add_topic("A.t")
    assert ledger(await rig.owner()) == []


async def test_records_already_in_the_recreated_topic_are_not_part_of_the_gap(
    rig: FlowRig,
) -> None:
    """Its coming is noticed after the first records are in it."""
    await rig.write(rig.source, "t", 20)
    await rig.write(rig.target, "A.t", 5)
    translated = "twinlog.offsets = translated"
    await (await rig.owner(translated)).journal.position(P, 5)
    state = await rig.owner(translated)
    reported(state, position=5, source_end_offset=20, target_end_offset=5)
    rig.target.add_topic("A.t")
    await rig.write(rig.target, "A.t", 3)
    reported(
        state,
        position=9,
        source_end_offset=20,
        target_end_offset=3,
        target_shortened_to=0,
        target_shortened_at=6,
    )
    await state.target_logs.note_shortened(state.topics)
    reported(state, position=12, source_end_offset=20, target_end_offset=6)
    rig.say(state.watch)
    await state.refresh(owned=frozenset())
    assert ledger(state) == [(0, 6, "TARGET_RECREATED")]


async def test_a_copy_that_lost_its_tail_while_nobody_copied_is_a_gap(rig: FlowRig) -> None:
    await rig.write(rig.target, "A.t", 12)
    first = await rig.owner()
    await first.journal.position(P, 10)
    reported(first, position=10, source_end_offset=10, target_end_offset=12)
    await first.target_logs.put_ends_on_log(first.topics)
    await rig.target.delete_records({TopicPartition("A.t", 0): 6})
    assert ledger(await rig.owner()) == [], "what retention took is no loss of the copy"
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    second = await rig.owner()
    assert ledger(second) == [(6, 10, "TARGET_TRUNCATED")]
    assert second.table.rows[P].position == 10
    await rig.write(rig.target, "A.t", 1)
    assert ledger(await rig.owner()) == [(6, 10, "TARGET_TRUNCATED")], "only once"


async def test_a_copy_that_was_preserved_and_loses_its_tail_below_that_has_fewer_equal_offsets(
    rig: FlowRig,
) -> None:
    """Other records lie at those offsets then: an answer by equal offsets would be ahead."""
    state = await copied(rig, source_end=10)
    before = state.table.rows[P].copy
    assert before is not None
    fact = replace(before, preserved=False, since=10, reason="FOREIGN_WRITE")
    await state.journal.record(fact)
    state.control.record(fact)
    state.table.apply(CopyChanged(partition=P, copy=fact), 0.0)
    await state.target_logs.put_ends_on_log(state.topics)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await state.target_logs.look_at_ends(state.topics, copying=False)
    row = state.table.rows[P]
    assert row.copy is not None
    assert translated_since(row.copy, row.losses, ()) == 8, "at once"
    await state.target_logs.put_ends_on_log(state.topics)
    assert not row.losses
    for known in (state, await rig.owner()):
        copy = known.control.copies[P]
        assert (copy.preserved, copy.since, copy.reason) == (False, 8, "FOREIGN_WRITE")


async def test_a_copy_that_lost_its_tail_and_grew_again_is_known_by_its_leaders(rig: FlowRig) -> None:
    """The task that wrote behind the loss was killed before it reported it."""
    state = await copied(rig, source_end=20)
    await state.target_logs.look_at_ends(state.topics, copying=True)
    await state.target_logs.put_ends_on_log(state.topics)
    rig.target.truncate(COPY, 8)
    await rig.write(rig.target, "A.t", 9)
    await state.journal.position(P, 15)
    for _ in range(2):
        later = await rig.owner(TRANSLATED)
        assert ledger(later) == [(6, 15, "TARGET_TRUNCATED")], "also what was lost after the last check"


async def test_a_loss_that_no_task_reported_is_where_the_checked_records_were(rig: FlowRig) -> None:
    """The next task of the same owner has reported a later end before the loss was found."""
    state = await copied(rig, source_end=40)
    await state.target_logs.look_at_ends(state.topics, copying=True)
    rig.target.truncate(COPY, 8)
    await rig.write(rig.target, "A.t", 12)
    reported(state, position=24, source_end_offset=40, target_end_offset=20)
    for _ in range(2):
        await state.target_logs.look_at_ends(state.topics, copying=True)
    await state.target_logs.put_ends_on_log(state.topics)
    assert ledger(state) == [(6, 24, "TARGET_TRUNCATED")]
    assert state.table.rows[P].target_end == 20, "that is where the log ends"
    rig.target.truncate(COPY, 15)
    await state.target_logs.look_at_ends(state.topics, copying=False)
    await state.target_logs.put_ends_on_log(state.topics)
    assert len(ledger(state)) == 2, "a second loss is found as well"


@pytest.mark.parametrize(("leader_epoch", "gaps"), [(None, []), (0, [(8, 12, "TARGET_TRUNCATED")])])
async def test_only_an_end_that_was_seen_under_a_leader_is_the_end_of_a_copy_that_became_translated(
    rig: FlowRig, leader_epoch: int | None, gaps: list[tuple[int, int, str]]
) -> None:
    """It may have left out a range that it had not filled yet, or was ended by an earlier version."""
    await rig.write(rig.target, "A.t", 8)
    state = await rig.owner(AUTO)
    await state.journal.position(P, 12)
    ended = CopyFact(
        partition=P,
        preserved=False,
        since=12,
        reason="FILL_REFUSED",
        target_topic_id=state.topics["t"].target_topic_id,
        leader_epoch=leader_epoch,
    )
    await state.journal.record(ended)
    assert ledger(await rig.owner(AUTO)) == gaps


async def test_equal_offsets_end_where_a_copy_lost_its_tail_before_its_end_was_recorded(
    rig: FlowRig,
) -> None:
    """Only the fact that ended the preserved copy says how far it reached."""
    await rig.write(rig.target, "A.t", 12)
    state = await rig.owner(AUTO)
    await state.journal.position(P, 12)
    ended = CopyFact(
        partition=P,
        preserved=False,
        since=10,
        reason="SOURCE_TRUNCATED",
        target_topic_id=state.topics["t"].target_topic_id,
        leader_epoch=0,
    )
    await state.journal.record(ended)
    rig.target.truncate(COPY, 8)
    await rig.write(rig.target, "A.t", 9)
    for _ in range(2):
        later = await rig.owner(AUTO)
        assert later.control.copies[P] == replace(ended, since=8)
        assert ledger(later) == [(8, 12, "TARGET_TRUNCATED")]


@pytest.mark.parametrize("copying", [True, False])
async def test_a_leader_that_has_all_of_the_copy_is_no_loss(rig: FlowRig, copying: bool) -> None:
    state = await copied(rig, source_end=20)
    for position, end in ((11, 13), (12, 14)):
        await state.target_logs.look_at_ends(state.topics, copying=copying)
        await state.target_logs.put_ends_on_log(state.topics)
        rig.target.elect(COPY)
        await rig.write(rig.target, "A.t", 1)
        reported(state, position=position, source_end_offset=20, target_end_offset=end)
    for _ in range(2):
        await state.target_logs.look_at_ends(state.topics, copying=copying)
    assert not state.table.rows[P].losses
    assert ledger(await rig.owner()) == []


async def test_a_loss_that_the_task_reports_is_not_found_again_by_its_leaders(rig: FlowRig) -> None:
    state = await copied(rig, source_end=20)
    await state.target_logs.look_at_ends(state.topics, copying=True)
    rig.target.truncate(COPY, 8)
    await rig.write(rig.target, "A.t", 9)
    assert await state.target_logs.look_at_ends(state.topics, copying=True), "the task may report it"
    words = {"target_shortened_to": 8, "target_shortened_at": 10}
    reported(state, position=15, source_end_offset=20, target_end_offset=17, **words)
    for _ in range(2):
        await state.target_logs.look_at_ends(state.topics, copying=True)
        await state.target_logs.put_ends_on_log(state.topics)
    assert ledger(state) == [(6, 10, "TARGET_TRUNCATED")]


@pytest.mark.parametrize(
    ("since", "gap", "expected"),
    [
        (20, Gap(partition=P, from_offset=6, to_offset=30, reason="TRUNCATION", found_at_ms=1), 6),
        (20, Gap(partition=P, from_offset=25, to_offset=30, reason="TRUNCATION", found_at_ms=1), 20),
        (20, Gap(partition=P, from_offset=6, to_offset=30, reason="RETENTION", found_at_ms=1), 20),
        (0, Gap(partition=P, from_offset=6, to_offset=30, reason="TRUNCATION", found_at_ms=1), 0),
    ],
)
def test_a_source_that_lost_its_tail_leaves_fewer_equal_offsets(since: int, gap: Gap, expected: int) -> None:
    copy = CopyFact(
        partition=P, preserved=False, since=since, reason="SOURCE_TRUNCATED", target_topic_id="id"
    )
    assert translated_since(copy, (), [gap]) == expected
    assert translated_since(replace(copy, partition=TopicPartition("t", 7)), (), [gap]) == since


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
    with pytest.raises(KafkaError):
        await state.target_logs.put_ends_on_log(state.topics)
    mend()
    await state.target_logs.put_ends_on_log(state.topics)
    assert ledger(state) == [(6, 10, "TARGET_TRUNCATED")]
    assert ledger(await rig.owner()) == [(6, 10, "TARGET_TRUNCATED")]


async def test_a_loss_of_the_copy_is_on_record_before_the_end_it_left(rig: FlowRig) -> None:
    """A task says with its last words that the log had lost its tail: nobody would find that later."""
    state = await copied(rig, source_end=20)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await rig.write(rig.target, "A.t", 6)
    reported(
        state,
        position=16,
        source_end_offset=20,
        target_end_offset=14,
        target_shortened_to=8,
        target_shortened_at=10,
    )
    await state.target_logs.put_ends_on_log(state.topics)
    assert ledger(await rig.owner()) == [(6, 10, "TARGET_TRUNCATED")]


async def test_what_a_task_wrote_behind_a_loss_does_not_make_the_loss_smaller(rig: FlowRig) -> None:
    """The driver sees the end of the log between the task's write and its report."""
    state = await copied(rig, source_end=20)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await rig.write(rig.target, "A.t", 2)
    assert await state.target_logs.look_at_ends(state.topics, copying=True), "it looks again soon"
    await state.target_logs.note_shortened(state.topics)
    reported(
        state,
        position=12,
        source_end_offset=20,
        target_end_offset=10,
        target_shortened_to=8,
        target_shortened_at=10,
    )
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
    reported(state, position=10, source_end_offset=20, target_end_offset=12)
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    await rig.write(rig.target, "A.t", 2)
    rig.clock.advance(RENEW_SECONDS)
    assert not await state.refresh(owned=frozenset([P]))
    await state.renew()
    reported(
        state,
        position=12,
        source_end_offset=20,
        target_end_offset=10,
        target_shortened_to=8,
        target_shortened_at=10,
    )
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
        reported(state, position=20, source_end_offset=30, target_end_offset=22)

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
    reported(state, position=5, source_end_offset=5, target_end_offset=5)
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
    reported(state, position=5, source_end_offset=5, target_end_offset=5)
    assert state.assignment(P).target_end_is_exact
    await state.set_position(P, 0)
    await state.journal.position(P, 5)
    await state.reread([P])
    assert not state.assignment(P).target_end_is_exact


async def test_what_a_killed_task_wrote_is_not_taken_for_a_strangers(rig: FlowRig) -> None:
    """The next task reads the position from the log, and reports it with the last end that is known."""
    state = await rig.owner(TRANSLATED)
    reported(state, position=5, source_end_offset=9, target_end_offset=6)
    await state.journal.position(P, 8)
    await state.reread([P])
    reported(state, position=8, source_end_offset=9, target_end_offset=6, target_end_is_old=True)
    assert not state.assignment(P).target_end_is_exact
    reported(state, position=9, source_end_offset=9, target_end_offset=12)
    assert state.assignment(P).target_end_is_exact


async def test_a_loss_after_a_task_was_killed_begins_where_the_last_known_end_was(rig: FlowRig) -> None:
    await rig.write(rig.target, "A.t", 12)
    state = await rig.owner(TRANSLATED)
    await state.journal.position(P, 10)
    reported(state, position=5, source_end_offset=10, target_end_offset=6)
    reported(state, position=10, source_end_offset=10, target_end_offset=6, target_end_is_old=True)
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
    fact = state.target_logs.marks.control.targets[P]
    assert (fact.end_offset, fact.position, fact.held_from) == (8, 6, held_from)
    assert fact.noted_at_ms is not None
