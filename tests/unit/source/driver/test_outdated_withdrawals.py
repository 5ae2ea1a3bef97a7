"""Moves of positions that failed, and what they would be undone to is outdated: the source topic was created
again, or another process has copied the flow."""

import asyncio
import math
from collections.abc import Awaitable

import pytest

from twinlog.errors import KafkaError
from twinlog.kafka.errors import TIMEOUT, UNAVAILABLE, from_reason
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.fakes.cluster_hooks import Call
from twinlog_source.driver.state import FlowState
from twinlog_source.driver.withdrawals import Withdrawal
from twinlog_source.log.fencing import FENCED
from twinlog_source.log.gaps import LogBounds
from twinlog_source.partitions.events import SetAside
from twinlog_source.partitions.reports import PartitionReport
from twinlog_source.topics.position_finder import BLOCKER_RETRY_SECONDS
from unit.source.flow_rig import FlowRig, P, ledger, only_positions

TRANSLATED = "twinlog.offsets = translated"


async def owner_at(rig: FlowRig, position: int) -> FlowState:
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(TRANSLATED)
    await state.journal.position(P, position)
    await state.reread([P])
    return state


async def fail_to_move(rig: FlowRig, state: FlowState, position: int) -> None:
    """The records of the move get onto the log, and their answer is lost."""
    undo = rig.target.intercept("append", only_positions, after=True)
    with pytest.raises(KafkaError):
        await state.set_position(P, position, bounds=LogBounds(start=0, end=9))
    undo()


async def recreate_source(rig: FlowRig) -> None:
    """The driver sees it at its next look."""
    rig.source.add_topic("t")
    await rig.write(rig.source, "t", 20)
    rig.clock.advance(2)


async def outcome(step: Awaitable[object]) -> str:
    try:
        await step
    except KafkaError as error:
        return error.reason
    return "DONE"


async def test_a_recreated_topic_begins_at_0_after_a_move_of_the_deleted_one_failed(rig: FlowRig) -> None:
    state = await owner_at(rig, 5)
    await fail_to_move(rig, state, 8)
    await recreate_source(rig)
    await state.refresh(owned=frozenset())
    for each in (state, await rig.owner(TRANSLATED)):
        assert each.table.rows[P].position == 0
        assert each.table.plannable() == {P}
        assert ledger(each) == [], "the move has left nothing out"


async def test_a_recreated_topic_begins_at_0_after_a_move_that_fails_later(rig: FlowRig) -> None:
    """It is being made while the driver sees the new topic."""
    state = await owner_at(rig, 5)
    moving, go_on = asyncio.Event(), asyncio.Event()

    async def fail(_call: Call) -> None:
        undo()
        moving.set()
        await go_on.wait()
        raise from_reason(UNAVAILABLE, "append", alias="B")

    undo = rig.target.intercept("append", fail)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(outcome(state.set_position(P, 8)), name="positions set")
        await moving.wait()
        await recreate_source(rig)
        group.create_task(state.refresh(owned=frozenset()), name="the flow's own loop")
        await wait_or_stop(asyncio.Event(), 1)
        go_on.set()
    assert asked.result() == UNAVAILABLE.name
    await state.refresh(owned=frozenset())
    assert (await state.positions.refresh(), state.table.rows[P].position) == ({P: 0}, 0)
    assert state.table.plannable() == {P}


async def test_what_a_task_withdrew_of_a_deleted_topic_is_not_undone_in_the_new_one(rig: FlowRig) -> None:
    """The new topic was copied to just where the move would have led."""
    state = await owner_at(rig, 8)
    state.withdrawals.by_task(P, Withdrawal(to_offset=4, before=None, number=7))
    state.withdrawals.take([PartitionReport(partition=P, position=8, withdrawn=7)])
    await recreate_source(rig)
    await state.refresh(owned=frozenset())
    await state.journal.position(P, 4)
    await state.reread([P])
    assert state.table.rows[P].position == 4


async def test_a_move_of_a_deleted_topic_that_its_task_withdrew_leaves_no_gap(rig: FlowRig) -> None:
    """The move is on the log, and the task died before the old position was behind it."""
    state = await owner_at(rig, 4)
    bounds = LogBounds(start=0, end=9)
    await state.set_position(P, 8, bounds=bounds)
    assert ledger(state) == [(4, 8, "SKIPPED_BY_OPERATOR")]
    state.withdrawals.by_task(P, Withdrawal(to_offset=8, before=None, number=7, bounds=bounds))
    state.withdrawals.take([PartitionReport(partition=P, position=4, withdrawn=7)])
    await recreate_source(rig)
    await state.refresh(owned=frozenset())
    assert (state.table.rows[P].position, ledger(state)) == (0, [])


@pytest.mark.parametrize("task_has_it", [False, True])
async def test_a_move_is_not_undone_behind_what_another_owner_has_copied(
    rig: FlowRig, task_has_it: bool
) -> None:
    """The other owner has begun at the position that it found, and has copied to just where the move would
    have led."""
    state = await owner_at(rig, 5)
    if task_has_it:
        state.withdrawals.by_task(P, Withdrawal(to_offset=8, before=None, number=7))
        state.withdrawals.take([PartitionReport(partition=P, position=9, withdrawn=7)])
    else:
        await fail_to_move(rig, state, 8)
    other = await rig.owner(TRANSLATED)
    await other.journal.position(P, 8)
    await other.leave()
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert (await state.positions.refresh(), state.table.rows[P].position) == ({P: 8}, 8)
    assert state.table.plannable() == {P}


def set_aside(state: FlowState) -> None:
    """No task gets the partition."""
    state.table.apply(SetAside(partition=P, reason="TEST", message="", retry_at=math.inf), 0.0)


async def next_owner_at(rig: FlowRig, position: int, *more: str) -> FlowState:
    """Its task has copied up to there; the owner before has not noticed it yet."""
    state = await rig.owner(*more)
    await state.journal.position(P, position)
    rig.clock.advance(BLOCKER_RETRY_SECONDS)
    return state


async def test_a_former_owner_does_not_undo_a_move_behind_what_the_next_one_has_copied(rig: FlowRig) -> None:
    state = await owner_at(rig, 3)
    set_aside(state)
    await fail_to_move(rig, state, 8)
    await next_owner_at(rig, 9, TRANSLATED)
    assert await outcome(state.refresh(owned=frozenset())) == FENCED
    assert (await rig.owner(TRANSLATED)).table.rows[P].position == 9


async def test_a_former_owner_does_not_undo_a_beginning_behind_what_the_next_one_has_copied(
    rig: FlowRig,
) -> None:
    """Without a position on the log, the owner after that would begin at the end of the source, and leave
    records out without a gap."""
    reset, at_least_once = (
        "A.consumer.auto.offset.reset = latest",
        "B.exactly.once.source.support = disabled",
    )

    def fail(call: Call) -> None:
        for partition in call.result:
            call.result[partition] = from_reason(TIMEOUT, "list offsets", alias="A")

    await rig.write(rig.source, "t", 5)
    undo = rig.source.intercept("list_offsets", fail, after=True)
    state = await rig.owner(reset, at_least_once)
    undo()
    await fail_to_move(rig, state, 4)
    await next_owner_at(rig, 5, reset, at_least_once)
    await rig.write(rig.source, "t", 4)
    assert await outcome(state.refresh(owned=frozenset())) == FENCED
    assert (await rig.owner(reset, at_least_once)).table.rows[P].position == 5


async def test_a_former_owner_sets_no_position_behind_what_the_next_one_has_copied(rig: FlowRig) -> None:
    state = await owner_at(rig, 3)
    set_aside(state)
    await next_owner_at(rig, 9, TRANSLATED)
    assert await outcome(state.set_position(P, 4, bounds=LogBounds(start=0, end=9))) == FENCED
    after = await rig.owner(TRANSLATED)
    assert (after.table.rows[P].position, ledger(after)) == (9, [])
