"""The plan of a move as a table."""

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.common.fields import UNKNOWN, Field, Fields
from twinlog.cli.common.names import flow_name, partition_name
from twinlog.cli.common.output import print_rows
from twinlog.cli.common.pasteable import say
from twinlog.cli.moves.plan_outcome import THERE, action

_ROWS_SHOWN = 500
"""Most rows of a plan that the table shows; partitions that are not moved have priority."""
_BACKLOG: Fields[pb2.TopicBacklog] = (
    Field("", column="partition", text=lambda entry: partition_name(entry.partition)),
    Field("records_not_copied", column="not copied", text=lambda entry: _not_copied(entry), right=True),
    Field("message", column="message"),
)


def _partition(plan: pb2.MovePlan) -> Fields[pb2.MovePartition]:
    return (
        Field("group", column="group"),
        Field("", column=f"on {plan.from_cluster}", text=lambda entry: partition_name(entry.from_partition)),
        Field("from_offset", column="offset", right=True),
        Field("", column=f"on {plan.to_cluster}", text=lambda entry: _there(entry)),
        Field("to_offset", column="translated", right=True),
        Field("present_offset", column="committed", right=True),
        *(Field(name, column=name) for name in ("verdict", "action", "message")),
    )


def print_plan_table(plan: pb2.MovePlan, title: str) -> None:
    if plan.partitions:
        rows = sorted(plan.partitions, key=lambda entry: action(entry) in THERE)
        shown_rows = sorted(rows[:_ROWS_SHOWN], key=lambda entry: entry.group)
        print_rows(_partition(plan), shown_rows, title=title)
        if len(rows) > _ROWS_SHOWN:
            typer.echo(f"and {len(rows) - _ROWS_SHOWN} more offsets: -o json has all of them")
    else:
        typer.echo(title if plan.blockers else f"{title}\nnothing to move")
    # Those with missing records, or with an unknown number of them.
    backlog = [
        each for each in plan.backlog if not each.HasField("records_not_copied") or each.records_not_copied
    ]
    if backlog:
        print_rows(_BACKLOG, backlog[:_ROWS_SHOWN])
    if len(backlog) > _ROWS_SHOWN:
        typer.echo(f"and {len(backlog) - _ROWS_SHOWN} more partitions")
    typer.echo(_backlog_line(plan))
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
            f" `twinlog {plan.last.kind} abort '{flow}'` gives it up"
        )
    for warning in plan.warnings:
        say(f"note: {warning}")


def _backlog_line(plan: pb2.MovePlan) -> str:
    if not plan.from_reachable:
        return f"not copied: unknown, {plan.from_cluster} does not answer"
    if not plan.HasField("records_not_copied") and plan.HasField("at_most_not_copied"):
        counting = "; they are still being counted" if plan.counting else ""
        return f"not copied yet: at most {plan.at_most_not_copied} records{counting}"
    if not plan.HasField("records_not_copied"):
        return "not copied yet: an unknown number of records"
    if not plan.records_not_copied:
        return "not copied yet: nothing"
    estimate = ""
    if plan.HasField("estimated"):
        estimate = f", about {plan.estimated.ToTimedelta().total_seconds():.0f} s at the present rate"
    records = "1 record" if plan.records_not_copied == 1 else f"{plan.records_not_copied} records"
    return f"not copied yet: {records}{estimate}"


def _not_copied(entry: pb2.TopicBacklog) -> str:
    if entry.HasField("records_not_copied"):
        return str(entry.records_not_copied)
    return f"<= {entry.at_most}" if entry.HasField("at_most") else UNKNOWN


def _there(entry: pb2.MovePartition) -> str:
    return partition_name(entry.to_partition) if entry.HasField("to_partition") else UNKNOWN
