"""The first half of a move: fence writers if requested, record the ends of the logs, wait until they are
copied."""

from collections.abc import AsyncGenerator, Collection
from dataclasses import replace

from twinlog.errors import StateError
from twinlog.kafka.ports import AclBinding
from twinlog.model import TopicPartition
from twinlog.moves.record import Step
from twinlog.service.waiting import wait_or_stop
from twinlog_checkpoint.moves.ends import FinalEnds, ends_behind_fence, ends_now
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.running.run_record import StepEvent, StepState, after
from twinlog_checkpoint.moves.running.run_state import RunState
from twinlog_checkpoint.moves.topic_backlog import (
    TopicBacklog,
    blocking,
    counting,
    most_missing,
    total_backlog,
)
from twinlog_checkpoint.moves.write_block import fences_to_hold, hold_fences, missing_fences


async def leave(run: RunState, *, look_seconds: float) -> AsyncGenerator[StepEvent, None]:
    """The steps FENCE, FINAL_OFFSETS and DRAIN of one move, on the cluster that groups leave; yields each as
    it happens. `look_seconds`: the time between two measurements of the logs.

    Each run reads the final offsets itself, also when it continues or repeats an earlier run.

    The order makes a completed failover safe to act on:
    - 1. FENCE: from here on writers are refused, so the logs end somewhere;
    - 2. FINAL_OFFSETS: read where they end;
    - 3. DRAIN: wait until the copy has reached these ends.

    Raises StateError (BACKLOG_NOT_COPIED, STOPPING) or KafkaError.
    """
    route, options = run.planner.route, run.options
    unheld = await _unheld(run) if options.fence else ()
    run.fenced = bool(unheld) or (options.fence and Step.FENCE not in run.recorded.done)
    if run.fenced:
        await _fence(run, unheld)
    held = {fence.resource_name for fence in run.moves.fenced(route.from_alias)}
    if run.fenced:
        yield run.event(Step.FENCE, StepState.DONE, f"writes are denied on {_topics(len(held))}")
    elif held:
        run.unfenced_topics = await _removed(run, held)
        message = f"writes are already denied on {_topics(len(held) - len(run.unfenced_topics))}"
        yield run.event(Step.FENCE, StepState.SKIPPED, message)
    else:
        yield run.event(Step.FENCE, StepState.SKIPPED, "no fence was requested")
    written = {entry.here for entry in await route.written()}
    found = await _final_offsets(run, written, fenced=bool(held) or options.fence, look_seconds=look_seconds)
    run.finals = {**dict.fromkeys(written), **found.ends}
    kept_out = held.difference(run.unfenced_topics)
    run.still_written = {each for each in found.still_written if each.topic in kept_out}
    if (run.fenced or not run.is_repeated) and Step.FINAL_OFFSETS not in run.recorded.done:
        await run.store(after(run.moves, Step.FINAL_OFFSETS))
    yield run.event(Step.FINAL_OFFSETS, StepState.DONE, f"recorded the ends of {_logs(len(found.ends))}")
    async for event in _drain(run, look_seconds):
        yield event


async def _removed(run: RunState, topics: Collection[str]) -> Collection[str]:
    """Those of the recorded fence that are not fenced any more. Raises KafkaError."""
    missing = await missing_fences(run.planner.route.from_cluster, topics)
    return topics if missing is None else {fence.resource_name for fence in missing}


async def _unheld(run: RunState) -> Collection[AclBinding]:
    route, scope = run.planner.route, await run.planner.fence_scope()
    recorded = run.moves.fenced(route.from_alias)
    return await fences_to_hold(route.from_cluster, scope.topics, recorded, await route.holder())


async def _drain(run: RunState, look_seconds: float) -> AsyncGenerator[StepEvent, None]:
    """Wait until everything before the final offsets is copied."""
    meter, stop, options = run.planner.meter(), run.planner.stop, run.options
    give_up_at = run.planner.clock.monotonic() + options.wait_seconds
    if options.wait_seconds > 0:
        yield run.event(Step.DRAIN, StepState.STARTED, "waiting until everything is copied")
    while not stop.is_set():
        backlog = await meter.measure(run.finals)
        left = total_backlog(backlog)
        if left == 0:
            run.drained = True
            yield run.event(Step.DRAIN, StepState.DONE, "everything is copied", records_left=0)
            return
        if options.wait_seconds == 0:
            message = f"not waiting for {blocking(backlog)}"
            yield run.event(Step.DRAIN, StepState.SKIPPED, message, records_left=left)
            return
        yield run.event(Step.DRAIN, StepState.PROGRESS, _waiting_for(backlog), records_left=left)
        if run.planner.clock.monotonic() >= give_up_at:
            if not options.accept_loss:
                raise _not_copied(backlog, options)
            message = (
                f"stopped waiting after {options.wait_seconds:g} s, as the loss is accepted:"
                f" {blocking(backlog)}"
            )
            yield run.event(Step.DRAIN, StepState.SKIPPED, message, records_left=left)
            return
        await wait_or_stop(stop, look_seconds)
    raise StateError("the service is stopping; run it again to continue", reason="STOPPING")


async def _fence(run: RunState, fences: Collection[AclBinding]) -> None:
    """Create the fences. They are recorded first, so that a killed run leaves no unknown fence.

    A fence that existed before, and that no move holds, belongs to somebody else and is not recorded, so
    it stays when ours are removed.
    """
    route, moves = run.planner.route, run.moves
    holder = await route.holder()
    new = dict.fromkeys((fence.resource_name for fence in fences), run.recorded.run_id)
    here = new | {**moves.fences.get(route.from_alias, {})}
    await run.store(replace(moves, fences={**moves.fences, route.from_alias: here}))
    await run.duty.hold(lambda: hold_fences(route.from_cluster, fences, holder))
    await run.store(after(run.moves, Step.FENCE))


async def _final_offsets(
    run: RunState, partitions: Collection[TopicPartition], *, fenced: bool, look_seconds: float
) -> FinalEnds:
    side, accepts = run.planner.route.here, run.options.accept_loss
    if not fenced:
        return FinalEnds(ends=await ends_now(side, partitions, accept_loss=accepts))
    return await ends_behind_fence(
        side,
        partitions,
        clock=run.planner.clock,
        stop=run.planner.stop,
        look_seconds=look_seconds,
        accept_loss=accepts,
    )


def _waiting_for(backlog: list[TopicBacklog]) -> str:
    if total_backlog(backlog) is None and counting(backlog):
        return f"still counting, at most {most_missing(backlog)} records left to copy: {blocking(backlog)}"
    return f"records left to copy: {blocking(backlog)}"


def _not_copied(backlog: list[TopicBacklog], options: MoveOptions) -> StateError:
    left = total_backlog(backlog)
    count = str(left) if left is not None else "an unknown number of"
    if left is None and counting(backlog):
        count = f"at most {most_missing(backlog)}"
    return StateError(
        f"{count} records are not copied after {options.wait_seconds:g} s: {blocking(backlog)}."
        " Run it again to continue waiting, or accept the loss (--accept-loss).",
        reason="BACKLOG_NOT_COPIED",
        metadata={"records": count},
    )


def _topics(count: int) -> str:
    return "1 topic" if count == 1 else f"{count} topics"


def _logs(count: int) -> str:
    return "1 log" if count == 1 else f"{count} logs"
