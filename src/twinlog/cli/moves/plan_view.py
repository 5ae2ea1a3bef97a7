"""The plan of a move as a table."""

from collections import Counter
from collections.abc import Iterable

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.common.fields import UNKNOWN, Field, Fields, value_of
from twinlog.cli.common.names import flow_name, partition_name
from twinlog.cli.common.output import print_rows
from twinlog.cli.common.pasteable import say
from twinlog.cli.moves.plan_outcome import THERE, action

_ROWS_SHOWN = 500
"""Most rows of each table of a plan."""
_Group = tuple[str, list[pb2.MovePartition]]
_GROUPS: Fields[_Group] = (
    Field("", column="group", text=lambda row: row[0]),
    Field("", column="partitions", text=lambda row: str(len(row[1])), right=True),
    Field("", column="action", text=lambda row: _counts(map(action, row[1]))),
    Field("", column="verdict", text=lambda row: _counts(value_of(each, "verdict") for each in row[1])),
)
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
    """A line for each group, and each partition that is not moved; of a single group all partitions."""
    _print_groups(plan, title)
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


def _print_groups(plan: pb2.MovePlan, title: str) -> None:
    groups: dict[str, list[pb2.MovePartition]] = {}
    for entry in plan.partitions:
        groups.setdefault(entry.group, []).append(entry)
    shown = list(plan.partitions)
    if len(groups) > 1:
        print_rows(_GROUPS, sorted(groups.items())[:_ROWS_SHOWN], title=title)
        shown = [entry for entry in shown if action(entry) not in THERE]
    elif not groups:
        typer.echo(title if plan.blockers else f"{title}\nnothing to move")
    if shown:
        print_rows(_partition(plan), shown[:_ROWS_SHOWN], title="" if len(groups) > 1 else title)
    if left := max(0, len(shown) - _ROWS_SHOWN) + max(0, len(groups) - _ROWS_SHOWN):
        typer.echo(f"and {left} more rows: -o json has all of them")


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


def _counts(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items()))


def _not_copied(entry: pb2.TopicBacklog) -> str:
    if entry.HasField("records_not_copied"):
        return str(entry.records_not_copied)
    return f"<= {entry.at_most}" if entry.HasField("at_most") else UNKNOWN


def _there(entry: pb2.MovePartition) -> str:
    return partition_name(entry.to_partition) if entry.HasField("to_partition") else UNKNOWN
