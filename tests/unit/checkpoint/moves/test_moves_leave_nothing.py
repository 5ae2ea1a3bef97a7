"""Whatever moves ran before, were cut or given up: a failback that finds no moved group with members on the
target leaves no fence, no grant and no hold."""

import random
from contextlib import suppress

import pytest

from twinlog.errors import TwinlogError
from twinlog.moves.record import Step
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_checkpoint.groups.progress import SyncHold, sync_hold
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.running.run_record import StepEvent
from twinlog_checkpoint.moves.running.runner import MoveRunner
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import MoveRig, move_rig, run
from unit.checkpoint.moves.test_failback_groups import WRITER
from unit.checkpoint.moves.test_sync_after_moves import translated

SEEDS = (*range(30), 144, 158, 175, 428, 481)
"""In the last ones a group works on the source after a failover that did not record its groups."""
GROUPS = ("g", "other", "third")
STEPS = (Step.CHECK, Step.FENCE, Step.FINAL_OFFSETS, Step.COMMIT, Step.VERIFY, Step.UNFENCE, Step.DONE)
ACTS = ("move", "move", "move", "cut", "cut", "abort", "work", "rest", "delete")


async def cut(runner: MoveRunner, options: MoveOptions, step: Step) -> None:
    events = runner.run(options)
    async for event in events:
        if isinstance(event, StepEvent) and event.step is step:
            break
    await events.aclose()


def stop_all(cluster: FakeCluster) -> None:
    for group in cluster.groups:
        if group != "bi":
            cluster.set_group(group)


async def act(rig: MoveRig, chance: random.Random) -> str:
    """Do something that operators or consumers may do; return what it was."""
    what, group = chance.choice(ACTS), chance.choice(GROUPS)
    cluster, partition = chance.choice(((rig.logs.source, ORIGIN), (rig.logs.target, COPY)))
    runner = chance.choice((rig.served.failover, rig.served.failback))
    fenced = runner is rig.served.failover and chance.random() < 0.7
    groups = () if chance.random() < 0.5 else (group,)
    options = MoveOptions(wait_seconds=0, groups=groups, fence=fenced, grant_write=fenced)
    step = chance.choice(STEPS)
    with suppress(TwinlogError):
        match what:
            case "move":
                await run(runner, options)
            case "cut":
                await cut(runner, options, step)
            case "abort":
                await runner.abort("ann")
            case "work":
                place = {partition: chance.randrange(1, 90)}
                cluster.set_group(group, place, state="STABLE", member_count=1)
            case "rest":
                stop_all(cluster)
            case "delete" if group in cluster.groups and not cluster.groups[group].has_members:
                await cluster.delete_groups([group])
    return f"{what} {group} on {cluster.alias}, {runner.planner.route.kind} of {groups} to {step}"


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_failback_leaves_nothing_of_what_ran_before(seed: int) -> None:
    chance = random.Random(seed)
    async with move_rig(seed=seed) as rig:
        await rig.logs.source.create_acls([WRITER])
        await translated(rig, **dict.fromkeys(GROUPS, 100))
        rig.logs.target.set_group("bi", {COPY: 3}, state="STABLE", member_count=1)
        told = [await act(rig, chance) for _ in range(chance.randrange(3, 15))]
        stop_all(rig.logs.target)
        _, report = await run(rig.served.failback, MoveOptions(wait_seconds=0, accept_loss=True))
        last = await rig.served.failback.journal.load()
        assert rig.logs.source.acls == {WRITER}, (told, report.left_behind)
        assert rig.logs.target.acls == set(), told
        assert not last.on_target, told
        assert sync_hold(last, running=False) == SyncHold(), told
        assert "bi" not in rig.logs.source.groups
