"""The first half of a move: fence writers if requested, record the ends of the logs, wait until they are
copied."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace

from twinlog.clock import Clock
from twinlog.errors import StateError
from twinlog.kafka.ports import AclBinding
from twinlog.model import TopicPartition
from twinlog.moves.record import Moves, Step
from twinlog.service.waiting import wait_or_stop
from twinlog_checkpoint.flow.parts import LeaseGuard
from twinlog_checkpoint.moves.ends import FinalEnds, ends_behind_fence, ends_now
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.planning.planner import MovePlanner
from twinlog_checkpoint.moves.running.run_record import StepEvent, StepState, after, run_of, step_event
from twinlog_checkpoint.moves.topic_backlog import (
    TopicBacklog,
    blocking,
    counting,
    most_missing,
    total_backlog,
)
from twinlog_checkpoint.moves.write_block import fences_to_hold, hold_fences, missing_fences


@dataclass(frozen=True, slots=True, kw_only=True)
class Departed:
    """The result of the first half."""

    moves: Moves
    fenced: bool
    """A fence was created by this run."""
    drained: bool
    """Everything before the final offsets is copied."""
    finals: Mapping[TopicPartition, int | None] | None = None
    """The final offsets, by partition, None where nobody tells; None while the cluster does not answer."""
    still_written: Collection[TopicPartition] = ()
    """Partitions that somebody still wrote to behind the fence."""
    unfenced_topics: Collection[str] = ()
    """Topics of the recorded fence whose ACL somebody else has removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """The steps FENCE, FINAL_OFFSETS and DRAIN of one move, on the cluster that groups leave.

    Each run reads the final offsets itself, also when it continues or repeats an earlier run.

    The order makes a completed failover safe to act on:
    - 1. FENCE: from here on writers are refused, so the logs end somewhere;
    - 2. FINAL_OFFSETS: read where they end;
    - 3. DRAIN: wait until the copy has reached these ends.
    """

    planner: MovePlanner
    store: Callable[[Moves], Awaitable[None]]
    duty: LeaseGuard
    clock: Clock
    stop: asyncio.Event
    look_seconds: float
    """Time between two measurements of the logs."""

    async def leave(
        self, moves: Moves, options: MoveOptions, *, recorded: bool
    ) -> AsyncGenerator[StepEvent | Departed, None]:
        """Yield each step as it happens, then the result. If not `recorded`, only a fence is stored, because
        nothing else of the run has been recorded so far.

        Raises StateError (BACKLOG_NOT_COPIED, STOPPING) or KafkaError.
        """
        unheld = await self._unheld(moves) if options.fence else ()
        fenced = bool(unheld) or (options.fence and Step.FENCE not in run_of(moves).done)
        removed: Collection[str] = ()
        if fenced:
            moves = await self._fenced(moves, unheld)
        held = {fence.resource_name for fence in moves.fenced(self.planner.route.from_alias)}
        if fenced:
            message = f"writes are denied on {_topics(len(held))}"
            yield step_event(self.clock, Step.FENCE, StepState.DONE, message)
        elif held:
            removed = await self._removed(held)
            message = f"writes are already denied on {_topics(len(held) - len(removed))}"
            yield step_event(self.clock, Step.FENCE, StepState.SKIPPED, message)
        else:
            yield step_event(self.clock, Step.FENCE, StepState.SKIPPED, "no fence was requested")
        written = {entry.here for entry in await self.planner.route.written()}
        found = await self._final_offsets(written, options, fenced=bool(held) or options.fence)
        finals = {**dict.fromkeys(written), **found.ends}
        kept_out = held.difference(removed)
        if (recorded or fenced) and Step.FINAL_OFFSETS not in run_of(moves).done:
            moves = after(moves, Step.FINAL_OFFSETS)
            await self.store(moves)
        yield step_event(
            self.clock, Step.FINAL_OFFSETS, StepState.DONE, f"recorded the ends of {_logs(len(found.ends))}"
        )
        drained = False
        async for event in self._drain(finals, options):
            drained = drained or (event.step is Step.DRAIN and event.state is StepState.DONE)
            yield event
        yield Departed(
            moves=moves,
            fenced=fenced,
            drained=drained,
            finals=finals,
            still_written={each for each in found.still_written if each.topic in kept_out},
            unfenced_topics=removed,
        )

    async def _removed(self, topics: Collection[str]) -> Collection[str]:
        """Those of the recorded fence that are not fenced any more. Raises KafkaError."""
        missing = await missing_fences(self.planner.route.from_cluster, topics)
        return topics if missing is None else {fence.resource_name for fence in missing}

    async def _unheld(self, moves: Moves) -> Collection[AclBinding]:
        route, scope = self.planner.route, await self.planner.fence_scope()
        recorded = moves.fenced(route.from_alias)
        return await fences_to_hold(route.from_cluster, scope.topics, recorded, await route.holder())

    async def _drain(
        self, finals: Mapping[TopicPartition, int | None], options: MoveOptions
    ) -> AsyncGenerator[StepEvent, None]:
        """Wait until everything before the final offsets is copied."""
        meter = self.planner.meter()
        give_up_at = self.clock.monotonic() + options.wait_seconds
        if options.wait_seconds > 0:
            yield step_event(self.clock, Step.DRAIN, StepState.STARTED, "waiting until everything is copied")
        while not self.stop.is_set():
            backlog = await meter.measure(finals)
            left = total_backlog(backlog)
            if left == 0:
                yield step_event(
                    self.clock, Step.DRAIN, StepState.DONE, "everything is copied", records_left=0
                )
                return
            if options.wait_seconds == 0:
                message = f"not waiting for {blocking(backlog)}"
                yield step_event(self.clock, Step.DRAIN, StepState.SKIPPED, message, records_left=left)
                return
            yield step_event(
                self.clock, Step.DRAIN, StepState.PROGRESS, _waiting_for(backlog), records_left=left
            )
            if self.clock.monotonic() >= give_up_at:
                if options.accept_loss:
                    message = (
                        f"stopped waiting after {options.wait_seconds:g} s, as the loss is accepted:"
                        f" {blocking(backlog)}"
                    )
                    yield step_event(self.clock, Step.DRAIN, StepState.SKIPPED, message, records_left=left)
                    return
                raise _not_copied(backlog, options)
            await wait_or_stop(self.stop, self.look_seconds)
        raise StateError("the service is stopping; run it again to continue", reason="STOPPING")

    async def _fenced(self, moves: Moves, fences: Collection[AclBinding]) -> Moves:
        """Create the fences. They are recorded first, so that a killed run leaves no unknown fence.

        A fence that existed before, and that no move holds, belongs to somebody else and is not recorded, so
        it stays when ours are removed.
        """
        route = self.planner.route
        holder = await route.holder()
        new = dict.fromkeys((fence.resource_name for fence in fences), run_of(moves).run_id)
        here = new | {**moves.fences.get(route.from_alias, {})}
        moves = replace(moves, fences={**moves.fences, route.from_alias: here})
        await self.store(moves)
        await self.duty.hold(lambda: hold_fences(route.from_cluster, fences, holder))
        moves = after(moves, Step.FENCE)
        await self.store(moves)
        return moves

    async def _final_offsets(
        self, partitions: Collection[TopicPartition], options: MoveOptions, *, fenced: bool
    ) -> FinalEnds:
        route, accepts = self.planner.route, options.accept_loss
        if not fenced:
            return FinalEnds(ends=await ends_now(route.here, partitions, accept_loss=accepts))
        return await ends_behind_fence(
            route.here,
            partitions,
            clock=self.clock,
            stop=self.stop,
            look_seconds=self.look_seconds,
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
