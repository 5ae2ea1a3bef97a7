"""What `positions set` does to the epoch, and what it answers when a move does not take place."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.errors import KafkaError, NotFoundError, StateError
from twinlog.kafka.errors import UNAVAILABLE, from_reason
from twinlog.model import Record, TopicPartition
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import Call
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import source_offset_key
from twinlog_source.driver.commands import FlowOperations
from twinlog_source.driver.epoch import Epoch
from twinlog_source.driver.flow_driver import FlowDriver
from twinlog_source.driver.moves import Move, PositionMoves, planned_move
from twinlog_source.driver.subjects import Subject
from twinlog_source.log.facts import PauseFact
from twinlog_source.log.gaps import SourceBounds
from twinlog_source.partitions.events import LogReread, Reported, SetAside, TopicsChosen
from twinlog_source.partitions.orders import PartitionReport, PartitionState, SetPaused, TaskReport
from twinlog_source.reasons import EndReason
from unit.source.driver.test_hand_over import EPOCH_SECONDS, Tasks, driven
from unit.source.flow_rig import POSITIONS, FlowRig, P, ledger, reported, set_position
from unit.source.topics.copy_modes_rig import AUTO, kind
from unit.source.topics.lost_copies_rig import TRANSLATED

FAR = Move(partition=P, from_offset=0, to_offset=3, bounds=SourceBounds(start=0, end=9))


class Task:
    """The task that copies the partition, as its driver hears it."""

    def __init__(self, driver: FlowDriver) -> None:
        self.driver = driver

    def says(self, **fields: Any) -> None:
        said = TaskReport(partitions=(PartitionReport(**{"partition": P, "position": 0, **fields}),))
        self.driver.state.table.apply(Reported(slot=0, report=said, now_ms=1), 1.0)

    async def ends(self) -> None:
        """As soon as it is told to, for the moves that were ordered."""
        await eventually(self.driver.state.moves.ordered.is_set)
        await self.driver.state.carry_out_moves()


async def moves_of(rig: FlowRig, *more: str) -> tuple[PositionMoves, Task]:
    """The moves of a flow that has one epoch with one task."""
    nothing: Any = None
    jobs: Any = SimpleNamespace(runner=SimpleNamespace(workers=SimpleNamespace(spark_ui="")))
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(*more)
    driver = FlowDriver(
        state=state,
        jobs=jobs,
        host=nothing,
        is_elected=nothing,
        standing=nothing,
        is_probed=nothing,
        refusal=nothing,
        instruments=nothing,
        random=nothing,
        max_slots=None,
        epoch_seconds=30.0,
        longest_epoch_seconds=600.0,
        current=Epoch(flow=state.flow.flow, number=1, plan=((P,),)),
    )
    return PositionMoves(driver=driver, source=rig.source), Task(driver)


async def test_a_move_ends_the_epoch_and_the_next_one_begins_behind_it(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 9)
    tasks = Tasks(rig)
    async with driven(rig, tasks) as (driver, _):
        await eventually(lambda: driver.current is not None)
        moves = PositionMoves(driver=driver, source=rig.source)
        (move,) = await moves.carry_out([FAR], by="root")
        assert (move.applied, move.reason) == (True, "")
        assert (tasks.epochs[1].ending, driver.state.table.rows[P].position) == (EndReason.PLAN_CHANGED, 3)
        assert ledger(driver.state) == [(0, 3, "SKIPPED_BY_OPERATOR")]
        await eventually(lambda: driver.current is tasks.epochs.get(2), EPOCH_SECONDS)


async def test_a_move_waits_until_it_is_known_after_a_take_over_which_copies_keep_offsets(
    rig: FlowRig,
) -> None:
    """Otherwise the copy would leave nothing out."""
    await rig.write(rig.source, "t", 9)
    await (await rig.owner(AUTO)).journal.position(P, 4)
    async with driven(rig, Tasks(rig), AUTO) as (driver, _):
        moves = PositionMoves(driver=driver, source=rig.source)
        (move,) = await moves.carry_out([replace(FAR, from_offset=4, to_offset=6)], by="root")
        assert (move.applied, kind(driver.state)) == (True, (True, 0, "", 4, 6))
        await driver.state.take_over(displaced=False)
        with pytest.raises(StateError, match="try again"):
            await set_position(driver.state, P, 8)


async def test_a_move_that_nobody_began_is_withdrawn_and_has_no_effect(rig: FlowRig) -> None:
    moves, task = await moves_of(rig)
    (move,) = await moves.carry_out([FAR], by="root")
    assert (move.applied, move.reason) == (False, "POSITION_NOT_MOVED")
    assert not task.driver.state.moves.ordered.is_set(), "no epoch ends for it"
    await task.driver.state.carry_out_moves()
    assert (task.driver.state.table.rows[P].position, ledger(task.driver.state)) == (0, [])


async def test_a_move_whose_caller_is_gone_is_withdrawn(rig: FlowRig) -> None:
    moves, task = await moves_of(rig)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(moves.carry_out([FAR], by="root"), name="a call whose client hangs up")
        await eventually(task.driver.state.moves.ordered.is_set)
        asked.cancel()
    await task.driver.state.carry_out_moves()
    assert task.driver.state.table.rows[P].position == 0


async def test_a_topic_that_left_meanwhile_is_named_and_not_a_crash(rig: FlowRig) -> None:
    moves, task = await moves_of(rig)
    task.driver.state.table.apply(TopicsChosen(targets={}), 0.0)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(moves.carry_out([FAR], by="root"), name="positions set")
        await task.ends()
        (move,) = await asked
    assert move.reason == "PARTITION_UNKNOWN"
    planned = planned_move(P, task.driver.state.table.rows.get(P), wanted=3, start=0, end=9)
    assert planned.from_offset is None


async def test_a_move_whose_answer_is_lost_is_uncertain_and_the_log_is_read_again(rig: FlowRig) -> None:
    moves, task = await moves_of(rig, TRANSLATED)

    def fail(_call: Call) -> None:
        raise from_reason(UNAVAILABLE, "append", alias="B")

    undo = rig.target.intercept("append", fail, after=True)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(moves.carry_out([FAR], by="root"), name="positions set")
        with pytest.raises(KafkaError):
            await task.ends()
        (move,) = await asked
    undo()
    assert (move.applied, move.reason) == (False, "POSITION_UNCERTAIN")
    await task.driver.state.carry_out_moves()
    assert not task.driver.state.moves.ordered.is_set()


async def test_a_process_that_does_not_own_the_flow_any_more_moves_nothing(rig: FlowRig) -> None:
    moves, task = await moves_of(rig, TRANSLATED)
    state = task.driver.state
    state.table.apply(SetAside(partition=P, reason="TEST", message="", retry_at=0.0), 0.0)
    other = await rig.owner(TRANSLATED)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(moves.carry_out([FAR], by="root"), name="positions set")
        with pytest.raises(KafkaError) as fenced:
            await task.ends()
        (move,) = await asked
    assert (fenced.value.reason, move.reason) == ("PRODUCER_FENCED", "POSITION_NOT_MOVED")
    assert (await other.positions.refresh()).get(P, 0) == 0
    assert state.table.rows[P].blocker is not None


async def test_a_partition_that_waits_for_an_operator_continues_also_where_it_is(rig: FlowRig) -> None:
    """The one who stops what copied its records back may leave nothing out."""
    state = await rig.owner(TRANSLATED)
    said = {"position": 2, "reason": "LOOP", "message": "…"}
    reported(state, state=PartitionState.RUNNING, **said)
    state.table.apply(LogReread(partitions=[P], positions={P: 2}, leader_epochs={}), 0.0)
    state.assignment(P)
    assert state.assignment(P).prior_failure is None, "it only waited for a moment, to see what comes"
    reported(state, state=PartitionState.FAULTED, **said)
    kept = state.assignment(P).prior_failure
    assert kept is not None
    assert kept.reason == "LOOP", "a new task alone changes nothing"
    await set_position(state, P, 2)
    assert state.assignment(P).prior_failure is None
    assert state.table.rows[P].task_state is PartitionState.WAITING


async def test_tasks_learn_of_a_pause_once_the_log_shows_it(rig: FlowRig) -> None:
    """Whoever ordered it, and whether or not its answer was lost."""
    moves, _ = await moves_of(rig)
    driver, pauses = moves.driver, moves.driver.state.control.pauses
    assert driver.current is not None
    (slot,) = driver.current.slots
    pauses["t", None] = PauseFact(topic="t", partition=None, by="root", at_ms=1)
    driver.send_pauses()
    driver.send_pauses()
    pauses.clear()
    driver.send_pauses()
    told = [slot.commands.get_nowait() for _ in range(slot.commands.qsize())]
    assert told == [SetPaused(partitions=(P,), paused=paused) for paused in (True, False)]


@pytest.mark.parametrize("is_all", [False, True])
async def test_a_pause_whose_answer_was_lost_is_ended_by_a_resume(rig: FlowRig, is_all: bool) -> None:
    """The log may show it later."""
    moves, _ = await moves_of(rig)
    driver, topic = replace(moves.driver, owned=True), Subject(topic="t", partition=None)
    operations = FlowOperations(driver=driver, clock=rig.clock)

    def fail(_call: Call) -> None:
        raise from_reason(UNAVAILABLE, "append", alias="B")

    undo = rig.target.intercept("append", fail, after=True)
    with pytest.raises(KafkaError):
        await operations.pause(topic, by="root")
    undo()
    if is_all:
        await operations.resume_all(by="root")
    else:
        with pytest.raises(NotFoundError):
            await operations.resume(topic, by="root")
    await driver.state.confirm()
    assert not driver.state.control.pauses


async def test_a_partition_whose_move_was_refused_begins_where_it_did_before(rig: FlowRig) -> None:
    """Also when its log is read again."""
    await rig.write(rig.source, "t", 100)
    await rig.write(rig.target, "A.t", 1)
    rig.last_producers[TopicPartition("A.t", 0)] = from_reason(UNAVAILABLE, "read who wrote last", alias="B")
    state = await rig.owner(TRANSLATED)
    row = state.table.rows[P]
    assert (row.copy, row.position) == (None, 0)
    with pytest.raises(KafkaError):
        await set_position(state, P, 50)
    assert row.position == 0
    rig.last_producers.clear()
    rig.clock.advance(60)
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert (row.copy is not None, row.position) == (True, 0)


async def test_what_an_operator_said_of_a_position_does_not_hold_for_the_one_that_is_lost_later(
    rig: FlowRig,
) -> None:
    """Somebody has removed it from the log: what was copied since would be copied again."""
    copy, key = TopicPartition("A.t", 0), source_offset_key("A", P)
    await rig.write(rig.source, "t", 100)
    await rig.write(rig.target, "A.t", 1)
    rig.last_producers[copy] = from_reason(UNAVAILABLE, "read who wrote last", alias="B")
    state = await rig.owner(TRANSLATED)
    rig.last_producers[copy], rig.known_producers = 70, {"twinlog-A-B-0-1": 70}
    rig.clock.advance(60)
    await set_position(state, P, 50)
    await state.ownership.note_slots(1)
    await rig.store(100, producer_id=70)
    await state.reread([P])
    row = state.table.rows[P]
    assert (row.copy is not None, row.position) == (True, 100)
    place = TopicPartition(POSITIONS, partition_for_key(key, len(rig.target.topics[POSITIONS].partitions)))
    rig.target.append(place, Record(offset=-1, timestamp_ms=rig.clock.now_ms(), key=key, value=None))
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert row.blocker is not None
    assert row.blocker.reason == "NO_POSITION"
