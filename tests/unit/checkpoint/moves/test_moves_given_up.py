"""Moves that are aborted: what stays fenced, and where the groups may work."""

import pytest

from twinlog.errors import StateError, TransientKafkaError
from twinlog.moves.record import Step
from twinlog.testing.fakes.cluster import Call
from twinlog.write_blocks import fence_of
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.running.run_record import StepEvent, StepState
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, last_run, offset_of, run
from unit.checkpoint.moves.test_move_truth import refused_for_the_backlog


async def test_a_run_that_was_cut_can_be_aborted_and_leaves_no_fence(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    cut = rig.served.failover.run(MoveOptions(wait_seconds=0, fence=True))
    async for event in cut:
        if isinstance(event, StepEvent) and event.step is Step.FENCE:
            break
    await cut.aclose()
    assert rig.logs.source.acls
    with pytest.raises(StateError) as refused:
        await rig.served.failback.abort("ann")
    assert refused.value.reason == "NOTHING_TO_ABORT"
    assert (await rig.served.failover.abort("ann")).unfenced_topics == [ORIGIN.topic]
    assert not rig.logs.source.acls
    with pytest.raises(StateError) as refused:
        await rig.served.failover.abort("ann")
    assert refused.value.reason == "NOTHING_TO_ABORT"
    plan = await rig.served.failover.plan(NO_WAIT)
    assert plan.last is not None
    assert (plan.last.finished, plan.last.aborted, plan.fenced_topics) == (True, True, [])
    _, report = await run(rig.served.failover)
    assert not report.already_done
    assert await offset_of(rig.logs.target, "g", COPY) is not None


async def test_a_run_without_a_fence_is_aborted_while_the_source_is_away(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    cut = rig.served.failover.run(NO_WAIT)
    async for event in cut:
        if isinstance(event, StepEvent) and event.step is Step.FENCE:
            break
    await cut.aclose()
    rig.logs.source.take_away()
    assert (await rig.served.failover.abort("ann")).unfenced_topics == []


async def test_a_finished_failover_is_not_aborted_but_taken_back(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover, MoveOptions(wait_seconds=0, fence=True))
    with pytest.raises(StateError, match="failback run 'A->B'") as refused:
        await rig.served.failover.abort("ann")
    assert refused.value.reason == "NOTHING_TO_ABORT"
    assert rig.logs.source.acls


@pytest.mark.parametrize(("step", "on_target"), [(Step.FENCE, False), (Step.COMMIT, True)])
async def test_the_record_says_whether_groups_may_work_on_the_target(
    rig: MoveRig, step: Step, on_target: bool
) -> None:
    """Also of a run that was given up: configsync deletes no copy that they may work with."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    cut = rig.served.failover.run(MoveOptions(wait_seconds=0, fence=True))
    async for event in cut:
        if isinstance(event, StepEvent) and (event.step, event.state) == (step, StepState.DONE):
            break
    await cut.aclose()
    await rig.served.failover.abort("ann")
    given_up = await rig.served.failover.journal.load()
    await run(rig.served.failover)
    moved = await rig.served.failover.journal.load()
    await run(rig.served.failback)
    back = await rig.served.failover.journal.load()
    assert (last_run(given_up).aborted, given_up.on_target) == (True, on_target)
    assert (moved.on_target, back.on_target) == (True, False)


async def test_a_failback_that_was_given_up_leaves_the_groups_on_the_target(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover)
    cut = rig.served.failback.run(MoveOptions(wait_seconds=0, fence=True))
    async for event in cut:
        if isinstance(event, StepEvent) and event.step is Step.FENCE:
            break
    await cut.aclose()
    await rig.served.failback.abort("ann")
    given_up = await rig.served.failback.journal.load()
    assert (last_run(given_up).aborted, given_up.on_target) == (True, True)


async def test_giving_a_run_up_leaves_the_fence_of_the_failover_before_it(rig: MoveRig) -> None:
    """The groups of the first one work on the target: only the failback lets writers in again."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover, MoveOptions(wait_seconds=0, fence=True))
    rig.logs.source.set_group("late", {ORIGIN: 100})
    rig.logs.produce(40)
    await refused_for_the_backlog(rig, MoveOptions(wait_seconds=5))
    await rig.copy()

    def fail(call: Call) -> None:
        raise TransientKafkaError("the broker went away")

    undo = rig.logs.target.intercept("alter_group_offsets", fail)
    with pytest.raises(TransientKafkaError):
        await run(rig.served.failover, MoveOptions(wait_seconds=5))
    undo()
    assert (await rig.served.failover.abort("ann")).unfenced_topics == []
    assert fence_of(ORIGIN.topic) in rig.logs.source.acls
    plan = await rig.served.failover.plan(NO_WAIT)
    assert plan.fenced_topics == [ORIGIN.topic]
    other_way = await rig.back_to_front().failover.plan(NO_WAIT)
    assert any("failback run 'A->B'" in blocker for blocker in other_way.blockers)
    await run(rig.served.failback)
    assert not rig.logs.source.acls
