"""Fences: writers are kept out until the move back, Twinlog and rules of others are not touched."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace

import pytest

from twinlog.batches import EndMarker
from twinlog.errors import KafkaError, StateError, TransientKafkaError
from twinlog.model import Flow
from twinlog.moves.record import Moves, Step
from twinlog.policy import DefaultReplicationPolicy
from twinlog.policy.replication import IdentityReplicationPolicy
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.write_blocks import OtherFence, fence_of, holder_name, holder_of, is_fence, is_holder
from twinlog_checkpoint.assembly import watch_fences
from twinlog_checkpoint.journal import KnownFences
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.running.run_record import StepEvent, StepState
from twinlog_checkpoint.moves.write_block import (
    WriteBlockScope,
    fence_scope,
    hold_fences,
    release_fences,
)
from unit.checkpoint.checkpoint_rig import A_TO_B
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, move_rig, offset_of, run
from unit.checkpoint.moves.test_write_grants import rule

FENCED = MoveOptions(wait_seconds=0, fence=True)
DRAINING = (Step.DRAIN, StepState.PROGRESS)
FENCE = fence_of(ORIGIN.topic)
OURS, OTHER = holder_name(A_TO_B, "id-of-B"), holder_name(Flow("A", "C"), "id-of-C")
HELD = {FENCE, holder_of(FENCE, OURS)}
HELD_BY_OTHER = {FENCE, holder_of(FENCE, OTHER)}


@asynccontextmanager
async def fence_rig() -> AsyncIterator[MoveRig]:
    async with move_rig() as rig:
        rig.logs.target.kafka.cluster_id = "id-of-B"
        rig.logs.source.set_group("g", {ORIGIN: 100})
        yield rig


async def test_a_fence_denies_writes_until_the_move_back() -> None:
    async with fence_rig() as rig:
        steps, report = await run(rig.served.failover, FENCED)
        assert rig.logs.source.acls == HELD
        assert rig.served.parts.fences.topics == {"source": 1, "target": 0}
        assert report.plan.fenced_topics == [ORIGIN.topic]
        assert not any("not fenced" in warning for warning in report.plan.warnings)
        plan = await rig.served.failover.plan(NO_WAIT)
        assert plan.fenced_topics == [ORIGIN.topic]
        steps, _ = await run(rig.served.failback)
        assert rig.logs.source.acls == set()
        assert rig.served.parts.fences.topics == {"source": 0, "target": 0}
        record = await rig.served.failback.journal.load()
    assert Step.UNFENCE in [step.step for step in steps]
    assert (record.fenced("A"), record.fenced("B")) == ((), ())


async def no_others(moves: Moves) -> Sequence[OtherFence]:
    return ()


async def test_an_owner_learns_of_fences_from_the_journal_and_forgets_them_with_the_flow() -> None:
    async with fence_rig() as rig:
        await run(rig.served.failover, FENCED)
        journal, known, stop = rig.served.failover.journal, KnownFences(), asyncio.Event()
        assert known.topics == {}
        async with asyncio.TaskGroup() as group:
            group.create_task(
                known.run(stop, load=journal.load, tend=no_others, clock=rig.served.failover.planner.clock),
                name="fences",
            )
            await eventually(lambda: known.topics == {"source": 1, "target": 0})
            stop.set()
        assert known.topics == {}


async def test_a_cluster_without_authorizer_cannot_be_fenced() -> None:
    async with move_rig(authorizer=False) as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        with pytest.raises(StateError, match="authorizer"):
            await run(rig.served.failover, FENCED)
        assert await offset_of(rig.logs.target, "g", COPY) is None


async def test_a_cluster_that_lost_its_authorizer_keeps_no_move_from_its_end() -> None:
    await release_fences(FakeCluster("A", authorizer=False), [FENCE], OURS)


async def test_a_fence_is_recorded_before_it_is_there_so_that_none_is_forgotten() -> None:
    async with fence_rig() as rig:

        def killed(call: Call) -> None:
            raise TransientKafkaError("killed")

        undo = rig.logs.source.intercept("create_acls", killed, after=True)
        with pytest.raises(TransientKafkaError):
            await run(rig.served.failover, FENCED)
        undo()
        assert rig.logs.source.acls == HELD
        record = await rig.served.failover.journal.load()
        assert record.fenced("A") == (FENCE,)
        await run(rig.served.failover, FENCED)
        await run(rig.served.failback)
        assert rig.logs.source.acls == set()


async def test_a_move_back_lets_writers_in_though_the_failover_was_cut() -> None:
    async with fence_rig() as rig:
        cut = rig.served.failover.run(FENCED)
        async for event in cut:
            if isinstance(event, StepEvent) and event.step is Step.FENCE:
                assert event.state is StepState.DONE
                break
        await cut.aclose()
        assert rig.logs.source.acls == HELD
        await run(rig.served.failback)
        assert rig.logs.source.acls == set()


async def test_a_rule_that_was_there_before_stays() -> None:
    async with fence_rig() as rig:
        await rig.logs.source.create_acls([FENCE])
        await run(rig.served.failover, FENCED)
        await run(rig.served.failback)
        assert rig.logs.source.acls == {FENCE}


@pytest.mark.parametrize("other_is_first", [True, False])
@pytest.mark.parametrize("is_aborted", [True, False])
async def test_a_fence_that_two_flows_hold_falls_with_the_last_of_them(
    other_is_first: bool, is_aborted: bool
) -> None:
    async with fence_rig() as rig:
        source = rig.logs.source
        if other_is_first:
            await hold_fences(source, [FENCE], OTHER)
        failover = rig.served.failover.run(FENCED)
        async for event in failover:
            if is_aborted and isinstance(event, StepEvent) and event.step is Step.FENCE:
                break
        await failover.aclose()
        if not other_is_first:
            await hold_fences(source, [FENCE], OTHER)
        assert source.acls == HELD | HELD_BY_OTHER
        if is_aborted:
            assert (await rig.served.failover.abort("ann")).unfenced_topics == []
        else:
            steps, _ = await run(rig.served.failback)
            (message,) = [each.message for each in steps if each.step is Step.UNFENCE]
            assert "moves of A->C id-of-C keep it on 1 of 1 topics" in message
        assert source.acls == HELD_BY_OTHER
        await release_fences(source, [FENCE], OTHER)
        assert source.acls == set()


@pytest.mark.parametrize("begins", [True, False])
async def test_a_fence_that_another_flow_begins_to_hold_or_releases_meanwhile(begins: bool) -> None:
    source = FakeCluster("A")
    await hold_fences(source, [FENCE], OURS)
    if not begins:
        await hold_fences(source, [FENCE], OTHER)

    def meanwhile(call: Call) -> None:
        undo()
        source.acls = HELD | HELD_BY_OTHER if begins else set(HELD)

    undo = source.intercept("describe_acls", meanwhile, after=True)
    await release_fences(source, [FENCE], OURS)
    assert source.acls == (HELD_BY_OTHER if begins else set())


def refusing(operation: str, error: KafkaError) -> FakeCluster:
    """A cluster that makes, or deletes, no holder of a fence."""
    cluster = FakeCluster("A")

    def keep(call: Call) -> None:
        for binding in filter(is_holder, call.result):
            call.result[binding] = error
            if operation == "create_acls":
                cluster.acls.discard(binding)
            else:
                cluster.acls.add(binding)

    cluster.intercept(operation, keep, after=True)
    return cluster


async def test_a_cluster_that_knows_no_such_user_is_fenced_all_the_same_until_the_move_back() -> None:
    source = refusing("create_acls", KafkaError("no such user", reason="REFUSED"))
    await hold_fences(source, [FENCE], OURS)
    assert source.acls == {FENCE}
    await release_fences(source, [FENCE], OURS)
    assert source.acls == set()


async def test_a_holder_that_cannot_be_deleted_is_not_forgotten() -> None:
    source = refusing("delete_acls", KafkaError("not now", reason="REFUSED"))
    await hold_fences(source, [FENCE], OURS)
    with pytest.raises(KafkaError, match="not now"):
        await release_fences(source, [FENCE], OURS)
    assert source.acls == {holder_of(FENCE, OURS)}


async def test_the_holder_of_a_fence_that_somebody_removed_keeps_no_later_fence() -> None:
    source = FakeCluster("A")
    await hold_fences(source, [FENCE], OTHER)
    await source.delete_acls([FENCE])
    await hold_fences(source, [FENCE], OURS)
    assert source.acls == HELD
    await release_fences(source, [FENCE], OURS)
    assert source.acls == set()


async def test_equal_aliases_of_other_clusters_are_another_holder() -> None:
    source, twin = FakeCluster("A"), holder_name(A_TO_B, "another-B")
    await hold_fences(source, [FENCE], OURS)
    await hold_fences(source, [FENCE], twin)
    is_there: list[bool] = []
    source.intercept("delete_acls", lambda _call: is_there.append(FENCE in source.acls), after=True)
    await release_fences(source, [FENCE], OURS)
    assert is_there == [True], "also not for a moment without it"
    assert source.acls == {FENCE, holder_of(FENCE, twin)}


@pytest.mark.parametrize(
    "error", [TransientKafkaError("not now"), KafkaError("no such user", reason="REFUSED")]
)
async def test_a_holder_that_cannot_be_created_now_is_tried_again(error: KafkaError) -> None:
    with pytest.raises(TransientKafkaError) if error.retriable else nullcontext():
        await hold_fences(refusing("create_acls", error), [FENCE], OURS)


@pytest.mark.parametrize("is_repeated", [True, False])
async def test_a_fence_of_an_earlier_release_gets_its_holder(is_repeated: bool) -> None:
    """By the loop of the flow's owner, or by a repeated run."""
    async with fence_rig() as rig:
        await run(rig.served.failover, FENCED)
        rig.logs.source.acls.discard(holder_of(FENCE, OURS))
        if is_repeated:
            await run(rig.served.failover, FENCED)
        else:
            await watched(rig, lambda: rig.logs.source.acls == HELD)
        assert rig.logs.source.acls == HELD
        await hold_fences(rig.logs.source, [FENCE], OTHER)
        await run(rig.served.failback)
        assert rig.logs.source.acls == HELD_BY_OTHER


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_fence_of_moves_that_no_record_knows_is_told_with_its_remedy(is_own: bool) -> None:
    """The flow was taken out of the file, for example."""
    async with fence_rig() as rig:
        await hold_fences(rig.logs.source, [FENCE, fence_of("mm2-configs.B.internal")], OTHER)
        if is_own:
            await run(rig.served.failover, FENCED)
        told: list[OtherFence] = []

        def tell() -> list[OtherFence]:
            told.extend(rig.parts.fences.others)
            return told

        await watched(rig, tell)
        other = told[0]
        assert (other.holders, other.topics) == ((OTHER,), [ORIGIN.topic])
        denied = "" if is_own else " --deny-principal 'User:*'"
        assert other.remedy == (
            "kafka-acls --bootstrap-server A --remove --deny-principal"
            f" 'User:twinlog-fence A->C id-of-C'{denied} --operation Write --topic {ORIGIN.topic}"
        )


async def test_a_holder_without_its_fence_and_without_a_record_is_removed_by_its_flow() -> None:
    async with fence_rig() as rig:
        rig.logs.source.acls = {holder_of(FENCE, OURS), holder_of(FENCE, OTHER)}
        await watched(rig, lambda: rig.logs.source.acls == {holder_of(FENCE, OTHER)})


async def watched(rig: MoveRig, seen: Callable[[], object]) -> None:
    """Let the loop of the flow's owner look after the fences until something has been seen."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(watch_fences(stop, parts=rig.parts, around=rig.fakes.around()), name="fences")
        await eventually(lambda: bool(seen()))
        stop.set()


async def test_a_finished_failover_may_be_fenced_later() -> None:
    async with fence_rig() as rig:
        await run(rig.served.failover)
        assert rig.logs.source.acls == set()
        await run(rig.served.failover, FENCED)
        assert rig.logs.source.acls == HELD
        _, again = await run(rig.served.failover, FENCED)
        assert again.already_done


async def test_what_is_written_until_the_fence_holds_belongs_to_the_move() -> None:
    """Brokers hear of ACLs a little later: records that still arrive are waited for."""
    async with fence_rig() as rig:
        looked = 0

        def still_arriving(call: Call) -> None:
            nonlocal looked
            looked += 1
            if looked in (2, 4):
                rig.logs.produce(10)

        undo = rig.logs.source.intercept("list_offsets", still_arriving)
        waited_for: int | None = None
        events = rig.served.failover.run(replace(FENCED, wait_seconds=60))
        async for event in events:
            if isinstance(event, StepEvent) and event.step is Step.FINAL_OFFSETS:
                undo()
            if isinstance(event, StepEvent) and (event.step, event.state) == DRAINING:
                waited_for = event.records_left
                break
        await events.aclose()
        assert looked > 4
        assert waited_for == len(rig.logs.visible_source()) - len(rig.logs.visible_target())
        assert waited_for


async def test_a_transaction_that_is_open_behind_the_fence_is_not_forgotten() -> None:
    """A fence does not keep it from being committed, and the copy ends before it."""
    async with fence_rig() as rig:
        transaction = rig.logs.source.append_transaction(ORIGIN, rig.logs.visible_target()[:1], None)
        rig.logs.source.intercept("list_offsets", lambda _call: rig.fakes.clock.advance(10))
        _, report = await run(rig.served.failover, FENCED)
        (reason,) = report.left_behind
        assert "a transaction is open" in reason
        assert str(ORIGIN) in reason
        _, accepted = await run(rig.served.failover, replace(FENCED, accept_loss=True))
        assert accepted.left_behind == []
        rig.logs.source.finish_transaction(ORIGIN, transaction, EndMarker.ABORT)
        _, over = await run(rig.served.failover, FENCED)
    assert over.left_behind == []


async def test_a_writer_that_the_fence_does_not_stop_keeps_a_failover_from_being_complete() -> None:
    """A super user, for example: what it writes after the final offsets would be lost with the cluster."""
    async with fence_rig() as rig:

        def writes_on(call: Call) -> None:
            rig.logs.produce(1)
            rig.fakes.clock.advance(1)

        undo = rig.logs.source.intercept("list_offsets", writes_on)
        _, report = await run(rig.served.failover, replace(FENCED, accept_loss=False))
        undo()
    assert any("still writes behind the fence" in reason for reason in report.left_behind)
    assert any(str(ORIGIN) in reason for reason in report.left_behind)


async def test_a_fence_that_somebody_removed_is_not_reported_as_present() -> None:
    async with fence_rig() as rig:
        await run(rig.served.failover, FENCED)
        await rig.logs.source.delete_acls([FENCE])
        steps, report = await run(rig.served.failover)
        assert [step.message for step in steps if step.step is Step.FENCE] == [
            "writes are already denied on 0 topics"
        ]
        (reason,) = [each for each in report.left_behind if "removed the fence" in each]
        assert ORIGIN.topic in reason
        _, again = await run(rig.served.failover, FENCED)
    assert not any("removed the fence" in each for each in again.left_behind)


@pytest.mark.parametrize("is_grouped", [True, False])
async def test_a_failback_that_leaves_groups_behind_keeps_the_fence_and_the_grants(is_grouped: bool) -> None:
    """Producers of the groups that stay still write to the copies."""
    writer = rule()
    async with fence_rig() as rig:
        rig.logs.source.set_group("other", {ORIGIN: 100})
        await rig.logs.source.create_acls([writer])
        await run(rig.served.failover, replace(FENCED, grant_write=True))
        granted = set(rig.logs.target.acls)
        assert granted
        if not is_grouped:
            place = await offset_of(rig.logs.target, "other", COPY)
            rig.logs.target.set_group("other", {COPY: place or 0}, state="STABLE", member_count=1)
        options = replace(NO_WAIT, groups=("g",)) if is_grouped else NO_WAIT
        steps, _ = await run(rig.served.failback, options)
        assert (Step.UNFENCE, StepState.SKIPPED) in [(step.step, step.state) for step in steps]
        await run(rig.served.failback, options)
        assert (rig.logs.source.acls, rig.logs.target.acls) == ({writer, *HELD}, granted)
        if not is_grouped:
            rig.logs.target.set_group("other", {COPY: place or 0})
        await run(rig.served.failback)
        assert (rig.logs.source.acls, rig.logs.target.acls) == ({writer}, set())


def test_copies_are_left_out_for_only_twinlog_writes_to_them() -> None:
    scope = fence_scope(
        {"orders", "C.orders", "web.clicks"},
        here="A",
        others=("A", "B", "C"),
        policy=DefaultReplicationPolicy(),
        reverse=Flow("B", "A"),
    )
    assert scope == WriteBlockScope(topics=["orders", "web.clicks"])


@pytest.mark.parametrize(
    ("reverse", "scope"),
    [(None, WriteBlockScope(topics=["orders"])), (Flow("B", "A"), WriteBlockScope(conflicts=["orders"]))],
)
def test_where_names_are_kept_a_flow_back_stands_against_a_fence(
    reverse: Flow | None, scope: WriteBlockScope
) -> None:
    policy = IdentityReplicationPolicy(source_cluster_alias="A")
    assert fence_scope({"orders"}, here="A", others=("A", "B"), policy=policy, reverse=reverse) == scope


def test_a_fence_is_known_by_what_it_says() -> None:
    assert is_fence(FENCE)
    assert not is_holder(FENCE)
    assert not is_holder(replace(holder_of(FENCE, OURS), permission="ALLOW"))
    assert FENCE.principal == "User:*"
