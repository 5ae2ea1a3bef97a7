"""Runs a move step by step. A run continues an interrupted one; after a finished one it only moves what has
changed.

Invariants:
- every change is made while this process owns the flow;
- a run is done only after everything before its final offsets is copied, or the loss is accepted.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import structlog

from twinlog.errors import KafkaError, StateError, WireFormatError
from twinlog.kafka.ports import AclBinding, KafkaCluster
from twinlog.model import ClusterAlias
from twinlog.moves.record import MoveKind, Moves, Step
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog.telemetry.tracing import detached_span
from twinlog.write_blocks import fence_of, holder_of
from twinlog_checkpoint.flow.parts import Duty
from twinlog_checkpoint.journal import MoveJournal
from twinlog_checkpoint.moves.planning.group_places import Placed
from twinlog_checkpoint.moves.planning.outcome import left_behind, not_now
from twinlog_checkpoint.moves.planning.plan import MoveOptions, MovePlan
from twinlog_checkpoint.moves.planning.planner import NOTHING_DUE, Due, MovePlanner, at_last, groups_told
from twinlog_checkpoint.moves.routes.route import Route
from twinlog_checkpoint.moves.running.arrival import arrive
from twinlog_checkpoint.moves.running.departure import leave
from twinlog_checkpoint.moves.running.run_record import (
    Aborted,
    MoveEvent,
    MoveReport,
    StepEvent,
    StepState,
    after,
    begun,
    given_up,
    is_whole,
    run_of,
    with_run,
)
from twinlog_checkpoint.moves.running.run_state import RunState
from twinlog_checkpoint.moves.write_block import release_fences

# Reads the recorded moves before a move begins: the flow's last one, and the last one of the reverse flow.
#
# A recorded fence is used only if its topic belongs to the flow. A fence of another topic that exists on the
# cluster is refused (FENCE_NOT_OURS), and an operator has to look at it. One that does not exist is dropped.


async def recorded_moves(journal: MoveJournal, route: Route) -> Moves:
    """Return what is recorded. Raises KafkaError, WireFormatError, or StateError (FENCE_NOT_OURS)."""
    moves = await journal.load()
    fences = {
        cluster: {fence.resource_name: topics[fence.resource_name] for fence in ours}
        for cluster, topics in moves.fences.items()
        if (ours := await _ours(journal, route, moves.fenced(cluster), here=cluster == route.from_alias))
    }
    return replace(moves, fences=fences)


async def _ours(
    journal: MoveJournal, route: Route, fences: Collection[AclBinding], *, here: bool
) -> tuple[AclBinding, ...]:
    """Keep the fences that this flow may have created, on the cluster that groups leave (`here`) or on the
    other one."""
    alias, cluster = (route.from_alias, route.from_cluster) if here else (route.to_alias, route.to_cluster)
    foreign = {fence for fence in fences if not route.may_be_fenced(fence.resource_name, here=here)}
    if not foreign:
        return tuple(fences)
    in_force = await _in_force(cluster)
    if in_force is None:
        # The cluster does not answer, so its ACLs are unknown: keep all of them.
        return tuple(fences)
    for fence in sorted(foreign.intersection(in_force)):
        raise _not_ours(journal, alias, fence.resource_name, await route.holder())
    return tuple(fence for fence in fences if fence not in foreign)


async def _in_force(cluster: KafkaCluster) -> Collection[AclBinding] | None:
    try:
        return await cluster.describe_acls("TOPIC") or ()
    except KafkaError:
        return None


def _not_ours(journal: MoveJournal, alias: ClusterAlias, topic: str, name: str) -> StateError:
    holder = holder_of(fence_of(topic), name).principal
    remedy = (
        f"kafka-acls --remove --deny-principal 'User:*' --deny-principal '{holder}' --operation Write"
        f" --topic {topic}"
    )
    return StateError(
        f"{journal.topic} on {journal.flow.target} names a fence on topic {topic!r} of {alias}, but the"
        f" rules of flow {journal.flow} do not select this topic, so Twinlog does not touch the fence. If the"
        f" flow had the topic before, remove the fence on {alias} (`{remedy}`); otherwise find out who wrote"
        " the record",
        reason="FENCE_NOT_OURS",
        metadata={"flow": str(journal.flow), "topic": topic, "cluster": alias},
    )


async def failback_due(reverse: MoveJournal, planner: MovePlanner) -> Due:
    """Whether the groups came here by a failover of the reverse flow; then its failback moves them back.

    A fence of that failover blocks this move, because only the failback removes it.
    """
    route = planner.route
    if route.kind is not MoveKind.FAILOVER or planner.outage(route.from_alias).reason:
        return NOTHING_DUE
    try:
        moves = await reverse.load()
    except (KafkaError, WireFormatError) as error:
        return Due(notes=[f"the last move of {reverse.flow} cannot be read: {error}"])
    other, fences = moves.run, moves.fenced(reverse.flow.source)
    if other is None or other.kind is not MoveKind.FAILOVER or (other.aborted and not fences):
        return NOTHING_DUE
    remedy = f"`twinlog failback run '{reverse.flow}'` moves them back"
    what = f"groups came from {route.to_alias} by failover run {other.run_id} of {reverse.flow}"
    if moves.interrupted:
        what = f"failover run {other.run_id} of {reverse.flow} was interrupted"
        remedy = f"`twinlog failback run '{reverse.flow}'` undoes it"
    if fences:
        return Due(blockers=[f"{what}, with a fence on {len(fences)} topics there: {remedy} and removes it"])
    return Due(notes=[f"{what}: {remedy}"])


_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class MoveRunner:
    """One direction of one flow. Only one run at a time: a second one is refused (MOVE_IN_PROGRESS)."""

    planner: MovePlanner
    journal: MoveJournal
    reverse_journal: MoveJournal
    """The journal of the reverse flow, also if this process does not have that flow."""
    duty: Duty
    """Tells whether this process owns the flow; it writes only then."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Shared by both directions of a flow."""
    drain_look_seconds: float = 1.0
    """Time between two measurements of the backlog."""

    async def run(self, options: MoveOptions) -> AsyncGenerator[MoveEvent, None]:
        """Yield each step as it happens, then the report.

        Raises StateError (OWNED_ELSEWHERE, MOVE_IN_PROGRESS, MOVE_BLOCKED, BACKLOG_NOT_COPIED,
        FENCE_NOT_OURS), ConflictError (NOT_VERIFIED), WireFormatError or KafkaError; the run may then be
        started again and continues.
        """
        await self.check_target(options)
        await self.duty.require()
        if self.lock.locked():
            raise _in_progress(f"a {self.planner.route.kind} of {self.planner.route.flow} is running")
        async with self.lock:
            last = await self.recorded()
            kind, flow = self.planner.route.kind, self.planner.route.flow
            now_ms = self.planner.clock.now_ms()
            run = RunState(
                planner=self.planner,
                duty=self.duty,
                journal=self.journal,
                options=options,
                before=last,
                done_with=await self.planner.places.finished_with(last, options),
                moves=begun(last, kind, options, run_id=uuid.uuid4().hex[:12], now_ms=now_ms),
            )
            run_id = run.recorded.run_id
            _log.info(
                "move_started",
                kind=kind,
                flow=str(flow),
                run_id=run_id,
                by=options.by,
                groups=list(options.groups),
                fence=options.fence,
                accept_loss=options.accept_loss,
                grant_write=options.grant_write,
                resumed=last.run is not None and run_id == last.run.run_id,
            )
            attributes = {
                **flow_attributes(flow.source, flow.target),
                "twinlog.move.kind": str(kind),
                "twinlog.move.run": run_id,
            }
            with detached_span("move", attributes):
                async for event in self._steps(run):
                    yield event

    async def plan(self, options: MoveOptions) -> MovePlan:
        """Return what `run` would do now, with the recorded last move. Changes nothing.

        Raises KafkaError, WireFormatError or StateError (FENCE_NOT_OURS).
        """
        return await at_last(self.look(options))

    async def look(self, options: MoveOptions) -> AsyncGenerator[str | MovePlan, None]:
        """As `plan`, but first yield messages about the progress, then the plan."""
        unread, asked = self._ownerless(), self.planner.asked
        try:
            is_away = self.planner.outage(self.journal.flow.target).reason
            last = Moves(flow=self.journal.flow) if is_away else await asked(self.recorded())
        except KafkaError as error:
            last = self.journal.known
            unread.append(f"the record of moves cannot be read: {error}")
        done_with: Collection[str] = ()
        try:
            done_with = await asked(self.planner.places.finished_with(last, options))
        except KafkaError as error:
            unread.append(f"which groups have been moved is not known: {error}")
        due = await asked(failback_due(self.reverse_journal, self.planner))
        due = replace(due, blockers=[*unread, *due.blockers])
        async with aclosing(self.planner.look(options, last, unchanged=done_with, due=due)) as told:
            async for each in told:
                if isinstance(each, MovePlan) and self.lock.locked():
                    running = (
                        f"a move of {each.flow} is running: `twinlog failover watch '{each.flow}'` shows it"
                    )
                    each = replace(each, blockers=[running, *each.blockers])
                yield each

    def _ownerless(self) -> list[str]:
        """Why no process may move groups while brokers of the flow's target do not answer that know its
        owner."""
        home, doubt = self.journal.flow.target, self.duty.refusal()
        outage = self.planner.outage(home)
        if not outage or outage.reason or not isinstance(doubt, KafkaError):
            return []
        return [f"no process owns {self.journal.flow} now: {doubt}"]

    async def check_target(self, options: MoveOptions) -> None:
        """Raises StateError (MOVE_BLOCKED) when the flow's target does not answer: the record of moves and
        the election of the flow's owner are there."""
        if self.planner.outage(self.journal.flow.target).reason or self._ownerless():
            plan = await self.plan(options)
            if plan.last is not None and not plan.last.finished:
                plan = replace(plan, blockers=[*plan.blockers, _stays(plan)])
            raise _blocked(plan)

    async def recorded(self) -> Moves:
        """Return what is recorded, with Twinlog's own fences only. Raises KafkaError, WireFormatError, or
        StateError (FENCE_NOT_OURS)."""
        return await recorded_moves(self.journal, self.planner.route)

    async def abort(self, by: str) -> Aborted:
        """Give up an interrupted run: remove its fence and keep the offsets that it committed. The fence of
        an earlier, finished run stays, unless a rule has stopped the flow: then nothing is left to wait for.

        Raises StateError (NOTHING_TO_ABORT, MOVE_IN_PROGRESS, OWNED_ELSEWHERE), or KafkaError; it may then be
        called again.
        """
        kind = self.planner.route.kind
        await self.duty.require()
        if self.lock.locked():
            raise _in_progress(f"a move of {self.journal.flow} is running: cancel it first")
        async with self.lock:
            moves = await self.recorded()
            last, here = moves.run, self.planner.route.from_alias
            reversed_flow = not moves.interrupted and self.planner.route.parts.entry.is_stopped
            if last is None or last.kind is not kind or not (moves.interrupted or reversed_flow):
                raise _nothing_to_abort(moves, kind)
            cluster = self.planner.route.from_cluster
            if reversed_flow:
                over = replace(moves, fences={**moves.fences, here: {}})
            else:
                over = given_up(moves, now_ms=self.planner.clock.now_ms())
            lifted = set(moves.fenced(here)).difference(over.fenced(here))
            holder = await self.planner.route.holder()
            kept = await self.duty.hold(lambda: release_fences(cluster, lifted, holder))
            await self.duty.hold(lambda: self.journal.store(over))
            _log.info("move_aborted", kind=kind, flow=str(self.journal.flow), run_id=last.run_id, by=by)
            unfenced = sorted(fence.resource_name for fence in lifted.difference(kept))
            return Aborted(before=moves, after=over, unfenced_topics=unfenced)

    async def _steps(self, run: RunState) -> AsyncGenerator[MoveEvent, None]:
        last, options = run.before.run, run.options
        looking = "reading both clusters"
        if last is not None and last.run_id == run.recorded.run_id:
            did = ", ".join(step.lower() for step in run.recorded.done)
            looking = f"continuing run {last.run_id}; already done: {did}"
        yield run.event(Step.CHECK, StepState.STARTED, looking)
        due = await failback_due(self.reverse_journal, self.planner)
        look = self.planner.look(options, run.before, without=run.done_with, due=due)
        async with aclosing(look) as told:
            async for each in told:
                if isinstance(each, MovePlan):
                    run.plan = each
                else:
                    yield run.event(Step.CHECK, StepState.PROGRESS, each)
        if run.plan.blockers:
            raise _blocked(run.plan)
        run.moves = after(run.moves, Step.CHECK)
        if not run.is_repeated:
            await run.store(run.moves)
        count = len(run.plan.partitions)
        yield run.event(Step.CHECK, StepState.DONE, f"offsets to translate: {count}")
        async for event in self._leave(run):
            yield event
        yield run.event(Step.TRANSLATE, StepState.STARTED, "reading the groups' current offsets")
        placed = await self.planner.places.partitions(
            options, from_reachable=run.plan.from_reachable, without=run.done_with, moves=run.before
        )
        run.partitions, run.all_listed = placed.partitions, not placed.unlisted
        self._check_again(run, placed)
        count = len(run.partitions)
        yield run.event(Step.TRANSLATE, StepState.DONE, f"offsets translated: {count}")
        over = run.finished()
        granted = run.recorded.kind is MoveKind.FAILBACK and run.moves.grants
        undoes = is_whole(over) and (run.moves.fenced(run.plan.to_alias) or granted)
        is_due = not run.is_repeated or run.fenced or run.partitions or undoes or run.plan.write_grants
        if is_due:
            if run.is_repeated and not run.fenced:
                await run.store(run.moves)
            async for event in arrive(run):
                yield event
        else:
            result = run_of(over)
            kept = replace(over, run=last)
            await run.store(with_run(kept, on_target=result.on_target, any_group=result.any_group))
        report = await self._report(run, already_done=not is_due)
        # `status` shows the same as the run itself, also after a restart.
        await run.store(with_run(run.moves, left_behind=tuple(report.left_behind)))
        yield report

    def _check_again(self, run: RunState, placed: Placed) -> None:
        """Brokers may have been lost since the plan: nothing is committed yet. Raises StateError
        (MOVE_BLOCKED)."""
        lost, accepted = groups_told(placed, self.planner.route)
        if not run.options.accept_loss:
            lost = lost + accepted or not_now(placed.partitions)
        if lost:
            stays = [] if run.is_repeated and not run.fenced else [_stays(run.plan)]
            raise _blocked(replace(run.plan, blockers=lost + stays))

    async def _leave(self, run: RunState) -> AsyncGenerator[StepEvent, None]:
        if run.plan.from_reachable:
            async for event in leave(run, look_seconds=self.drain_look_seconds):
                yield event
            return
        for step in (Step.FENCE, Step.FINAL_OFFSETS, Step.DRAIN):
            yield run.event(step, StepState.SKIPPED, f"{run.plan.from_alias} does not answer")

    async def _report(self, run: RunState, *, already_done: bool) -> MoveReport:
        """Raises KafkaError."""
        fenced = sorted(run.moves.fences.get(run.plan.from_alias, ()))
        plan = await self.planner.done(replace(run.plan, fenced_topics=fenced), run.partitions, run.finals)
        return MoveReport(
            run_id=run.recorded.run_id,
            already_done=already_done,
            started_ms=run.recorded.started_ms,
            finished_ms=run.recorded.finished_ms or self.planner.clock.now_ms(),
            plan=plan,
            left_behind=left_behind(
                plan.partitions,
                plan.backlog,
                drained=run.drained,
                accepted=run.options.accept_loss,
                still_written=run.still_written,
                unfenced_topics=run.unfenced_topics,
            ),
        )


def _blocked(plan: MovePlan) -> StateError:
    return StateError(
        f"{plan.kind} of {plan.flow} is not possible now: {'; '.join(plan.blockers)}",
        reason="MOVE_BLOCKED",
        metadata={"flow": str(plan.flow)},
    )


def _stays(plan: MovePlan) -> str:
    give_up = f"`twinlog {plan.kind} give-up '{plan.flow}'`"
    return f"what the run did stays: run it again to continue, or {give_up}"


def _in_progress(message: str) -> StateError:
    return StateError(message, reason="MOVE_IN_PROGRESS")


def _nothing_to_abort(moves: Moves, kind: str) -> StateError:
    flow, last = moves.flow, moves.run
    if last is None:
        what = f"no move of {flow} is recorded"
    elif moves.interrupted:
        what = f"the interrupted run is a {last.kind}: `twinlog {last.kind} give-up '{flow}'`"
    else:
        remedy = f"`twinlog failback run '{flow}'` moves the groups back and removes its fence"
        fenced = moves.fenced(moves.leaves(last.kind))
        what = f"{last.kind} run {last.run_id} is finished" + (f": {remedy}" if fenced else "")
    return StateError(
        f"there is no {kind} of {flow} to abort: {what}",
        reason="NOTHING_TO_ABORT",
        metadata={"flow": str(flow)},
    )
