"""Shared by `twinlog failover` and `twinlog failback`: options, the plan's table, the steps of a run."""

from collections import Counter
from collections.abc import AsyncIterable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.common.failures import EXIT_FAILED, exiting_with
from twinlog.cli.common.fields import (
    UNKNOWN,
    Field,
    Fields,
    Output,
    as_json,
    print_json,
    print_json_line,
    print_rows,
    table,
    value_of,
)
from twinlog.cli.common.names import MOST_SECONDS, flow_name, partition_name, who
from twinlog.cli.common.options import flag, option
from twinlog.cli.common.pasteable import document, print_undo, say, undo_command
from twinlog.cli.moves.plan_outcome import (
    PLAN,
    THERE,
    action,
    count_moved,
    event_as_json,
    is_complete,
    summary,
)
from twinlog.cli.status.view import with_command
from twinlog.cli.verdict.moving import BACKLOG, MOVABLE, Check, against, overall, verdict_word, verdict_words

# The plan of a move as a table.

_ROWS_SHOWN = 500
"""Most rows of each table of a plan."""
_Group = tuple[str, list[pb2.MovePartition]]
_GROUPS: Fields[_Group] = (
    Field("", column="group", text=lambda row: row[0]),
    Field("", column="partitions", text=lambda row: str(len(row[1])), right=True),
    Field("", column="action", text=lambda row: _counts(map(action, row[1]))),
    Field("", column="verdict", text=lambda row: _counts(value_of(each, "verdict") for each in row[1])),
)
_BACKLOG: Fields[pb2.TopicBacklog] = table(
    "=partition|partition",
    Field("records_not_copied", column="not copied", text=lambda entry: _not_copied(entry), right=True),
    "message|message",
)


def _partition(plan: pb2.MovePlan, *, of_one_group: bool) -> Fields[pb2.MovePartition]:
    """The offsets stand under the name of their cluster; the copy's name is shown where there is room."""
    return (
        *(() if of_one_group else (Field("group", column="group"),)),
        Field("", column="partition", text=lambda entry: partition_name(entry.from_partition)),
        Field("from_offset", column=f"on {plan.from_cluster}", right=True, spare=1),
        Field("", column="continues in", text=lambda entry: _there(entry), spare=4),
        Field("to_offset", column=f"on {plan.to_cluster}", right=True),
        Field("present_offset", column="committed", right=True, spare=3),
        Field("verdict", column="verdict", spare=2),
        Field("action", column="action"),
        Field("message", column="message", text=lambda entry: "" if _same(entry) else entry.message),
    )


_DONE = {"WRITE": "committed", "ALREADY_THERE": "was there already", "KEEP_AHEAD": "stays ahead"}


def _carried_out(plan: pb2.MovePlan) -> Fields[pb2.MovePartition]:
    """Of a run that has ended: under the name of the new cluster stands what the group has committed there
    now."""
    return (
        Field("group", column="group"),
        Field("", column="partition", text=lambda entry: partition_name(entry.from_partition)),
        Field("from_offset", column=f"on {plan.from_cluster}", right=True, spare=1),
        Field("", column="continues in", text=lambda entry: _there(entry), spare=4),
        Field("", column=f"on {plan.to_cluster}", text=lambda entry: _now_at(entry), right=True),
        Field("verdict", column="verdict", spare=2),
        Field("", column="done", text=lambda entry: _DONE.get(action(entry), f"left out: {action(entry)}")),
        Field("message", column="message", text=lambda entry: "" if _same(entry) else entry.message),
    )


def _now_at(entry: pb2.MovePartition) -> str:
    name = "to_offset" if action(entry) in ("WRITE", "ALREADY_THERE") else "present_offset"
    at = value_of(entry, name)
    return UNKNOWN if at is None else str(at)


def _same(entry: pb2.MovePartition) -> bool:
    """The group is moved and continues where it stopped: its verdict says all."""
    return action(entry) in ("WRITE", "ALREADY_THERE") and entry.verdict in (
        pb2.VERDICT_PRESERVED,
        pb2.VERDICT_EXACT,
    )


def _print_rest(plan: pb2.MovePlan, backlog: str) -> None:
    """`backlog` begins the line with its sum; empty = that is told elsewhere."""
    # Those with missing records, or with an unknown number of them.
    missing = [
        each for each in plan.backlog if not each.HasField("records_not_copied") or each.records_not_copied
    ]
    if missing:
        print_rows(_BACKLOG, missing[:_ROWS_SHOWN])
    if len(missing) > _ROWS_SHOWN:
        typer.echo(f"and {len(missing) - _ROWS_SHOWN} more partitions")
    if backlog:
        typer.echo(_backlog_line(plan, backlog))
    if plan.fenced_topics:
        typer.echo(f"fence on {plan.from_cluster}, no writes to: {', '.join(plan.fenced_topics)}")
    if plan.write_grants:
        typer.echo(f"rights to write to copies on {plan.to_cluster}:")
        for grant in plan.write_grants[:_ROWS_SHOWN]:
            typer.echo(f"  {grant}")
    if plan.HasField("last") and not plan.last.finished:
        steps, flow = ", ".join(plan.last.steps) or "nothing", flow_name(plan.flow)
        say(
            f"note: {plan.last.kind} run {plan.last.run_id} by {plan.last.by or 'somebody'} was interrupted"
            f" after {steps}; `twinlog {plan.last.kind} run '{flow}'` continues it,"
            f" `twinlog {plan.last.kind} give-up '{flow}'` gives it up"
        )
    for warning in plan.warnings:
        say(f"note: {warning}")


def _print_groups(plan: pb2.MovePlan, title: str) -> None:
    """A line for each group, and each partition that is not moved; of a single group all partitions."""
    groups: dict[str, list[pb2.MovePartition]] = {}
    for entry in plan.partitions:
        groups.setdefault(entry.group, []).append(entry)
    # Those that are not moved come first.
    shown = sorted(plan.partitions, key=lambda entry: action(entry) in THERE)
    if len(groups) > 1:
        print_rows(_GROUPS, sorted(groups.items())[:_ROWS_SHOWN], title=title)
        shown = [entry for entry in shown if action(entry) not in THERE]
    elif groups:
        title = f"group {shown[0].group}, {title}"
    else:
        typer.echo(title if plan.blockers else f"{title}\nnothing to move")
    if shown:
        alone = len(groups) == 1
        print_rows(_partition(plan, of_one_group=alone), shown[:_ROWS_SHOWN], title=title if alone else "")
    if left := max(0, len(shown) - _ROWS_SHOWN) + max(0, len(groups) - _ROWS_SHOWN):
        typer.echo(f"and {left} more rows: -o json has all of them")


def _backlog_line(plan: pb2.MovePlan, begin: str) -> str:
    if not plan.from_reachable:
        return f"not copied: unknown, {plan.from_cluster} does not answer"
    if not plan.HasField("records_not_copied") and plan.HasField("at_most_not_copied"):
        counting = "; they are still being counted" if plan.counting else ""
        return f"{begin}: at most {plan.at_most_not_copied} records{counting}"
    if not plan.HasField("records_not_copied"):
        return f"{begin}: an unknown number of records"
    if not plan.records_not_copied:
        return f"{begin}: nothing"
    estimate = ""
    if plan.HasField("estimated"):
        estimate = f", about {plan.estimated.ToTimedelta().total_seconds():.0f} s at the present rate"
    records = "1 record" if plan.records_not_copied == 1 else f"{plan.records_not_copied} records"
    return f"{begin}: {records}{estimate}"


def _counts(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items()))


def _not_copied(entry: pb2.TopicBacklog) -> str:
    if entry.HasField("records_not_copied"):
        return str(entry.records_not_copied)
    return f"<= {entry.at_most}" if entry.HasField("at_most") else UNKNOWN


def _there(entry: pb2.MovePartition) -> str:
    return partition_name(entry.to_partition) if entry.HasField("to_partition") else UNKNOWN


_NAMES_SHOWN = 10


def move_options(
    group: list[str] | None = option(
        "--group ID", "Only this group; may be repeated. All when left out.", None
    ),
    fence: bool = flag(
        "--fence", "Deny writes to the flow's topics on the cluster that the groups leave, by ACLs."
    ),
    include_active: bool = flag(
        "--include-active", "Also move groups that still have members on the cluster that they leave."
    ),
    accept_loss: bool = flag(
        "--accept-loss",
        "Accept records that are not copied, offsets without a translation, or the loss of the cluster.",
    ),
) -> pb2.MoveOptions:
    """The options that all moves have."""
    what = {"fence": fence, "include_active": include_active, "accept_loss": accept_loss}
    return pb2.MoveOptions(groups=group or [], by=who(), wait=Duration(), **what)


WAIT: Any = option(
    "--wait SECONDS",
    *("How long to wait for the copy; 0 = check once, do not wait.", 300.0),
    min=0,
    max=MOST_SECONDS,
)
YesOption = Annotated[bool, option("--yes -y", "Do not ask. Needed if stdin is not a terminal.")]


def decided(checks: Sequence[Check]) -> dict[str, Any]:
    """The verdict of the checks, as JSON."""
    return {"verdict": overall(checks), "checks": [document(check) for check in checks]}


def print_plan(plan: pb2.MovePlan, checks: Sequence[Check], output: Output, *, refuses: bool) -> None:
    """With the verdict of the checks, first and last. Exits with 1 if it `refuses`."""
    with exiting_with(EXIT_FAILED if refuses else 0):
        if output is Output.JSON:
            print_json({**as_json(PLAN, plan), **decided(checks)})
            return
        told = against([each for check in checks for each in _one_by_one(check, plan.blockers)])
        words = verdict_words(told, briefly=True)
        say(words)
        title = f"{flow_name(plan.flow)}: from {plan.from_cluster} to {plan.to_cluster}"
        _print_groups(plan, title)
        _print_rest(plan, "" if any(check.title == BACKLOG for check in told) else "not copied yet")
        for check in told:
            # What the verdict says is told once more only with what to do about it.
            if (command := _of_others(check.command)) or check.message not in words:
                say(f"{verdict_word(check.verdict)}  {with_command(check.message, command)}")
        say(words)


def _one_by_one(check: Check, blockers: Sequence[str]) -> list[Check]:
    """What blocks a plan, each as a check."""
    if check.title != MOVABLE or not blockers:
        return [check]
    return [replace(check, message=each) for each in blockers]


def _of_others(command: str) -> str:
    """No plan sends to itself."""
    return "" if command.startswith(("twinlog failover plan ", "twinlog failback plan ")) else command


async def print_run(
    events: AsyncIterable[pb2.RunFailoverResponse]
    | AsyncIterable[pb2.RunFailbackResponse]
    | AsyncIterable[pb2.WatchMoveResponse],
    output: Output,
) -> None:
    """Print each step as it comes, then the report. Raises the service's error; exits with 1 unless
    everything requested is done."""
    told: tuple[str, str] | None = None
    rows = pb2.MovePlanPart()
    async for event in events:
        if event.HasField("part"):
            rows.MergeFrom(event.part)
        elif event.HasField("report"):
            plan = event.report.plan
            plan.partitions.MergeFrom(rows.partitions)
            plan.backlog.MergeFrom(rows.backlog)
            with exiting_with(0 if is_complete(event.report) else EXIT_FAILED):
                if output is Output.JSON:
                    print_json_line(event_as_json(event))
                else:
                    _print_report(event.report)
        elif output is Output.JSON:
            print_json_line(event_as_json(event))
        elif event.step.state != pb2.STEP_STATE_PROGRESS or told != _sign(event.step):
            told = _sign(event.step)
            print_step(event.step)


def _sign(step: pb2.MoveStep) -> tuple[str, str]:
    """What a progress event reports: the number of records left if there is one, else its message."""
    return step.name, str(step.records_left) if step.HasField("records_left") else step.message


def print_step(step: pb2.MoveStep) -> None:
    """One line."""
    left = f" ({step.records_left})" if step.HasField("records_left") and step.records_left else ""
    state = str(value_of(step, "state")).lower()
    say(f"{clock_time(step.at)}  {step.name:<13} {state:<8} {step.message}{left}")


def _print_report(report: pb2.MoveReport) -> None:
    plan = report.plan
    moved, all_groups = count_moved(plan)
    if report.already_done:
        title = (
            f"run {report.run_id} had already moved the groups at {clock_time(report.finished)}: nothing was"
            " changed"
        )
    else:
        title = f"run {report.run_id}: {moved} of {all_groups} groups of {flow_name(plan.flow)} continue on"
        title += f" {plan.to_cluster}"
    # What was left out comes first.
    rows = sorted(plan.partitions, key=lambda entry: action(entry) in THERE)
    if rows:
        print_rows(_carried_out(plan), rows[:_ROWS_SHOWN], title=title)
    else:
        typer.echo(title)
    if len(rows) > _ROWS_SHOWN:
        typer.echo(f"and {len(rows) - _ROWS_SHOWN} more rows: -o json has all of them")
    _print_rest(plan, f"not copied of what {plan.from_cluster} held when the run read its final offsets")
    lines = summary(plan)
    # The plan of a second run only has the groups that were left: it does not know how many were moved.
    for line in lines[1:] if report.already_done else lines:
        say(line)
    for line in (*_next_steps(plan), *(f"not done: {reason}" for reason in report.left_behind)):
        say(line)
    if moved:
        other_way = "failback" if plan.to_cluster == plan.flow.target else "failover"
        print_undo([undo_command(other_way, "run", flow_name(plan.flow))])
    if report.left_behind:
        typer.echo(f"do not switch {plan.from_cluster} off yet")


def _next_steps(plan: pb2.MovePlan) -> list[str]:
    """What to do with the groups' consumers now."""
    names: dict[str, str] = {}
    for entry in plan.partitions:
        if action(entry) in THERE:
            names.setdefault(entry.from_partition.topic, entry.to_partition.topic)
    if not names:
        return []
    lines = [f"next: start the consumers of these groups on {plan.to_cluster}"]
    other = sorted((here, there) for here, there in names.items() if here != there)
    if other:
        shown_names = ", ".join(f"{there} instead of {here}" for here, there in other[:_NAMES_SHOWN])
        more = f", and {len(other) - _NAMES_SHOWN} more" if len(other) > _NAMES_SHOWN else ""
        lines.append(f"      they have to subscribe to {shown_names}{more}")
    return lines


def clock_time(at: Timestamp) -> str:
    """In UTC, `2026-01-31T12:00:00Z`, because operators compare it with logs."""
    return f"{at.ToDatetime():%Y-%m-%dT%H:%M:%SZ}"
