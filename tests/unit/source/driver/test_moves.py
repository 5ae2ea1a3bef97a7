"""What `positions set` tells the tasks, and what it answers when they do not confirm."""

import asyncio
from typing import Any

import pytest

from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster_hooks import Call
from twinlog.wire import connect_json
from twinlog_source.driver.epoch import COMMAND_QUEUE_SIZE, Epoch
from twinlog_source.driver.flow_driver import FlowDriver
from twinlog_source.driver.moves import MOVE_POLL_SECONDS, MOVE_SECONDS, Move, PositionMoves, planned_move
from twinlog_source.log.fact_records import control_key
from twinlog_source.partitions.events import Reported, SetAside, TopicsChosen
from twinlog_source.partitions.orders import End, Reposition, TaskCommand, WithdrawReposition
from twinlog_source.partitions.reports import PartitionReport, TaskReport
from unit.source.flow_rig import FlowRig, P
from unit.source.topics.lost_copies_rig import TRANSLATED

FAR = Move(partition=P, from_offset=0, to_offset=3)


class Task:
    """The task that copies the partition, as its driver hears it."""

    def __init__(self, rig: FlowRig, driver: FlowDriver) -> None:
        assert driver.current is not None
        self.site, self.driver, self.slot = rig, driver, driver.current.slots[0]

    def heard(self) -> TaskCommand | None:
        return None if self.slot.commands.empty() else self.slot.commands.get_nowait()

    def says(self, **fields: Any) -> None:
        said = TaskReport(partitions=(PartitionReport(**{"partition": P, "position": 0, **fields}),))
        self.driver.state.table.apply(Reported(slot=0, report=said, now_ms=1), 1.0)
        self.driver.state.withdrawals.take(said.partitions)


def order_number(command: object) -> int:
    assert isinstance(command, Reposition)
    return command.number


async def moves_of(rig: FlowRig, *more: str) -> tuple[PositionMoves, Task]:
    """The moves of a flow that has one epoch with one task."""
    nothing: Any = None
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(*more)
    driver = FlowDriver(
        state=state,
        jobs=nothing,
        host=nothing,
        is_elected=nothing,
        standing=nothing,
        is_probed=nothing,
        refusal=nothing,
        instruments=nothing,
        clock=rig.clock,
        random=nothing,
        max_slots=None,
        epoch_seconds=30.0,
        longest_epoch_seconds=600.0,
        current=Epoch(flow=state.flow.flow, number=1, plan=((P,),)),
    )
    driver.current.slots[0].joined = 1  # type: ignore[union-attr]
    return PositionMoves(driver=driver, source=rig.source, clock=rig.clock), Task(rig, driver)


async def test_a_move_that_no_task_confirms_is_withdrawn_and_said_to_be_nothing(rig: FlowRig) -> None:
    moves, task = await moves_of(rig)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(moves.carry_out([FAR], by="root"), name="positions set")
        ordered = await eventually(task.heard)
        rig.clock.advance(MOVE_SECONDS + 0.1)
        withdrawal = await eventually(task.heard)
        assert withdrawal == WithdrawReposition(partition=P, number=order_number(ordered))
        task.says(position=0, withdrawn=order_number(ordered))
        (move,) = await asked
    assert (move.applied, move.reason) == (False, "POSITION_NOT_MOVED")


async def test_a_move_that_was_stored_before_its_task_heard_of_the_withdrawal_is_done(rig: FlowRig) -> None:
    moves, task = await moves_of(rig)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(moves.carry_out([FAR], by="root"), name="positions set")
        ordered = await eventually(task.heard)
        rig.clock.advance(MOVE_SECONDS + 0.1)
        await eventually(task.heard)
        task.says(position=3, repositioned=order_number(ordered))
        (move,) = await asked
    assert (move.applied, move.reason) == (True, "")
    assert not moves.driver.state.withdrawals.due


async def test_a_move_that_nobody_was_told_of_is_said_to_be_nothing(rig: FlowRig) -> None:
    moves, task = await moves_of(rig)
    task.driver.current = None
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(moves.carry_out([FAR], by="root"), name="positions set")

        def later() -> bool:
            rig.clock.advance(MOVE_SECONDS)
            return asked.done()

        await eventually(later)
        (move,) = await asked
    assert move.reason == "POSITION_NOT_MOVED"


async def test_a_move_whose_task_says_nothing_at_all_is_uncertain(rig: FlowRig) -> None:
    moves, task = await moves_of(rig)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(moves.carry_out([FAR], by="root"), name="positions set")
        await eventually(task.heard)
        rig.clock.advance(60)
        await eventually(task.heard)
        rig.clock.advance(60)
        (move,) = await asked
    assert move.reason == "POSITION_UNCERTAIN"


async def test_a_move_whose_caller_is_gone_is_withdrawn(rig: FlowRig) -> None:
    moves, task = await moves_of(rig)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(moves.carry_out([FAR], by="root"), name="a call whose client hangs up")
        ordered = await eventually(task.heard)
        asked.cancel()
        withdrawal = await eventually(task.heard)
    assert withdrawal == WithdrawReposition(partition=P, number=order_number(ordered))


async def test_a_topic_that_left_meanwhile_is_named_and_not_a_crash(rig: FlowRig) -> None:
    moves, task = await moves_of(rig)
    task.driver.state.table.apply(TopicsChosen(targets={}), 0.0)
    (move,) = await moves.carry_out([FAR], by="root")
    assert move.reason == "PARTITION_UNKNOWN"
    planned = planned_move(P, task.driver.state.table.rows.get(P), wanted=3, start=0, end=9)
    assert planned.from_offset is None


async def test_each_partition_of_a_large_flow_gets_its_order_and_its_withdrawal(rig: FlowRig) -> None:
    """One slot has all of them."""
    moves, task = await moves_of(rig)
    partitions = [TopicPartition(P.topic, number) for number in range(2_000)]
    moves.driver.state.table.apply(TopicsChosen(targets=dict.fromkeys(partitions, "A.t")), 0.0)
    moves.driver.current = Epoch(flow=moves.driver.flow, number=1, plan=(tuple(partitions),))
    task.slot = moves.driver.current.slots[0]
    far = [Move(partition=each, from_offset=0, to_offset=3) for each in partitions]
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(moves.carry_out(far, by="root"), name="positions set")
        await eventually(lambda: task.slot.commands.qsize() == len(partitions))
        rig.clock.advance(MOVE_SECONDS + 0.1)
        await eventually(lambda: task.slot.commands.qsize() == 2 * len(partitions))
        asked.cancel()
    told = [task.heard() for _ in range(2 * len(partitions))]
    assert {each.partition for each in told if isinstance(each, Reposition)} == set(partitions)
    assert {each.partition for each in told if isinstance(each, WithdrawReposition)} == set(partitions)


async def test_an_order_waits_while_its_task_has_too_many_others_to_take(rig: FlowRig) -> None:
    moves, task = await moves_of(rig)
    for _ in range(COMMAND_QUEUE_SIZE // 2):
        task.slot.tell(End(reason="of the test"))
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(moves.carry_out([FAR], by="root"), name="positions set")
        await wait_or_stop(asyncio.Event(), 3 * MOVE_POLL_SECONDS)
        assert task.slot.commands.qsize() == COMMAND_QUEUE_SIZE // 2
        while not isinstance(ordered := await eventually(task.heard), Reposition):
            pass
        task.says(position=3, repositioned=order_number(ordered))
        (move,) = await asked
    assert move.applied


@pytest.mark.parametrize("reason", ["PRODUCER_FENCED", "WIRE_VERSION", "KAFKA_TIMEOUT"])
async def test_a_move_without_a_task_is_refused_when_the_owner_is_not_certain(
    rig: FlowRig, reason: str
) -> None:
    """The partition waits for what it waited for before."""
    moves, task = await moves_of(rig, TRANSLATED)
    state, task.driver.current = task.driver.state, None
    state.table.apply(SetAside(partition=P, reason="TEST", message="", retry_at=0.0), 0.0)
    waits_for = state.table.rows[P].blocker

    async def hang(_call: Call) -> None:
        await asyncio.Event().wait()

    if reason == "PRODUCER_FENCED":
        await rig.owner(TRANSLATED)
    elif reason == "WIRE_VERSION":
        key = control_key("A", "pause", None, None)
        await state.journal.append(key, connect_json.dumps({"format": 99, "by": "root", "at_ms": 1}))
    else:
        rig.target.intercept("list_offsets", hang)
    (move,) = await moves.carry_out([FAR], by="root")
    assert (move.applied, move.reason) == (False, reason)
    assert state.table.rows[P].blocker is waits_for
    assert not state.withdrawals.due
