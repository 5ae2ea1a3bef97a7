"""Failover and failback on two fake clusters: planned, run, cut and continued, run twice."""

from dataclasses import replace

import pytest

from twinlog.batches import EndMarker
from twinlog.errors import StateError, TransientKafkaError
from twinlog.kafka.raw.lookups import OpenTransaction
from twinlog.model import TopicPartition
from twinlog.moves.record import MoveKind, MoveState, Step
from twinlog.testing.fakes.cluster import Call
from twinlog_checkpoint.api.group_explainer import explain_group
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions
from twinlog_checkpoint.moves.running.run_record import MoveReport, StepEvent, StepState
from twinlog_checkpoint.translation.translation import Verdict
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
from unit.checkpoint.moves.test_sync_after_moves import synced, translated


async def test_a_plan_says_where_groups_would_go_on_and_what_is_not_copied(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.source.set_group("busy", {ORIGIN: 100}, state="STABLE", member_count=1)
    visible_before = len(rig.logs.visible_source())
    rig.logs.produce(50)
    added = len(rig.logs.visible_source()) - visible_before
    plan = await rig.served.failover.plan(NO_WAIT)
    assert plan.records_not_copied == added
    assert plan.blockers == []
    assert actions(plan) == {"busy": MoveAction.SKIP_ACTIVE_BEFORE, "g": MoveAction.WRITE}
    (entry,) = [entry for entry in plan.partitions if entry.group == "g"]
    assert entry.translation.verdict is Verdict.EXACT
    rig.logs.check(100, entry.to_offset or 0)
    assert any("busy" in warning for warning in plan.warnings)


async def test_a_plan_names_topics_whose_copies_have_other_records() -> None:
    transforms = {"twinlog.transform.topics": ORIGIN.topic, "twinlog.transform.where": "true"}
    for given, told in (({}, 0), (transforms, 1)):
        async with move_rig(transforms=given) as rig:
            rig.logs.source.set_group("g", {ORIGIN: 100})
            plan = await rig.served.failover.plan(NO_WAIT)
        warned = [warning for warning in plan.warnings if f"{ORIGIN.topic}: transforms" in warning]
        assert len(warned) == told


async def test_a_plan_names_the_groups_that_no_translation_is_for(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100}, group_type="streams")
    rig.logs.source.set_group("shared", group_type="share")
    plan = await rig.served.failover.plan(NO_WAIT)
    (explained,) = [await explain_group(rig.parts, "shared", ())]
    assert actions(plan) == {"g": MoveAction.WRITE}
    assert [warning for warning in plan.warnings if "group shared: share groups are not moved" in warning]
    assert not explained.translated
    assert "it is a share group" in explained.findings[-1].message


async def test_a_run_commits_exact_offsets_verifies_and_records_them(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    steps, report = await run(rig.served.failover)
    written = await offset_of(rig.logs.target, "g", COPY)
    record = await rig.served.failover.journal.load()
    assert written is not None
    rig.logs.check(100, written)
    assert not report.already_done
    assert [step.step for step in steps if step.state is StepState.DONE] == [
        Step.CHECK,
        Step.FINAL_OFFSETS,
        Step.DRAIN,
        Step.TRANSLATE,
        Step.COMMIT,
        Step.VERIFY,
        Step.DONE,
    ]
    done = last_run(record)
    assert (done.state, moved(record), done.by) == (MoveState.DONE, ["g"], "test")


async def test_a_second_run_changes_nothing(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    _, first = await run(rig.served.failover)
    changes: list[Call] = []
    rig.logs.target.intercept("alter_group_offsets", changes.append)
    rig.logs.target.intercept("append", changes.append)
    steps, second = await run(rig.served.failover)
    assert second.already_done
    assert second.run_id == first.run_id
    assert changes == []
    assert {Step.FINAL_OFFSETS, Step.DRAIN} <= {step.step for step in steps}


async def test_a_run_that_was_cut_goes_on_as_the_same_run(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})

    def fail(call: Call) -> None:
        raise TransientKafkaError("the broker went away")

    undo = rig.logs.target.intercept("alter_group_offsets", fail)
    with pytest.raises(TransientKafkaError):
        await run(rig.served.failover)
    cut = last_run(await rig.served.failover.journal.load())
    assert cut.state is MoveState.RUNNING
    undo()
    rig.logs.produce(20)
    _, report = await run(rig.served.failover)
    record = last_run(await rig.served.failover.journal.load())
    written = await offset_of(rig.logs.target, "g", COPY)
    assert report.run_id == cut.run_id == record.run_id
    rig.logs.check(100, written or 0)


async def test_it_waits_for_the_copy_up_to_the_final_offsets(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.produce(40)
    looked: list[int | None] = []
    async for event in rig.served.failover.run(MoveOptions(wait_seconds=60)):
        if isinstance(event, StepEvent) and event.step is Step.DRAIN:
            looked.append(event.records_left)
            if event.state is StepState.PROGRESS:
                await rig.copy()
                rig.logs.produce(10)
    assert looked[-1] == 0
    assert any(left for left in looked)


async def test_records_that_are_never_copied_stop_the_run_unless_accepted(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: rig.source_end})
    rig.logs.produce(40)
    short = MoveOptions(wait_seconds=1e-9)
    rig.fakes.clock.advance(1)

    async def wait(options: MoveOptions) -> MoveReport:
        report = None
        async for event in rig.served.failover.run(options):
            rig.fakes.clock.advance(1)
            report = event if isinstance(event, MoveReport) else report
        assert report is not None
        return report

    with pytest.raises(StateError, match="records are not copied") as refused:
        await wait(short)
    assert refused.value.reason == "BACKLOG_NOT_COPIED"
    report = await wait(MoveOptions(wait_seconds=1e-9, accept_loss=True))
    assert report.plan.records_not_copied


async def test_records_behind_an_open_transaction_are_not_copied_and_are_waited_for(rig: MoveRig) -> None:
    """They were acknowledged; only the end of the transaction lets the copy read them."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    begun, records = rig.source_end, rig.logs.visible_target()[:5]
    transaction = rig.logs.source.append_transaction(ORIGIN, records[:1], None)
    rig.logs.source.append(ORIGIN, *records)
    rig.fakes.open_transactions[ORIGIN] = [OpenTransaction(7, 0, begun, 1_700_000_000_000)]
    plan = await rig.served.failover.plan(NO_WAIT)
    (backlog,) = plan.backlog
    assert (plan.records_not_copied, backlog.at_most, backlog.counting) == (None, 6, False)
    assert "producer id 7" in backlog.message
    assert "2023-11-14T22:13:20Z" in backlog.message
    undo = rig.logs.source.intercept("list_offsets", lambda _call: rig.fakes.clock.advance(10))
    with pytest.raises(StateError, match="producer id 7") as refused:
        await run(rig.served.failover, MoveOptions(wait_seconds=5))
    undo()
    assert refused.value.reason == "BACKLOG_NOT_COPIED"
    _, report = await run(rig.served.failover, NO_WAIT)
    assert "producer id 7" in report.left_behind[0]
    rig.logs.source.finish_transaction(ORIGIN, transaction, EndMarker.ABORT)
    await rig.copy()
    _, over = await run(rig.served.failover, MoveOptions(wait_seconds=5))
    assert over.left_behind == []


async def test_records_that_arrive_while_the_ends_are_looked_up_wait_behind_no_transaction(
    rig: MoveRig,
) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    undo = rig.logs.source.intercept("list_offsets", lambda _call: rig.logs.produce(3))
    plan = await rig.served.failover.plan(NO_WAIT)
    undo()
    (backlog,) = plan.backlog
    assert plan.records_not_copied
    assert "transaction" not in backlog.message


async def test_groups_go_back_to_the_very_record(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover)
    target_records = rig.logs.visible_target()
    progress = target_records[150].offset
    rig.logs.target.set_group("g", {COPY: progress})
    _, report = await run(rig.served.failback)
    back = await offset_of(rig.logs.source, "g", ORIGIN)
    assert back is not None
    (entry,) = report.plan.partitions
    assert entry.translation.verdict is Verdict.EXACT
    following = [record for record in rig.logs.visible_source() if record.offset >= back]
    assert following[0].value == target_records[150].value


async def moved_and_retired(rig: MoveRig) -> tuple[int, int]:
    """The group has read a part of the copy after its failover, and the source has deleted what follows.
    Returns where it stands on the copy, and how many records it has not read are there only."""
    rig.logs.source.set_group("g", {ORIGIN: 50})
    await run(rig.served.failover)
    there = rig.logs.visible_target()
    rig.logs.target.set_group("g", {COPY: there[80].offset})
    here = rig.logs.visible_source()
    rig.logs.retain(here[200].offset)
    return there[80].offset, 120


async def test_a_failback_does_not_skip_records_that_only_the_target_has(rig: MoveRig) -> None:
    _, unread = await moved_and_retired(rig)
    plan = await rig.served.failback.plan(NO_WAIT)
    with pytest.raises(StateError) as refused:
        await run(rig.served.failback)
    back = await offset_of(rig.logs.source, "g", ORIGIN)
    await run(rig.served.failback, replace(NO_WAIT, accept_loss=True))
    skipped_to = await offset_of(rig.logs.source, "g", ORIGIN)
    assert actions(plan) == {"g": MoveAction.SKIP_UNREAD}
    (blocker,) = plan.blockers
    assert f"{unread} records" in blocker
    assert "--accept-loss" in blocker
    assert refused.value.reason == "MOVE_BLOCKED"
    assert back == 50
    assert skipped_to == rig.logs.visible_source()[0].offset


async def test_a_failover_undoes_a_failback_that_accepted_a_loss(rig: MoveRig) -> None:
    stood, _ = await moved_and_retired(rig)
    await run(rig.served.failback, replace(NO_WAIT, accept_loss=True))
    _, report = await run(rig.served.failover)
    assert actions(report.plan) == {"g": MoveAction.ALREADY_THERE}
    assert await offset_of(rig.logs.target, "g", COPY) == stood
    await run(rig.served.failback, replace(NO_WAIT, accept_loss=True))
    rig.logs.source.set_group("g", {ORIGIN: rig.logs.visible_source()[10].offset})
    await run(rig.served.failover)
    assert await offset_of(rig.logs.target, "g", COPY) == rig.logs.visible_target()[210].offset


async def test_a_failover_after_a_failback_takes_what_the_group_has_read_on_the_source(rig: MoveRig) -> None:
    """The failback left it where it had gone on itself."""
    rig.logs.source.set_group("g", {ORIGIN: 50})
    await run(rig.served.failover)
    here, there = rig.logs.visible_source(), rig.logs.visible_target()
    rig.logs.source.set_group("g", {ORIGIN: here[100].offset})
    _, back = await run(rig.served.failback)
    assert actions(back.plan) == {"g": MoveAction.KEEP_AHEAD}
    await run(rig.served.failover)
    assert await offset_of(rig.logs.target, "g", COPY) == there[100].offset


async def test_a_failback_undoes_a_failover_that_accepted_a_loss(rig: MoveRig) -> None:
    stood = rig.logs.visible_source()[20].offset
    rig.logs.source.set_group("g", {ORIGIN: stood})
    rig.logs.target.log(COPY).delete_before(rig.logs.visible_target()[90].offset)
    await run(rig.served.failover, replace(NO_WAIT, accept_loss=True))
    await run(rig.served.failback)
    assert await offset_of(rig.logs.source, "g", ORIGIN) == stood


async def test_a_group_that_has_read_what_the_source_deleted_goes_back(rig: MoveRig) -> None:
    await moved_and_retired(rig)
    there = rig.logs.visible_target()
    rig.logs.target.set_group("g", {COPY: there[200].offset})
    plan = await rig.served.failback.plan(NO_WAIT)
    assert (actions(plan), plan.blockers) == ({"g": MoveAction.WRITE}, [])


@pytest.mark.parametrize("is_synced", [False, True])
async def test_a_failover_does_not_skip_records_that_only_the_source_has(
    rig: MoveRig, is_synced: bool
) -> None:
    await translated(rig, g=rig.logs.visible_source()[20].offset)
    rig.logs.target.log(COPY).delete_before(rig.logs.visible_target()[90].offset)
    if is_synced:
        assert await synced(rig) == rig.logs.visible_target()[0].offset
    plan = await rig.served.failover.plan(NO_WAIT)
    assert actions(plan) == {"g": MoveAction.SKIP_UNREAD}
    assert "70 records" in plan.blockers[0]


async def test_records_that_become_unread_only_there_during_a_run_leave_it_incomplete(rig: MoveRig) -> None:
    """Retention does not wait for the run."""
    rig.logs.source.set_group("g", {ORIGIN: 50})
    rig.logs.source.set_group("other", {ORIGIN: rig.source_end})
    events = rig.served.failover.run(NO_WAIT)
    async for event in events:
        if isinstance(event, StepEvent) and event.step is Step.DRAIN:
            rig.logs.target.log(COPY).delete_before(rig.logs.visible_target()[90].offset)
        if isinstance(event, MoveReport):
            break
    written = await offset_of(rig.logs.target, "g", COPY)
    assert isinstance(event, MoveReport)
    assert actions(event.plan) == {"g": MoveAction.SKIP_UNREAD, "other": MoveAction.WRITE}
    assert written is None
    assert "g on orders-0" in event.left_behind[0]


async def test_groups_on_topics_nobody_copies_back_are_said_so(rig: MoveRig) -> None:
    local = TopicPartition("only-on-b", 0)
    rig.logs.target.add_topic(local.topic)
    rig.logs.source.set_group("g")
    rig.logs.target.set_group("g", {local: 0})
    plan = await rig.served.failback.plan(NO_WAIT)
    (entry,) = plan.partitions
    assert (entry.action, entry.translation.verdict) == (MoveAction.SKIP_NO_OFFSET, Verdict.NOT_REPLICATED)


async def test_an_unknown_group_blocks_the_move(rig: MoveRig) -> None:
    plan = await rig.served.failover.plan(MoveOptions(groups=("nobody",)))
    assert any("nobody" in blocker for blocker in plan.blockers)


async def test_two_moves_of_a_flow_never_run_at_once(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    first = rig.served.failover.run(NO_WAIT)
    await anext(first)
    for runner in (rig.served.failover, rig.served.failback):
        with pytest.raises(StateError) as refused:
            await run(runner)
        assert refused.value.reason == "MOVE_IN_PROGRESS"
    await first.aclose()
    _, report = await run(rig.served.failover)
    assert not report.already_done


async def test_a_move_back_takes_the_place_of_one_that_was_cut(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    cut = rig.served.failover.run(NO_WAIT)
    async for event in cut:
        if isinstance(event, StepEvent) and event.step is Step.FINAL_OFFSETS:
            break
    await cut.aclose()
    plan = await rig.served.failback.plan(NO_WAIT)
    await run(rig.served.failback)
    record = last_run(await rig.served.failback.journal.load())
    assert plan.last is not None
    assert (plan.last.finished, plan.last.kind) == (False, MoveKind.FAILOVER)
    assert "this move replaces it" in plan.warnings[0]
    assert (record.kind, record.state) == (MoveKind.FAILBACK, MoveState.DONE)


async def test_a_failover_is_blocked_while_a_group_stands_past_the_end_of_the_copy(rig: MoveRig) -> None:
    """It was committed before the copy was created again, and not by Twinlog."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.target.set_group("g", {COPY: 1})
    held = rig.logs.target.kafka.groups.offsets["g"]
    held[COPY] = held[COPY]._replace(offset=1_000_000)
    plan = await rig.served.failover.plan(NO_WAIT)
    assert held[COPY].offset == 1_000_000
    (reason,) = plan.blockers
    assert f"g on {ORIGIN}: PAST_END" in reason
    assert "run it again" in reason
    del held[COPY]
    _, report = await run(rig.served.failover)
    assert not report.left_behind
    assert actions(report.plan) == {"g": MoveAction.WRITE}
    assert held[COPY].offset < 1_000


async def test_a_report_counts_only_what_was_written_before_the_final_offsets(rig: MoveRig) -> None:
    """Nobody is fenced: what writers append while the groups are moved belongs to no move."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.target.intercept("alter_group_offsets", lambda _call: rig.logs.produce(5))
    _, report = await run(rig.served.failover)
    assert report.plan.records_not_copied == 0
    assert report.left_behind == []
