"""Positions of a flow: where partitions begin, and what moves of operators leave."""

import pytest

from twinlog.errors import NotFoundError, WireFormatError
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog.wire import connect_json
from twinlog.wire.source_offset import source_offset_key
from twinlog_source.driver.flow_facts import flow_facts
from twinlog_source.log.fact_records import control_key
from twinlog_source.log.gaps import SourceBounds
from twinlog_source.partitions.orders import PartitionState
from twinlog_source.partitions.standing import standing_of
from unit.source.flow_rig import FlowRig, P, ledger, set_position

TRANSLATED = "twinlog.offsets = translated"


async def test_a_position_of_0_wins_over_the_reset(rig: FlowRig) -> None:
    latest = "A.consumer.auto.offset.reset = latest"
    await rig.write(rig.source, "t", 7)
    first = await rig.owner(latest)
    assert first.table.rows[P].position == 7
    await first.journal.position(P, 0)
    second = await rig.owner(latest)
    assert (second.table.rows[P].position, second.table.rows[P].stored) == (0, True)
    await second.journal.position(P, 5)
    assert (await rig.owner(latest)).table.rows[P].position == 5
    # MM2's own tools take a position away: then the reset holds, and no old mark of ours.
    await second.journal.append(source_offset_key("A", P), None)
    assert (await rig.owner(latest)).table.rows[P].position == 7


async def test_a_partition_without_progress_is_stalled_after_the_time_of_the_file(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 7)
    state = await rig.owner("twinlog.stalled.seconds = 7")
    row, states = state.table.rows[P], []
    row.stall.observe(0, must_move=True, now=state.clock.monotonic())
    for seconds in (6.9, 0.1):
        rig.clock.advance(seconds)
        states.append(standing_of(row, flow_facts(state, ("", ""), is_owned=True)).state)
    assert [each is PartitionState.STALLED for each in states] == [False, True]


async def test_what_lies_before_a_flow_that_begins_is_counted_from_its_positions(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 5)
    state = await rig.owner(TRANSLATED)
    assert await state.backlog_records([P]) == 5
    await set_position(state, P, 3)
    assert await state.backlog_records([P]) == 2
    await set_position(state, P, 9)
    assert await state.backlog_records([P]) == 0


async def test_a_partition_without_a_position_waits_for_one_when_the_reset_is_none(rig: FlowRig) -> None:
    state = await rig.owner("A.consumer.auto.offset.reset = none")
    assert state.table.rows[P].task_reason == "NO_POSITION"
    assert state.table.plannable() == frozenset()
    await set_position(state, P, 3)
    assert state.table.plannable() == {P}
    assert (await rig.owner("A.consumer.auto.offset.reset = none")).table.rows[P].position == 3


async def test_a_position_that_is_set_forward_without_a_task_leaves_a_gap(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 5)
    state = await rig.owner(TRANSLATED)
    await set_position(state, P, 3, bounds=SourceBounds(start=0, end=5))
    state = await rig.owner(TRANSLATED)
    assert ledger(state) == [(0, 3, "SKIPPED_BY_OPERATOR")]
    await set_position(state, P, 1, bounds=SourceBounds(start=0, end=5))
    assert ledger(await rig.owner(TRANSLATED)) == [(0, 3, "SKIPPED_BY_OPERATOR")], "it keeps what was"


async def test_a_beginning_that_meets_a_record_of_a_later_release_is_given_up(rig: FlowRig) -> None:
    """It arrives while the kind of the copy is decided."""
    state = await rig.owner("A.consumer.auto.offset.reset = none")

    async def append(call: Call) -> None:
        if TopicPartition("A.t", 0) in call.arguments["partitions"]:
            later = connect_json.dumps({"format": 99, "by": "root", "at_ms": 1})
            await state.journal.append(control_key("A", "pause", None, None), later)

    rig.target.intercept("list_offsets", append)
    with pytest.raises(WireFormatError):
        await set_position(state, P, 3)
    assert state.table.rows[P].position is None


async def test_a_partition_that_is_not_copied_any_more_is_not_moved(rig: FlowRig) -> None:
    state = await rig.owner()
    with pytest.raises(NotFoundError, match="does not copy"):
        await set_position(state, TopicPartition("left", 0), 3)


async def test_a_source_topic_recreated_while_nobody_copied_begins_at_0(rig: FlowRig) -> None:
    first = await rig.owner()
    await first.journal.position(P, 5)
    rig.source.add_topic("t")
    await rig.write(rig.source, "t", 9)
    second = await rig.owner()
    assert ledger(second) == [], "nothing is known to be missing"
    assert second.table.rows[P].position == 0
