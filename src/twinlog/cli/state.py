"""`twinlog state export` and `twinlog state import`."""

from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.cli.common.call import Call, reading_clusters
from twinlog.cli.common.failures import require_terminal
from twinlog.cli.common.fields import Field, Fields, as_json, print_rows, table
from twinlog.cli.common.names import CLOCK, counted, flow_of
from twinlog.cli.common.options import argument, flag, group
from twinlog.cli.common.private_file import read_file, refuse_to_replace, write_private
from twinlog.cli.verify.options import engine
from twinlog.config import Configuration
from twinlog.errors import StateError
from twinlog.model import Flow

app = group("Back up and restore what a flow keeps in its internal topics: positions, rules, checkpoints.")

FlowArgument = Annotated[str, argument("A->B", "The flow.")]

_COPY: Fields[Any] = (
    Field("topic", lambda each: each[0].topic),
    Field("partition", lambda each: each[0].partition),
    Field("", column="partition", text=lambda each: str(each[0].source)),
    Field("exported_position", lambda each: each[0].position, "exported", right=True),
    Field("position", lambda each: each[1].position, "continues at", right=True),
    Field("outcome", lambda each: str(each[1].outcome), "position"),
    Field(
        "reason",
        lambda each: each[1].reason,
        "why",
        lambda each: f"{each[1].reason} {each[1].message}".strip(),
    ),
    Field("message", lambda each: each[1].message),
)
_TOPIC: Fields[Any] = table(
    "topic=topic.topic|topic cluster=topic.cluster|cluster",
    Field(
        "records",
        lambda each: len(each.records),
        "records",
        lambda each: "stays as it is" if each.kept else str(len(each.records)),
        right=True,
    ),
    "kept",
)
_MOST_ROWS = 200
_FIRST_LINE = b'{"twinlog_state":'
"""The beginning of each export."""


@app.command("export")
@reading_clusters
def export_command(
    call: Call,
    flow: FlowArgument,
    file: Path = argument("FILE", "The file to write; an earlier export is replaced."),
) -> None:
    """Write what a flow keeps in its internal topics into one file of JSON lines.

    The command reads both clusters and changes nothing there; the flow may run. The backup of a stopped flow
    is exact. For the backup of a running flow, the import finds out how far each copy has come since.
    """
    configuration = call.configuration
    refuse_to_replace(file, begins=_FIRST_LINE)
    exported = call.run(_export(flow_of(flow), configuration))
    content = b"".join(engine("state.state_file").lines(exported))
    write_private(file, content)
    records = Counter(str(record.role) for record in exported.records)
    partitions, exact = len(exported.copies), sum(each.target_end is not None for each in exported.copies)
    document = {"flow": flow, "file": str(file), "bytes": len(content), "partitions": partitions}
    told = (
        f"wrote {file}: {counted(partitions, 'partition')} ({exact} exact),"
        f" {counted(len(exported.records), 'record')}, {len(content)} bytes"
    )
    if exact < partitions:
        told += "\nthe others were being written: an import compares their copies with the source"
    document |= {"exact_partitions": exact, "records": dict(records)}
    call.tell(document, lambda: typer.echo(told))


@app.command("import")
@reading_clusters
def import_command(
    call: Call,
    flow: FlowArgument,
    file: Path = argument("FILE", "An export of `twinlog state export`."),
    dry_run: bool = flag("--dry-run", "Only show what would be restored."),
    yes: bool = flag("--yes -y", "Do not ask."),
    allow_repeats: bool = flag(
        "--allow-repeats", "Copy again what was copied since the export if the exact position is not known."
    ),
    without_moves: bool = flag("--without-moves", "Do not restore the record of failovers and failbacks."),
) -> None:
    """Restore the state of a stopped flow that has lost it.

    If more was copied since the export, the command compares both logs to find the position. If it cannot
    find the position of a partition, it writes nothing at all. If an import was interrupted, the flow is not
    copied until you import the same file again.
    """
    configuration = call.configuration
    content = _read(file)
    state = engine("state.state_file").parse(content, name=str(file))
    if not dry_run and not yes:
        require_terminal()

    def restore(plan: Any = None) -> Any:
        options = {"allow_repeats": allow_repeats, "without_moves": without_moves}
        return call.run(_import(flow_of(flow), configuration, state, options, plan))

    plan = restore()
    refused = [verdict for _, verdict in plan.refused]
    if not call.in_json:
        _show(plan)
    if not refused and not dry_run:
        if not yes:
            typer.confirm(f"Restore the state of {flow}?", abort=True, err=True)
            plan = _still_so(plan, restore())
        restore(plan)
    done = not refused and not dry_run
    told = "nothing was changed" if refused else "dry run: nothing was changed"
    call.tell(
        _as_json(flow, plan, done=done),
        lambda: typer.echo(f"restored: start the services of {flow} again" if done else told),
    )
    if refused:
        line, first = plan.refused[0]
        raise StateError(
            f"{counted(len(refused), 'partition')} cannot be restored: {first.message}",
            reason=first.reason,
            metadata={"flow": flow, "topic": line.topic, "state_file": str(file)},
        )


async def _export(flow: Flow, configuration: "Configuration") -> Any:
    async with AsyncExitStack() as stack:
        opened = await engine("state.export").open_flow(configuration, flow, CLOCK.get(), stack)
        return await engine("state.export").StateExport(clusters=opened).run()


async def _import(
    flow: Flow, configuration: "Configuration", state: Any, options: dict[str, bool], plan: Any
) -> Any:
    """Plan, or carry a plan out."""
    async with AsyncExitStack() as stack:
        opened = await engine("state.export").open_flow(configuration, flow, CLOCK.get(), stack)
        work = engine("state.restore").StateImport(clusters=opened, state=state, **options)
        return await work.plan() if plan is None else await work.carry_out(plan)


def _still_so(shown: Any, now: Any) -> Any:
    """The plan as of now. Raises StateError if it differs from the confirmed one."""
    if shown.verdicts != now.verdicts:
        raise StateError(
            "the copies have changed since the plan was shown: run the command again", reason="PLAN_STALE"
        )
    return now


def _read(file: Path) -> list[bytes]:
    return read_file(file, key="FILE").splitlines(keepends=True)


def _show(plan: Any) -> None:
    rows = sorted(plan.verdicts.values(), key=lambda each: each[1].outcome != "REFUSED")
    print_rows(_COPY, rows[:_MOST_ROWS], empty="no partition was exported")
    if len(rows) > _MOST_ROWS:
        typer.echo(f"… and {len(rows) - _MOST_ROWS} more: -o json shows all")
    typer.echo("")
    print_rows(_TOPIC, plan.topics)


def _as_json(flow: str, plan: Any, *, done: bool) -> dict[str, Any]:
    return {
        "flow": flow,
        "restored": done,
        "partitions": [as_json(_COPY, each) for each in plan.verdicts.values()],
        "topics": [as_json(_TOPIC, each) for each in plan.topics],
    }
