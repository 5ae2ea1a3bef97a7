"""Records that other producers wrote into copies (FOREIGN): no flow copies them to the source, so a failback
counts those that a group has not read, and names the others."""

from dataclasses import replace

import pytest

from twinlog.batches import EndMarker
from twinlog.errors import StateError
from twinlog.model import Record, TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_checkpoint.moves.planning.decision import CopyReport, CopyState, ForeignStretch
from twinlog_checkpoint.moves.planning.only_here import RecordsOnlyHere
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePlan
from twinlog_checkpoint.translation.log_sides import ByteBudget
from unit.checkpoint.checkpoint_rig import CheckpointFlowRig
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, actions, move_rig, offset_of, run
from unit.checkpoint.moves.test_sync_after_moves import synced, translated

ACCEPTED = replace(NO_WAIT, accept_loss=True)


def append(cluster: FakeCluster, partition: TopicPartition, *values: str) -> None:
    for value in values:
        cluster.append(
            partition, Record(offset=-1, timestamp_ms=1_700_000_100_000, key=None, value=value.encode())
        )


def written_there(rig: MoveRig, count: int) -> None:
    append(rig.logs.target, COPY, *(f"by an application of the target {number}" for number in range(count)))


async def failed_over(rig: MoveRig, *, read: int) -> None:
    """The group has read so many records of the copy there."""
    rig.logs.source.set_group("g", {ORIGIN: 50})
    await run(rig.served.failover)
    there = rig.logs.visible_target()
    rig.logs.target.set_group("g", {COPY: there[read].offset if read < len(there) else there[-1].offset + 1})


def named(plan: MovePlan) -> list[str]:
    return [warning for warning in plan.warnings if "FOREIGN" in warning]


@pytest.mark.parametrize(("read", "unread"), [(80, 7), (299, 7), (303, 4), (306, 1)])
async def test_unread_records_of_others_are_counted_and_block_the_failback(
    rig: MoveRig, read: int, unread: int
) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 50})
    await run(rig.served.failover)
    copied = len(rig.logs.visible_target())
    written_there(rig, 7)
    there = rig.logs.visible_target()
    rig.logs.target.set_group("g", {COPY: there[copied - 300 + read].offset})
    plan = await rig.served.failback.plan(NO_WAIT)
    with pytest.raises(StateError, match="FOREIGN"):
        await run(rig.served.failback)
    assert await offset_of(rig.logs.source, "g", ORIGIN) == 50
    await run(rig.served.failback, ACCEPTED)
    assert await offset_of(rig.logs.source, "g", ORIGIN) != 50
    assert actions(plan) == {"g": MoveAction.SKIP_UNREAD}
    (blocker,) = plan.blockers
    assert f"{unread} record" in blocker
    assert "FOREIGN" in blocker
    (warning,) = named(plan)
    assert "7 records in A.orders" in warning
    assert "twinlog verify 'A->B' --topic orders" in warning


@pytest.mark.parametrize("read", [80, 299, 303, 310])
async def test_those_between_copied_records_are_counted_as_the_source_service_tells(
    rig: MoveRig, read: int
) -> None:
    """The source went on, so they are not behind its end. Three of ten lie at the end of the copy."""
    await failed_over(rig, read=read)
    before = len(rig.logs.visible_target())
    written_there(rig, 7)
    begin = rig.logs.target.log(COPY).end_offset - 7
    rig.logs.produce(20)
    await rig.copy()
    written_there(rig, 3)
    end = rig.logs.target.log(COPY).end_offset
    state = CopyState(
        state="RUNNING",
        position=rig.source_end,
        foreign=[ForeignStretch(begin, begin + 7, 7), ForeignStretch(end - 3, end, 3)],
    )
    rig.fakes.copy_states.report = CopyReport(partitions={ORIGIN: state})
    there = rig.logs.visible_target()
    rig.logs.target.set_group("g", {COPY: there[before - 300 + read].offset})
    plan = await rig.served.failback.plan(NO_WAIT)
    with pytest.raises(StateError, match="FOREIGN"):
        await run(rig.served.failback)
    rig.logs.target.set_group("g", {COPY: there[-1].offset + 1})
    after = await rig.served.failback.plan(NO_WAIT)
    unread = 3 + max(0, min(7, before + 7 - (before - 300 + read)))
    assert f"{unread} that other producers wrote" in plan.blockers[0]
    for told in (plan, after):
        (warning,) = named(told)
        assert "10 records in A.orders are only on B" in warning
    assert after.blockers == []


async def test_a_failover_says_which_groups_read_those_in_the_copy_that_they_enter() -> None:
    """They are no records of the source: a group that has read all before them there goes on behind them."""
    async with move_rig() as rig:
        before = len(rig.logs.visible_source())
        written_there(rig, 2)
        end = rig.logs.target.log(COPY).end_offset
        rig.logs.produce(20)
        await rig.copy()
        there = rig.logs.visible_source()
        rig.logs.source.set_group("early", {ORIGIN: there[before - 1].offset})
        rig.logs.source.set_group("late", {ORIGIN: there[before].offset})
        silent = await rig.served.failover.plan(NO_WAIT)
        state = CopyState(state="RUNNING", position=rig.source_end, foreign=[ForeignStretch(end - 2, end, 2)])
        rig.fakes.copy_states.report = CopyReport(partitions={ORIGIN: state})
        plan = await rig.served.failover.plan(NO_WAIT)
    assert actions(plan) == {"early": MoveAction.WRITE, "late": MoveAction.WRITE}
    assert named(silent) == []
    (warning,) = named(plan)
    assert warning == (
        f"2 records in {COPY} on B are of other producers (FOREIGN): group early will read those behind its"
        " place; group late will read none: they lie before its place"
    )


async def test_they_are_counted_with_those_that_the_source_has_deleted(rig: MoveRig) -> None:
    await failed_over(rig, read=80)
    rig.logs.retain(rig.logs.visible_source()[200].offset)
    written_there(rig, 7)
    plan = await rig.served.failback.plan(NO_WAIT)
    (blocker,) = plan.blockers
    assert "127 records" in blocker
    assert "120 before" in blocker
    assert "7 that other producers wrote" in blocker


async def test_a_source_that_deleted_everything_has_none_of_them(rig: MoveRig) -> None:
    await failed_over(rig, read=80)
    copied = len(rig.logs.visible_target())
    rig.logs.retain(rig.source_end)
    written_there(rig, 7)
    plan = await rig.served.failback.plan(NO_WAIT)
    (blocker,) = plan.blockers
    assert f"{copied - 80 + 7} records" in blocker


async def test_a_group_that_stands_there_already_does_not_skip_them(rig: MoveRig) -> None:
    """It was at the end of the source when it failed over, so its offset there stays the same."""
    rig.logs.source.set_group("g", {ORIGIN: rig.source_end})
    await run(rig.served.failover)
    written_there(rig, 3)
    plan = await rig.served.failback.plan(NO_WAIT)
    assert actions(plan) == {"g": MoveAction.SKIP_UNREAD}
    assert "3 records" in plan.blockers[0]


async def test_a_group_that_has_read_them_goes_back_and_the_plan_says_what_stays(rig: MoveRig) -> None:
    await failed_over(rig, read=80)
    written_there(rig, 7)
    rig.logs.target.set_group("g", {COPY: rig.logs.visible_target()[-1].offset + 1})
    plan = await rig.served.failback.plan(NO_WAIT)
    _, report = await run(rig.served.failback)
    assert (actions(plan), plan.blockers) == ({"g": MoveAction.WRITE}, [])
    assert report.left_behind == []
    for told in (plan, report.plan):
        (warning,) = named(told)
        assert "7 records in A.orders are only on B" in warning


async def test_a_group_that_never_worked_on_the_target_is_not_held_up(rig: MoveRig) -> None:
    """Its offset there is the one that sync.group.offsets has committed."""
    await translated(rig, g=rig.source_end)
    assert await synced(rig) is not None
    written_there(rig, 3)
    plan = await rig.served.failback.plan(NO_WAIT)
    assert (plan.blockers, len(named(plan))) == ([], 1)


async def test_a_failover_says_nothing_of_records_that_are_not_copied(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 50})
    rig.logs.produce(30)
    written_there(rig, 2)
    plan = await rig.served.failover.plan(NO_WAIT)
    assert (plan.blockers, named(plan)) == ([], [])


@pytest.mark.parametrize("seed", range(8))
async def test_copies_that_only_the_flow_wrote_have_none(seed: int) -> None:
    """Whatever a mirror does: aborted transactions, a lag, retention, compaction on the source."""
    async with move_rig(seed=seed) as rig:
        await failed_over(rig, read=150)
        rig.logs.produce(120)
        rig.logs.copy(rig.logs.rng.randint(0, 100))
        if seed % 2:
            rig.logs.compact(rig.logs.source, 0.9)
        if seed % 3:
            rig.logs.retain(rig.logs.visible_source()[20].offset)
        rig.logs.target.append_transaction(COPY, rig.logs.visible_source()[:3], EndMarker.ABORT)
        plan = await rig.served.failback.plan(NO_WAIT)
        assert named(plan) == []
        written_there(rig, 5)
        plan = await rig.served.failback.plan(NO_WAIT)
        (warning,) = named(plan)
        assert "5 records" in warning


@pytest.mark.parametrize("back", [0, 3, 30])
async def test_records_that_a_mirror_has_copied_twice_are_not_foreign(rig: MoveRig, back: int) -> None:
    await failed_over(rig, read=150)
    rig.logs.exactly_once = False
    rig.logs.crash(back)
    rig.logs.copy()
    pairs = rig.logs.history.of(ORIGIN)
    assert pairs is not None
    newest = pairs.newest_sync
    assert newest is not None
    await rig.fakes.write_sync(ORIGIN.topic, newest.upstream, newest.downstream)
    await rig.has_synced(newest.upstream)
    written_there(rig, 4)
    plan = await rig.served.failback.plan(NO_WAIT)
    (warning,) = named(plan)
    assert "4 records" in warning


async def test_they_are_found_in_every_partition_of_a_preserved_copy() -> None:
    source, target = FakeCluster("A"), FakeCluster("B")
    source.add_topic("orders", partition_count=3)
    target.add_topic("A.orders", partition_count=3)
    for number in range(3):
        for cluster, topic in ((source, "orders"), (target, "A.orders")):
            append(cluster, TopicPartition(topic, number), *(f"{number} {each}" for each in range(10)))
    fakes = CheckpointFlowRig(source=source, target=target, translation_max_bytes=1 << 30)
    fakes.copy_states.report = CopyReport(
        partitions={
            TopicPartition("orders", number): CopyState(state="RUNNING", position=10, equal_below=None)
            for number in range(3)
        }
    )
    source.set_group("g", {TopicPartition("orders", number): 10 for number in range(2)})
    async with fakes.running() as parts:
        served = fakes.served(parts)
        for runner in (served.failover, served.failback):
            runner.planner.rate_seconds = 0
        await run(served.failover)
        append(target, TopicPartition("A.orders", 1), "x", "y")
        append(target, TopicPartition("A.orders", 2), "z")
        plan = await served.failback.plan(NO_WAIT)
        other = await served.failback.plan(MoveOptions(wait_seconds=0, accept_loss=True))
    assert {entry.from_partition.partition: entry.action for entry in plan.partitions} == {
        0: MoveAction.ALREADY_THERE,
        1: MoveAction.SKIP_UNREAD,
    }
    assert "g on A.orders-1: 2 records" in plan.blockers[0]
    (warning,) = named(plan)
    assert "3 records in A.orders" in warning
    assert other.blockers == []


async def test_markers_are_no_records_of_others_when_there_is_much_to_count(rig: MoveRig) -> None:
    """Another copy of the same look has used up the bytes that may be read."""
    await failed_over(rig, read=150)
    spent = RecordsOnlyHere(
        route=rig.served.failback.planner.route, copy_states=rig.fakes.copy_states, budget=ByteBudget(0)
    )
    assert await spent.foreign({COPY.topic}) == []
    written_there(rig, 4)
    (tail,) = await spent.foreign({COPY.topic})
    assert tail.records == 4
