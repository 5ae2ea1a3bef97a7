"""Positions of a flow: where partitions begin, and what moves of operators leave."""

import asyncio
import itertools
from collections.abc import Awaitable

import pytest

from twinlog.errors import KafkaError, NotFoundError, WireFormatError
from twinlog.kafka.errors import UNAVAILABLE, from_reason
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster_hooks import Call
from twinlog.wire import connect_json
from twinlog.wire.source_offset import source_offset_key
from twinlog_source.driver.withdrawals import Withdrawal
from twinlog_source.log.fact_records import control_key
from twinlog_source.log.gaps import Gap, LogBounds
from twinlog_source.partitions.reports import PartitionReport
from unit.source.flow_rig import FlowRig, P, ledger, only_positions, reported

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


async def test_what_lies_before_a_flow_that_begins_is_counted_from_its_positions(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 5)
    state = await rig.owner(TRANSLATED)
    assert await state.backlog_records([P]) == 5
    await state.set_position(P, 3)
    assert await state.backlog_records([P]) == 2
    await state.set_position(P, 9)
    assert await state.backlog_records([P]) == 0


async def test_a_partition_without_a_position_waits_for_one_when_the_reset_is_none(rig: FlowRig) -> None:
    state = await rig.owner("A.consumer.auto.offset.reset = none")
    assert state.table.rows[P].task_reason == "NO_POSITION"
    assert state.table.plannable() == frozenset()
    await state.set_position(P, 3)
    assert state.table.plannable() == {P}
    assert (await rig.owner("A.consumer.auto.offset.reset = none")).table.rows[P].position == 3


async def test_a_position_that_is_set_forward_without_a_task_leaves_a_gap(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 5)
    state = await rig.owner(TRANSLATED)
    await state.set_position(P, 3, bounds=LogBounds(start=0, end=5))
    state = await rig.owner(TRANSLATED)
    assert ledger(state) == [(0, 3, "SKIPPED_BY_OPERATOR")]
    await state.set_position(P, 1, bounds=LogBounds(start=0, end=5))
    assert ledger(await rig.owner(TRANSLATED)) == [(0, 3, "SKIPPED_BY_OPERATOR")], "it keeps what was"


@pytest.mark.parametrize("offsets", ["auto", "translated"])
@pytest.mark.parametrize("fails_from", [1, 2, 3])
async def test_a_position_that_could_not_be_set_has_no_effect_when_its_record_arrives_later(
    rig: FlowRig, offsets: str, fails_from: int
) -> None:
    """The broker hangs, and takes the record after the command has failed."""
    reset = f"A.consumer.auto.offset.reset = none\ntwinlog.offsets = {offsets}"
    state = await rig.owner(reset)
    calls = itertools.count(1)

    def fail(call: Call) -> None:
        if next(calls) >= fails_from:
            raise from_reason(UNAVAILABLE, "append", alias="B")

    undo = rig.target.intercept("append", fail, after=True)
    with pytest.raises(KafkaError):
        await state.set_position(P, 3)
    await state.positions.refresh()
    assert state.table.plannable() == frozenset()
    undo()
    await state.refresh(owned=frozenset())
    assert state.table.plannable() == frozenset()
    assert state.table.rows[P].task_reason == "NO_POSITION"
    assert (await rig.owner(reset)).table.rows[P].position is None


async def test_a_position_that_is_set_after_one_that_failed_is_not_undone_with_it(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(TRANSLATED)
    undo = rig.target.intercept("append", only_positions, after=True)
    with pytest.raises(KafkaError):
        await state.set_position(P, 3, bounds=LogBounds(start=0, end=9))
    undo()
    await state.set_position(P, 6, bounds=LogBounds(start=0, end=9))
    await state.refresh(owned=frozenset())
    for each in (state, await rig.owner(TRANSLATED)):
        assert (each.table.rows[P].position, ledger(each)) == (6, [(0, 6, "SKIPPED_BY_OPERATOR")])


async def test_a_beginning_that_meets_a_record_of_a_later_release_is_given_up(rig: FlowRig) -> None:
    """It arrives while the kind of the copy is decided."""
    state = await rig.owner("A.consumer.auto.offset.reset = none")

    async def append(call: Call) -> None:
        if TopicPartition("A.t", 0) in call.arguments["partitions"]:
            later = connect_json.dumps({"format": 99, "by": "root", "at_ms": 1})
            await state.journal.append(control_key("A", "pause", None, None), later)

    rig.target.intercept("list_offsets", append)
    with pytest.raises(WireFormatError):
        await state.set_position(P, 3)
    assert state.table.rows[P].position is None
    assert P in state.withdrawals.of_driver


async def test_what_a_move_that_failed_would_have_left_out_is_no_gap(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 5)
    state = await rig.owner()
    undo = rig.target.intercept("append", only_positions, after=True)
    with pytest.raises(KafkaError):
        await state.set_position(P, 3, bounds=LogBounds(start=0, end=5))
    undo()
    await state.refresh(owned=frozenset())
    assert ledger(state) == []
    after = await rig.owner()
    assert (ledger(after), after.table.rows[P].position) == ([], 0)


async def test_a_partition_is_in_no_plan_while_its_position_is_set(rig: FlowRig) -> None:
    """Its task would continue from the position before, and overwrite the new one."""
    await rig.write(rig.source, "t", 5)
    state = await rig.owner(TRANSLATED)
    planned: list[frozenset[TopicPartition]] = []

    def look(call: Call) -> None:
        planned.append(state.table.plannable())

    undo = rig.target.intercept("append", look)
    await state.set_position(P, 3)
    undo()
    assert planned
    assert not any(planned)
    assert state.table.plannable() == {P}


async def test_a_partition_that_is_not_copied_any_more_is_not_moved(rig: FlowRig) -> None:
    state = await rig.owner()
    with pytest.raises(NotFoundError, match="does not copy"):
        await state.set_position(TopicPartition("left", 0), 3)


async def _outcome(moving: Awaitable[None]) -> str:
    try:
        await moving
    except KafkaError as error:
        return error.reason
    return "MOVED"


async def test_what_is_undone_of_a_move_and_the_next_one_never_mix_on_the_log(rig: FlowRig) -> None:
    """An operator tries again while the flow's own loop is about to undo the first try."""
    state = await rig.owner(TRANSLATED)
    planned = state.table.plannable()
    undo = rig.target.intercept("append", only_positions, after=True)
    with pytest.raises(KafkaError):
        await state.set_position(P, 8)
    undo()
    undoing, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_call: Call) -> None:
        undoing.set()
        await go_on.wait()

    undo = rig.target.intercept("append", wait)
    rig.clock.advance(5)
    async with asyncio.TaskGroup() as group:
        group.create_task(state.plan_is_stale(planned), name="the flow's own loop")
        await undoing.wait()
        moving = group.create_task(_outcome(state.set_position(P, 6)), name="positions set")
        undo()
        go_on.set()
    assert not state.withdrawals.due
    assert moving.result() == "POSITION_NOT_MOVED", "a task may have it by now"
    known = (await state.positions.refresh()).get(P, 0), state.table.rows[P].position
    assert known == (0, 0)
    await state.set_position(P, 6)
    assert ((await state.positions.refresh())[P], state.table.rows[P].position) == (6, 6)


async def test_a_move_that_is_being_made_keeps_the_flow_waiting_for_nothing(rig: FlowRig) -> None:
    state = await rig.owner(TRANSLATED)
    planned = state.table.plannable()
    moving, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_call: Call) -> None:
        moving.set()
        await go_on.wait()

    undo = rig.target.intercept("append", wait)
    rig.clock.advance(5)
    async with asyncio.TaskGroup() as group:
        group.create_task(state.set_position(P, 6), name="positions set")
        await moving.wait()
        undo()
        assert await state.plan_is_stale(planned), "the partition is in no plan meanwhile"
        go_on.set()
    assert state.table.plannable() == planned


async def test_a_withdrawn_move_is_undone_when_the_log_says_that_it_took_place(rig: FlowRig) -> None:
    """The task withdrew it and died before the old position was behind it."""
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(TRANSLATED)
    await state.set_position(P, 4)
    state.withdrawals.by_task(P, Withdrawal(to_offset=8, before=None, number=7))
    reported(state, position=4, source_end=9, withdrawn=7)
    state.withdrawals.take([PartitionReport(partition=P, position=4, withdrawn=7)])
    await state.journal.gap(
        Gap(partition=P, from_offset=4, to_offset=8, reason="SKIPPED_BY_OPERATOR", found_at_ms=1)
    )
    await state.journal.position(P, 8)
    await state.reread([P])
    left_out = [(0, 4, "SKIPPED_BY_OPERATOR")]
    assert (state.table.rows[P].position, ledger(state)) == (4, left_out)
    after = await rig.owner(TRANSLATED)
    assert (after.table.rows[P].position, ledger(after)) == (4, left_out)


async def test_a_copy_that_reached_the_place_of_a_withdrawn_move_is_not_put_back(rig: FlowRig) -> None:
    """Everything up to there is copied: to begin again would copy it twice."""
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(TRANSLATED)
    await state.set_position(P, 4)
    state.withdrawals.by_task(P, Withdrawal(to_offset=8, before=None, number=7))
    state.withdrawals.take([PartitionReport(partition=P, position=4, withdrawn=7)])
    lost = Gap(partition=P, from_offset=5, to_offset=8, reason="RETENTION", found_at_ms=1)
    await state.journal.gap(lost)
    await state.journal.position(P, 8)
    await state.reread([P])
    assert state.table.rows[P].position == 8
    assert lost.identity in state.positions.gaps
    assert not state.withdrawals.due


async def test_a_source_topic_recreated_while_nobody_copied_begins_at_0(rig: FlowRig) -> None:
    first = await rig.owner()
    await first.journal.position(P, 5)
    rig.source.add_topic("t")
    await rig.write(rig.source, "t", 9)
    second = await rig.owner()
    assert ledger(second) == [], "nothing is known to be missing"
    assert second.table.rows[P].position == 0
