"""Converts between protobuf messages of moves and the domain's values. Pure."""

from collections.abc import Iterator

from twinlog.acl_rights import acl_text
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.errors import ConfigError
from twinlog.moves.record import MoveKind
from twinlog.service.api_values import message_of
from twinlog_checkpoint.api.messages import VERDICTS
from twinlog_checkpoint.moves.planning.plan import (
    DEFAULT_WAIT_SECONDS,
    LastMove,
    MoveOptions,
    MovePartition,
    MovePlan,
)
from twinlog_checkpoint.moves.running.events import MoveReport, StepEvent
from twinlog_checkpoint.moves.running.host import MoveRun
from twinlog_checkpoint.moves.topic_backlog import counting, most_missing

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
