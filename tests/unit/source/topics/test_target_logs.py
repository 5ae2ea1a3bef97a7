"""Copies that lost their tail: a gap, and the copy continues."""

from dataclasses import replace

import pytest

from twinlog.model import TopicPartition
from twinlog_source.log.facts import CopyFact
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.events import CopyChanged, ForeignKnown
from twinlog_source.partitions.orders import ForeignWrite
from twinlog_source.partitions.standing import translated_since
from unit.source.flow_rig import FlowRig, P, ledger, reported
from unit.source.topics.lost_copies_rig import AUTO, COPY, TRANSLATED, copied


async def test_a_copy_that_lost_its_tail_while_nobody_copied_is_a_gap(rig: FlowRig) -> None:
    await rig.write(rig.target, "A.t", 12)
    first = await rig.owner()
    await first.journal.position(P, 10)
    reported(first, position=10, source_end=10, target_end=12)
    await first.target_logs.put_ends_on_log(first.topics)
    await rig.target.delete_records({TopicPartition("A.t", 0): 6})
    assert ledger(await rig.owner()) == [], "what retention took is no loss of the copy"
    rig.target.truncate(TopicPartition("A.t", 0), 8)
    second = await rig.owner()
    assert ledger(second) == [(6, 10, "TARGET_TRUNCATED")]
    assert second.table.rows[P].position == 10
    await rig.write(rig.target, "A.t", 1)
    assert ledger(await rig.owner()) == [(6, 10, "TARGET_TRUNCATED")], "only once"


async def test_foreign_records_in_a_copy_are_known_to_the_next_owner(rig: FlowRig) -> None:
    """Without them a failback would let groups skip these records."""
    await rig.write(rig.target, "A.t", 12)
    first = await rig.owner()
    write = ForeignWrite(
        from_offset=3, to_offset=5, records=2, producer_id=7, producer_epoch=0, written_at_ms=1
    )
    first.table.apply(ForeignKnown(partition=P, records=2, writes=(write,)), 0.0)
    await first.target_logs.put_ends_on_log(first.topics)
    second = await rig.owner()
    row = second.table.rows[P]
    assert (row.foreign_write, row.foreign_records, row.foreign_writes) == (write, 2, (write,))
    more = (write, replace(write, from_offset=7, to_offset=8))
    second.table.apply(ForeignKnown(partition=P, records=0, writes=more), 0.0)
    await second.target_logs.put_ends_on_log(second.topics)
    await first.take_over(displaced=False)
    await first.refresh(owned=frozenset())
    for known in (first, await rig.owner()):
        row = known.table.rows[P]
        assert (row.foreign_write, row.foreign_records, row.foreign_writes) == (None, 0, more)
    rig.target.truncate(COPY, 0)
    await rig.target.delete_topics(["A.t"])
    rig.target.add_topic("A.t")
    assert (await rig.owner()).table.rows[P].foreign_writes == ()


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
    reported(state, position=24, source_end=40, target_end=20)
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
        reported(state, position=position, source_end=20, target_end=end)
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
    reported(state, position=15, source_end=20, target_end=17, **words)
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
