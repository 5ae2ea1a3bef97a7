"""A group that a move has finished stays where its consumers or its operator have put it since, also when
other groups are moved later."""

from collections.abc import Awaitable, Callable

import pytest

from twinlog.model import TopicPartition
from twinlog.moves.record import Step
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, actions, offset_of, run
from unit.checkpoint.moves.test_sync_after_moves import ONLY_G, run_until, synced, translated


async def nothing(rig: MoveRig) -> None:
    pass


async def failback_of_another_group(rig: MoveRig) -> None:
    await run(rig.served.failback, ONLY_G)


async def failback_and_failover_of_another_group(rig: MoveRig) -> None:
    await run(rig.served.failback, ONLY_G)
    await run(rig.served.failover, ONLY_G)


async def failback_that_is_given_up(rig: MoveRig) -> None:
    await run_until(rig.served.failback.run(NO_WAIT), Step.CHECK)
    await rig.served.failback.abort("ann")


@pytest.mark.parametrize(
    "between",
    [
        nothing,
        failback_of_another_group,
        failback_and_failover_of_another_group,
        failback_that_is_given_up,
    ],
)
async def test_a_later_failover_does_not_undo_a_reset_on_the_target(
    rig: MoveRig, between: Callable[[MoveRig], Awaitable[None]]
) -> None:
    await translated(rig, g=100, other=100)
    await run(rig.served.failover)
    await between(rig)
    rig.logs.target.set_group("other", {COPY: 0})
    plan = await rig.served.failover.plan(NO_WAIT)
    assert actions(plan).get("other") is not MoveAction.WRITE
    await run(rig.served.failover)
    assert await offset_of(rig.logs.target, "other", COPY) == 0
    assert await synced(rig, "other") == 0


@pytest.mark.parametrize("is_synced", [False, True])
async def test_a_later_failback_does_not_undo_a_reset_on_the_source(rig: MoveRig, is_synced: bool) -> None:
    """What sync.group.offsets has committed on the target since is no progress of the group there."""
    await translated(rig, g=100, other=100)
    await run(rig.served.failover)
    await run(rig.served.failback)
    await run(rig.served.failover, ONLY_G)
    if is_synced:
        before = await offset_of(rig.logs.target, "other", COPY) or 0
        await translated(rig, other=200)
        assert (await synced(rig, "other") or 0) > before
    rig.logs.source.set_group("other", {ORIGIN: 0})
    await run(rig.served.failback)
    assert await offset_of(rig.logs.source, "other", ORIGIN) == 0


async def failover_that_is_cut(rig: MoveRig) -> None:
    await run_until(rig.served.failover.run(NO_WAIT), Step.VERIFY)


async def failover_that_is_given_up(rig: MoveRig) -> None:
    await failover_that_is_cut(rig)
    await rig.served.failover.abort("ann")


async def failover_that_cannot_finish_it(rig: MoveRig) -> None:
    rig.logs.source.add_topic("new")
    rig.logs.source.set_group("other", {ORIGIN: 100, TopicPartition("new", 0): 0})
    await run(rig.served.failover, MoveOptions(accept_loss=True))


@pytest.mark.parametrize(
    "second", [failover_that_is_cut, failover_that_is_given_up, failover_that_cannot_finish_it]
)
async def test_a_failback_names_a_group_that_works_on_the_target_because_of_an_unfinished_failover(
    rig: MoveRig, second: Callable[[MoveRig], Awaitable[None]]
) -> None:
    """It stands there where the failback before found it."""
    await translated(rig, g=100, other=100)
    await run(rig.served.failover)
    await run(rig.served.failback)
    await second(rig)
    at = await offset_of(rig.logs.target, "other", COPY)
    assert at is not None
    rig.logs.target.set_group("other", {COPY: at}, state="STABLE", member_count=1)
    _, report = await run(rig.served.failback)
    assert "groups with members were not moved: other" in report.left_behind
    last = await rig.served.failback.recorded()
    assert last.on_target


async def test_a_group_that_has_members_again_where_it_was_is_not_taken_for_moved(rig: MoveRig) -> None:
    await translated(rig, g=100, other=100)
    await run(rig.served.failover)
    rig.logs.source.set_group("other", {ORIGIN: 100}, state="STABLE", member_count=1)
    _, report = await run(rig.served.failover)
    assert "groups with members were not moved: other" in report.left_behind


async def test_the_plan_shows_nothing_of_a_moved_group_that_a_run_would_not_do(rig: MoveRig) -> None:
    await translated(rig, g=100, other=100)
    await run(rig.served.failover)
    at = await offset_of(rig.logs.target, "other", COPY)
    assert at is not None
    rig.logs.target.set_group("other", {COPY: at}, state="STABLE", member_count=1)
    plan = await rig.served.failover.plan(NO_WAIT)
    assert "other" not in actions(plan)
    assert not [warning for warning in plan.warnings if "other" in warning]


@pytest.mark.parametrize("source_is_away", [False, True])
@pytest.mark.parametrize("between", [nothing, failback_of_another_group])
async def test_a_moved_group_whose_offsets_are_gone_on_the_target_moves_again(
    rig: MoveRig, between: Callable[[MoveRig], Awaitable[None]], source_is_away: bool
) -> None:
    """They expired, or the group was deleted: its consumers would begin where auto.offset.reset says."""
    await translated(rig, g=100, other=100)
    await run(rig.served.failover)
    await between(rig)
    await rig.logs.target.delete_groups(["other"])
    if source_is_away:
        rig.logs.source.take_away()
    else:
        assert actions(await rig.served.failover.plan(NO_WAIT))["other"] is MoveAction.WRITE
    await run(rig.served.failover, MoveOptions(wait_seconds=0, accept_loss=source_is_away))
    assert await offset_of(rig.logs.target, "other", COPY) is not None


async def test_a_group_whose_offsets_are_gone_on_the_source_moves_back_again(rig: MoveRig) -> None:
    """The source was rebuilt, for example."""
    await translated(rig, g=100, other=100)
    await run(rig.served.failover)
    await run(rig.served.failback)
    await run(rig.served.failover, ONLY_G)
    await rig.logs.source.delete_groups(["other"])
    await run(rig.served.failback)
    assert await offset_of(rig.logs.source, "other", ORIGIN) is not None
