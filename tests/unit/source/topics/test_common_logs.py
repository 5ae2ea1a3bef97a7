"""What the target holds of a source already decides how its copy begins: none of it is copied twice."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from twinlog.batches import EndMarker
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.errors import TIMEOUT, from_reason
from twinlog.kafka.ports import ConfigChange
from twinlog.model import Record
from twinlog.testing.fakes.cluster import Call
from twinlog.wire.source_offset import source_offset_key
from twinlog_source.driver.ownership import AT_REST_AFTER_SECONDS
from twinlog_source.driver.state import FlowState
from twinlog_source.log.facts import ClaimFact
from unit.source.flow_rig import FlowRig, P
from unit.source.topics.copy_modes_rig import AUTO, COPY, PRESERVED, assigned, blocker, kind, write


async def test_a_copy_whose_target_has_the_sources_records_continues_behind_them(rig: FlowRig) -> None:
    await write(rig.source, P, [1, 2, 3, 4, 5, 6])
    await write(rig.target, COPY, [1, 2, 3, 4])
    state = await rig.owner(AUTO)
    assert kind(state) == (True, 0, "", 0, 0)
    handed = assigned(state)
    assert (handed.position, handed.position_stored) == (4, True)
    again = await rig.owner(AUTO)
    assert (kind(again), assigned(again).position) == ((True, 0, "", 0, 0), 4)


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("written", range(6))
async def test_a_start_that_is_broken_off_anywhere_is_continued_behind_them(
    rig: FlowRig, written: int, is_killed: bool
) -> None:
    await write(rig.source, P, [1, 2, 3, 4, 5, 6])
    await write(rig.target, COPY, [1, 2, 3, 4])
    state = await rig.process(AUTO)
    await state.take_over(displaced=False)
    appended: list[Call] = []

    def break_off(call: Call) -> None:
        if len(appended) >= written:
            raise from_reason(TIMEOUT, "append", alias="B")
        appended.append(call)

    undo = rig.target.intercept("append", break_off)
    with contextlib.suppress(KafkaError):
        await state.refresh(owned=frozenset())
    undo()
    if is_killed:
        state = await rig.owner(AUTO)
    else:
        await state.positions.refresh()
        await state.refresh(owned=frozenset())
    assert (kind(state), assigned(state).position) == ((True, 0, "", 0, 0), 4)


async def test_a_copy_whose_position_was_taken_away_continues_behind_what_the_target_had(
    rig: FlowRig,
) -> None:
    """By a tool of Connect's."""
    await write(rig.source, P, [1, 2, 3, 4, 5, 6])
    await write(rig.target, COPY, [1, 2, 3, 4])
    state = await rig.owner(AUTO)
    await state.journal.append(source_offset_key("A", P), None)
    again = await rig.owner(AUTO)
    assert (kind(again), assigned(again).position) == ((True, 0, "", 0, 0), 4)


async def test_a_target_with_more_than_the_source_continues_where_they_part(rig: FlowRig) -> None:
    """What the target alone holds was never copied the other way."""
    await write(rig.source, P, [1, 2, 3, 14, 15])
    await write(rig.target, COPY, [1, 2, 3, 24])
    refused = await rig.owner(PRESERVED)
    assert blocker(refused) == "TARGET_DIFFERS"
    waits = refused.table.rows[P].blocker
    assert waits is not None
    assert "from offset 3 to 4 the target has other records" in waits.message
    state = await rig.owner(AUTO)
    assert kind(state) == (False, 3, "TARGET_DIFFERS", 0, 0)
    assert assigned(state).position == 3


async def test_a_source_that_ends_before_the_target_is_copied_from_its_end(rig: FlowRig) -> None:
    await write(rig.source, P, [1, 2, 3])
    await write(rig.target, COPY, [1, 2, 3, 24])
    state = await rig.owner(AUTO)
    assert (kind(state), assigned(state).position) == ((False, 3, "TARGET_DIFFERS", 0, 0), 3)


async def test_a_target_with_other_records_gets_all_of_the_source(rig: FlowRig) -> None:
    """As MirrorMaker 2 does it."""
    await write(rig.source, P, [1, 2, 3])
    await write(rig.target, COPY, [24])
    state = await rig.owner(AUTO)
    assert (kind(state), assigned(state).position) == ((False, 0, "TARGET_NOT_EMPTY", 0, 0), 0)


async def test_an_open_transaction_on_the_target_holds_up_only_its_partition(rig: FlowRig) -> None:
    """Nobody sees what lies behind it: the look does not wait until it ends, and is repeated."""
    await write(rig.source, P, [1, 2, 3, 4, 5, 6])
    await write(rig.target, COPY, [1, 2, 3, 4])
    record = Record(offset=-1, timestamp_ms=1_005, key=b"k", value=b"5", headers=())
    number = rig.target.append_transaction(COPY, [record], None)
    state = await asyncio.wait_for(rig.owner(AUTO), 1.0)
    assert blocker(state) == "TARGET_OPEN_TRANSACTION"
    waits = state.table.rows[P].blocker
    assert waits is not None
    assert "a transaction is open on A.t-0 since offset 4" in waits.message
    rig.target.finish_transaction(COPY, number, EndMarker.ABORT)
    again = await rig.owner(AUTO)
    assert assigned(again).position == 4


@pytest.mark.parametrize("here", [[], [1, 2, 3]])
async def test_an_open_transaction_holds_up_no_copy_whose_target_has_other_records(
    rig: FlowRig, here: list[int]
) -> None:
    """An application that always has one open would keep the copy from beginning for ever."""
    await write(rig.source, P, here)
    await write(rig.target, COPY, [24])
    record = Record(offset=-1, timestamp_ms=1_005, key=b"k", value=b"5", headers=())
    rig.target.append_transaction(COPY, [record], None)
    state = await rig.owner(AUTO)
    assert kind(state) == (False, 0, "TARGET_NOT_EMPTY", 0, 0)


async def test_an_open_transaction_holds_up_no_copy_that_parts_before_it(rig: FlowRig) -> None:
    await write(rig.source, P, [1, 2, 13])
    await write(rig.target, COPY, [1, 2, 23, 24])
    record = Record(offset=-1, timestamp_ms=1_005, key=b"k", value=b"5", headers=())
    rig.target.append_transaction(COPY, [record], None)
    state = await rig.owner(AUTO)
    assert (kind(state), assigned(state).position) == ((False, 2, "TARGET_DIFFERS", 0, 0), 2)


async def test_a_copy_whose_source_ends_at_an_open_transaction_waits_for_its_end(rig: FlowRig) -> None:
    """A flow in the other direction copies what is in it once it is committed."""
    await write(rig.source, P, [1, 2, 3, 4])
    await write(rig.target, COPY, [1, 2, 3, 4])
    record = Record(offset=-1, timestamp_ms=1_005, key=b"k", value=b"5", headers=())
    number = rig.target.append_transaction(COPY, [record], None)
    state = await rig.owner(AUTO)
    assert blocker(state) == "TARGET_OPEN_TRANSACTION"
    rig.target.finish_transaction(COPY, number, EndMarker.COMMIT)
    rig.source.append_transaction(P, [record], EndMarker.COMMIT)
    again = await rig.owner(AUTO)
    assert (kind(again), assigned(again).position) == ((True, 0, "", 0, 0), 6)


async def test_a_flow_that_begins_at_the_end_leaves_out_what_it_was_told_to(rig: FlowRig) -> None:
    await write(rig.source, P, [1, 2, 3, 4])
    await write(rig.target, COPY, [1, 2])
    state = await rig.owner(AUTO, "A.consumer.auto.offset.reset = latest")
    assert (kind(state)[2], assigned(state).position) == ("TARGET_NOT_EMPTY", 4)


async def test_a_compacted_topic_is_not_compared(rig: FlowRig) -> None:
    change = ConfigChange(name="cleanup.policy", value="compact")
    await rig.target.alter_topic_configs({"A.t": [change]})
    await write(rig.source, P, [1, 2])
    await write(rig.target, COPY, [1, 2])
    state = await rig.owner(AUTO)
    assert (kind(state)[2], assigned(state).position) == ("COMPACTED", 0)


async def test_a_new_target_topic_that_was_written_already_keeps_the_offsets(rig: FlowRig) -> None:
    """Its task was faster than the driver."""
    await write(rig.source, P, [1, 2, 3, 4, 5, 6])
    first = await rig.owner(AUTO)
    await first.journal.position(P, 6)
    rig.target.add_topic("A.t")
    await write(rig.target, COPY, [1, 2, 3])
    state = await rig.owner(AUTO)
    assert (kind(state), assigned(state).position) == ((True, 0, "", 0, 0), 3)


# --------------------------------------------------------------------------------------- there and back again


async def left_in_order(rig: FlowRig) -> None:
    """A preserved copy of three records, whose owner has stopped in order."""
    await write(rig.source, P, [1, 2, 3])
    first = await rig.owner(AUTO)
    await write(rig.target, COPY, [1, 2, 3])
    await first.journal.position(P, 3)
    await first.leave()


async def test_what_came_from_the_target_meanwhile_is_not_copied_back_to_it(rig: FlowRig) -> None:
    """Another flow has copied it to the source, under the same names."""
    await left_in_order(rig)
    await write(rig.target, COPY, [4, 5])
    await write(rig.source, P, [4, 5, 6])
    state = await rig.owner(AUTO)
    assert kind(state) == (True, 0, "", 0, 0)
    handed = assigned(state)
    assert (handed.position, handed.position_stored) == (5, True)


@pytest.mark.parametrize("mode", [AUTO, PRESERVED])
async def test_what_the_target_alone_holds_ends_the_copy_where_it_begins(rig: FlowRig, mode: str) -> None:
    await left_in_order(rig)
    await write(rig.target, COPY, [4, 25])
    await write(rig.source, P, [4, 15])
    state = await rig.owner(mode)
    if mode == PRESERVED:
        assert blocker(state) == "TARGET_DIFFERS"
        return
    assert kind(state) == (False, 4, "TARGET_DIFFERS", 0, 0)
    assert assigned(state).position == 4


async def test_what_others_wrote_that_is_not_the_sources_is_left_to_the_task(rig: FlowRig) -> None:
    """It says who wrote it (FOREIGN_WRITE)."""
    await left_in_order(rig)
    await write(rig.target, COPY, [24, 25])
    await write(rig.source, P, [14])
    state = await rig.owner(AUTO)
    assert (kind(state), assigned(state).position) == ((True, 0, "", 0, 0), 3)


async def test_what_our_own_task_wrote_before_it_was_killed_is_left_to_the_next_one(rig: FlowRig) -> None:
    """It is compared by its producer and its sequence numbers, which costs little."""
    await write(rig.source, P, [1, 2, 3, 4])
    first = await rig.owner(AUTO)
    await write(rig.target, COPY, [1, 2, 3])
    await first.journal.position(P, 1)
    state = await rig.owner(AUTO)
    assert (kind(state), assigned(state).position) == ((True, 0, "", 0, 0), 1)


async def killed(rig: FlowRig) -> FlowState:
    """A preserved copy of three records, whose owner was killed before it had stored the last two."""
    await write(rig.source, P, [1, 2, 3])
    first = await rig.owner(AUTO)
    await write(rig.target, COPY, [1, 2, 3])
    await first.journal.position(P, 1)
    return first


async def test_what_came_from_the_target_is_not_copied_back_to_it_after_a_kill_long_ago(rig: FlowRig) -> None:
    """Nothing of the killed owner's can be on its way any more."""
    await killed(rig)
    await write(rig.target, COPY, [4, 5])
    await write(rig.source, P, [4, 5, 6])
    rig.clock.advance(AT_REST_AFTER_SECONDS + 1)
    state = await rig.owner(AUTO)
    assert kind(state) == (True, 0, "", 0, 0)
    assert assigned(state).position == 5


async def test_an_import_of_state_counts_as_the_last_sign_of_an_owner(rig: FlowRig) -> None:
    """The owner before it may have been killed just now."""
    first = await killed(rig)
    rig.clock.advance(AT_REST_AFTER_SECONDS + 1)
    await first.journal.record(ClaimFact(instance="an import", at_ms=rig.clock.now_ms()))
    await write(rig.target, COPY, [4, 5])
    await write(rig.source, P, [4, 5, 6])
    state = await rig.owner(AUTO)
    assert assigned(state).position == 1


async def test_copies_whose_last_records_are_our_own_are_not_compared(rig: FlowRig) -> None:
    """However many of them a flow has that was killed long ago."""
    first = await killed(rig)
    writer = first.positions.control.writer
    assert writer is not None
    rig.last_producers[COPY] = writer.producer_id
    rig.clock.advance(AT_REST_AFTER_SECONDS + 1)
    state = await rig.owner(AUTO)
    assert assigned(state).position == 1


async def test_what_others_wrote_was_checked_in_the_log_of_no_leader(rig: FlowRig) -> None:
    """They may have written under several: none of it is taken for what a new leader wrote in place of what
    was lost."""
    await write(rig.source, P, [1, 2, 3])
    first = await rig.owner(AUTO)
    await write(rig.target, COPY, [1, 2, 3])
    await first.journal.position(P, 3)
    await first.journal.record(replace(first.positions.control.copies[P], leader_epoch=7))
    await first.leave()
    await write(rig.target, COPY, [4])
    await write(rig.source, P, [4])
    state = await rig.owner(AUTO)
    assert assigned(state).position == 4
    assert state.positions.control.copies[P].leader_epoch is None
    assert (await rig.owner(AUTO)).positions.control.copies[P].leader_epoch is None


# ------------------------------------------------------------------------- a way back that is interrupted


AWAY = TransientKafkaError("B: no leader", reason="UNAVAILABLE")


@pytest.mark.parametrize(("copies_others", "is_killed"), [(False, True), (False, False), (True, False)])
async def test_a_process_that_could_not_compare_leaves_the_copy_as_it_was_left_to_it(
    rig: FlowRig, copies_others: bool, is_killed: bool
) -> None:
    """It was in no task: nothing is on its way to it."""
    await left_in_order(rig)
    await write(rig.target, COPY, [4, 5])
    await write(rig.source, P, [4, 5, 6])
    rig.last_producers[COPY] = AWAY
    second = await rig.owner(AUTO)
    assert blocker(second) == AWAY.reason
    if copies_others:
        await second.ownership.note_slots(1)
    if not is_killed:
        await second.leave()
    del rig.last_producers[COPY]
    state = await rig.owner(AUTO)
    assert (kind(state), assigned(state).position) == ((True, 0, "", 0, 0), 5)


async def test_a_process_that_was_killed_when_it_had_started_tasks_did_not_leave_its_copies_at_rest(
    rig: FlowRig,
) -> None:
    await left_in_order(rig)
    second = await rig.owner(AUTO)
    await second.ownership.note_slots(1)
    await write(rig.target, COPY, [4, 5])
    await write(rig.source, P, [4, 5, 6])
    state = await rig.owner(AUTO)
    assert assigned(state).position == 3


async def test_a_copy_that_is_off_the_log_was_not_left_at_rest(rig: FlowRig) -> None:
    await left_in_order(rig)
    await write(rig.target, COPY, [4])
    rig.last_producers[COPY] = AWAY
    state = await rig.owner(AUTO)
    await state.ownership.note_slots(1)
    await state.journal.retract("copy", P.topic, P.partition)
    state.control.retract("copy", P.topic, P.partition)
    await state.leave()
    await state.positions.refresh()
    owner = state.positions.control.owner
    assert owner is not None
    assert not owner.left_at_rest
