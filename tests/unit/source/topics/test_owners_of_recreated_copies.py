"""What owners of a flow remember of a copy whose target topic was deleted and created again."""

import pytest

from twinlog.model import TopicPartition
from twinlog_source.driver.state import FlowState
from unit.source.flow_rig import FlowRig, P, ledger, reported
from unit.source.topics.lost_copies_rig import AUTO, TRANSLATED, copied_whole, stored_whole
from unit.source.topics.test_recreated_copies import write_foreign


async def owner_before_the_last(rig: FlowRig) -> FlowState:
    """A process on standby that owned the flow before its target topic was recreated. Another one noticed
    that, and has copied five records to the new topic."""
    first = await copied_whole(rig, TRANSLATED)
    await first.leave()
    rig.target.add_topic("A.t")
    second = await rig.owner(TRANSLATED)
    await rig.write(rig.source, "t", 5)
    for _ in range(5):
        await write_foreign(rig)
    reported(second, position=25, source_end=25, target_end=5)
    await second.journal.position(P, 25)
    await second.leave()
    await rig.say(first.decisions)
    return first


async def test_an_owner_that_gets_the_flow_back_has_no_memory_of_the_former_topic(rig: FlowRig) -> None:
    first = await owner_before_the_last(rig)
    await first.take_over(displaced=False)
    await first.refresh(owned=frozenset())
    assert ledger(first) == [(0, 20, "TARGET_RECREATED")]


async def test_an_owner_that_gets_the_flow_back_forgets_where_the_former_copy_began(rig: FlowRig) -> None:
    await stored_whole(rig, AUTO)
    first = await rig.owner(AUTO)
    await rig.target.delete_records({TopicPartition("A.t", 0): 15})
    await first.target_logs.look_at_starts(first.topics)
    await first.leave()
    rig.target.add_topic("A.t")
    second = await rig.owner(AUTO)
    await rig.write(rig.target, "A.t", 20)
    await second.journal.position(P, 20)
    await second.leave()
    await rig.say(first.decisions)
    await first.take_over(displaced=False)
    await first.refresh(owned=frozenset())
    await first.leave()
    await rig.source.delete_records({P: 18})
    rig.target.add_topic("A.t")
    assert (0, 18, "TARGET_RECREATED") in ledger(await rig.owner(AUTO))


async def test_a_take_over_that_is_tried_again_forgets_the_former_topic_too(rig: FlowRig) -> None:
    """Its signature is on the log, and the answer was lost: it looks like the last owner."""
    first = await owner_before_the_last(rig)
    await first.ownership.take_over(displaced=False, reported={})  # its caller got no further
    await first.take_over(displaced=False)
    await first.refresh(owned=frozenset())
    assert ledger(first) == [(0, 20, "TARGET_RECREATED")]


async def test_an_owner_that_stays_the_owner_remembers_how_far_its_copy_reached(rig: FlowRig) -> None:
    """It takes over again after an error, and the log has an older end of the copy."""
    await rig.write(rig.source, "t", 20)
    await rig.write(rig.target, "A.t", 15)
    state = await rig.owner(TRANSLATED)
    await state.journal.position(P, 20)
    await state.reread([P])
    reported(state, position=20, source_end=20, target_end=20)
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert ledger(state) == [(15, 20, "TARGET_TRUNCATED")]


@pytest.mark.parametrize("mode", [AUTO, TRANSLATED])
async def test_a_stop_before_the_recreated_topic_is_noted_leaves_no_end_of_it(
    rig: FlowRig, mode: str
) -> None:
    """Its tasks have to give their partitions back first, and the process is stopped meanwhile."""
    state = await copied_whole(rig, TRANSLATED, then=mode)
    await state.leave()
    rig.target.add_topic("A.t")
    await rig.say(state.decisions)
    assert await state.refresh(owned=frozenset({P}))
    await state.leave()
    assert ledger(state) == []
    later = await rig.owner(AUTO)
    assert later.table.rows[P].is_preserved
    assert not any(reason == "TARGET_TRUNCATED" for *_, reason in ledger(later))


async def test_an_end_of_the_former_topic_is_not_stored_as_that_of_the_recreated_one(rig: FlowRig) -> None:
    """The recreated topic has no leader yet, so its end is not compared."""
    state = await copied_whole(rig, TRANSLATED, then=AUTO)
    rig.target.add_topic("A.t")
    await rig.say(state.decisions)
    assert await state.refresh(owned=frozenset({P}))
    await state.target_logs.put_ends_on_log(state.topics)
    later = await rig.owner(AUTO)
    assert later.table.rows[P].is_preserved
