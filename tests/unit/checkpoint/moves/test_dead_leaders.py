"""Plans, tables and answers while brokers are dead that lead some partitions: these exist all the same."""

import pytest

from twinlog.offsets import CheckpointHistory
from twinlog_checkpoint.api.offset_queries import Direction, OffsetQuery, answer_queries
from twinlog_checkpoint.moves.planning.decision import CopyReport, CopyState
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePlan
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.dead_leader import kill_coordinator, kill_leader
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import MoveRig, actions, move_rig, offset_of, run

ACCEPTING = MoveOptions(accept_loss=True, wait_seconds=0)


async def _with_a_group(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.fakes.clock.advance(60)
    await rig.fakes.do_pass(rig.parts.checkpointer)


def _told(plan: MovePlan) -> str:
    return "\n".join((*plan.warnings, *plan.blockers, *(entry.message for entry in plan.partitions)))


@pytest.mark.parametrize("known_by", ["table", "checkpoints"])
async def test_a_copy_without_a_leader_keeps_its_place_in_the_plan(known_by: str) -> None:
    """A process that owns the flow anew cannot read the checkpoints; one that has started has no table."""
    async with move_rig() as rig:
        await _with_a_group(rig)
        known = rig.fakes.checkpoints()[-1].downstream_offset
        if known_by == "table":
            rig.parts.history.become(CheckpointHistory())
        else:
            rig.parts.checkpointer.table.replace_all([], now_ms=0)
        kill_leader(rig.logs.target, COPY)
        plan = await rig.served.failover.plan(MoveOptions(wait_seconds=0))
        accepting = await rig.served.failover.plan(ACCEPTING)
    (entry,) = plan.partitions
    assert (entry.action, entry.translation.verdict) == (
        MoveAction.SKIP_NO_OFFSET,
        Verdict.TARGET_UNREADABLE,
    )
    assert entry.to_offset == known
    assert any("could not be translated now" in blocker for blocker in plan.blockers)
    assert any("could not be translated now" in note for note in accepting.warnings)
    told = _told(plan)
    assert "has no leader" in told
    for untrue in ("does not exist", "not visible", "--accept-loss"):
        assert untrue not in told


@pytest.mark.parametrize("preserved", [False, True])
async def test_no_group_is_moved_to_a_log_that_nobody_can_read(preserved: bool) -> None:
    """Also if losses are accepted: it may have lost records, or begin later."""
    async with move_rig() as rig:
        await _with_a_group(rig)
        if preserved:
            state = CopyState(state="RUNNING", position=300, equal_below=None)
            rig.fakes.copy_states.report = CopyReport(partitions={ORIGIN: state})
        kill_leader(rig.logs.target, COPY)
        _, report = await run(rig.served.failover, ACCEPTING)
        written = await offset_of(rig.logs.target, "g", COPY)
    assert written is None
    assert actions(report.plan) == {"g": MoveAction.SKIP_NO_OFFSET}
    assert [entry.translation.verdict for entry in report.plan.partitions] == [Verdict.TARGET_UNREADABLE]
    (reason,) = report.left_behind
    assert "has no leader" in reason


@pytest.mark.parametrize(
    ("side", "lookup", "verdict"),
    [
        ("target", "describe_groups", Verdict.TARGET_UNREADABLE),
        ("target", "group_offsets", Verdict.TARGET_UNREADABLE),
        ("source", "describe_groups", Verdict.SOURCE_UNREADABLE),
    ],
)
async def test_no_group_is_moved_of_which_nobody_knows_whether_it_works_somewhere(
    side: str, lookup: str, verdict: Verdict
) -> None:
    """Those whose coordinators answer are planned as ever, and with accepted losses they are moved."""
    async with move_rig() as rig:
        rig.logs.source.set_group("h", {ORIGIN: 100})
        await _with_a_group(rig)
        known = rig.fakes.checkpoints()[-1].downstream_offset
        cluster = rig.logs.target if side == "target" else rig.logs.source
        error = kill_coordinator(cluster, "g", lookup=lookup)
        plan = await rig.served.failover.plan(MoveOptions(wait_seconds=0))
        _, report = await run(rig.served.failover, ACCEPTING)
        there = rig.logs.target.groups
    assert actions(plan) == {"g": MoveAction.SKIP_NO_OFFSET, "h": MoveAction.WRITE}
    unread, read = plan.partitions
    assert (unread.translation.verdict, unread.to_offset) == (verdict, known)
    assert (read.translation.verdict, read.to_offset) == (Verdict.EXACT, known)
    assert unread.message == str(error)
    (blocker,) = plan.blockers
    assert "broker 2 cannot be reached" in blocker
    assert actions(report.plan) == actions(plan)
    assert there.keys() == {"h"}
    (reason,) = report.left_behind
    assert "broker 2 cannot be reached" in reason


async def test_a_group_that_was_moved_stays_as_it_is_while_nobody_knows_where_it_stands_there() -> None:
    async with move_rig() as rig:
        await _with_a_group(rig)
        await run(rig.served.failover)
        kill_coordinator(rig.logs.target, "g", lookup="group_offsets")
        plan = await rig.served.failover.plan(MoveOptions(wait_seconds=0))
        before = await rig.served.failover.recorded()
        _, report = await run(rig.served.failover)
        moves = await rig.served.failover.recorded()
    (entry,) = plan.partitions
    assert (entry.action, entry.translation.verdict) == (
        MoveAction.SKIP_NO_OFFSET,
        Verdict.TARGET_UNREADABLE,
    )
    assert "broker 2 cannot be reached" in entry.message
    assert not plan.blockers
    assert report.already_done
    assert moves.homes == before.homes


async def test_a_group_that_may_have_members_on_the_old_cluster_again_is_not_done() -> None:
    async with move_rig() as rig:
        await _with_a_group(rig)
        await run(rig.served.failover)
        kill_coordinator(rig.logs.source, "g")
        plan = await rig.served.failover.plan(MoveOptions(wait_seconds=0))
        before = rig.logs.target.groups["g"]
        _, report = await run(rig.served.failover, ACCEPTING)
        after = rig.logs.target.groups["g"]
    (entry,) = plan.partitions
    assert (entry.action, entry.translation.verdict) == (
        MoveAction.SKIP_NO_OFFSET,
        Verdict.SOURCE_UNREADABLE,
    )
    (blocker,) = plan.blockers
    assert "broker 2 cannot be reached" in blocker
    assert not report.already_done
    (reason,) = report.left_behind
    assert "broker 2 cannot be reached" in reason
    assert after == before


async def test_an_original_without_a_leader_keeps_a_group_on_its_copy() -> None:
    async with move_rig() as rig:
        rig.logs.target.set_group("g", {COPY: 50})
        kill_leader(rig.logs.source, ORIGIN)
        plan = await rig.served.failback.plan(MoveOptions(groups=("g",), wait_seconds=0))
    (entry,) = plan.partitions
    assert (entry.action, entry.translation.verdict) == (
        MoveAction.SKIP_NO_OFFSET,
        Verdict.SOURCE_UNREADABLE,
    )
    assert "--accept-loss" not in _told(plan)


async def test_a_source_log_without_a_leader_gives_the_floor_with_its_reason() -> None:
    async with move_rig() as rig:
        await _with_a_group(rig)
        kill_leader(rig.logs.source, ORIGIN)
        plan = await rig.served.failover.plan(ACCEPTING)
    (entry,) = plan.partitions
    assert entry.translation.verdict is Verdict.FLOOR
    assert "not exact" in entry.message
    assert "has no leader" in entry.message


async def test_what_a_copy_without_a_leader_lacks_is_not_known() -> None:
    """Otherwise the plan would say that nothing is copied."""
    async with move_rig() as rig:
        kill_leader(rig.logs.target, COPY)
        plan = await rig.served.failover.plan(MoveOptions(wait_seconds=0))
    (backlog,) = plan.backlog
    assert backlog.records_not_copied is None
    assert "has no leader" in backlog.message


async def test_the_table_keeps_offset_and_age_while_a_copy_has_no_leader() -> None:
    async with move_rig() as rig:
        await _with_a_group(rig)
        (before,) = rig.parts.checkpointer.table.rows("g")
        written = len(rig.fakes.checkpoints())
        kill_leader(rig.logs.target, COPY)
        for _ in range(2):
            rig.fakes.clock.advance(60)
            await rig.fakes.do_pass(rig.parts.checkpointer)
        (row,) = rig.parts.checkpointer.table.rows("g")
        assert len(rig.fakes.checkpoints()) == written
    assert before.translation.verdict is Verdict.EXACT
    assert row.translation.verdict is Verdict.TARGET_UNREADABLE
    assert row.translation.downstream_offset == before.translation.downstream_offset
    assert row.as_of_ms == before.as_of_ms


async def test_a_question_about_a_log_without_a_leader_is_not_answered_as_of_none() -> None:
    async with move_rig() as rig:
        kill_leader(rig.logs.source, ORIGIN)
        (by_offset, by_time) = await answer_queries(
            rig.parts,
            Direction.FORWARD,
            [OffsetQuery(partition=ORIGIN, offset=100), OffsetQuery(partition=ORIGIN, timestamp_ms=1)],
        )
    for answer in (by_offset, by_time):
        assert answer.translation.verdict is Verdict.SOURCE_UNREADABLE
        assert "has no leader" in answer.translation.message
