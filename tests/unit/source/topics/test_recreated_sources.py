"""Source topics that were deleted and created again: the new topic is copied from its beginning, once."""

import pytest

from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import TIMEOUT, from_code, from_reason
from twinlog.testing.fakes.cluster_hooks import Call
from twinlog_source.topics.position_finder import BLOCKER_RETRY_SECONDS
from unit.source.flow_rig import FlowRig, P, ledger, reported
from unit.source.topics.lost_copies_rig import AUTO, PRESERVED, TRANSLATED

LATEST = "A.consumer.auto.offset.reset = latest"
NO_ANSWER = from_reason(TIMEOUT, "describe topics", alias="A")
UNKNOWN_TO_A_LAGGING_BROKER = from_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "describe topics", alias="A")


@pytest.mark.parametrize("error", [NO_ANSWER, UNKNOWN_TO_A_LAGGING_BROKER])
async def test_a_look_at_ids_that_fails_does_not_bring_the_id_of_the_deleted_topic_back(
    rig: FlowRig, error: Exception
) -> None:
    """configsync looks less often, and still reports the deleted topic."""
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(TRANSLATED)
    await state.journal.position(P, 9)
    reported(state, position=9, source_end_offset=9)
    rig.source.add_topic("t")
    await rig.write(rig.source, "t", 5)
    rig.clock.advance(2)
    assert await state.plan_is_stale(frozenset([P]))
    await state.refresh(owned=frozenset())
    await state.journal.position(P, 5)
    reported(state, position=5, source_end_offset=5)

    def fail(call: Call) -> None:
        call.result["t"] = error

    undo = rig.source.intercept("describe_topics", fail, after=True)
    rig.clock.advance(2)
    assert not await state.refresh(owned=frozenset([P])), "its task copies on"
    undo()
    rig.clock.advance(2)
    assert not await state.refresh(owned=frozenset([P]))
    assert (state.table.rows[P].position, ledger(state)) == (5, [])
    assert state.control.topics["t"].topic_id == rig.source.topics["t"].topic_id


async def test_the_id_of_a_topic_that_left_is_forgotten(rig: FlowRig) -> None:
    """It may come back as another topic, at a moment when the source does not answer."""
    state = await rig.owner(TRANSLATED)
    topic = state.watch.topics(state.flow.flow)["t"]
    rig.say(state.watch, has_topic=False)
    rig.clock.advance(2)
    await state.refresh(owned=frozenset())
    rig.source.add_topic("t")
    rig.say(state.watch)

    def fail(call: Call) -> None:
        call.result["t"] = NO_ANSWER

    rig.source.intercept("describe_topics", fail, after=True)
    rig.clock.advance(2)
    await state.refresh(owned=frozenset())
    assert state.topics["t"].source_topic_id != topic.source_topic_id


@pytest.mark.parametrize("began_by", ["retention", "latest"])
@pytest.mark.parametrize("offsets", [TRANSLATED, AUTO, PRESERVED])
async def test_a_topic_that_is_recreated_before_its_position_was_stored_begins_at_its_first_record(
    rig: FlowRig, offsets: str, began_by: str
) -> None:
    """Also where the source's offsets are required and refused, so that nothing was decided."""
    await rig.write(rig.source, "t", 9)
    if offsets == PRESERVED:
        await rig.write(rig.target, "A.t", 3)
    if began_by == "retention":
        await rig.source.delete_records({P: 9})
    state = await rig.owner(offsets, LATEST if began_by == "latest" else "")
    assert state.table.rows[P].position == 9
    assert P not in await state.positions.refresh()
    rig.clock.advance(2)
    rig.source.add_topic("t")
    await rig.write(rig.source, "t", 20)
    await state.refresh(owned=frozenset())
    # What was set aside is looked at again after a while.
    rig.clock.advance(BLOCKER_RETRY_SECONDS)
    await state.refresh(owned=frozenset())
    assert (state.table.rows[P].position, ledger(state)) == (0, [])


@pytest.mark.parametrize("offsets", [TRANSLATED, AUTO])
async def test_what_a_deleted_topic_had_behind_a_position_that_was_never_stored_is_a_gap(
    rig: FlowRig, offsets: str
) -> None:
    """Its first task was killed before it had stored anything."""
    await rig.write(rig.source, "t", 9)
    await rig.source.delete_records({P: 9})
    state = await rig.owner(offsets)
    await rig.write(rig.source, "t", 4)
    reported(state, position=9, source_end_offset=13)
    await state.reread([P])
    rig.source.add_topic("t")
    rig.clock.advance(2)
    await state.refresh(owned=frozenset())
    assert (state.table.rows[P].position, ledger(state)) == (0, [(9, 13, "TOPIC_RECREATED")])
