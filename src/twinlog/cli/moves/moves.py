"""What `twinlog failover` and `twinlog failback` share: options, the plan's table, the steps of a run."""

from collections.abc import AsyncIterable, Iterable
from typing import Annotated, Any

import grpc
import typer
from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.checkpoint.client import shown, topic_partition, verdict_name
from twinlog.cli.common.failures import EXIT_FAILED
from twinlog.cli.common.output import Column, Output, print_json, print_json_line, print_table
from twinlog.cli.configsync.client import flow_name
from twinlog.cli.source.client import who
from twinlog.service.errors_wire import error_from_rpc

GroupsOption = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="ID", help="Only this group; may be repeated. All when left out."),
]
FenceOption = Annotated[
    bool,
    typer.Option(
        "--fence", help="Deny writes to the flow's topics by ACL on the cluster that the groups leave."
    ),
]
IncludeActiveOption = Annotated[
    bool,
    typer.Option(
        "--include-active", help="Also move groups that still have members on the cluster that they leave."
    ),
]
AcceptLossOption = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="Accept records that are not copied, groups without an offset there, or that cluster's loss.",
    ),
]
WaitOption = Annotated[
    float,
    typer.Option(
        "--wait", min=0, metavar="SECONDS", help="How long to wait for the copy; 0 = check once, do not wait."
    ),
]
YesOption = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Do not ask. Without a terminal as stdin the command never asks."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")]

_ROWS_SHOWN = 500
"""Of a plan, to people: those that do not move come first."""
_NAMES_SHOWN = 10

_BACKLOG = (Column(title="partition"), Column(title="not copied", right=True), Column(title="message"))


def _columns(plan: pb2.MovePlan) -> tuple[Column, ...]:
    return (
        Column(title="group"),
        Column(title=f"on {plan.from_cluster}"),
        Column(title="is at", right=True),
        Column(title=f"on {plan.to_cluster}"),
        Column(title="translated", right=True),
        Column(title="committed", right=True),
        Column(title="verdict"),
        Column(title="action"),
        Column(title="message"),
    )


def options_message(
    groups: list[str] | None, *, fence: bool, include_active: bool, accept_loss: bool, wait_seconds: float
) -> pb2.MoveOptions:
    options = pb2.MoveOptions(
        groups=groups or [], fence=fence, include_active=include_active, accept_loss=accept_loss, by=who()
    )
    options.wait.FromMilliseconds(round(wait_seconds * 1000))
    return options


def print_plan(plan: pb2.MovePlan, output: Output) -> None:
    """Exits with 1 when the move would be refused."""
    if output is Output.JSON:
        print_json(plan_as_json(plan))
    else:
        _print_plan(plan, f"{flow_name(plan.flow)}: from {plan.from_cluster} to {plan.to_cluster}")
    if plan.blockers:
        raise typer.Exit(EXIT_FAILED)


async def print_run(
    events: AsyncIterable[pb2.RunFailoverResponse]
    | AsyncIterable[pb2.RunFailbackResponse]
    | AsyncIterable[pb2.WatchMoveResponse],
    output: Output,
) -> None:
    """Each step as it comes, the report at the end. Raises the error that the service told; exits with 1
    unless everything asked for is done."""
    told: tuple[str, str] | None = None
    incomplete = False
    rows = pb2.MovePlanPart()
    try:
        async for event in events:
            if event.HasField("part"):
                rows.MergeFrom(event.part)
                continue
            if event.HasField("report"):
                plan = event.report.plan
                plan.partitions.MergeFrom(rows.partitions)
                plan.backlog.MergeFrom(rows.backlog)
                incomplete = bool(event.report.left_behind or _staying(plan))
            if output is Output.JSON:
                print_json_line(_event_as_json(event))
            elif event.HasField("report"):
                _print_report(event.report)
            elif event.step.state != pb2.STEP_STATE_PROGRESS or told != _sign(event.step):
                told = _sign(event.step)
                print_step(event.step)
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error, peer="checkpoint") from error
    if incomplete:
        raise typer.Exit(EXIT_FAILED)


def _sign(step: pb2.MoveStep) -> tuple[str, str]:
    """What a sign of life says: of a wait how much is left, whatever its words."""
    return step.name, str(step.records_left) if step.HasField("records_left") else step.message


def print_step(step: pb2.MoveStep) -> None:
    """One line."""
    left = f" ({step.records_left})" if step.HasField("records_left") and step.records_left else ""
    state = pb2.StepState.Name(step.state).removeprefix("STEP_STATE_").lower()
    typer.echo(f"{clock_time(step.at)}  {step.name:<13} {state:<8} {step.message}{left}")


def _print_report(report: pb2.MoveReport) -> None:
    plan = report.plan
    moved, all_groups = _moved(plan)
    if report.already_done:
        title = (
            f"run {report.run_id} had moved the groups already, at {clock_time(report.finished)}: nothing was"
            " changed now"
        )
    else:
        title = f"run {report.run_id}: {moved} of {all_groups} groups of {flow_name(plan.flow)} continue on"
        title += f" {plan.to_cluster}"
    _print_plan(plan, title)
    lines = summary(plan)
    # A second run is about the groups that are left: how many were moved is not in its plan.
    for line in lines[1:] if report.already_done else lines:
        typer.echo(line)
    for line in (*_next_steps(plan), *(f"not done: {reason}" for reason in report.left_behind)):
        typer.echo(line)
    if report.left_behind:
        typer.echo(f"do not switch {plan.from_cluster} off yet")


def _next_steps(plan: pb2.MovePlan) -> list[str]:
    """What the groups' consumers have to do now."""
    names: dict[str, str] = {}
    for entry in plan.partitions:
        if _action(entry) in _THERE:
            names.setdefault(entry.from_partition.topic, entry.to_partition.topic)
    if not names:
        return []
    lines = [f"next: start the consumers of these groups on {plan.to_cluster}"]
    other = sorted((here, there) for here, there in names.items() if here != there)
    if other:
        shown_names = ", ".join(f"{there} in place of {here}" for here, there in other[:_NAMES_SHOWN])
        more = f", and {len(other) - _NAMES_SHOWN} more" if len(other) > _NAMES_SHOWN else ""
        lines.append(f"      they have to subscribe to {shown_names}{more}")
    return lines


def _moved(plan: pb2.MovePlan) -> tuple[int, int]:
    """Groups that go on where they move to, and all."""
    by_group = _actions_by_group(plan)
    active = _staying(plan)
    return sum(group not in active and bool(acts & _THERE) for group, acts in by_group.items()), len(by_group)


def _actions_by_group(plan: pb2.MovePlan) -> dict[str, set[str]]:
    by_group: dict[str, set[str]] = {}
    for entry in plan.partitions:
        by_group.setdefault(entry.group, set()).add(_action(entry))
    return by_group


def clock_time(at: Timestamp) -> str:
    """In UTC: `2026-01-31T12:00:00Z`: operators compare it with logs."""
    return f"{at.ToDatetime():%Y-%m-%dT%H:%M:%SZ}"


def summary(plan: pb2.MovePlan) -> list[str]:
    """What became of the groups, in a line for each outcome."""
    active = set(_staying(plan))
    partly = sorted({entry.group for entry in plan.partitions if _is_nowhere(entry)} - active)
    by_rule = sorted({entry.from_partition.topic for entry in plan.partitions if _is_by_rule(entry)})
    moved, all_groups = _moved(plan)
    lines = [f"moved: {moved} of {all_groups} groups"]
    if partly:
        lines.append(f"without an offset for some partitions: {', '.join(partly)}")
    if by_rule:
        lines.append(f"not copied by any flow, they stay on {plan.from_cluster}: {', '.join(by_rule)}")
    if active:
        lines.append(f"not moved, they have members: {', '.join(sorted(active))}; stop them and run it again")
    return lines


def _staying(plan: pb2.MovePlan) -> list[str]:
    """Groups that were not moved because they have members."""
    return sorted({entry.group for entry in plan.partitions if _action(entry) in _ACTIVE})


def _is_by_rule(entry: pb2.MovePartition) -> bool:
    """Of a topic that no flow copies."""
    return entry.verdict == pb2.VERDICT_NOT_REPLICATED


def _is_nowhere(entry: pb2.MovePartition) -> bool:
    return _action(entry) in _NOWHERE and not _is_by_rule(entry)


_ACTIVE = ("SKIP_ACTIVE_BEFORE", "SKIP_ACTIVE_THERE")
_NOWHERE = {"SKIP_NO_OFFSET", "SKIP_NO_PARTITION"}
_THERE = {"WRITE", "ALREADY_THERE", "KEEP_AHEAD"}


def _print_plan(plan: pb2.MovePlan, title: str) -> None:
    if plan.partitions:
        rows = sorted(plan.partitions, key=lambda entry: _action(entry) in _THERE)
        shown_rows = sorted(rows[:_ROWS_SHOWN], key=lambda entry: entry.group)
        print_table(title, _columns(plan), [_cells(entry) for entry in shown_rows])
        if len(rows) > _ROWS_SHOWN:
            typer.echo(f"and {len(rows) - _ROWS_SHOWN} more offsets: -o json has all of them")
    else:
        typer.echo(title if plan.blockers else f"{title}\nnothing to move")
    backlog = list(_backlog_cells(plan.backlog))
    if backlog:
        print_table("", _BACKLOG, backlog[:_ROWS_SHOWN])
    if len(backlog) > _ROWS_SHOWN:
        typer.echo(f"and {len(backlog) - _ROWS_SHOWN} more partitions")
    typer.echo(_backlog_line(plan))
    if plan.fenced_topics:
        typer.echo(f"fence on {plan.from_cluster}, no writes to: {', '.join(plan.fenced_topics)}")
    if plan.HasField("last") and not plan.last.finished:
        steps = ", ".join(plan.last.steps) or "nothing"
        typer.echo(
            f"note: {plan.last.kind} run {plan.last.run_id} by {plan.last.by or 'somebody'} was cut after"
            f" {steps}; `twinlog {plan.last.kind} run` continues it, `abort` gives it up"
        )
    for warning in plan.warnings:
        typer.echo(f"note: {warning}")
    for blocker in plan.blockers:
        typer.echo(f"blocked: {blocker}")


def _backlog_line(plan: pb2.MovePlan) -> str:
    if not plan.from_reachable:
        return f"not copied: unknown, {plan.from_cluster} does not answer"
    if plan.counting and plan.HasField("at_most_not_copied"):
        return f"not copied yet: at most {plan.at_most_not_copied} records; they are still being counted"
    if not plan.HasField("records_not_copied"):
        return "not copied yet: an unknown number of records"
    if not plan.records_not_copied:
        return "not copied yet: nothing"
    estimate = "; the copy does not move just now"
    if plan.HasField("estimated"):
        estimate = f", about {plan.estimated.ToTimedelta().total_seconds():.0f} s at the present rate"
    records = "1 record" if plan.records_not_copied == 1 else f"{plan.records_not_copied} records"
    return f"not copied yet: {records}{estimate}"


def _backlog_cells(backlog: Iterable[pb2.TopicBacklog]) -> Iterable[list[str]]:
    """Only partitions that lack something, or of which nothing is known."""
    for entry in backlog:
        known = entry.HasField("records_not_copied")
        if not known or entry.records_not_copied:
            yield [
                topic_partition(entry.partition),
                shown(entry.records_not_copied) if known else _at_most(entry),
                entry.message,
            ]


def _at_most(entry: pb2.TopicBacklog) -> str:
    return f"<= {entry.at_most}" if entry.HasField("at_most") else "-"


def _cells(entry: pb2.MovePartition) -> list[str]:
    return [
        entry.group,
        topic_partition(entry.from_partition),
        shown(entry.from_offset if entry.HasField("from_offset") else None),
        topic_partition(entry.to_partition) if entry.HasField("to_partition") else "-",
        shown(entry.to_offset if entry.HasField("to_offset") else None),
        shown(entry.present_offset if entry.HasField("present_offset") else None),
        verdict_name(entry.verdict),
        _action(entry),
        entry.message,
    ]


def _action(entry: pb2.MovePartition) -> str:
    return pb2.MoveAction.Name(entry.action).removeprefix("MOVE_ACTION_")


def step_as_json(step: pb2.MoveStep) -> dict[str, Any]:
    """One step for programs."""
    return {
        "step": step.name,
        "state": pb2.StepState.Name(step.state).removeprefix("STEP_STATE_"),
        "message": step.message,
        "at": step.at.ToJsonString(),
        "records_left": step.records_left if step.HasField("records_left") else None,
    }


def _event_as_json(
    event: pb2.RunFailoverResponse | pb2.RunFailbackResponse | pb2.WatchMoveResponse,
) -> dict[str, Any]:
    if event.HasField("step"):
        return step_as_json(event.step)
    report = event.report
    return {
        "run_id": report.run_id,
        "already_done": report.already_done,
        "started": report.started.ToJsonString(),
        "finished": report.finished.ToJsonString(),
        "left_behind": list(report.left_behind),
        "complete": not (report.left_behind or _staying(report.plan)),
        "plan": plan_as_json(report.plan),
    }


def plan_as_json(plan: pb2.MovePlan) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "flow": flow_name(plan.flow),
        "from": plan.from_cluster,
        "to": plan.to_cluster,
        "from_reachable": plan.from_reachable,
        "records_not_copied": plan.records_not_copied if plan.HasField("records_not_copied") else None,
        "estimated_seconds": (
            plan.estimated.ToTimedelta().total_seconds() if plan.HasField("estimated") else None
        ),
        "counting": plan.counting,
        "at_most_not_copied": plan.at_most_not_copied if plan.HasField("at_most_not_copied") else None,
        "partitions": [
            {
                "group": entry.group,
                "from_topic": entry.from_partition.topic,
                "to_topic": entry.to_partition.topic if entry.HasField("to_partition") else None,
                "partition": entry.from_partition.partition,
                "from_offset": entry.from_offset if entry.HasField("from_offset") else None,
                "to_offset": entry.to_offset if entry.HasField("to_offset") else None,
                "present_offset": entry.present_offset if entry.HasField("present_offset") else None,
                "verdict": verdict_name(entry.verdict),
                "action": _action(entry),
                "message": entry.message,
            }
            for entry in plan.partitions
        ],
        "backlog": [
            {
                "topic": entry.partition.topic,
                "partition": entry.partition.partition,
                "records_not_copied": (
                    entry.records_not_copied if entry.HasField("records_not_copied") else None
                ),
                "counting": entry.counting,
                "at_most": entry.at_most if entry.HasField("at_most") else None,
                "message": entry.message,
            }
            for entry in plan.backlog
        ],
        "fenced_topics": list(plan.fenced_topics),
        "last": last_as_json(plan.last) if plan.HasField("last") else None,
        "warnings": list(plan.warnings),
        "blockers": list(plan.blockers),
    }


def last_as_json(last: pb2.LastMove) -> dict[str, Any]:
    """The move on record for programs."""
    return {
        "run_id": last.run_id,
        "kind": last.kind,
        "finished": last.finished,
        "steps": list(last.steps),
        "by": last.by or None,
        "started": last.started.ToJsonString(),
        "aborted": last.aborted,
        "left_behind": list(last.left_behind),
        "complete": last.finished and not last.aborted and not last.left_behind,
        "fenced_topics": list(last.fenced_topics),
    }
