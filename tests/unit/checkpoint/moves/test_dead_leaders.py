"""Plans, tables and answers while brokers are dead that lead some partitions: these exist all the same."""

from dataclasses import replace

import pytest

from twinlog.errors import StateError
from twinlog.kafka.outage import Outage
from twinlog.model import TopicPartition
from twinlog.moves.record import Step
from twinlog.offsets import CheckpointHistory
from twinlog.policy.internal_topics import failover_topic
from twinlog.testing.fakes.cluster import Call
from twinlog_checkpoint.api.offset_queries import Direction, OffsetQuery, answer_queries
from twinlog_checkpoint.moves.planning.decision import CopyReport, CopyState
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePlan
from twinlog_checkpoint.moves.running.run_record import StepEvent, StepState
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.dead_leader import (
    deny_group,
    keep_from_listing,
    kill_coordinator,
    kill_leader,
    lose_coordinator,
)
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import (
    NO_WAIT,
    MoveRig,
    actions,
    last_run,
    moved,
    offset_of,
    run,
)

ACCEPTING = MoveOptions(accept_loss=True, wait_seconds=0)


async def _with_a_group(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.fakes.clock.advance(60)
    await rig.fakes.do_pass(rig.parts.checkpointer)


def _told(plan: MovePlan) -> str:
    return "\n".join((*plan.warnings, *plan.blockers, *(entry.message for entry in plan.partitions)))


@pytest.mark.parametrize("known_by", ["table", "checkpoints"])
async def test_a_copy_without_a_leader_keeps_its_place_in_the_plan(rig: MoveRig, known_by: str) -> None:
    """A process that owns the flow anew cannot read the checkpoints; one that has started has no table."""
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
async def test_no_group_is_moved_to_a_log_that_nobody_can_read(rig: MoveRig, preserved: bool) -> None:
    """Also if losses are accepted: it may have lost records, or begin later."""
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
        ("source", "group_offsets", Verdict.SOURCE_UNREADABLE),
    ],
)
async def test_no_group_is_moved_of_which_nobody_knows_whether_it_works_somewhere(
    rig: MoveRig, side: str, lookup: str, verdict: Verdict
) -> None:
    """Those whose coordinators answer are planned as ever, and with accepted losses they are moved."""
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


async def test_a_group_that_was_moved_is_not_done_while_nobody_knows_where_it_stands_there(
    rig: MoveRig,
) -> None:
    """It may have lost its offsets since. Nothing of what is recorded of it changes."""
    await _with_a_group(rig)
    await run(rig.served.failover)
    kill_coordinator(rig.logs.target, "g", lookup="group_offsets")
    plan = await rig.served.failover.plan(MoveOptions(wait_seconds=0))
    before = await rig.served.failover.recorded()
    with pytest.raises(StateError, match="broker 2 cannot be reached"):
        await run(rig.served.failover)
    _, report = await run(rig.served.failover, ACCEPTING)
    moves = await rig.served.failover.recorded()
    (entry,) = plan.partitions
    assert (entry.action, entry.translation.verdict) == (
        MoveAction.SKIP_NO_OFFSET,
        Verdict.TARGET_UNREADABLE,
    )
    assert "broker 2 cannot be reached" in entry.message
    (blocker,) = plan.blockers
    assert "broker 2 cannot be reached" in blocker
    assert not report.already_done
    (reason,) = report.left_behind
    assert "broker 2 cannot be reached" in reason
    assert moves.homes == before.homes


async def test_a_group_that_may_have_members_on_the_old_cluster_again_is_not_done(rig: MoveRig) -> None:
    await _with_a_group(rig)
    await run(rig.served.failover)
    kill_coordinator(rig.logs.source, "g")
    plan = await rig.served.failover.plan(MoveOptions(wait_seconds=0))
    before = dict(rig.logs.target.kafka.groups.offsets["g"])
    _, report = await run(rig.served.failover, ACCEPTING)
    after = rig.logs.target.kafka.groups.offsets["g"]
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


@pytest.mark.parametrize("knows_it_by", ["the last list", "its checkpoints"])
async def test_a_plan_has_the_groups_that_no_broker_lists_any_more(rig: MoveRig, knows_it_by: str) -> None:
    """The broker that coordinates them left the metadata."""
    rig.logs.source.set_group("h", {ORIGIN: 100})
    await _with_a_group(rig)
    if knows_it_by == "its checkpoints":
        rig.parts.checkpointer.groups.told.clear()
    lose_coordinator(rig.logs.source, "g")
    asked: list[Call] = []
    rig.logs.source.intercept("group_offsets", asked.append)
    plan = await rig.served.failover.plan(NO_WAIT)
    # Each question takes half a minute.
    assert len([call for call in asked if "g" in call.arguments["group_ids"]]) == 1
    _, report = await run(rig.served.failover, ACCEPTING)
    there = rig.logs.target.groups
    assert actions(plan) == {"g": MoveAction.SKIP_NO_OFFSET, "h": MoveAction.WRITE}
    assert plan.partitions[0].translation.verdict is Verdict.SOURCE_UNREADABLE
    assert (plan.partitions[0].from_offset, plan.partitions[0].to_offset) == (
        100,
        plan.partitions[1].to_offset,
    )
    assert any("broker 2 cannot be reached" in blocker for blocker in plan.blockers)
    assert any("broker 2 cannot be reached" in reason for reason in report.left_behind)
    assert there.keys() == {"h"}


@pytest.mark.parametrize("back", [False, True])
async def test_a_plan_has_a_group_whose_coordinator_moves_while_the_groups_are_listed(
    rig: MoveRig, back: bool
) -> None:
    """The broker that coordinated it lists it no more, and the next one not yet."""
    await _with_a_group(rig)
    cluster, runner = rig.logs.source, rig.served.failover
    if back:
        await run(rig.served.failover)
        cluster, runner = rig.logs.target, rig.served.failback
    cluster.intercept("list_groups", lambda call: call.result.pop("g"), after=True)
    plan = await runner.plan(NO_WAIT)
    assert actions(plan) == {"g": MoveAction.ALREADY_THERE if back else MoveAction.WRITE}


async def test_a_plan_without_a_list_has_the_groups_that_were_seen_before(rig: MoveRig) -> None:
    await _with_a_group(rig)
    error = keep_from_listing(rig.logs.source)
    plan = await rig.served.failover.plan(NO_WAIT)
    with pytest.raises(StateError, match="never seen"):
        await run(rig.served.failover)
    named = await rig.served.failover.plan(replace(NO_WAIT, groups=("g",)))
    unknown = await rig.served.failover.plan(replace(NO_WAIT, groups=("g", "new")))
    accepting = await rig.served.failover.plan(ACCEPTING)
    _, report = await run(rig.served.failover, ACCEPTING)
    assert actions(plan) == {"g": MoveAction.WRITE}
    assert (actions(named), named.blockers) == (actions(plan), [])
    assert f"A may have groups that were never seen: {error}" in unknown.blockers
    assert plan.blockers == [f"A may have groups that were never seen: {error}"]
    assert not accepting.blockers
    assert f"A may have groups that were never seen: {error}" in accepting.warnings
    assert actions(report.plan) == actions(plan)


async def test_a_group_of_which_nothing_is_known_stops_a_move_also_if_losses_are_accepted(
    rig: MoveRig,
) -> None:
    rig.logs.source.set_group("new", {ORIGIN: 100})
    kill_coordinator(rig.logs.source, "new", lookup="group_offsets")
    plan = await rig.served.failover.plan(ACCEPTING)
    with pytest.raises(StateError, match="no offset is known of group new"):
        await run(rig.served.failover, ACCEPTING)
    rig.logs.source.set_group("h", {ORIGIN: 100})
    _, report = await run(rig.served.failover, MoveOptions(groups=("h",), wait_seconds=0))
    assert plan.looked
    (blocker,) = plan.blockers
    assert "broker 2 cannot be reached" in blocker
    assert actions(report.plan) == {"h": MoveAction.WRITE}


async def test_a_run_has_a_group_that_was_only_listed_once(rig: MoveRig) -> None:
    """Its broker is away, it has no checkpoint yet, and passes list the groups without it."""
    rig.logs.source.set_group("new", {ORIGIN: 100})
    await rig.parts.checkpointer.groups.present(())
    lose_coordinator(rig.logs.source, "new")
    for _ in range(2):
        rig.fakes.clock.advance(60)
        await rig.fakes.do_pass(rig.parts.checkpointer)
        plan = await rig.served.failover.plan(NO_WAIT)
        assert len(plan.blockers) == 1
    with pytest.raises(StateError, match="no offset is known of group new"):
        await run(rig.served.failover)


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_group_that_was_seen_without_offsets_stops_no_move_that_accepts_losses(
    rig: MoveRig, is_listed: bool
) -> None:
    rig.logs.source.set_group("empty", {})
    await _with_a_group(rig)
    if is_listed:
        kill_coordinator(rig.logs.source, "empty", lookup="group_offsets")
    else:
        lose_coordinator(rig.logs.source, "empty")
        rig.fakes.clock.advance(60)
    await rig.fakes.do_pass(rig.parts.checkpointer)
    plan = await rig.served.failover.plan(NO_WAIT)
    accepting = await rig.served.failover.plan(ACCEPTING)
    _, report = await run(rig.served.failover, ACCEPTING)
    assert "no offset, when last read, of group empty: " in "".join(plan.blockers)
    assert not accepting.blockers
    assert "no offset, when last read, of group empty: " in "".join(accepting.warnings)
    assert actions(report.plan) == {"g": MoveAction.WRITE}


async def test_a_group_that_had_offsets_when_a_plan_read_them_is_not_one_without(rig: MoveRig) -> None:
    """The last pass saw none."""
    rig.logs.source.set_group("late", {})
    await _with_a_group(rig)
    rig.logs.source.set_group("late", {ORIGIN: 100})
    plan = await rig.served.failover.plan(ACCEPTING)
    kill_coordinator(rig.logs.source, "late", lookup="group_offsets")
    assert actions(plan) == {"g": MoveAction.WRITE, "late": MoveAction.WRITE}
    with pytest.raises(StateError, match="no offset is known of group late"):
        await run(rig.served.failover, ACCEPTING)


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_failback_keeps_the_home_of_a_group_that_nobody_tells_of(
    rig: MoveRig, is_listed: bool
) -> None:
    """And the fence of the failover stays until the group is back."""
    await _with_a_group(rig)
    await run(rig.served.failover, MoveOptions(fence=True, wait_seconds=0))
    stood = await offset_of(rig.logs.target, "g", COPY)
    if is_listed:
        kill_coordinator(rig.logs.target, "g", lookup="group_offsets")
    else:
        lose_coordinator(rig.logs.target, "g")
    plan = await rig.served.failback.plan(NO_WAIT)
    with pytest.raises(StateError, match="broker 2 cannot be reached"):
        await run(rig.served.failback)
    _, report = await run(rig.served.failback, ACCEPTING)
    moves = await rig.served.failback.recorded()
    (entry,) = plan.partitions
    assert (entry.action, entry.translation.verdict) == (
        MoveAction.SKIP_NO_OFFSET,
        Verdict.TARGET_UNREADABLE,
    )
    assert (entry.from_partition, entry.from_offset, entry.to_partition) == (COPY, stood, ORIGIN)
    assert any("broker 2 cannot be reached" in reason for reason in report.left_behind)
    assert moved(moves) == ["g"]
    assert moves.fences["A"]


async def test_a_failback_keeps_the_home_of_a_group_that_it_may_not_see_any_more(rig: MoveRig) -> None:
    """Nor is the other group's return the end of the failover, whose fence would go."""
    rig.logs.source.set_group("h", {ORIGIN: 100})
    await _with_a_group(rig)
    await run(rig.served.failover, MoveOptions(fence=True, wait_seconds=0))
    deny_group(rig.logs.target, "g")
    plan = await rig.served.failback.plan(NO_WAIT)
    _, report = await run(rig.served.failback, ACCEPTING)
    moves = await rig.served.failback.recorded()
    assert actions(plan) == {"g": MoveAction.SKIP_NO_OFFSET, "h": MoveAction.ALREADY_THERE}
    assert any("read offsets of group g" in blocker for blocker in plan.blockers)
    assert any("read offsets of group g" in reason for reason in report.left_behind)
    assert moved(moves) == ["g"]
    assert moves.fences["A"]


async def test_a_failover_leaves_out_a_group_that_it_may_not_see_any_more(rig: MoveRig) -> None:
    """As one that the rules exclude, or that was deleted: a coordinator denies both alike."""
    rig.logs.source.set_group("h", {ORIGIN: 100})
    await _with_a_group(rig)
    deny_group(rig.logs.source, "g")
    plan = await rig.served.failover.plan(NO_WAIT)
    assert actions(plan) == {"h": MoveAction.WRITE}
    assert not plan.blockers


@pytest.mark.parametrize("side", ["source", "target"])
async def test_a_failback_without_a_list_has_the_groups_that_were_moved(rig: MoveRig, side: str) -> None:
    await _with_a_group(rig)
    await run(rig.served.failover)
    keep_from_listing(rig.logs.source if side == "source" else rig.logs.target)
    plan = await rig.served.failback.plan(NO_WAIT)
    assert actions(plan) == {"g": MoveAction.ALREADY_THERE}
    (blocker,) = plan.blockers
    assert blocker.startswith("B may have groups that were never seen: ")


async def test_the_fence_of_an_earlier_release_stays_where_not_all_groups_were_listed(rig: MoveRig) -> None:
    """Its record does not name the groups that it had moved: one that was never seen may be among them."""
    await _with_a_group(rig)
    await run(rig.served.failover, MoveOptions(fence=True, wait_seconds=0))
    recorded = await rig.served.failover.recorded()
    earlier = replace(last_run(recorded), any_group="earlier")
    await rig.served.failover.journal.store(replace(recorded, run=earlier))
    keep_from_listing(rig.logs.target)
    await run(rig.served.failback, ACCEPTING)
    moves = await rig.served.failback.recorded()
    assert moves.groups_on_target is None
    assert moves.fences["A"]


async def test_a_plan_without_the_record_of_moves_has_its_rows(rig: MoveRig) -> None:
    rig.logs.source.set_group("h", {ORIGIN: 100})
    await _with_a_group(rig)
    await run(rig.served.failover, MoveOptions(groups=("g",), wait_seconds=0))
    kill_leader(rig.logs.target, TopicPartition(failover_topic("A"), 0))
    plan = await rig.served.failover.plan(ACCEPTING)
    assert actions(plan) == {"g": MoveAction.ALREADY_THERE, "h": MoveAction.WRITE}
    (blocker,) = plan.blockers
    assert blocker.startswith("the record of moves cannot be read: ")
    assert "has no leader" in blocker


@pytest.mark.parametrize(("side", "lookup"), [("source", "group_offsets"), ("target", "describe_groups")])
async def test_a_run_stops_if_a_broker_is_lost_after_its_check(rig: MoveRig, side: str, lookup: str) -> None:
    """Otherwise it would move the other groups, which nobody has agreed to."""
    rig.logs.source.set_group("h", {ORIGIN: 100})
    await _with_a_group(rig)
    cluster = rig.logs.source if side == "source" else rig.logs.target

    async def run_until_it_stops() -> None:
        async for event in rig.served.failover.run(NO_WAIT):
            if isinstance(event, StepEvent) and event.step is Step.FINAL_OFFSETS:
                kill_coordinator(cluster, "g", lookup=lookup)

    with pytest.raises(StateError, match="broker 2 cannot be reached") as stopped:
        await run_until_it_stops()
    moves = await rig.served.failover.recorded()
    there = rig.logs.target.groups
    assert stopped.value.reason == "MOVE_BLOCKED"
    assert "run it again to continue, or `twinlog failover give-up 'A->B'`" in str(stopped.value)
    assert not there
    assert moves.interrupted is not None


async def test_a_group_that_begins_to_work_while_a_dead_coordinator_is_waited_for_is_not_moved(
    rig: MoveRig,
) -> None:
    """That takes half a minute on the new cluster."""
    await _with_a_group(rig)

    def begin(_call: Call) -> None:
        rig.logs.source.set_group("g", state="STABLE", member_count=1)

    rig.logs.target.intercept("describe_groups", begin, after=True)
    plan = await rig.served.failover.plan(NO_WAIT)
    assert actions(plan) == {"g": MoveAction.SKIP_ACTIVE_BEFORE}


async def test_no_move_begins_that_would_wait_for_records_that_nobody_can_copy(rig: MoveRig) -> None:
    """Nothing is fenced."""
    rig.logs.produce(3)
    rig.fakes.outages["B"] = Outage(brokers={2: "kafka-2:9092"}, without_leader=1)
    kill_leader(rig.logs.target, COPY)
    options = MoveOptions(fence=True, wait_seconds=300)
    plan = await rig.served.failover.plan(options)
    with pytest.raises(StateError, match="start broker 2 at kafka-2:9092") as refused:
        await run(rig.served.failover, options)
    moves = await rig.served.failover.recorded()
    rules = await rig.logs.source.describe_acls("TOPIC")
    away, stuck = plan.blockers
    words = rig.fakes.outages["B"].judged("B").words
    assert away == f"{words}, or move what can be moved without it (--accept-loss)"
    assert stuck.startswith(f"records that cannot be copied now: {ORIGIN}: ")
    assert refused.value.reason == "MOVE_BLOCKED"
    assert moves.run is None
    assert not rules


@pytest.mark.parametrize(
    ("also", "offered"),
    [
        ("nothing", ", or move what can be moved without it (--accept-loss)"),
        ("a group without offsets", ", or move what can be moved without it (--accept-loss)"),
        (
            "a group of which nothing is known",
            ", or move what can be moved without it (--accept-loss --group)",
        ),
        ("the record of moves", ""),
    ],
)
async def test_a_plan_offers_of_an_outage_what_moves_something(rig: MoveRig, also: str, offered: str) -> None:
    rig.logs.source.set_group("new", {})
    await _with_a_group(rig)
    if also == "a group of which nothing is known":
        rig.parts.checkpointer.groups.told.clear()  # As after a restart.
    if "group" in also:
        kill_coordinator(rig.logs.source, "new", lookup="group_offsets")
    if also == "the record of moves":
        await run(rig.served.failover)
        kill_leader(rig.logs.target, TopicPartition(failover_topic("A"), 0))
    rig.fakes.outages["B"] = Outage(brokers={2: "kafka-2:9092"}, without_leader=1)
    plan = await rig.served.failover.plan(NO_WAIT)
    words = rig.fakes.outages["B"].judged("B").words
    assert [each for each in plan.blockers if each.startswith(words)] == [f"{words}{offered}"]
    if offered:
        groups = ("g",) if "--group" in offered else ()
        _, report = await run(rig.served.failover, replace(ACCEPTING, groups=groups))
        assert actions(report.plan) == {"g": MoveAction.WRITE}


@pytest.mark.parametrize("fence", [True, False])
async def test_a_run_that_accepts_losses_does_not_wait_for_a_source_log_without_a_leader(
    rig: MoveRig, fence: bool
) -> None:
    """The plan has nothing against it. What that log still has is not said to be copied."""
    await _with_a_group(rig)
    kill_leader(rig.logs.source, ORIGIN)
    options = replace(ACCEPTING, fence=fence)
    plan = await rig.served.failover.plan(options)
    events, report = await run(rig.served.failover, options)
    written = await offset_of(rig.logs.target, "g", COPY)
    assert not plan.blockers
    assert actions(report.plan) == actions(plan) == {"g": MoveAction.WRITE}
    assert written == plan.partitions[0].to_offset
    (drain,) = [event for event in events if event.step is Step.DRAIN]
    assert drain.state is StepState.SKIPPED
    assert "has no leader" in drain.message
    (backlog,) = report.plan.backlog
    assert backlog.records_not_copied is None


async def test_a_place_that_offset_syncs_contradict_is_not_the_last_known_one(rig: MoveRig) -> None:
    """The copy has lost records since."""
    await _with_a_group(rig)
    upstream = rig.fakes.checkpoints()[-1].upstream_offset
    await rig.fakes.write_sync(ORIGIN.topic, upstream + 1, 1)
    await rig.has_synced(upstream + 1)
    kill_leader(rig.logs.target, COPY)
    plan = await rig.served.failover.plan(NO_WAIT)
    (entry,) = plan.partitions
    assert entry.translation.verdict is Verdict.TARGET_UNREADABLE
    assert entry.to_offset is None


@pytest.mark.parametrize("reason", ["KAFKA_TIMEOUT", "LEADER_UNAVAILABLE", "TARGET_SLOW"])
async def test_no_move_begins_whose_copy_waits_for_the_coordinator_of_its_transactions(
    rig: MoveRig, reason: str
) -> None:
    """All leaders answer. What a slow target holds up, it may take in time."""
    state = CopyState(state="STALLED", position=rig.source_end, reason=reason, message="broker 2")
    rig.fakes.copy_states.report = CopyReport(partitions={ORIGIN: state})
    rig.logs.produce(3)
    whole = await rig.served.failover.plan(NO_WAIT)
    rig.fakes.outages["B"] = Outage(brokers={2: "kafka-2:9092"})
    plan = await rig.served.failover.plan(NO_WAIT)
    assert not whole.blockers
    assert bool(plan.blockers) == (reason != "TARGET_SLOW")
    told = plan.blockers or plan.warnings
    assert any("start broker 2 at kafka-2:9092" in each for each in told), "also where it is no reason"


async def test_an_original_without_a_leader_keeps_a_group_on_its_copy(rig: MoveRig) -> None:
    rig.logs.target.set_group("g", {COPY: 50})
    kill_leader(rig.logs.source, ORIGIN)
    plan = await rig.served.failback.plan(MoveOptions(groups=("g",), wait_seconds=0))
    (entry,) = plan.partitions
    assert (entry.action, entry.translation.verdict) == (
        MoveAction.SKIP_NO_OFFSET,
        Verdict.SOURCE_UNREADABLE,
    )
    assert "--accept-loss" not in _told(plan)


async def test_a_source_log_without_a_leader_gives_the_floor_with_its_reason(rig: MoveRig) -> None:
    await _with_a_group(rig)
    kill_leader(rig.logs.source, ORIGIN)
    plan = await rig.served.failover.plan(ACCEPTING)
    (entry,) = plan.partitions
    assert entry.translation.verdict is Verdict.FLOOR
    assert "not exact" in entry.message
    assert "has no leader" in entry.message


async def test_what_a_copy_without_a_leader_lacks_is_not_known(rig: MoveRig) -> None:
    """Otherwise the plan would say that nothing is copied."""
    kill_leader(rig.logs.target, COPY)
    plan = await rig.served.failover.plan(MoveOptions(wait_seconds=0))
    (backlog,) = plan.backlog
    assert backlog.records_not_copied is None
    assert "has no leader" in backlog.message


async def test_the_table_keeps_offset_and_age_while_a_copy_has_no_leader(rig: MoveRig) -> None:
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


async def test_a_question_about_a_log_without_a_leader_is_not_answered_as_of_none(rig: MoveRig) -> None:
    kill_leader(rig.logs.source, ORIGIN)
    (by_offset, by_time) = await answer_queries(
        rig.parts,
        Direction.FORWARD,
        [OffsetQuery(partition=ORIGIN, offset=100), OffsetQuery(partition=ORIGIN, timestamp_ms=1)],
    )
    for answer in (by_offset, by_time):
        assert answer.translation.verdict is Verdict.SOURCE_UNREADABLE
        assert "has no leader" in answer.translation.message
