"""Runs a move step by step. A run continues an interrupted one; after a finished one it only moves what has
changed.

Invariants:
- every change is made while this process owns the flow;
- a run is done only after everything before its final offsets is copied, or the loss is accepted.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import structlog

from twinlog.clock import Clock
from twinlog.errors import KafkaError, StateError, WireFormatError
from twinlog.kafka.ports import AclBinding, KafkaCluster
from twinlog.model import ClusterAlias
from twinlog.moves.record import MoveKind, Moves, Step
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog.telemetry.tracing import detached_span
from twinlog.write_blocks import fence_of, holder_of
from twinlog_checkpoint.flow.parts import LeaseGuard
from twinlog_checkpoint.journal import MoveJournal
from twinlog_checkpoint.moves.planning.group_places import Placed
from twinlog_checkpoint.moves.planning.outcome import finished_with, left_behind, not_now
from twinlog_checkpoint.moves.planning.plan import MoveOptions, MovePartition, MovePlan
from twinlog_checkpoint.moves.planning.planner import NOTHING_DUE, Due, MovePlanner, at_last, groups_told
from twinlog_checkpoint.moves.routes.route import Route
from twinlog_checkpoint.moves.running.arrival import Arrival, Arrived
from twinlog_checkpoint.moves.running.departure import Departed, Departure
from twinlog_checkpoint.moves.running.run_record import (
    Aborted,
    MoveEvent,
    MoveReport,
    StepEvent,
    StepState,
    after,
    begun,
    finished,
    given_up,
    is_whole,
    run_of,
    step_event,
    with_run,
)
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
    duty: LeaseGuard
    """Tells whether this process owns the flow; it writes only then."""
    clock: Clock
    stop: asyncio.Event
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
            done_with = await self.planner.places.finished_with(last, options)
            moves = begun(
                last,
                self.planner.route.kind,
                options,
                run_id=uuid.uuid4().hex[:12],
                now_ms=self.clock.now_ms(),
            )
            run = run_of(moves)
            _log.info(
                "move_started",
                kind=run.kind,
                flow=str(self.planner.route.flow),
                run_id=run.run_id,
                by=options.by,
                groups=list(options.groups),
                fence=options.fence,
                accept_loss=options.accept_loss,
                grant_write=options.grant_write,
                resumed=last.run is not None and run.run_id == last.run.run_id,
            )
            flow = self.planner.route.flow
            attributes = {
                **flow_attributes(flow.source, flow.target),
                "twinlog.move.kind": str(run.kind),
                "twinlog.move.run": run.run_id,
            }
            with detached_span("move", attributes):
                async for event in self._steps(moves, options, last, done_with):
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
                over = given_up(moves, now_ms=self.clock.now_ms())
            lifted = set(moves.fenced(here)).difference(over.fenced(here))
            holder = await self.planner.route.holder()
            kept = await self.duty.hold(lambda: release_fences(cluster, lifted, holder))
            await self._store(over)
            _log.info("move_aborted", kind=kind, flow=str(self.journal.flow), run_id=last.run_id, by=by)
            unfenced = sorted(fence.resource_name for fence in lifted.difference(kept))
            return Aborted(before=moves, after=over, unfenced_topics=unfenced)

    async def _steps(
        self, moves: Moves, options: MoveOptions, last: Moves, done_with: Collection[str]
    ) -> AsyncGenerator[MoveEvent, None]:
        """`done_with`: the groups that earlier runs have moved. They stay as they are, wherever their
        consumers or their operator have put them since."""
        run, before = run_of(moves), last.run
        goes_on = before is not None and before.run_id == run.run_id
        # A repeated run checks again what the earlier run finished, and records itself only if there is
        # something to do.
        again = before is not None and not goes_on and before.kind is run.kind and not before.aborted
        looking = "reading both clusters"
        if goes_on:
            did = ", ".join(step.lower() for step in run.done)
            looking = f"continuing run {run.run_id}; already done: {did}"
        yield step_event(self.clock, Step.CHECK, StepState.STARTED, looking)
        plan: MovePlan | None = None
        due = await failback_due(self.reverse_journal, self.planner)
        async with aclosing(self.planner.look(options, last, without=done_with, due=due)) as told:
            async for each in told:
                if isinstance(each, MovePlan):
                    plan = each
                else:
                    yield step_event(self.clock, Step.CHECK, StepState.PROGRESS, each)
        assert plan is not None, "a look ends with a plan"
        if plan.blockers:
            raise _blocked(plan)
        moves = after(moves, Step.CHECK)
        if not again:
            await self._store(moves)
        yield step_event(
            self.clock, Step.CHECK, StepState.DONE, f"offsets to translate: {len(plan.partitions)}"
        )
        departed = Departed(moves=moves, fenced=False, drained=False)
        async for entry in self._leave(plan, moves, options, recorded=not again):
            if isinstance(entry, Departed):
                departed = entry
            else:
                yield entry
        moves = departed.moves
        yield step_event(self.clock, Step.TRANSLATE, StepState.STARTED, "reading the groups' current offsets")
        placed = await self.planner.places.partitions(
            options, from_reachable=plan.from_reachable, without=done_with, moves=last
        )
        partitions = placed.partitions
        self._check_again(plan, placed, options, stays=not again or departed.fenced)
        yield step_event(self.clock, Step.TRANSLATE, StepState.DONE, f"offsets translated: {len(partitions)}")
        newly = finished_with(partitions, accepted=options.accept_loss)
        all_listed = not placed.unlisted
        over = finished(moves, newly, partitions, options, all_listed=all_listed, now_ms=self.clock.now_ms())
        granted = run.kind is MoveKind.FAILBACK and moves.grants
        undoes = is_whole(over) and (moves.fenced(plan.to_alias) or granted)
        if again and not (departed.fenced or partitions or undoes or plan.write_grants):
            result = run_of(over)
            kept = with_run(replace(over, run=before), on_target=result.on_target, any_group=result.any_group)
            await self._store(kept)
            report = await self._report(kept, plan, partitions, options, departed, already_done=True)
            await self._note_left_behind(kept, report)
            yield report
            return
        if again and not departed.fenced:
            await self._store(moves)
        arrival = self._arrival.arrive(moves, plan, partitions, options, all_listed=all_listed)
        async for arrived in arrival:
            if isinstance(arrived, Arrived):
                report = await self._report(
                    arrived.moves, plan, arrived.partitions, options, departed, already_done=False
                )
                await self._note_left_behind(arrived.moves, report)
                yield report
            else:
                yield arrived

    def _check_again(self, plan: MovePlan, placed: Placed, options: MoveOptions, *, stays: bool) -> None:
        """Brokers may have been lost since the plan: nothing is committed yet. `stays`: the run has recorded
        something. Raises StateError (MOVE_BLOCKED)."""
        lost, accepted = groups_told(placed, self.planner.route)
        if not options.accept_loss:
            lost = lost + accepted or not_now(placed.partitions)
        if lost:
            raise _blocked(replace(plan, blockers=[*lost, _stays(plan)] if stays else lost))

    async def _leave(
        self, plan: MovePlan, moves: Moves, options: MoveOptions, *, recorded: bool
    ) -> AsyncGenerator[StepEvent | Departed, None]:
        if plan.from_reachable:
            async for entry in self._departure.leave(moves, options, recorded=recorded):
                yield entry
            return
        for step in (Step.FENCE, Step.FINAL_OFFSETS, Step.DRAIN):
            yield step_event(self.clock, step, StepState.SKIPPED, f"{plan.from_alias} does not answer")

    async def _note_left_behind(self, moves: Moves, report: MoveReport) -> None:
        """Store the result, so that `status` shows the same as the run itself, also after a restart."""
        await self._store(with_run(moves, left_behind=tuple(report.left_behind)))

    async def _store(self, moves: Moves) -> None:
        await self.duty.hold(lambda: self.journal.store(moves))

    @property
    def _arrival(self) -> Arrival:
        return Arrival(planner=self.planner, store=self._store, duty=self.duty, clock=self.clock)

    @property
    def _departure(self) -> Departure:
        return Departure(
            planner=self.planner,
            store=self._store,
            duty=self.duty,
            clock=self.clock,
            stop=self.stop,
            look_seconds=self.drain_look_seconds,
        )

    async def _report(
        self,
        moves: Moves,
        plan: MovePlan,
        partitions: Sequence[MovePartition],
        options: MoveOptions,
        departed: Departed,
        *,
        already_done: bool,
    ) -> MoveReport:
        """Of the `partitions` as they were carried out. Raises KafkaError."""
        fenced = sorted(moves.fences.get(plan.from_alias, ()))
        plan = await self.planner.done(replace(plan, fenced_topics=fenced), partitions, departed.finals)
        return MoveReport(
            run_id=run_of(moves).run_id,
            already_done=already_done,
            started_ms=run_of(moves).started_ms,
            finished_ms=run_of(moves).finished_ms or self.clock.now_ms(),
            plan=plan,
            left_behind=left_behind(
                plan.partitions,
                plan.backlog,
                drained=departed.drained,
                accepted=options.accept_loss,
                still_written=departed.still_written,
                unfenced_topics=departed.unfenced_topics,
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
