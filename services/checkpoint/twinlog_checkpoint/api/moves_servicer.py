"""The RPCs of CheckpointService about moves: plan, run, attach, cancel, abort, status."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from twinlog.acl_rights import acl_text
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.clock import Clock
from twinlog.errors import ConfigError, KafkaError, StateError, TwinlogError, WireFormatError
from twinlog.model import Flow
from twinlog.moves.record import MoveKind, Step
from twinlog.service.access.audit import NOT_KNOWN, begun, changed
from twinlog.service.access.gate import caller_name
from twinlog.service.api_values import flow_message, message_of, named
from twinlog.service.grpc_server import Context
from twinlog.service.owner.name import is_elsewhere, one_of_each_owner
from twinlog_checkpoint.api.messages import VERDICTS
from twinlog_checkpoint.api.move_audit import record_shown, run_shown, tell_outcome
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.moves.planning.decision import shown_move
from twinlog_checkpoint.moves.planning.plan import (
    DEFAULT_WAIT_SECONDS,
    LastMove,
    MoveOptions,
    MovePartition,
    MovePlan,
)
from twinlog_checkpoint.moves.running.host import MoveHost, MoveRun
from twinlog_checkpoint.moves.running.run_record import MoveReport, StepEvent, StepState, step_event
from twinlog_checkpoint.moves.running.runner import MoveRunner
from twinlog_checkpoint.moves.topic_backlog import counting, most_missing
from twinlog_checkpoint.side_by_side import each_at_once

# Converts between protobuf messages of moves and the domain's values. Pure.

PART_ROWS = 5_000
"""Rows in one message (about a megabyte). A plan with at most this many rows is sent whole."""

_KINDS = {kind: pb2.MoveKind.Value(f"MOVE_KIND_{kind.name}") for kind in MoveKind}


def move_kind(kind: "pb2.MoveKind.ValueType") -> MoveKind:
    """Raises ConfigError if it is neither failover nor failback."""
    for known, value in _KINDS.items():
        if value == kind:
            return known
    raise ConfigError("kind: expected failover or failback", metadata={"field": "kind"})


def move_options(options: pb2.MoveOptions, *, by: str) -> MoveOptions:
    """Read the options of a request. `by` is the authenticated caller; a name in the request is ignored.
    Raises ConfigError for a negative wait or an empty group id."""
    wait_seconds = DEFAULT_WAIT_SECONDS
    if options.HasField("wait"):
        wait_seconds = options.wait.ToMilliseconds() / 1000
    if wait_seconds < 0:
        raise ConfigError("wait: expected 0 or more seconds", reason="INVALID_WAIT")
    if not all(options.groups):
        raise ConfigError("groups: expected group ids, found an empty one", reason="INVALID_GROUP")
    return MoveOptions(
        groups=tuple(options.groups),
        fence=options.fence,
        include_active=options.include_active,
        wait_seconds=wait_seconds,
        accept_loss=options.accept_loss,
        grant_write=options.grant_write,
        by=by,
    )


def move_plan(plan: MovePlan) -> pb2.MovePlan:
    return message_of(
        pb2.MovePlan,
        plan,
        from_cluster=plan.from_alias,
        to_cluster=plan.to_alias,
        partitions=[_move_partition(entry) for entry in plan.partitions],
        backlog=[message_of(pb2.TopicBacklog, entry) for entry in plan.backlog],
        last=None if plan.last is None else last_move(plan.last),
        write_grants=[acl_text(grant) for grant in plan.write_grants],
        at_most_not_copied=most_missing(plan.backlog) if plan.from_reachable and plan.looked else None,
        counting=counting(plan.backlog),
    )


def split(plan: pb2.MovePlan) -> Iterator[pb2.MovePlanPart]:
    """Remove the rows of a plan that is too large for one message, and return them in parts; a smaller plan
    has no parts."""
    if len(plan.partitions) <= PART_ROWS and len(plan.backlog) <= PART_ROWS:
        return
    for start in range(0, len(plan.partitions), PART_ROWS):
        yield pb2.MovePlanPart(partitions=plan.partitions[start : start + PART_ROWS])
    for start in range(0, len(plan.backlog), PART_ROWS):
        yield pb2.MovePlanPart(backlog=plan.backlog[start : start + PART_ROWS])
    del plan.partitions[:]
    del plan.backlog[:]


def move_run(run: MoveRun) -> pb2.MoveRun:
    return message_of(
        pb2.MoveRun,
        run,
        kind=_KINDS[run.kind],
        options=message_of(pb2.MoveOptions, run.options),
        steps=[move_step(event) for event in run.steps],
        reason="" if run.error is None else run.error.reason,
        message="" if run.error is None else str(run.error),
        left_behind=() if run.report is None else run.report.left_behind,
    )


def last_move(last: LastMove) -> pb2.LastMove:
    return message_of(pb2.LastMove, last)


def move_step(event: StepEvent) -> pb2.MoveStep:
    return message_of(pb2.MoveStep, event, name=event.step)


def move_report(report: MoveReport) -> pb2.MoveReport:
    return message_of(pb2.MoveReport, report, plan=move_plan(report.plan))


def _move_partition(entry: MovePartition) -> pb2.MovePartition:
    return message_of(pb2.MovePartition, entry, verdict=VERDICTS[entry.translation.verdict])


Event = TypeVar("Event")
_ERRORS = (KafkaError, WireFormatError, StateError)
RECORD_SECONDS = 4.0
"""The longest time to read the record of one flow, when the records of all flows are requested."""
RECORDS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFlow:
    """One flow and the parts that move its groups."""

    parts: FlowParts
    failover: MoveRunner
    failback: MoveRunner
    host: MoveHost

    def runner(self, kind: MoveKind) -> MoveRunner:
        return self.failover if kind is MoveKind.FAILOVER else self.failback


async def _last_move(served: ServedFlow) -> pb2.FlowMove:
    """Return the run of this process and the recorded move, or why the record is not known."""
    current = served.host.current
    last, problem = None, ""
    try:
        last = shown_move(await served.failover.recorded())
    except _ERRORS as error:
        problem = f"{error} ({error.reason})"
    return pb2.FlowMove(
        flow=flow_message(served.parts.flow),
        run=None if current is None else move_run(current),
        last=None if last is None else last_move(last),
        problem=problem,
        other_fences=[
            pb2.OtherFence(holders=each.holders, topics=each.topics, remedy=each.remedy)
            for each in served.parts.fences.others
        ],
    )


def _refusal(served: ServedFlow) -> TwinlogError | None:
    """Why another process is to be asked about a flow; None: this one owns it, or runs a move of it."""
    run = served.host.current
    return None if run and run.running else served.parts.duty.refusal()


def elsewhere(flows: Iterable[ServedFlow]) -> Iterator[types_pb2.Flow]:
    """A flow of each other process that owns some of these."""
    return map(flow_message, one_of_each_owner({each.parts.flow: _refusal(each) for each in flows}))


class MovesServicer:
    def __init__(self, flows: Mapping[Flow, ServedFlow], *, clock: Clock, stop: asyncio.Event) -> None:
        """Streams end at `stop`."""
        self._flows = flows
        self._clock = clock
        self._stop = stop

    async def PlanMove(  # noqa: N802
        self, request: pb2.PlanMoveRequest, context: Context
    ) -> AsyncIterator[pb2.PlanMoveResponse]:
        options = move_options(request.options, by=caller_name(request.options.by, context))
        runner = self._at_owner(request.flow).runner(move_kind(request.kind))
        async with aclosing(runner.look(options)) as told:
            async for each in told:
                if isinstance(each, MovePlan):
                    # Converting many offsets takes seconds. In a thread it does not delay the task that keeps
                    # the lease.
                    plan = await asyncio.to_thread(move_plan, each)
                    for part in split(plan):
                        yield pb2.PlanMoveResponse(part=part)
                    yield pb2.PlanMoveResponse(plan=plan)
                else:
                    step = step_event(self._clock, Step.CHECK, StepState.PROGRESS, each)
                    yield pb2.PlanMoveResponse(step=move_step(step))

    async def RunFailover(  # noqa: N802
        self, request: pb2.RunFailoverRequest, context: Context
    ) -> AsyncIterator[pb2.RunFailoverResponse]:
        options = move_options(request.options, by=caller_name(request.options.by, context))
        run = self._begun(request.flow, MoveKind.FAILOVER, options)
        async with aclosing(self._events(run, pb2.RunFailoverResponse)) as events:
            async for event in events:
                yield event

    async def RunFailback(  # noqa: N802
        self, request: pb2.RunFailbackRequest, context: Context
    ) -> AsyncIterator[pb2.RunFailbackResponse]:
        options = move_options(request.options, by=caller_name(request.options.by, context))
        run = self._begun(request.flow, MoveKind.FAILBACK, options)
        async with aclosing(self._events(run, pb2.RunFailbackResponse)) as events:
            async for event in events:
                yield event

    async def GetMove(  # noqa: N802
        self, request: pb2.GetMoveRequest, context: Context
    ) -> pb2.GetMoveResponse:
        told = await _last_move(self._at_owner(request.flow))
        return pb2.GetMoveResponse(
            run=told.run if told.HasField("run") else None,
            last=told.last if told.HasField("last") else None,
            problem=told.problem,
        )

    async def ListMoves(  # noqa: N802
        self, request: pb2.ListMovesRequest, context: Context
    ) -> pb2.ListMovesResponse:
        flows = self._selected(request)
        found: list[pb2.FlowMove] = []

        async def one(served: ServedFlow) -> None:
            try:
                async with asyncio.timeout(RECORD_SECONDS):
                    found.append(await _last_move(served))
            except TimeoutError:
                problem = f"{served.failover.journal.topic} was not read within {RECORD_SECONDS:g} s"
                found.append(pb2.FlowMove(flow=flow_message(served.parts.flow), problem=problem))

        await each_at_once(flows, one, most=RECORDS_AT_ONCE, name="records of moves")
        found.sort(key=lambda each: (each.flow.source, each.flow.target))
        return pb2.ListMovesResponse(moves=found, owned_elsewhere=elsewhere(flows))

    async def WatchMove(  # noqa: N802
        self, request: pb2.WatchMoveRequest, context: Context
    ) -> AsyncIterator[pb2.WatchMoveResponse]:
        run = self._at_owner(request.flow).host.latest()
        async with aclosing(self._events(run, pb2.WatchMoveResponse)) as events:
            async for event in events:
                yield event

    async def CancelMove(  # noqa: N802
        self, request: pb2.CancelMoveRequest, context: Context
    ) -> pb2.CancelMoveResponse:
        host = self._at_owner(request.flow).host
        before = run_shown(host.latest())
        changed(before=before, after=NOT_KNOWN)
        run = await host.cancel(caller_name(request.by, context))
        changed(before=before, after=run_shown(run))
        return pb2.CancelMoveResponse(run=move_run(run))

    async def AbortMove(  # noqa: N802
        self, request: pb2.AbortMoveRequest, context: Context
    ) -> pb2.AbortMoveResponse:
        runner = named(self._flows, request.flow).runner(move_kind(request.kind))
        aborted = await runner.abort(caller_name(request.by, context))
        changed(before=record_shown(aborted.before), after=record_shown(aborted.after))
        return pb2.AbortMoveResponse(unfenced_topics=aborted.unfenced_topics)

    def _at_owner(self, flow: types_pb2.Flow) -> ServedFlow:
        """Raises StateError (OWNED_ELSEWHERE) if another process owns the flow and no move of the flow runs
        here: this process would answer with old data or none."""
        served = named(self._flows, flow)
        if is_elsewhere(refusal := _refusal(served)):
            raise refusal
        return served

    def _selected(
        self, request: pb2.ListGroupsRequest | pb2.ExplainGroupRequest | pb2.ListMovesRequest
    ) -> list[ServedFlow]:
        """Raises StateError (OWNED_ELSEWHERE) if another process is asked for."""
        if request.HasField("flow"):
            flows = [named(self._flows, request.flow)]
        else:
            flows = [self._flows[known] for known in sorted(self._flows)]
        if not request.HasField("from_owner_of"):
            return flows
        self._at_owner(request.from_owner_of)
        return [each for each in flows if _refusal(each) is None]

    def _begun(self, flow: types_pb2.Flow, kind: MoveKind, options: MoveOptions) -> MoveRun:
        """Write the first audit line of a run; the second one follows when the run ends."""
        run = self._at_owner(flow).host.start(kind, options)
        run.on_end = partial(tell_outcome, begun())
        return run

    async def _events(self, run: MoveRun, message: Callable[..., Event]) -> AsyncGenerator[Event, None]:
        """Yield the run's events from its first one. The run continues when its followers leave."""
        async with aclosing(run.follow(self._stop)) as events:
            async for event in events:
                if not isinstance(event, MoveReport):
                    yield message(step=move_step(event))
                    continue
                report = await asyncio.to_thread(move_report, event)
                for part in split(report.plan):
                    yield message(part=part)
                yield message(report=report)
