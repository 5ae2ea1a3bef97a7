"""sync.group.offsets while groups are moved, and after: what a move committed on the target stays there."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import pytest

from twinlog.cli.checkpoint.groups import notes
from twinlog.errors import WireFormatError
from twinlog.model import TopicPartition
from twinlog.moves.record import Step
from twinlog.testing.fakes.cluster import Call
from twinlog_checkpoint.api.group_explainer import Rule, explain_group
from twinlog_checkpoint.api.messages import flow_progress
from twinlog_checkpoint.assembly import assemble_group_syncer
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.running.run_record import MoveEvent, StepEvent, StepState
from unit.checkpoint.checkpoint_rig import set_settings, turns
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, offset_of, run

ONLY_G = MoveOptions(groups=("g",), wait_seconds=0)


async def translated(rig: MoveRig, **groups: int) -> None:
    """These groups stand at these offsets of the source, and have checkpoints."""
    for group, offset in groups.items():
        rig.logs.source.set_group(group, {ORIGIN: offset})
    await next_pass(rig)


async def next_pass(rig: MoveRig) -> None:
    rig.fakes.clock.advance(5)
    await rig.fakes.do_pass(rig.parts.checkpointer)


async def synced(rig: MoveRig, group: str = "g") -> int | None:
    """Where the group stands on the target after the next look at it."""
    await rig.fakes.sync_groups(rig.parts)
    return await offset_of(rig.logs.target, group, COPY)


async def happened(events: AsyncGenerator[MoveEvent, None], step: Step) -> None:
    """Carry the run out until it has done this step."""
    async for event in events:
        if isinstance(event, StepEvent) and (event.step, event.state) == (step, StepState.DONE):
            break


async def run_until(events: AsyncGenerator[MoveEvent, None], step: Step) -> None:
    """Carry the run out until it has done this step; then it is cancelled."""
    await happened(events, step)
    await events.aclose()


async def test_an_older_checkpoint_does_not_undo_what_a_failover_set_back(rig: MoveRig) -> None:
    """The group was put back on the source after its last checkpoint."""
    await translated(rig, g=250)
    before = await synced(rig)
    rig.logs.source.set_group("g", {ORIGIN: 50})
    await run(rig.served.failover)
    moved_to = await offset_of(rig.logs.target, "g", COPY)
    assert moved_to is not None
    assert before is not None
    assert moved_to < before
    assert await synced(rig) == moved_to
    await next_pass(rig)
    assert await synced(rig) == moved_to


async def test_groups_that_the_failover_did_not_move_are_synced(rig: MoveRig) -> None:
    await translated(rig, g=100, other=100)
    await run(rig.served.failover, ONLY_G)
    await translated(rig, g=200, other=200)
    moved_to = await offset_of(rig.logs.target, "g", COPY)
    other = await synced(rig, "other")
    rig.logs.check(200, other or 0)
    assert await offset_of(rig.logs.target, "g", COPY) == moved_to


async def test_a_place_on_the_target_that_a_failback_skipped_from_stays_until_the_group_goes_on(
    rig: MoveRig,
) -> None:
    """The source had deleted what follows it, and the operator accepted the loss."""
    await translated(rig, g=100)
    await run(rig.served.failover)
    own = await offset_of(rig.logs.target, "g", COPY)
    rig.logs.retain(200)
    await run(rig.served.failback, MoveOptions(wait_seconds=0, accept_loss=True))
    await next_pass(rig)
    assert await synced(rig) == own
    await translated(rig, g=250)
    rig.logs.check(250, await synced(rig) or 0)


async def failover_again(rig: MoveRig) -> None:
    await run(rig.served.failover, ONLY_G)


async def failover_given_up(rig: MoveRig) -> None:
    """It has committed nothing."""
    await run_until(rig.served.failover.run(NO_WAIT), Step.CHECK)
    await rig.served.failover.abort("ann")


async def failback_cut_and_failover(rig: MoveRig) -> None:
    await run_until(rig.served.failback.run(NO_WAIT), Step.CHECK)
    await run(rig.served.failover, ONLY_G)


async def there_and_back_again(rig: MoveRig) -> None:
    for _ in range(2):
        await run(rig.served.failover, ONLY_G)
        await run(rig.served.failback, ONLY_G)


@pytest.mark.parametrize(
    "moves", [failover_again, failover_given_up, failback_cut_and_failover, there_and_back_again]
)
async def test_a_group_that_no_failback_has_moved_stays_where_it_is_whatever_moves_later(
    rig: MoveRig, moves: Callable[[MoveRig], Awaitable[None]]
) -> None:
    await translated(rig, g=100, other=100)
    await run(rig.served.failover)
    await run(rig.served.failback, ONLY_G)
    await moves(rig)
    rig.logs.target.set_group("other", {COPY: 0})
    await next_pass(rig)
    assert await synced(rig, "other") == 0
    assert "other" in flow_progress(rig.parts).offsets_held


@pytest.mark.parametrize("groups", [(), ("other",)])
async def test_a_group_that_a_later_failback_has_moved_is_synced_again(
    rig: MoveRig, groups: tuple[str, ...]
) -> None:
    """It stays so when the next failover moves another group."""
    await translated(rig, g=100, other=100)
    await run(rig.served.failover)
    await run(rig.served.failback, ONLY_G)
    await run(rig.served.failover, ONLY_G)
    await run(rig.served.failback, MoveOptions(groups=groups, wait_seconds=0))
    await translated(rig, other=200)
    rig.logs.check(200, await synced(rig, "other") or 0)
    await run(rig.served.failover, ONLY_G)
    await translated(rig, other=250)
    rig.logs.check(250, await synced(rig, "other") or 0)


async def test_a_move_that_ends_is_told_before_the_next_interval(rig: MoveRig) -> None:
    await translated(rig, g=100)
    set_settings(rig.parts, sync_group_offsets_interval_seconds=600)
    syncer, stop = assemble_group_syncer(rig.parts), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(syncer.run(stop), name="group offsets")
        await run(rig.served.failover)
        await turns(lambda: "failback run" in flow_progress(rig.parts).offsets_held)
        await run(rig.served.failback)
        await turns(lambda: flow_progress(rig.parts).offsets_held == "")
        stop.set()


async def test_nothing_is_synced_while_a_move_runs(rig: MoveRig) -> None:
    await translated(rig, g=250)
    events = rig.served.failover.run(NO_WAIT)
    await anext(events)
    assert await synced(rig) is None
    progress = flow_progress(rig.parts)
    assert progress.offsets_held_reason == "FAILED_OVER"
    assert progress.offsets_held == "1 group (g): a failover or failback of A->B is running"
    await events.aclose()


async def test_a_look_that_began_before_a_move_commits_nothing_after_it(rig: MoveRig) -> None:
    await translated(rig, g=250)
    rig.logs.source.set_group("g", {ORIGIN: 50})
    reading, moved = asyncio.Event(), asyncio.Event()

    async def wait_for_the_move(call: Call) -> None:
        if not reading.is_set():
            reading.set()
            await moved.wait()

    undo = rig.logs.target.intercept("list_offsets", wait_for_the_move)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rig.fakes.sync_groups(rig.parts), name="a look at the target")
        await turns(reading.is_set)
        await run(rig.served.failover)
        moved_to = await offset_of(rig.logs.target, "g", COPY)
        moved.set()
    undo()
    assert moved_to is not None
    assert await offset_of(rig.logs.target, "g", COPY) == moved_to


async def test_a_look_that_reads_the_record_while_a_move_runs_commits_nothing_after_it(rig: MoveRig) -> None:
    """The answer is late: the move stores its next step once the record was read."""
    await translated(rig, g=250)
    await synced(rig)
    rig.logs.source.set_group("g", {ORIGIN: 50})
    move = rig.served.failover.run(NO_WAIT)
    await happened(move, Step.CHECK)
    read, answered = asyncio.Event(), asyncio.Event()

    async def answer_late(call: Call) -> None:
        if call.arguments["partition"].topic == rig.served.failover.journal.topic and not read.is_set():
            read.set()
            await answered.wait()

    undo = rig.logs.target.intercept("fetch", answer_late, after=True)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rig.fakes.sync_groups(rig.parts), name="a look at the target")
        await turns(read.is_set)
        ended = tasks.create_task(_end(move), name="the move")
        await turns(lambda: rig.parts.moving.locked())
        answered.set()
        await ended
        moved_to = await offset_of(rig.logs.target, "g", COPY)
    undo()
    rig.logs.check(50, moved_to or 0)
    assert await offset_of(rig.logs.target, "g", COPY) == moved_to


async def _end(move: AsyncIterator[object]) -> None:
    async for _ in move:
        pass


@pytest.mark.parametrize(("step", "syncs"), [(Step.FINAL_OFFSETS, True), (Step.COMMIT, False)])
async def test_after_a_cancelled_run_groups_are_synced_unless_it_may_have_committed(
    rig: MoveRig, step: Step, syncs: bool
) -> None:
    await translated(rig, g=100)
    await run_until(rig.served.failover.run(NO_WAIT), step)
    rig.logs.target.set_group("g", {COPY: 0})
    assert ((await synced(rig) or 0) > 0) is syncs
    assert ("failover run 'A->B'" in flow_progress(rig.parts).offsets_held) is not syncs


async def test_an_aborted_run_leaves_alone_what_an_earlier_failover_moved(rig: MoveRig) -> None:
    await translated(rig, g=100)
    await run(rig.served.failover)
    await translated(rig, g=100, late=100)
    await run_until(rig.served.failover.run(NO_WAIT), Step.COMMIT)
    await rig.served.failover.abort("ann")
    rig.logs.target.set_group("g", {COPY: 0})
    rig.logs.target.set_group("late", {COPY: 0})
    assert (await synced(rig, "late") or 0) > 0
    assert await offset_of(rig.logs.target, "g", COPY) == 0


async def test_nothing_is_synced_while_the_record_of_moves_cannot_be_read(rig: MoveRig) -> None:
    await translated(rig, g=100)
    topic = rig.served.failover.journal.topic
    rig.logs.target.add_topic(topic, configs={"cleanup.policy": "compact"})
    key, value = b'["TwinlogMove",{"flow":"A->B"}]', b'{"format": 99}'
    async with rig.logs.target.writer() as writer:
        await writer.append(TopicPartition(topic, 0), key=key, value=value)
    with pytest.raises(WireFormatError):
        await synced(rig)
    assert await offset_of(rig.logs.target, "g", COPY) is None
    progress = flow_progress(rig.parts)
    assert progress.offsets_held_reason == "WIRE_VERSION"
    assert progress.offsets_held.startswith("1 group (g): the record of failovers cannot be read: ")
    await rig.logs.target.delete_topics([topic])
    assert await synced(rig) is not None
    assert flow_progress(rig.parts).offsets_held == ""


async def test_operators_are_told_why_a_moved_group_is_not_synced(rig: MoveRig) -> None:
    await translated(rig, g=100, other=100)
    await run(rig.served.failover, ONLY_G)
    await synced(rig)
    told = "1 group (g): a failover moved groups to B: `twinlog failback run 'A->B'` moves them back"
    progress = flow_progress(rig.parts)
    assert (progress.offsets_held_reason, progress.offsets_held) == ("FAILED_OVER", told)
    (line,) = notes([progress])
    assert line == f"A->B: no offsets are committed for {told} (FAILED_OVER)"
    moved = (await explain_group(rig.parts, "g", ())).findings[-1]
    assert (moved.rule, moved.passed) == (Rule.GROUP_SYNC, False)
    assert "a failover moved groups to B" in moved.message
    assert (await explain_group(rig.parts, "other", ())).findings[-1].passed
    set_settings(rig.parts, sync_group_offsets_enabled=False)
    await assemble_group_syncer(rig.parts).sync()
    assert flow_progress(rig.parts).offsets_held == ""


@pytest.mark.parametrize("back", [False, True])
async def test_an_interrupted_run_protects_what_it_moved_until_a_run_has_included_it(
    rig: MoveRig, back: bool
) -> None:
    await translated(rig, g=250, other=250)
    await synced(rig, "other")
    rig.logs.source.set_group("other", {ORIGIN: 50})
    await run_until(rig.served.failover.run(NO_WAIT), Step.COMMIT)
    moved_to = await offset_of(rig.logs.target, "other", COPY)
    await run(rig.served.failback if back else rig.served.failover, ONLY_G)
    assert await synced(rig, "other") == moved_to
    assert "other" in flow_progress(rig.parts).offsets_held
    await run(rig.served.failover)
    assert await synced(rig, "other") == moved_to


async def test_a_group_with_an_offset_that_has_no_translation_stays_where_the_failover_put_it(
    rig: MoveRig,
) -> None:
    """The failover has not finished it, but its other offsets are there."""
    await translated(rig, g=250)
    await synced(rig)
    rig.logs.source.add_topic("new")
    rig.logs.source.set_group("g", {ORIGIN: 50, TopicPartition("new", 0): 0})
    await run(rig.served.failover, MoveOptions(accept_loss=True))
    moved_to = await offset_of(rig.logs.target, "g", COPY)
    assert await synced(rig) == moved_to


async def test_a_group_that_the_sync_had_moved_is_protected_by_a_repeated_failover(rig: MoveRig) -> None:
    await translated(rig, g=100)
    await run(rig.served.failover)
    await translated(rig, late=100)
    await synced(rig, "late")
    await run(rig.served.failover)
    rig.logs.target.set_group("late", {COPY: 0})
    assert await synced(rig, "late") == 0


@pytest.mark.parametrize("back", [False, True])
async def test_a_group_that_works_on_the_source_is_synced_also_after_an_interrupted_failover(
    rig: MoveRig, back: bool
) -> None:
    await translated(rig, g=100, h=100)
    await synced(rig, "h")
    rig.logs.source.set_group("h", {ORIGIN: 100}, state="STABLE", member_count=1)
    await run_until(rig.served.failover.run(NO_WAIT), Step.COMMIT)
    await run(rig.served.failback if back else rig.served.failover)
    rig.logs.source.set_group("h", {ORIGIN: 250}, state="STABLE", member_count=1)
    await next_pass(rig)
    rig.logs.check(250, await synced(rig, "h") or 0)


@pytest.mark.parametrize("attempts", [1, 2])
async def test_after_an_aborted_run_groups_are_synced_again_however_often_it_was_continued(
    rig: MoveRig, attempts: int
) -> None:
    await translated(rig, g=100)
    for _ in range(attempts):
        await run_until(rig.served.failover.run(NO_WAIT), Step.COMMIT)
    await rig.served.failover.abort("ann")
    await translated(rig, g=250)
    rig.logs.check(250, await synced(rig) or 0)


async def test_a_process_that_owns_the_flow_again_writes_no_record_again_that_another_one_has_removed(
    rig: MoveRig,
) -> None:
    """The topic was deleted after that."""
    await translated(rig, g=100)
    await run(rig.served.failover)
    journal = rig.served.failover.journal
    assert (await journal.load()).homes
    await rig.logs.target.delete_topics([journal.topic])
    stop = asyncio.Event()
    stop.set()
    await assemble_group_syncer(rig.parts).run(stop)
    assert not (await journal.load()).homes
    assert journal.topic not in rig.logs.target.topics
