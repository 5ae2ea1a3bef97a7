"""How a copy stops having its source's offsets, or is moved."""

from dataclasses import replace

import pytest

from twinlog.errors import FatalKafkaError, StateError
from twinlog_source.driver.moves import planned_move
from twinlog_source.log.facts import CopyFact
from twinlog_source.log.gaps import SourceBounds
from twinlog_source.partitions.events import Reported
from twinlog_source.partitions.orders import PartitionReport, PartitionState, SkippedRange, TaskReport
from twinlog_source.partitions.rows import PartitionRow
from unit.source.flow_rig import FlowRig, P, ledger, reported, set_position
from unit.source.topics.copy_modes_rig import (
    AUTO,
    NOT_EXACT,
    PRESERVED,
    assigned,
    blocker,
    copy_of,
    ends,
    kind,
    says,
    waits,
)


async def test_a_source_that_was_recreated_makes_its_copy_translated(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 9)
    await (await rig.owner(AUTO)).journal.position(P, 9)
    rig.source.add_topic("t")
    state = await rig.owner(AUTO)
    assert kind(state) == (False, 0, "SOURCE_RECREATED", 0, 0)
    assert (state.table.rows[P].position, ledger(state)) == (0, [])
    # Where the configuration demands the source's offsets nothing is copied.
    refused = await rig.owner(PRESERVED)
    assert blocker(refused) == "SOURCE_RECREATED"
    # The copy is new as well now.
    rig.target.add_topic("A.t")
    assert kind(await rig.owner(PRESERVED)) == (True, 0, "", 0, 0)


async def test_no_offset_of_a_copy_is_that_of_a_source_that_was_recreated(rig: FlowRig) -> None:
    """Its task found it shorter, before the driver saw that it is another topic."""
    state = await rig.owner(AUTO)
    assigned(state)
    await ends(state, position=40, until=40, reason="SOURCE_TRUNCATED")
    assert await state.plan_is_stale(frozenset([P]))
    assert kind(state) == (False, 40, "SOURCE_TRUNCATED", 0, 0)
    rig.source.add_topic("t")
    second = await rig.owner(AUTO)
    assert kind(second) == (False, 0, "SOURCE_RECREATED", 0, 0)
    assert second.table.rows[P].position == 0


async def test_a_task_that_cannot_keep_the_offsets_makes_its_copy_translated(rig: FlowRig) -> None:
    state = await rig.owner(AUTO)
    handed = assigned(state)
    assert handed.preserved is not None
    await rig.write(rig.target, "A.t", 40)
    await ends(state, position=40, until=37, reason="FOREIGN_WRITE")
    assert await state.plan_is_stale(frozenset([P]))
    assert kind(state) == (False, 37, "FOREIGN_WRITE", 0, 0)
    assert assigned(state).preserved is None
    assert assigned(state).position == 40
    # The word of that task says no more: what it was about is settled.
    assert not await state.plan_is_stale(frozenset([P]))
    second = await rig.owner(AUTO)
    assert kind(second) == (False, 37, "FOREIGN_WRITE", 0, 0)
    assert (second.table.rows[P].position, second.table.rows[P].stored) == (40, True)


@pytest.mark.parametrize("offsets", [AUTO, PRESERVED])
async def test_a_copy_whose_task_was_killed_when_it_had_ended_does_not_continue(
    rig: FlowRig, offsets: str
) -> None:
    state = await rig.owner(offsets)
    assigned(state)
    reported(state, position=37, target_end=38, source_end=50)
    await ends(state, position=40, until=37, reason="FOREIGN_WRITE", tell=False)
    await state.reread([P])
    row = state.table.rows[P]
    assert (row.position, row.is_preserved) == (40, False)
    assert (row.copy is None) == (offsets is PRESERVED), "it is not handed out"
    await state.refresh(owned=frozenset())
    assert blocker(state) == ("FOREIGN_WRITE" if offsets is PRESERVED else "")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [(("twinlog.offsets = translated",), "OFFSETS_CONFIGURED"), ((AUTO, NOT_EXACT), "TRANSACTIONS_DISABLED")],
)
async def test_a_copy_that_the_configuration_does_not_want_is_ended_by_its_task(
    rig: FlowRig, settings: tuple[str, ...], reason: str
) -> None:
    """At the end that the task has compared with the source: the length of the log alone says nothing."""
    await (await rig.owner(AUTO)).journal.position(P, 2)
    await rig.write(rig.target, "A.t", 5)
    state = await rig.owner(*settings)
    assert kind(state) == (True, 0, "", 0, 0)
    told = assigned(state).preserved
    assert told is not None
    assert (told.end_reason, bool(told.end_message)) == (reason, True)
    await ends(state, position=4, until=4, reason=reason)
    assert await state.plan_is_stale(state.table.plannable())
    assert kind(state) == (False, 4, reason, 0, 0)
    assert (state.table.rows[P].position, state.table.rows[P].stored) == (4, True)
    assert assigned(state).preserved is None
    assert kind(await rig.owner(AUTO)) == (False, 4, reason, 0, 0), "never back"


async def test_what_a_task_leaves_out_counts_for_the_next(rig: FlowRig) -> None:
    """It has put that on the log before it says so."""
    state = await rig.owner(AUTO)
    assigned(state)
    fact = copy_of(state)
    await state.journal.record(replace(fact, skip_from=4, skip_to=9))
    report = PartitionReport(partition=P, position=9, skipped=SkippedRange(first=4, end=9))
    state.table.apply(Reported(slot=0, report=TaskReport(partitions=(report,)), now_ms=1), 1.0)
    await state.plan_is_stale(frozenset([P]))
    assert kind(state) == (True, 0, "", 4, 9)
    told = assigned(await rig.owner(AUTO)).preserved
    assert told is not None
    assert told.skip_from == 4


async def test_a_first_position_of_an_operator_can_begin_a_preserved_copy(rig: FlowRig) -> None:
    none = "A.consumer.auto.offset.reset = none"
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(AUTO, none)
    assert blocker(state) == "NO_POSITION"
    await set_position(state, P, 3)
    assert kind(state) == (True, 3, "", 0, 3)
    assert (await rig.owner(AUTO, none)).table.rows[P].position == 3


async def test_a_first_position_of_a_copy_that_is_refused_is_refused(rig: FlowRig) -> None:
    none = "A.consumer.auto.offset.reset = none"
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(PRESERVED, none, "twinlog.offsets.fill.max = 1")
    with pytest.raises(FatalKafkaError, match=r"fill\.max"):
        await set_position(state, P, 3)
    assert state.table.rows[P].position is None


async def test_what_a_preserved_copy_leaves_out_for_an_operator_is_on_the_log(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(AUTO)
    says(state, position=4, at_rest=True)
    await set_position(state, P, 6, bounds=SourceBounds(start=0, end=9))
    assert kind(state) == (True, 0, "", 4, 6)
    assert ledger(state) == [(4, 6, "SKIPPED_BY_OPERATOR")]
    after = await rig.owner(AUTO)
    assert (kind(after), assigned(after).position) == ((True, 0, "", 4, 6), 6)


async def test_a_copy_that_is_moved_again_before_it_is_filled_leaves_out_both_ranges(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(AUTO)
    says(state, position=4, at_rest=True)
    await set_position(state, P, 6)
    says(state, position=6, skip=(4, 6))
    await set_position(state, P, 8)
    assert kind(state) == (True, 0, "", 4, 8)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_copy_that_is_moved_again_before_its_next_task_reports_leaves_out_both_ranges(
    rig: FlowRig, is_lost: bool
) -> None:
    """What the task before said at rest was about where the copy stood then."""
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(AUTO)
    says(state, position=4, at_rest=True)
    await set_position(state, P, 6)
    if is_lost:
        waits(state)
        rig.clock.advance(20)
        await state.reread([P])
    await set_position(state, P, 8)
    assert kind(state) == (True, 0, "", 4, 8)
    if is_lost:
        assert waits(state) == (0.0, 0.0), "it did not know that 6 and 7 are left out, too"


async def test_a_preserved_copy_is_not_moved_back_by_what_its_task_said_at_last(rig: FlowRig) -> None:
    """The plan was made before."""
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(AUTO)
    says(state, position=8, at_rest=True)
    with pytest.raises(StateError) as refused:
        await set_position(state, P, 6, bounds=SourceBounds(start=0, end=9))
    assert refused.value.reason == "OFFSETS_PRESERVED"
    assert (kind(state), ledger(state)) == ((True, 0, "", 0, 0), [])
    assert state.table.plannable() == {P}


@pytest.mark.parametrize("position", [0, 3])
async def test_a_copy_that_holds_what_the_source_lost_ends_where_an_operator_moves_it(
    rig: FlowRig, position: int
) -> None:
    await rig.write(rig.source, "t", 5)
    state = await rig.owner(AUTO)
    reported(state, position=9, at_rest=True, source_lost_from=5, state=PartitionState.FAULTED)
    await set_position(state, P, position, bounds=SourceBounds(start=0, end=5))
    for each in (state, await rig.owner(AUTO)):
        assert kind(each) == (False, 5, "SOURCE_TRUNCATED", 0, 0)
        assert (assigned(each).position, ledger(each)) == (position, [(5, 9, "TRUNCATION")])
    assert state.assignment(P).prior_failure is None


def test_a_position_of_a_preserved_copy_is_set_forward_only() -> None:
    fact = CopyFact(partition=P, preserved=True, since=0, reason="", target_topic_id="x")
    row = PartitionRow(partition=P, copy=fact, position=5)
    back = planned_move(P, row, wanted=3, start=0, end=9)
    assert (back.reason, back.to_offset) == ("OFFSETS_PRESERVED", 3)
    assert "delete the target topic" in back.message
    forward = planned_move(P, row, wanted=None, start=0, end=9)
    assert (forward.skipped_offsets, forward.fills_offsets) == (4, True)
    assert "cannot be set back" in forward.message
    assert "read_uncommitted" not in forward.message, "nobody sees it"
    far = planned_move(P, row, wanted=None, start=0, end=905)
    assert (far.reason, far.skipped_offsets) == ("", 900)
    assert "read_uncommitted" in far.message
    assert "ALTER" in far.message
    assert "ALTER" not in planned_move(P, row, wanted=None, start=0, end=10_006).message
    assert not planned_move(P, row, wanted=5, start=0, end=9).fills_offsets, "nothing is moved"
    row = PartitionRow(partition=P, copy=replace(fact, preserved=False), position=5)
    assert planned_move(P, row, wanted=3, start=0, end=9).repeated_offsets == 2


def test_setting_a_position_after_source_truncation_makes_the_copy_translated() -> None:
    fact = CopyFact(partition=P, preserved=True, since=0, reason="", target_topic_id="x")
    report = PartitionReport(partition=P, position=50, reason="DATA_LOSS", source_lost_from=40)
    row = PartitionRow(partition=P, copy=fact, position=50, report=report)
    for wanted in (0, 30, 40):
        move = planned_move(P, row, wanted=wanted, start=0, end=40)
        assert (move.reason, move.to_offset, move.offsets_end) == ("", wanted, True)
    assert planned_move(P, row, wanted=60, start=0, end=90).offsets_end, "a log that has grown again"
    translated = PartitionRow(partition=P, copy=replace(fact, preserved=False), position=50, report=report)
    assert not planned_move(P, translated, wanted=0, start=0, end=40).offsets_end
