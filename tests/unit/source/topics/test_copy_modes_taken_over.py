"""Whether a copy stays preserved when another task or process takes it over."""

import pytest

from twinlog.errors import FatalKafkaError, KafkaError
from twinlog.kafka.errors import from_code
from twinlog.testing.fakes.cluster import Call
from twinlog_source.log.facts import CopyFact, OwnerFact
from twinlog_source.partitions.events import Assigned, TopicsChosen
from twinlog_source.partitions.orders import PartitionReport
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.table import PartitionTable
from unit.source.flow_rig import FlowRig, P, ledger, reported
from unit.source.topics.copy_modes_rig import (
    AUTO,
    PRESERVED,
    assigned,
    blocker,
    copy_of,
    ends,
    kind,
    leaves_out,
    says,
    waits,
)


async def test_nobody_waits_where_all_tasks_ended_with_nothing_on_its_way(rig: FlowRig) -> None:
    """A range that the source lost is filled at once then."""
    state = await rig.owner(AUTO)
    assert waits(state) == (None, None), "nobody had it before"
    says(state, at_rest=True)
    state.settled([P])
    assert waits(state) == (None, None)
    await state.leave()
    assert waits(await rig.owner(AUTO)) == (None, None), "the process before has given it back"


async def test_a_standby_that_has_followed_the_flow_finds_its_copies_as_they_were_left(rig: FlowRig) -> None:
    """It knows the partitions already, and has given none of them to a task."""
    await (await rig.owner(AUTO)).leave()
    standby = await rig.process(AUTO)
    standby.table.apply(TopicsChosen(targets={P: "A.t"}), rig.clock.monotonic())
    rig.clock.advance(3)
    await standby.take_over(displaced=False)
    await standby.refresh(owned=frozenset())
    assert waits(standby) == (None, None)
    says(standby, at_rest=True)
    standby.settled([P])
    await standby.leave()
    assert waits(await rig.owner(AUTO)) == (None, None)


async def test_a_returning_owner_loads_state_written_by_the_interim_owner(rig: FlowRig) -> None:
    state = await rig.owner(AUTO)
    await state.ownership.note_slots(1)
    await state.reread([P])  # a task of its own was cut off
    between = await rig.owner(AUTO)
    await between.ownership.note_slots(1)
    await between.leave()
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert waits(state) == (0.0, 0.0), "the one between did not know either"


@pytest.mark.parametrize("how", ["killed", "unanswered"])
async def test_what_a_former_task_may_still_write_is_waited_for(rig: FlowRig, how: str) -> None:
    state = await rig.owner(AUTO)
    assert waits(state) == (None, None)
    if how == "killed":
        await state.reread([P])
    else:
        says(state, at_rest=False)
        state.settled([P])
    rig.clock.advance(3)
    assert waits(state) == (3.0, 3.0)
    says(state, at_rest=True)
    state.settled([P])
    rig.clock.advance(1)
    assert waits(state) == (4.0, 4.0), "that the next one ended well proves nothing of the one before"
    await state.leave()
    assert waits(await rig.owner(AUTO)) == (0.0, 0.0), "nor does the process"


async def test_a_process_that_is_killed_may_still_write(rig: FlowRig) -> None:
    await (await rig.owner(AUTO)).leave()
    killed = await rig.owner(AUTO)
    assert waits(killed) == (None, None)
    await killed.ownership.note_slots(1)
    assert waits(await rig.owner(AUTO)) == (0.0, 0.0), "it did not give the flow back"


async def test_how_long_a_left_out_range_is_known_counts_over_the_tasks_of_one_process(rig: FlowRig) -> None:
    """With tasks that are killed more often than they may write, it would never be filled."""
    state = await rig.owner(AUTO)
    await state.reread([P])
    assert waits(state) == (0.0, 0.0)
    await leaves_out(state, 7, 9)
    rig.clock.advance(20)
    await state.reread([P])
    assert waits(state) == (0.0, 20.0)
    await leaves_out(state, 9, 11)
    rig.clock.advance(5)
    assert waits(state) == (5.0, 5.0), "another range"
    await state.take_over(displaced=True)
    await state.refresh(owned=frozenset())
    assert waits(state) == (0.0, 0.0), "others may have copied meanwhile"


async def test_every_owner_writes_as_the_same_producer(rig: FlowRig) -> None:
    first = await rig.owner(AUTO)
    writer = first.positions.control.writer
    assert writer is not None
    second = await rig.owner(AUTO)
    assert second.positions.control.writer == writer
    assert copy_of(second) == copy_of(first)


async def test_a_preserved_copy_without_a_stored_position_begins_where_it_began(rig: FlowRig) -> None:
    """A reset would leave out what was written meanwhile and is not copied."""
    latest = "A.consumer.auto.offset.reset = latest"
    await rig.write(rig.source, "t", 5)
    assert kind(await rig.owner(AUTO, latest)) == (True, 5, "", 0, 5)
    await rig.write(rig.source, "t", 5)
    state = await rig.owner(AUTO, latest)
    assert (state.table.rows[P].position, state.table.rows[P].stored) == (5, False)


async def test_a_copy_that_must_keep_the_offsets_and_cannot_is_set_aside_for_every_owner(
    rig: FlowRig,
) -> None:
    """The next task would take the end of the copy for its position, and leave out records."""
    state = await rig.owner(PRESERVED)
    assigned(state)
    await rig.write(rig.target, "A.t", 40)
    await ends(state, position=40, until=37, reason="FOREIGN_WRITE")
    assert await state.plan_is_stale(frozenset([P]))
    await state.refresh(owned=frozenset([P]))
    for each in (state, await rig.owner(PRESERVED)):
        assert blocker(each) == "FOREIGN_WRITE"
        assert each.table.plannable() == frozenset()
    # Who allows it continues where that task said.
    allowed = await rig.owner(AUTO)
    assert (kind(allowed), allowed.table.rows[P].position) == ((False, 37, "FOREIGN_WRITE", 0, 0), 40)


async def test_the_last_words_of_a_task_that_ended_a_copy_count_for_the_next(rig: FlowRig) -> None:
    state = await rig.owner(AUTO)
    assigned(state)
    await ends(state, position=40, until=37, reason="FOREIGN_WRITE")
    state.settled([P])
    assert assigned(state).preserved is None
    assert assigned(state).position == 40


async def test_what_a_task_has_put_on_the_log_is_not_written_over(rig: FlowRig) -> None:
    """Its driver has read of it, and not heard of it yet."""
    state = await rig.owner(AUTO)
    assigned(state)
    await rig.write(rig.target, "A.t", 40)
    await ends(state, position=40, until=37, reason="FOREIGN_WRITE", tell=False)
    await state.confirm()
    await state.plan_is_stale(frozenset([P]))
    other = await rig.owner(AUTO)
    assert kind(other) == (False, 37, "FOREIGN_WRITE", 0, 0)


async def test_a_doubt_that_could_not_be_put_on_the_log_is_raised_again(rig: FlowRig) -> None:
    await rig.owner(AUTO)
    await rig.mirror_maker_stores(8)
    state = await rig.process(AUTO)

    def refuse(call: Call) -> None:
        if b'"copy"' in (call.arguments.get("key") or b""):
            raise from_code(7, call.operation, alias="B")

    remove = rig.target.hooks.add("append", refuse, after=False)
    with pytest.raises(KafkaError, match="append"):
        await state.take_over(displaced=False)
    remove()
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert kind(await rig.owner(AUTO)) == (False, 0, "POSITION_STORED", 0, 0)


async def test_a_copy_that_others_may_have_written_is_translated(rig: FlowRig) -> None:
    """MirrorMaker 2 stored a position: what it wrote has offsets of its own."""
    await rig.owner(AUTO)
    await rig.mirror_maker_stores(8)
    state = await rig.owner(AUTO)
    assert kind(state) == (False, 0, "POSITION_STORED", 0, 0)
    assert state.table.rows[P].position == 8


async def test_an_owner_that_left_does_not_take_what_was_written_since_for_its_own(rig: FlowRig) -> None:
    state = await rig.owner(AUTO)
    await state.journal.position(P, 4)
    await state.leave()
    await rig.mirror_maker_stores(8)
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert kind(state) == (False, 0, "POSITION_STORED", 0, 0)


async def test_a_position_behind_those_of_an_owner_that_stopped_in_order_is_known_at_once(
    rig: FlowRig,
) -> None:
    """MirrorMaker 2 copied for a moment: its word counts, so nothing is repeated."""
    first = await rig.owner(AUTO)
    await first.journal.position(P, 4)
    await first.leave()
    assert kind(await rig.owner(AUTO)) == (True, 0, "", 0, 0)
    second = await rig.owner(AUTO)
    await second.leave()
    await rig.mirror_maker_stores(8)
    state = await rig.owner(AUTO)
    assert kind(state) == (False, 0, "POSITION_STORED", 0, 0)
    assert state.table.rows[P].position == 8


async def test_who_was_displaced_does_not_say_where_it_left(rig: FlowRig) -> None:
    """It would call positions of the owner after it a stranger's."""
    first = await rig.owner(AUTO)
    second = await rig.owner(AUTO)
    with pytest.raises(FatalKafkaError, match="taken"):
        await first.leave()
    await second.journal.position(P, 4)
    assert kind(await rig.owner(AUTO)) == (True, 0, "", 0, 0)


async def test_a_copy_that_an_older_version_continued_is_translated(rig: FlowRig) -> None:
    first = await rig.owner(AUTO)
    await first.journal.position(P, 8)
    await first.journal.record(OwnerFact(instance="old", slots=1, renewed_at_ms=1, keeps_offsets=False))
    state = await rig.owner(AUTO)
    assert kind(state) == (False, 0, "POSITION_STORED", 0, 0)
    assert kind(await rig.owner(AUTO)) == (False, 0, "POSITION_STORED", 0, 0)


async def test_a_preserved_copy_is_never_told_to_have_lost_its_tail(rig: FlowRig) -> None:
    """Its task sees where it ends, and copies again what it lost."""
    await rig.write(rig.target, "A.t", 0)
    state = await rig.owner(AUTO)
    reported(state, position=50, target_end=50, source_end=50)
    await state.target_logs.look_at_ends(state.topics, copying=False)
    await state.target_logs.put_ends_on_log(state.topics)
    assert ledger(state) == []
    assert P not in state.positions.control.targets


async def test_a_copy_is_not_handed_out_before_its_kind_is_on_the_log(rig: FlowRig) -> None:
    state = await rig.process(AUTO)
    await state.take_over(displaced=False)

    def refuse(call: Call) -> None:
        raise from_code(7, call.operation, alias="B")

    remove = rig.target.hooks.add("append", refuse, after=False)
    with pytest.raises(KafkaError, match="append"):
        await state.refresh(owned=frozenset())
    assert state.table.plannable() == frozenset()
    remove()
    await state.refresh(owned=frozenset())
    assert kind(state)[0]


def test_the_words_of_an_earlier_task_do_not_count_for_a_new_one() -> None:
    fact = CopyFact(partition=P, preserved=True, since=0, reason="", target_topic_id="x")
    report = PartitionReport(partition=P, position=0, needs_translation=True)
    row = PartitionRow(partition=P, copy=fact, report=report)
    assert row.needs_translation
    PartitionTable(rows={P: row}).apply(Assigned(partition=P, slot=0), 1.0)
    assert not row.needs_translation
