"""A failback moves the groups that came from the source, and not those that only the target ever had; when
all are back, nothing of the failover stays."""

import re
from dataclasses import replace

import pytest

from twinlog.filters import NameFilter, PatternList
from twinlog.selection import TopicSelector
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.translation.translation import SourcePosition, Verdict
from unit.checkpoint.checkpoint_rig import A_TO_B
from unit.checkpoint.groups.test_live_rules import group_filter
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, actions, move_rig, offset_of, run
from unit.checkpoint.moves.test_move_backlog import replicated
from unit.checkpoint.moves.test_sync_after_moves import translated
from unit.checkpoint.moves.test_write_grants import rule

FENCED = MoveOptions(wait_seconds=0, fence=True, grant_write=True)
WRITER = rule()


async def failed_over(rig: MoveRig, *groups: str) -> None:
    """Fence and grants exist, and the groups work on the target."""
    await rig.logs.source.create_acls([WRITER])
    for group in groups:
        rig.logs.source.set_group(group, {ORIGIN: 100})
    await run(rig.served.failover, FENCED)
    assert len(rig.logs.source.acls) == 3
    assert rig.logs.target.acls


async def nothing_stays(rig: MoveRig) -> bool:
    record = await rig.served.failback.journal.load()
    return (rig.logs.source.acls, rig.logs.target.acls, record.on_target) == ({WRITER}, set(), False)


async def test_groups_that_only_the_target_had_stay_there_and_keep_no_fence(rig: MoveRig) -> None:
    rig.logs.target.set_group("bi", {COPY: 5}, state="STABLE", member_count=1)
    rig.logs.target.set_group("bi-idle", {COPY: 5})
    await failed_over(rig, "g")
    plan = await rig.served.failback.plan(NO_WAIT)
    assert actions(plan).keys() == {"g"}
    assert [warning for warning in plan.warnings if "bi, bi-idle" in warning]
    _, report = await run(rig.served.failback)
    assert report.left_behind == []
    assert [warning for warning in report.plan.warnings if "bi, bi-idle" in warning]
    assert "bi-idle" not in rig.logs.source.groups
    assert await nothing_stays(rig)


async def test_a_group_moves_back_from_a_copy_whose_topic_has_left_the_rules_since(rig: MoveRig) -> None:
    await failed_over(rig, "g")
    there = rig.logs.visible_target()
    rig.logs.target.set_group("g", {COPY: there[80].offset})
    nothing = NameFilter(include=PatternList("topics", ()), exclude=PatternList("x", ()))
    selector = TopicSelector(flow=A_TO_B, policy=rig.parts.entry.policy, topic_filter=nothing)
    rig.parts.checkpointer.follow(replace(rig.parts.entry, topics=selector))
    await run(rig.served.failback)
    back = await offset_of(rig.logs.source, "g", ORIGIN)
    assert next(each.value for each in rig.logs.visible_source() if each.offset == back) == there[80].value


async def test_a_group_that_only_the_target_had_moves_when_it_is_named(rig: MoveRig) -> None:
    rig.logs.target.set_group("bi", {COPY: 5})
    await run(rig.served.failback, replace(NO_WAIT, groups=("bi",)))
    assert await offset_of(rig.logs.source, "bi", ORIGIN) is not None


async def test_a_group_that_is_gone_from_the_source_moves_back(rig: MoveRig) -> None:
    """Its offsets there expired while it worked on the target, and an interrupted failover moved it."""
    await translated(rig, g=100)
    rig.logs.target.set_group("g", {COPY: 5})
    await rig.logs.source.delete_groups(["g"])
    await run(rig.served.failback)
    assert await offset_of(rig.logs.source, "g", ORIGIN) is not None


@pytest.mark.parametrize("options", [NO_WAIT, replace(NO_WAIT, groups=("g",))])
async def test_a_moved_group_that_the_rules_exclude_since_moves_back(
    rig: MoveRig, options: MoveOptions
) -> None:
    await failed_over(rig, "g")
    rig.logs.target.set_group("g", {COPY: 5})
    rig.parts.checkpointer.follow(replace(rig.parts.entry, groups=group_filter("other")))
    _, report = await run(rig.served.failback, options)
    assert actions(report.plan).keys() == {"g"}
    assert report.plan.blockers == []
    assert await nothing_stays(rig)
    plan = await rig.served.failback.plan(NO_WAIT)
    assert actions(plan) == {}


async def test_a_group_that_no_failover_moved_keeps_no_fence(rig: MoveRig) -> None:
    rig.logs.source.set_group("busy", {ORIGIN: 100}, state="STABLE", member_count=1)
    await failed_over(rig, "g")
    rig.logs.target.set_group("busy", {COPY: 5}, state="STABLE", member_count=1)
    _, report = await run(rig.served.failback)
    assert report.left_behind == ["groups with members were not moved: busy"]
    assert await nothing_stays(rig)


async def test_a_moved_group_that_works_on_the_source_again_keeps_no_fence(rig: MoveRig) -> None:
    await failed_over(rig, "g")
    rig.logs.source.set_group("g", {ORIGIN: 100}, state="STABLE", member_count=1)
    _, report = await run(rig.served.failback)
    assert report.left_behind == ["groups with members were not moved: g"]
    assert await nothing_stays(rig)


@pytest.mark.parametrize("moved_before", [False, True])
async def test_a_moved_group_that_was_deleted_on_the_target_keeps_no_fence(
    rig: MoveRig, moved_before: bool
) -> None:
    await failed_over(rig, "g", "other")
    if moved_before:
        await run(rig.served.failback, replace(NO_WAIT, groups=("g",)))
    await rig.logs.target.delete_groups(["other"])
    await run(rig.served.failback)
    assert await nothing_stays(rig)


async def test_a_failback_of_the_only_moved_group_after_two_failovers_waits_for_the_other_one(
    rig: MoveRig,
) -> None:
    await failed_over(rig, "g", "other")
    await run(rig.served.failback, replace(NO_WAIT, groups=("g",)))
    await run(rig.served.failover, replace(NO_WAIT, groups=("g",)))
    await run(rig.served.failback, replace(NO_WAIT, groups=("g",)))
    assert not await nothing_stays(rig)
    await run(rig.served.failback, replace(NO_WAIT, groups=("other",)))
    assert await nothing_stays(rig)


async def test_a_group_of_the_source_that_works_there_keeps_no_fence_of_a_failback(rig: MoveRig) -> None:
    rig.logs.source.set_group("busy", {ORIGIN: 100}, state="STABLE", member_count=1)
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.target.add_topic("sales")
    served = rig.both_ways()
    await run(served.failover)
    await run(served.failback, MoveOptions(wait_seconds=0, fence=True, accept_loss=True))
    assert rig.logs.target.acls
    _, report = await run(served.failover)
    assert report.left_behind == ["groups with members were not moved: busy"]
    assert not rig.logs.target.acls


async def test_the_record_counts_the_groups_that_work_on_the_target(rig: MoveRig) -> None:
    await failed_over(rig, "g", "other")
    counts: list[int | None] = []
    for group in ("g", "other"):
        plan = await rig.served.failback.plan(NO_WAIT)
        assert plan.last is not None
        counts.append(plan.last.groups_on_target)
        await run(rig.served.failback, replace(NO_WAIT, groups=(group,)))
    plan = await rig.served.failback.plan(NO_WAIT)
    assert plan.last is not None
    assert [*counts, plan.last.groups_on_target] == [2, 1, 0]
    assert not plan.last.on_target


async def test_a_failback_says_how_a_group_gets_a_place_after_everything_was_copied_again() -> None:
    """`positions set --to earliest`: the copy has its records twice, and only the later ones have syncs.
    Where transforms change them, nothing else tells."""
    transforms = {"twinlog.transform.topics": ORIGIN.topic, "twinlog.transform.where": "true"}
    async with move_rig(transforms=transforms) as rig:
        await failed_over(rig, "g")
        there = rig.logs.visible_target()
        rig.logs.target.set_group("g", {COPY: there[200].offset})
        rig.logs.crash(back=0)
        rig.logs.copied_to, rig.synced_to = 0, -1
        begin = rig.logs.target.log(COPY).end_offset
        await rig.copy()
        (blocker,) = (await rig.served.failback.plan(NO_WAIT)).blockers
        command = r"`kafka-consumer-groups --group g --topic A\.orders:0 --reset-offsets --to-offset (\d+)"
        found = re.search(command, blocker)
        assert found is not None, blocker
        assert begin <= int(found[1]) <= rig.logs.visible_target()[len(there)].offset
        rig.logs.target.set_group("g", {COPY: int(found[1])})
        assert (await rig.served.failback.plan(NO_WAIT)).blockers == []


async def test_syncs_of_a_source_that_is_gone_give_no_place_in_the_present_one() -> None:
    """Asked before its first sync: the group has read none of its records."""
    transforms = {"twinlog.transform.topics": ORIGIN.topic, "twinlog.transform.where": "true"}
    async with move_rig(transforms=transforms) as rig:
        rig.topics.known = {ORIGIN.topic: replicated(rig.fakes, ORIGIN.topic)}
        rig.logs.produce(100)
        await rig.copy()
        place = SourcePosition(partition=COPY, next_offset=rig.logs.target.log(COPY).end_offset)
        assert (await rig.parts.back.translate([place]))[place].verdict is Verdict.MAPPED
        rig.logs.source.add_topic(ORIGIN.topic)
        rig.topics.known = {ORIGIN.topic: replicated(rig.fakes, ORIGIN.topic, generation=2)}
        rig.logs.copied_to, rig.synced_to = 0, -1
        rig.logs.produce(900)
        assert (await rig.parts.back.translate([place]))[place].downstream_offset is None
        await rig.copy()
        end = SourcePosition(partition=COPY, next_offset=rig.logs.target.log(COPY).end_offset)
        assert (await rig.parts.back.translate([end]))[end].verdict is Verdict.MAPPED
