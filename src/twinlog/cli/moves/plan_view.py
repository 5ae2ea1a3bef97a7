"""The plan of a move as a table."""

from collections.abc import Iterable

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.checkpoint.client import shown, topic_partition, verdict_name
from twinlog.cli.common.output import Column, print_table
from twinlog.cli.common.pasteable import say
from twinlog.cli.configsync.client import flow_name
from twinlog.cli.moves.plan_outcome import THERE, action

_ROWS_SHOWN = 500
"""Most rows of a plan that the table shows; partitions that are not moved have priority."""
_BACKLOG = (Column(title="partition"), Column(title="not copied", right=True), Column(title="message"))


def _columns(plan: pb2.MovePlan) -> tuple[Column, ...]:
    return (
        Column(title="group"),
        Column(title=f"on {plan.from_cluster}"),
        Column(title="offset", right=True),
        Column(title=f"on {plan.to_cluster}"),
        Column(title="translated", right=True),
        Column(title="committed", right=True),
        Column(title="verdict"),
        Column(title="action"),
        Column(title="message"),
    )


def print_plan_table(plan: pb2.MovePlan, title: str) -> None:
    if plan.partitions:
        rows = sorted(plan.partitions, key=lambda entry: action(entry) in THERE)
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


def _backlog_cells(backlog: Iterable[pb2.TopicBacklog]) -> Iterable[list[str]]:
    """Rows of partitions with missing records, or with an unknown number of them."""
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
        action(entry),
        entry.message,
    ]
