"""A move never says that it is done when it is not: every run looks again, and only the owner writes."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest

from twinlog.errors import StateError, TransientKafkaError, TwinlogError
from twinlog.model import TopicPartition
from twinlog.moves.record import Step
from twinlog.testing.fakes.cluster import Call
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions
from twinlog_checkpoint.moves.running.run_record import StepEvent, StepState
from twinlog_checkpoint.moves.running.runner import MoveRunner
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, actions, move_rig, offset_of, run
from unit.checkpoint.owners import AlwaysOwner

T = TypeVar("T")
DRAINING = (Step.DRAIN, StepState.PROGRESS)


async def refused_for_the_backlog(rig: MoveRig, options: MoveOptions) -> StateError:
    async def waited() -> None:
        async for _ in rig.served.failover.run(options):
            rig.fakes.clock.advance(10)

    with pytest.raises(StateError) as refused:
        await waited()
    assert refused.value.reason == "BACKLOG_NOT_COPIED"
    return refused.value


async def test_a_run_after_a_finished_one_waits_for_what_was_written_since(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover)
    rig.logs.produce(40)
    error = await refused_for_the_backlog(rig, MoveOptions(wait_seconds=5))
    assert str(ORIGIN) in str(error)
    await rig.copy()
    _, report = await run(rig.served.failover, MoveOptions(wait_seconds=5))
    assert (report.already_done, report.left_behind) == (True, [])


async def test_a_run_of_one_group_is_not_done_for_all(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.source.set_group("other", {ORIGIN: 50})
    await run(rig.served.failover, MoveOptions(groups=("g",), wait_seconds=0))
    _, report = await run(rig.served.failover)
    written = await offset_of(rig.logs.target, "other", COPY)
    assert not report.already_done
    rig.logs.check(50, written or 0)


async def test_a_run_that_moved_nothing_is_not_done(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100}, state="STABLE", member_count=1)
    only_g = MoveOptions(groups=("g",), wait_seconds=0)
    for _ in range(2):
        _, report = await run(rig.served.failover, only_g)
        assert not report.already_done
        assert report.left_behind == ["groups with members were not moved: g"]


async def test_a_run_that_goes_on_waits_for_the_ends_of_now(rig: MoveRig) -> None:
    """Those of the run that was cut may be of yesterday."""
    rig.logs.source.set_group("g", {ORIGIN: 100})

    def fail(call: Call) -> None:
        raise TransientKafkaError("the broker went away")

    undo = rig.logs.target.intercept("alter_group_offsets", fail)
    with pytest.raises(TransientKafkaError):
        await run(rig.served.failover, MoveOptions(wait_seconds=5))
    undo()
    rig.logs.produce(40)
    await refused_for_the_backlog(rig, MoveOptions(wait_seconds=5))


async def test_a_log_whose_end_cannot_be_looked_up_is_not_taken_for_copied() -> None:
    silent = TopicPartition(ORIGIN.topic, 0)
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})

        def no_leader(call: Call) -> None:
            if silent in call.arguments["partitions"] and call.arguments["spec"] != "earliest":
                call.result[silent] = TransientKafkaError("no leader")

        rig.logs.source.intercept("list_offsets", no_leader, after=True)
        plan = await rig.served.failover.plan(NO_WAIT)
        assert plan.records_not_copied is None
        with pytest.raises(StateError, match="no leader"):
            await run(rig.served.failover, NO_WAIT)


async def test_a_group_is_finished_when_each_of_its_offsets_is() -> None:
    """Not by their sum: a topic that is deleted may hide that the group went on with another one."""
    other = TopicPartition("gone", 0)
    async with move_rig() as rig:
        for cluster, name in ((rig.logs.source, "gone"), (rig.logs.target, "A.gone")):
            cluster.add_topic(name)
        rig.logs.source.set_group("g", {ORIGIN: 100, other: 0})
        offsets = rig.logs.source.kafka.groups.offsets["g"]
        offsets[other] = offsets[other]._replace(offset=1_000_000)
        await rig.fakes.write_sync("gone", 0, 0)
        await run(rig.served.failover)
        del offsets[other]
        rig.logs.source.set_group("g", {ORIGIN: 200})
        _, report = await run(rig.served.failover)
        written = await offset_of(rig.logs.target, "g", COPY)
    assert not report.already_done
    assert actions(report.plan) == {"g": MoveAction.WRITE}
    rig.logs.check(200, written or 0)


async def test_a_plan_while_a_run_drains_does_not_change_the_run(rig: MoveRig) -> None:
    """The source is silent for a moment, and a plan notices: the run continues with what the source says."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.source.set_group("busy", {ORIGIN: 100}, state="STABLE", member_count=1)
    rig.logs.produce(40)
    events = rig.served.failover.run(MoveOptions(wait_seconds=60))
    report = None
    async for event in events:
        if isinstance(event, StepEvent) and (event.step, event.state) == DRAINING:
            rig.logs.source.take_away()
            plan = await rig.served.failover.plan(NO_WAIT)
            assert not plan.from_reachable
            rig.logs.source.bring_back()
            await rig.copy()
        report = event
    busy = await offset_of(rig.logs.target, "busy", COPY)
    assert report is not None
    assert busy is None


@dataclass(slots=True, kw_only=True)
class LostAfter(AlwaysOwner):
    """This process has the flow for so many changes."""

    changes: int

    async def hold(self, step: Callable[[], Coroutine[Any, Any, T]], *, grace_seconds: float = 0.0) -> T:
        if not self.changes:
            raise StateError("another process has the flow", reason="OWNED_ELSEWHERE")
        self.changes -= 1
        return await step()


async def changes_of(runner: MoveRunner, options: MoveOptions) -> TwinlogError | None:
    try:
        await run(runner, options)
    except TwinlogError as error:
        return error
    return None


@pytest.mark.parametrize(("changes", "seen"), [(0, 0), (1, 0), (2, 0), (3, 1), (6, 1), (7, 2)])
async def test_only_the_owner_of_the_flow_changes_anything(rig: MoveRig, changes: int, seen: int) -> None:
    """A process that was out for a while must not write its old record, fence or offsets over newer ones."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    made: list[str] = []
    runner = rig.served.failover
    runner.duty = LostAfter(changes=changes).lease
    for cluster in (rig.logs.source, rig.logs.target):
        for operation in ("create_acls", "alter_group_offsets"):
            cluster.intercept(operation, lambda call: made.append(call.operation))
    error = await changes_of(runner, MoveOptions(wait_seconds=0, fence=True))
    record = await runner.journal.load()
    assert error is not None
    assert error.reason == "OWNED_ELSEWHERE"
    assert made == ["create_acls", "alter_group_offsets"][:seen]
    assert record.run is None or record.interrupted


async def test_a_failover_the_other_way_names_the_failback_that_is_due() -> None:
    fenced = MoveOptions(wait_seconds=0, fence=True)
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        back = rig.back_to_front()
        assert not (await back.failover.plan(NO_WAIT)).blockers
        await run(rig.served.failover)
        plan = await back.failover.plan(NO_WAIT)
        assert any("failback run 'A->B'" in warning for warning in plan.warnings)
        assert not plan.blockers
        await run(rig.served.failover, fenced)
        plan = await back.failover.plan(NO_WAIT)
        assert any("failback run 'A->B'" in blocker for blocker in plan.blockers)
        await run(rig.served.failback)
        plan = await back.failover.plan(NO_WAIT)
        assert not plan.blockers
        assert not any("failback" in warning for warning in plan.warnings)


@pytest.mark.parametrize("then", ["", "failback", "failback and failover"])
async def test_a_group_that_was_put_back_on_the_source_moves_there_though_another_one_moved_since(
    rig: MoveRig, then: str
) -> None:
    """To read records again (kafka-consumer-groups --reset-offsets). Further on they would be left out, and
    nobody but Twinlog committed there."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.source.set_group("other", {ORIGIN: 100})
    await run(rig.served.failover)
    if then:
        await run(rig.served.failback, MoveOptions(groups=("other",), wait_seconds=0))
    if then == "failback and failover":
        await run(rig.served.failover, MoveOptions(groups=("other",), wait_seconds=0))
    rig.logs.source.set_group("g", {ORIGIN: 40})
    assert actions(await rig.served.failover.plan(NO_WAIT))["g"] is MoveAction.WRITE
    await run(rig.served.failover)
    rig.logs.check(40, await offset_of(rig.logs.target, "g", COPY) or 0)
    assert (await run(rig.served.failover))[1].already_done


@pytest.mark.parametrize("another_moved", [False, True])
async def test_what_a_group_committed_after_a_failover_stays_though_another_one_moved_since(
    rig: MoveRig, another_moved: bool
) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.source.set_group("other", {ORIGIN: 100})
    await run(rig.served.failover)
    if another_moved:
        await run(rig.served.failback, MoveOptions(groups=("other",), wait_seconds=0))
    own = (await offset_of(rig.logs.target, "g", COPY) or 0) + 30
    rig.logs.target.set_group("g", {COPY: own})
    rig.logs.source.set_group("g", {ORIGIN: 40})
    await run(rig.served.failover)
    assert await offset_of(rig.logs.target, "g", COPY) == own


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_failback_knows_where_an_earlier_failover_found_a_group_that_stayed(
    rig: MoveRig, is_cut: bool
) -> None:
    """Since then another group went back and came again. The one that stayed was put back on the target."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.source.set_group("other", {ORIGIN: 100})
    rig.logs.source.set_group("early", {ORIGIN: 40})
    await run(rig.served.failover)
    for work in (rig.served.failback, rig.served.failover):
        await run(work, MoveOptions(groups=("other",), wait_seconds=0))
    lower = await offset_of(rig.logs.target, "early", COPY)
    rig.logs.target.set_group("g", {COPY: lower or 0})
    if is_cut:
        cut = rig.served.failback.run(NO_WAIT)
        async for event in cut:
            if isinstance(event, StepEvent) and (event.step, event.state) == (Step.CHECK, StepState.DONE):
                break
        await cut.aclose()
    assert actions(await rig.served.failback.plan(NO_WAIT))["g"] is MoveAction.WRITE
    await run(rig.served.failback)
    home = await offset_of(rig.logs.source, "g", ORIGIN)
    assert home == next(record.offset for record in rig.logs.visible_source() if record.offset >= 40)


async def test_a_group_whose_way_home_is_not_exact_stays_where_it_left(rig: MoveRig) -> None:
    """The floor is lower, but nobody put the group back."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover)
    pairs = rig.parts.pairs(ORIGIN)
    first = None if pairs is None else pairs.above(-1)
    assert first is not None
    rig.parts.checkpointer.tail.history.on_sync(ORIGIN, first)  # all that was learned is void

    def fail(call: Call) -> None:
        raise TransientKafkaError("the broker went away")

    rig.logs.source.intercept("fetch", fail)
    plan = await rig.served.failback.plan(NO_WAIT)
    (place,) = plan.partitions
    assert (place.translation.verdict, place.action) == (Verdict.FLOOR, MoveAction.KEEP_AHEAD)
    assert (place.to_offset or 0) < 100


async def left_at(rig: MoveRig, offset: int) -> None:
    """The failover has committed this offset for the group, as a coarse translation would."""
    journal = rig.served.failover.journal
    moves = await journal.load()
    rig.logs.target.set_group("g", {COPY: offset})
    home = replace(moves.homes["g"], left_at={COPY: offset})
    await journal.store(replace(moves, homes={"g": home}))


async def test_a_group_that_did_not_read_where_a_coarse_translation_left_it_is_not_set_back(
    rig: MoveRig,
) -> None:
    """It is as far as when it left, and nobody put it back."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover)
    exact = await offset_of(rig.logs.target, "g", COPY)
    await left_at(rig, (exact or 0) - 20)
    assert actions(await rig.served.failback.plan(NO_WAIT)) == {"g": MoveAction.KEEP_AHEAD}
    await run(rig.served.failback)
    assert await offset_of(rig.logs.source, "g", ORIGIN) == 100


async def test_a_group_that_was_put_back_is_known_by_what_was_committed_for_it(rig: MoveRig) -> None:
    """However the offset at which it stood is translated now."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover)
    exact = await offset_of(rig.logs.target, "g", COPY)
    await left_at(rig, (exact or 0) - 5)
    rig.logs.source.set_group("g", {ORIGIN: 40})
    assert actions(await rig.served.failover.plan(NO_WAIT)) == {"g": MoveAction.WRITE}
    await run(rig.served.failover)
    rig.logs.check(40, await offset_of(rig.logs.target, "g", COPY) or 0)
