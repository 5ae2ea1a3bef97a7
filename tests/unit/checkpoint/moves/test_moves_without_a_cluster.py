"""Moves while one of the clusters does not answer."""

import pytest

from twinlog.errors import StateError, TransientKafkaError
from twinlog.kafka.outage import NO_OUTAGE, Outage
from twinlog.moves.record import Step
from twinlog_checkpoint.assembly import assemble_moves
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.running.run_record import StepState
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.checkpoint_rig import A_TO_B
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, offset_of, run


async def test_with_the_source_gone_checkpoints_say_where_to_go_on(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.fakes.clock.advance(60)
    await rig.fakes.do_pass(rig.parts.checkpointer)
    rig.logs.source.take_away()
    plan = await rig.served.failover.plan(NO_WAIT)
    assert any("--accept-loss" in blocker for blocker in plan.blockers)
    (missing,) = plan.backlog
    assert missing.records_not_copied is None
    assert f"ended at {rig.source_end}" in missing.message
    with pytest.raises(StateError) as refused:
        await run(rig.served.failover)
    assert refused.value.reason == "MOVE_BLOCKED"
    steps, report = await run(rig.served.failover, MoveOptions(accept_loss=True))
    written = await offset_of(rig.logs.target, "g", COPY)
    rig.logs.check(100, written or 0)
    assert [entry.translation.verdict for entry in report.plan.partitions] == [Verdict.EXACT]
    assert report.plan.records_not_copied is None
    assert {step.step for step in steps if step.state is StepState.SKIPPED} == {
        Step.FENCE,
        Step.FINAL_OFFSETS,
        Step.DRAIN,
    }


async def test_a_restarted_service_moves_with_the_source_gone_by_checkpoints_alone(rig: MoveRig) -> None:
    """The offset syncs are on the source, so they cannot be read; the checkpoints on the target can."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.fakes.clock.advance(60)
    await rig.fakes.do_pass(rig.parts.checkpointer)
    rig.logs.source.take_away()
    restarted = rig.fakes.parts()
    served = assemble_moves({A_TO_B: restarted}, rig.fakes.around())[A_TO_B]
    plan = await served.failover.plan(MoveOptions(accept_loss=True))
    assert any("checkpoints have not been read" in blocker for blocker in plan.blockers)
    with pytest.raises(TransientKafkaError):
        await rig.fakes.do_pass(restarted.checkpointer)
    _, report = await run(served.failover, MoveOptions(accept_loss=True))
    written = await offset_of(rig.logs.target, "g", COPY)
    rig.logs.check(100, written or 0)
    assert [entry.translation.verdict for entry in report.plan.partitions] == [Verdict.FLOOR]


async def test_a_group_without_checkpoint_is_named_when_the_source_is_gone(rig: MoveRig) -> None:
    rig.logs.source.take_away()
    plan = await rig.served.failover.plan(MoveOptions(accept_loss=True, groups=("nobody",)))
    assert plan.blockers == ["groups without a checkpoint on B: nobody"]


async def test_a_target_that_is_away_is_named(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.target.take_away()
    plan = await rig.served.failover.plan(NO_WAIT)
    back = await rig.served.failback.plan(MoveOptions(accept_loss=True))
    for runner, words in (
        (rig.served.failover, "B refuses the login, and the groups would move there"),
        (rig.served.failback, "B refuses the login, so"),
    ):
        refuses = Outage(reason="AUTHENTICATION_FAILED")
        runner.planner.outage = {"A": NO_OUTAGE, "B": refuses}.__getitem__
        with pytest.raises(StateError, match=words) as refused:
            await run(runner)
        assert refused.value.reason == "MOVE_BLOCKED"
    assert plan.blockers == ["B does not answer, and the groups would move there: start broker 1 at B:9092"]
    assert plan.from_reachable
    assert plan.records_not_copied is None
    (blocker,) = back.blockers
    assert "not known: start broker 1 at B:9092. Only if it is lost, start the groups on A" in blocker
    assert back.warnings == []


async def test_a_cluster_that_died_after_the_last_probe_counts_as_away(rig: MoveRig) -> None:
    rig.served.failover.planner.outage = lambda alias: NO_OUTAGE
    rig.logs.source.take_away()
    plan = await rig.served.failover.plan(NO_WAIT)
    assert not plan.from_reachable
    assert any("A does not answer" in blocker for blocker in plan.blockers)
