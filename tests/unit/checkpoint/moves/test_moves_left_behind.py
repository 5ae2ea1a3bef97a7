"""What a finished run left behind, and whether it is about all groups."""

from dataclasses import replace

import pytest

from twinlog.batches import EndMarker
from twinlog.errors import FatalKafkaError, StateError
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog_checkpoint.moves.planning.outcome import left_behind
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePartition
from twinlog_checkpoint.translation.translation import Translation, Verdict
from unit.checkpoint.dead_leader import kill_coordinator
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import (
    NO_WAIT,
    MoveRig,
    actions,
    last_run,
    move_rig,
    moved,
    offset_of,
    run,
)


def _moved(verdict: Verdict, action: MoveAction) -> MovePartition:
    return MovePartition(
        group="g",
        from_partition=COPY,
        to_partition=ORIGIN,
        from_offset=7,
        present_offset=None,
        translation=Translation(verdict=verdict, downstream_offset=None, message="why"),
        action=action,
        message="why",
    )


@pytest.mark.parametrize("verdict", [Verdict.NOT_READY, Verdict.SOURCE_UNREADABLE, Verdict.TARGET_UNREADABLE])
def test_a_run_is_not_done_while_an_offset_cannot_be_translated_for_now(verdict: Verdict) -> None:
    """As when the offset syncs of the flow the other way are still being read."""
    (reason,) = left_behind([_moved(verdict, MoveAction.SKIP_NO_OFFSET)], [], drained=True, accepted=False)
    assert reason == "offsets that could not be translated now: g: why"


def test_many_offsets_without_a_place_are_told_by_their_cause() -> None:
    entries = [
        replace(
            _moved(Verdict.NO_SYNC, MoveAction.SKIP_NO_OFFSET), from_partition=TopicPartition("t", number)
        )
        for number in range(100)
    ]
    (reason,) = left_behind(entries, [], drained=True, accepted=False)
    assert "g on t-0, t-1, t-2, t-3, t-4 and 95 more: NO_SYNC, why." in reason
    (reason,) = left_behind(
        [replace(each, group=f"g{each.from_partition.partition}") for each in entries],
        [],
        drained=True,
        accepted=False,
    )
    assert (
        "g0 on t-0: NO_SYNC, why; g1 on t-1: NO_SYNC, why; g10 on t-10: NO_SYNC, why; and 97 more." in reason
    )


@pytest.mark.parametrize(
    ("verdict", "action"),
    [
        (Verdict.NO_SYNC, MoveAction.SKIP_NO_OFFSET),
        (Verdict.TOO_OLD, MoveAction.SKIP_NO_OFFSET),
        (Verdict.EXACT, MoveAction.SKIP_NO_PARTITION),
    ],
)
def test_a_run_is_not_done_while_an_offset_on_a_copied_topic_has_no_place(
    verdict: Verdict, action: MoveAction
) -> None:
    moved = [_moved(verdict, action)]
    (reason,) = left_behind(moved, [], drained=True, accepted=False)
    assert f"g on {COPY}" in reason
    assert "why" in reason
    assert "--accept-loss" in reason
    assert left_behind(moved, [], drained=True, accepted=True) == []


def test_what_no_flow_copies_does_not_keep_a_run_from_being_done() -> None:
    moved = [_moved(Verdict.NOT_REPLICATED, MoveAction.SKIP_NO_OFFSET)]
    assert left_behind(moved, [], drained=True, accepted=False) == []


async def test_the_record_says_what_a_finished_run_left_behind(rig: MoveRig) -> None:
    """`failover status` says so after a restart of the service, until a run leaves nothing behind."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.produce(7)
    _, report = await run(rig.served.failover)
    (reason,) = report.left_behind
    assert str(ORIGIN) in reason
    assert last_run(await rig.served.failover.recorded()).left_behind == (reason,)
    _, accepted = await run(rig.served.failover, MoveOptions(accept_loss=True, wait_seconds=0))
    assert accepted.left_behind == []
    assert last_run(await rig.served.failover.recorded()).left_behind == ()


async def test_a_group_whose_commit_is_refused_keeps_no_other_group_from_moving(rig: MoveRig) -> None:
    """One that is a share group there, or that Twinlog has no right for."""
    for group in ("g", "secret", "z"):
        rig.logs.source.set_group(group, {ORIGIN: 100})

    def refuse(call: Call) -> None:
        if call.arguments["group_id"] == "secret":
            error = FatalKafkaError("no right", reason="GROUP_UNAUTHORIZED")
            call.result.update(dict.fromkeys(call.result, error))

    undo = rig.logs.target.intercept("alter_group_offsets", refuse, after=True)
    _, report = await run(rig.served.failover, MoveOptions(wait_seconds=0, fence=True))
    (reason,) = report.left_behind
    assert reason.startswith("commits that were refused: secret: no right")
    assert actions(report.plan)["secret"] is MoveAction.SKIP_REFUSED
    assert await offset_of(rig.logs.target, "z", COPY) is not None
    record = await rig.served.failover.recorded()
    assert moved(record) == ["g", "z"]
    undo()
    _, report = await run(rig.served.failover)
    assert report.left_behind == []


async def test_a_group_on_an_empty_partition_continues_at_the_start_of_its_empty_copy() -> None:
    """What is written there first after the move must not be left to its auto.offset.reset."""
    empty, copy = TopicPartition("empty", 0), TopicPartition("A.empty", 0)
    async with move_rig() as rig:
        rig.logs.source.add_topic("empty")
        rig.logs.target.add_topic("A.empty")
        rig.logs.source.set_group("g", {ORIGIN: 100, empty: 0})
        _, report = await run(rig.served.failover)
        assert report.left_behind == []
        assert await offset_of(rig.logs.target, "g", copy) == 0


async def test_a_run_refuses_what_its_plan_refuses_and_moves_what_is_accepted() -> None:
    """No group is moved in part unless the plan says so: no flow copies a topic, or the loss is accepted."""
    late, excluded = TopicPartition("late", 0), TopicPartition("__secret", 0)
    async with move_rig() as rig:
        for topic in (late.topic, excluded.topic):
            rig.logs.source.add_topic(topic)
        rig.logs.source.set_group("g", {ORIGIN: 100, late: 0})
        rig.logs.source.set_group("other", {ORIGIN: 100, excluded: 0})
        rig.logs.source.set_group("busy", {late: 0, ORIGIN: 7}, state="STABLE", member_count=1)
        plan = await rig.served.failover.plan(NO_WAIT)
        (reason,) = plan.blockers
        assert "g on late-0: NO_SYNC" in reason
        assert "busy" not in reason
        with pytest.raises(StateError, match="g on late-0") as refused:
            await run(rig.served.failover)
        assert refused.value.reason == "MOVE_BLOCKED"
        assert await offset_of(rig.logs.target, "g", COPY) is None
        _, some = await run(rig.served.failover, MoveOptions(groups=("other",), wait_seconds=0))
        assert some.left_behind == []
        accepting = MoveOptions(groups=("g",), wait_seconds=0, accept_loss=True)
        assert (await rig.served.failover.plan(accepting)).blockers == []
        _, accepted = await run(rig.served.failover, accepting)
        assert accepted.left_behind == []
        assert await offset_of(rig.logs.target, "g", COPY) is not None


async def test_a_group_whose_loss_was_accepted_keeps_no_later_plan_from_moving_the_others(
    rig: MoveRig,
) -> None:
    """Whether some of its offsets have a place, or none."""
    rig.logs.source.set_group("some", {ORIGIN: 100})
    nowhere = TopicPartition("late", 0)
    rig.logs.source.add_topic(nowhere.topic)
    for group in ("some", "none"):
        rig.logs.source.set_group(group, {nowhere: 0})
        accepting = MoveOptions(groups=(group,), wait_seconds=0, accept_loss=True)
        await run(rig.served.failover, accepting)
    rig.logs.source.set_group("other", {ORIGIN: 100})
    rest = await rig.served.failover.plan(NO_WAIT)
    assert (rest.blockers, actions(rest)["other"]) == ([], MoveAction.WRITE)
    await run(rig.served.failover)
    assert moved(await rig.served.failover.recorded()) == ["none", "other", "some"]
    rig.logs.source.set_group("none", {nowhere: 1})
    assert (await rig.served.failover.plan(NO_WAIT)).blockers, "it went on where it was"
    await run(rig.served.failback)
    assert not (await rig.served.failback.recorded()).on_target


async def test_a_group_whose_loss_was_accepted_moves_when_it_is_named_and_has_a_place_meanwhile(
    rig: MoveRig,
) -> None:
    rig.logs.source.set_group("g", {ORIGIN: rig.source_end + 5})
    await run(rig.served.failover, MoveOptions(wait_seconds=0, accept_loss=True))
    rig.logs.produce(100)
    await rig.copy()
    _, all_others = await run(rig.served.failover)
    assert all_others.already_done
    assert await offset_of(rig.logs.target, "g", COPY) is None
    await run(rig.served.failover, MoveOptions(groups=("g",), wait_seconds=0))
    assert await offset_of(rig.logs.target, "g", COPY) is not None


async def test_an_offset_whose_records_are_still_to_be_copied_is_waited_for() -> None:
    late = TopicPartition("late", 0)
    async with move_rig() as rig:
        rig.logs.source.add_topic(late.topic)
        rig.logs.source.append(late, rig.logs.visible_source()[0])
        rig.logs.source.set_group("g", {late: 0})
        plan = await rig.served.failover.plan(NO_WAIT)
        assert (plan.blockers, plan.records_not_copied) == ([], 1)


async def test_a_plan_names_groups_that_were_started_too_early_where_they_move_to(rig: MoveRig) -> None:
    """At the end of the copy, say: nobody moves them back, and nobody has read what lies before."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    end = rig.logs.visible_target()[-1].offset
    rig.logs.target.set_group("g", {COPY: end})
    told = [each for each in (await rig.served.failover.plan(NO_WAIT)).warnings if "ahead of A" in each]
    assert [each.partition(":")[0] for each in told] == ["group g"]
    await run(rig.served.failover)
    rig.logs.target.set_group("g", {COPY: end + 1})
    assert not [each for each in (await rig.served.failover.plan(NO_WAIT)).warnings if "ahead" in each]


async def test_a_group_behind_the_marker_of_the_last_record_is_not_ahead(rig: MoveRig) -> None:
    last = replace(rig.logs.visible_source()[-1], value=b"last")
    for cluster, partition in ((rig.logs.source, ORIGIN), (rig.logs.target, COPY)):
        cluster.append_transaction(partition, [last], EndMarker.COMMIT)
    end = rig.logs.target.log(COPY).end_offset
    rig.logs.source.set_group("g", {ORIGIN: rig.logs.visible_source()[-1].offset + 1})
    rig.logs.target.set_group("g", {COPY: end})
    plan = await rig.served.failover.plan(NO_WAIT)
    rig.logs.target.set_group("g", {COPY: end - 1})
    same = await rig.served.failover.plan(NO_WAIT)
    assert (actions(plan), actions(same)) == ({"g": MoveAction.ALREADY_THERE}, {"g": MoveAction.WRITE})
    assert not [each for each in plan.warnings if "ahead" in each]


async def test_a_plan_says_of_no_group_that_it_has_no_offset_while_nobody_tells_of_it(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover)
    await run(rig.served.failback)
    kill_coordinator(rig.logs.source, "g", lookup="group_offsets")
    plan = await rig.served.failover.plan(NO_WAIT)
    assert "without one on A" not in "".join(plan.warnings)


async def test_a_failback_names_what_a_group_has_no_offset_of_where_it_works(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover)
    assert "without one on B" not in "".join((await rig.served.failback.plan(NO_WAIT)).warnings)
    rig.logs.target.kafka.groups.offsets["g"].clear()
    plan = await rig.served.failback.plan(NO_WAIT)
    named = await rig.served.failback.plan(MoveOptions(groups=("other",), wait_seconds=0))
    assert plan.partitions == []
    told = f"group g: 1 offset on A without one on B, so nothing moves there: {ORIGIN}"
    assert told in plan.warnings
    assert told not in named.warnings


async def test_a_plan_says_that_a_move_is_running(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    first = rig.served.failover.run(NO_WAIT)
    await anext(first)
    for runner in (rig.served.failover, rig.served.failback):
        (running,) = (await runner.plan(NO_WAIT)).blockers
        assert running == "a move of A->B is running: `twinlog failover watch 'A->B'` shows it"
    await first.aclose()
