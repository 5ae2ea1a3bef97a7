"""Failover and failback on two fake clusters: planned, run, cut and continued, run twice."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from twinlog.errors import KafkaError, StateError, TransientKafkaError
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog_checkpoint.api.group_explainer import explain_group
from twinlog_checkpoint.api.moves_servicer import ServedFlow
from twinlog_checkpoint.assembly import assemble_moves
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.journal.moves_log import MoveJournal
from twinlog_checkpoint.journal.record import MoveKind, MoveRecord, MoveState, Step
from twinlog_checkpoint.moves.planning.decision import GroupPlace, decide
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePlan
from twinlog_checkpoint.moves.running.events import MoveReport, StepEvent, StepState
from twinlog_checkpoint.moves.running.runner import MoveRunner
from twinlog_checkpoint.translation.history import OffsetPair
from twinlog_checkpoint.translation.log_ranges import LogRange
from twinlog_checkpoint.translation.translation import Translation, Verdict
from unit.checkpoint.checkpoint_rig import A_TO_B, B_TO_A, FlowOnFakes, ToldTopics, turns
from unit.checkpoint.mirrored_logs import COPY, ORIGIN, MirroredLogs

NO_WAIT = MoveOptions(wait_seconds=0, by="test")


@dataclass(slots=True, kw_only=True)
class MoveRig:
    """A mirror of one topic, a service that translates it, and its moves."""

    logs: MirroredLogs
    fakes: FlowOnFakes
    parts: FlowParts
    served: ServedFlow
    topics: ToldTopics
    synced_to: int = -1

    async def copy(self) -> None:
        """Mirror what is there, with its offset syncs in their topic."""
        before = self.synced_to
        self.logs.copy()
        pairs = self.logs.history.of(ORIGIN)
        assert pairs is not None
        pair = pairs.above(before)
        while pair is not None:
            await self.fakes.write_sync(ORIGIN.topic, pair.upstream, pair.downstream)
            pair = pairs.above(pair.upstream)
        newest = pairs.newest()
        assert newest is not None
        self.synced_to = newest.upstream
        await turns(lambda: self._has_read(newest))

    def back_to_front(self) -> ServedFlow:
        """The moves of the flow the other way, in the same process."""
        reverse = self.fakes.reverse_parts()
        return assemble_moves({A_TO_B: self.parts, B_TO_A: reverse}, self.fakes.around())[B_TO_A]

    async def has_synced(self, upstream: int) -> None:
        """Wait until the sync of this offset has been read."""

        def known() -> bool:
            pairs = self.parts.pairs(ORIGIN)
            newest = None if pairs is None else pairs.newest()
            return newest is not None and newest.upstream == upstream

        await turns(known)

    def _has_read(self, pair: OffsetPair) -> bool:
        known = self.parts.pairs(ORIGIN)
        return known is not None and known.at_or_below(pair.upstream) == pair

    @property
    def source_end(self) -> int:
        return self.logs.source.log(ORIGIN, "end").end


@asynccontextmanager
async def move_rig(*, seed: int = 1, authorizer: bool = True) -> AsyncIterator[MoveRig]:
    logs = MirroredLogs(seed=seed, source=FakeCluster("A", authorizer=authorizer))
    topics = ToldTopics()
    fakes = FlowOnFakes(
        source=logs.source, target=logs.target, translation_max_bytes=1 << 30, known_topics=topics
    )
    async with fakes.running() as parts:
        served = assemble_moves({A_TO_B: parts}, fakes.around())[A_TO_B]
        for runner in (served.failover, served.failback):
            runner.drain_look_seconds = 0
            runner.planner.rate_seconds = 0
        made = MoveRig(logs=logs, fakes=fakes, parts=parts, served=served, topics=topics)
        logs.produce(300)
        await made.copy()
        yield made


async def run(runner: MoveRunner, options: MoveOptions = NO_WAIT) -> tuple[list[StepEvent], MoveReport]:
    events = [event async for event in runner.run(options)]
    report = events[-1]
    assert isinstance(report, MoveReport)
    return [event for event in events if isinstance(event, StepEvent)], report


def actions(plan: MovePlan) -> dict[str, MoveAction]:
    return {entry.group: entry.action for entry in plan.partitions}


async def offset_of(cluster: FakeCluster, group: str, partition: TopicPartition) -> int | None:
    held = (await cluster.group_offsets([group]))[group]
    assert not isinstance(held, KafkaError)
    return held[partition].next_offset if partition in held else None


async def test_a_plan_says_where_groups_would_go_on_and_what_is_not_copied() -> None:
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        rig.logs.source.set_group("busy", {ORIGIN: 100}, state="STABLE", member_count=1)
        visible_before = len(rig.logs.visible_source())
        rig.logs.produce(50)
        added = len(rig.logs.visible_source()) - visible_before
        plan = await rig.served.failover.planner.plan(NO_WAIT)
    assert plan.records_not_copied == added
    assert plan.blockers == []
    assert actions(plan) == {"busy": MoveAction.SKIP_ACTIVE_BEFORE, "g": MoveAction.WRITE}
    (entry,) = [entry for entry in plan.partitions if entry.group == "g"]
    assert entry.translation.verdict is Verdict.EXACT
    rig.logs.check(100, entry.to_offset or 0)
    assert f"{added} records are not copied yet" in plan.warnings
    assert any("busy" in warning for warning in plan.warnings)


async def test_a_plan_names_the_groups_that_no_translation_is_for() -> None:
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100}, group_type="streams")
        rig.logs.source.set_group("shared", group_type="share")
        plan = await rig.served.failover.planner.plan(NO_WAIT)
        (explained,) = [await explain_group(rig.parts, "shared", ())]
    assert actions(plan) == {"g": MoveAction.WRITE}
    assert [warning for warning in plan.warnings if "group shared: share groups are not moved" in warning]
    assert not explained.translated
    assert "it is a share group" in explained.findings[-1].message


async def test_a_run_commits_exact_offsets_verifies_and_records_them() -> None:
    async with move_rig() as rig:
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
    assert record is not None
    assert (record.state, record.moved, record.by) == (MoveState.DONE, ("g",), "test")


async def test_a_second_run_changes_nothing() -> None:
    async with move_rig() as rig:
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


async def test_a_group_that_stayed_moves_with_a_later_run() -> None:
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        rig.logs.source.set_group("late", {ORIGIN: 50}, state="STABLE", member_count=1)
        await run(rig.served.failover)
        rig.logs.source.set_group("late", state="EMPTY")
        _, report = await run(rig.served.failover)
        assert not report.already_done
        written = await offset_of(rig.logs.target, "late", COPY)
    rig.logs.check(50, written or 0)


async def test_a_run_that_was_cut_goes_on_as_the_same_run() -> None:
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})

        def fail(call: Call) -> None:
            raise TransientKafkaError("the broker went away")

        undo = rig.logs.target.intercept("alter_group_offsets", fail)
        with pytest.raises(TransientKafkaError):
            await run(rig.served.failover)
        cut = await rig.served.failover.journal.load()
        assert cut is not None
        assert cut.state is MoveState.RUNNING
        undo()
        rig.logs.produce(20)
        _, report = await run(rig.served.failover)
        record = await rig.served.failover.journal.load()
        written = await offset_of(rig.logs.target, "g", COPY)
    assert record is not None
    assert report.run_id == cut.run_id == record.run_id
    rig.logs.check(100, written or 0)


async def test_it_waits_for_the_copy_up_to_the_final_offsets() -> None:
    async with move_rig() as rig:
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


async def test_records_that_are_never_copied_stop_the_run_unless_accepted() -> None:
    async with move_rig() as rig:
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


async def test_with_the_source_gone_checkpoints_say_where_to_go_on() -> None:
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        rig.fakes.clock.advance(60)
        await rig.fakes.do_pass(rig.parts.checkpointer)
        rig.logs.source.take_away()
        plan = await rig.served.failover.planner.plan(NO_WAIT)
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


async def test_groups_go_back_to_the_very_record() -> None:
    async with move_rig() as rig:
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


async def test_groups_on_topics_nobody_copies_back_are_said_so() -> None:
    async with move_rig() as rig:
        local = TopicPartition("only-on-b", 0)
        rig.logs.target.add_topic(local.topic)
        rig.logs.target.set_group("g", {local: 0})
        plan = await rig.served.failback.planner.plan(NO_WAIT)
    (entry,) = plan.partitions
    assert (entry.action, entry.translation.verdict) == (MoveAction.SKIP_NO_OFFSET, Verdict.NOT_REPLICATED)


async def test_an_unknown_group_blocks_the_move() -> None:
    async with move_rig() as rig:
        plan = await rig.served.failover.planner.plan(MoveOptions(groups=("nobody",)))
    assert any("nobody" in blocker for blocker in plan.blockers)


async def test_two_moves_of_a_flow_never_run_at_once() -> None:
    async with move_rig() as rig:
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


async def test_a_move_back_takes_the_place_of_one_that_was_cut() -> None:
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        cut = rig.served.failover.run(NO_WAIT)
        async for event in cut:
            if isinstance(event, StepEvent) and event.step is Step.FINAL_OFFSETS:
                break
        await cut.aclose()
        plan = await rig.served.failback.plan(NO_WAIT)
        await run(rig.served.failback)
        record = await rig.served.failback.journal.load()
    assert plan.last is not None
    assert (plan.last.finished, plan.last.kind) == (False, MoveKind.FAILOVER)
    assert "this takes its place" in plan.warnings[0]
    assert record is not None
    assert (record.kind, record.state) == (MoveKind.FAILBACK, MoveState.DONE)


async def test_a_restarted_service_moves_with_the_source_gone_by_checkpoints_alone() -> None:
    """The offset syncs are on the source, so they cannot be read; the checkpoints on the target can."""
    async with move_rig() as rig:
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


async def test_a_group_without_checkpoint_is_named_when_the_source_is_gone() -> None:
    async with move_rig() as rig:
        rig.logs.source.take_away()
        plan = await rig.served.failover.plan(MoveOptions(accept_loss=True, groups=("nobody",)))
    assert plan.blockers == ["no checkpoint on B: nobody"]


async def test_a_target_that_is_away_is_named() -> None:
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        rig.logs.target.take_away()
        plan = await rig.served.failover.plan(NO_WAIT)
        back = await rig.served.failback.plan(MoveOptions(accept_loss=True))
        for runner, words in ((rig.served.failover, "B, which"), (rig.served.failback, "B is away")):
            runner.planner.reachable = lambda alias: alias != "B"
            with pytest.raises(StateError, match=words) as refused:
                await run(runner)
            assert refused.value.reason == "MOVE_BLOCKED"
    assert plan.blockers == ["B, which the groups would move to, does not answer"]
    assert plan.from_reachable
    assert plan.records_not_copied is None
    assert any("B is away" in blocker and "on A they continue" in blocker for blocker in back.blockers)
    assert back.warnings == []


async def test_a_cluster_that_died_after_the_last_probe_counts_as_away() -> None:
    async with move_rig() as rig:
        rig.served.failover.planner.reachable = lambda alias: True
        rig.logs.source.take_away()
        plan = await rig.served.failover.plan(NO_WAIT)
    assert not plan.from_reachable
    assert any("A is away" in blocker for blocker in plan.blockers)


async def test_active_groups_are_left_alone_on_either_side() -> None:
    async with move_rig() as rig:
        rig.logs.source.set_group("here", {ORIGIN: 100}, state="STABLE", member_count=1)
        rig.logs.source.set_group("there", {ORIGIN: 100})
        rig.logs.target.set_group("there", {COPY: 3}, state="STABLE", member_count=1)
        _, report = await run(rig.served.failover)
        assert actions(report.plan) == {
            "here": MoveAction.SKIP_ACTIVE_BEFORE,
            "there": MoveAction.SKIP_ACTIVE_THERE,
        }
        assert await offset_of(rig.logs.target, "there", COPY) == 3
        asked = MoveOptions(wait_seconds=0, include_active=True)
        _, report = await run(rig.served.failover, asked)
        assert actions(report.plan)["here"] is MoveAction.WRITE


async def test_a_group_that_became_active_while_it_was_moved_is_left_alone() -> None:
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})

        def joins(call: Call) -> None:
            rig.logs.target.set_group("g", {COPY: 1}, state="STABLE", member_count=1)

        rig.logs.target.intercept("alter_group_offsets", joins)
        _, report = await run(rig.served.failover)
        record = await rig.served.failover.journal.load()
    assert actions(report.plan) == {"g": MoveAction.SKIP_ACTIVE_THERE}
    assert record is not None
    assert record.moved == ()


def place_there(wanted: int, *, verdict: Verdict = Verdict.FLOOR, present: int | None = None) -> GroupPlace:
    """A place to move to in a log that begins at 100 and ends at 200."""
    return GroupPlace(
        group="g",
        from_partition=ORIGIN,
        to_partition=COPY,
        from_offset=1,
        translation=Translation(verdict=verdict, downstream_offset=wanted),
        state_before="EMPTY",
        state_there="DEAD",
        present_offset=present,
        log_there=LogRange(start=100, end=200),
    )


@pytest.mark.parametrize(("wanted", "committed"), [(5, 100), (150, 150), (200, 200)])
def test_an_offset_before_the_targets_log_becomes_its_start(wanted: int, committed: int) -> None:
    decided = decide(place_there(wanted), include_active=False)
    assert (decided.action, decided.to_offset) == (MoveAction.WRITE, committed)


def test_an_offset_past_the_end_of_the_targets_log_is_not_moved_to() -> None:
    """The copy lost its tail: its end would skip whatever was copied since."""
    decided = decide(place_there(5_000), include_active=False)
    assert (decided.action, decided.to_offset) == (MoveAction.SKIP_NO_OFFSET, None)
    assert "past the end 200" in decided.message


@pytest.mark.parametrize(
    ("verdict", "present", "wrote", "action"),
    [
        (Verdict.EXACT, 180, True, MoveAction.WRITE),
        (Verdict.FLOOR, 230, True, MoveAction.WRITE),
        (Verdict.FLOOR, 180, True, MoveAction.KEEP_AHEAD),
        (Verdict.EXACT, 180, False, MoveAction.KEEP_AHEAD),
        (Verdict.EXACT, 230, False, MoveAction.KEEP_AHEAD),
    ],
)
def test_a_group_goes_back_only_from_where_a_wrong_checkpoint_put_it(
    verdict: Verdict, present: int, wrote: bool, action: MoveAction
) -> None:
    place = replace(place_there(150, verdict=verdict, present=present), wrote_present=wrote)
    assert decide(place, include_active=False).action is action


async def test_the_journal_keeps_what_it_is_told() -> None:
    fakes = FlowOnFakes()
    journal = MoveJournal(flow=A_TO_B, cluster=fakes.target, replication_factor=1)
    assert await journal.load() is None
    record = MoveRecord(
        run_id="r",
        kind=assemble_moves({A_TO_B: fakes.parts()}, fakes.around())[A_TO_B].failback.planner.route.kind,
        state=MoveState.DONE,
        groups=("g",),
        by="me",
        started_ms=1,
        finished_ms=2,
        done=(Step.CHECK, Step.DONE),
        chain="r",
        moved=("g", "h"),
        stood_at={"g": {ORIGIN: 7}, "h": {ORIGIN: 8, COPY: 9}},
    )
    await journal.store(record, groups=("g", "h"))
    assert await journal.load() == record
    assert fakes.target.topics[journal.topic].configs["cleanup.policy"] == "compact"
