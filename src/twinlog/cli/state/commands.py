"""`twinlog state export` and `twinlog state import`."""

from collections import Counter
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.cli.common.failures import reported_failures, require_terminal, run_async
from twinlog.cli.common.location import ConfigOption, load_config
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.common.private_file import refuse_to_replace, write_private
from twinlog.cli.configsync.plan_view import count_of
from twinlog.clock import SystemClock
from twinlog.errors import ConfigError, StateError
from twinlog.model import Flow

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Back up and restore what a flow keeps in its internal topics: positions, rules, checkpoints.",
)

FlowArgument = Annotated[str, typer.Argument(metavar="A->B", help="The flow.")]

_COPIES = (
    Column(title="partition"),
    Column(title="exported", right=True),
    Column(title="continues at", right=True),
    Column(title="position"),
    Column(title="why"),
)
_TOPICS = (Column(title="topic"), Column(title="cluster"), Column(title="records", right=True))
_MOST_ROWS = 200
_FIRST_LINE = b'{"twinlog_state":'
"""The beginning of each export."""


@app.command("export")
def export_command(
    flow: FlowArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write; an earlier export is replaced.")
    ],
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write what a flow keeps in its internal topics into one file of JSON lines.

    The command reads both clusters and changes nothing there; the flow may run. The backup of a stopped flow
    is exact. For the backup of a running flow, the import finds out how far each copy has come since.

    Example: twinlog state export 'A->B' state.jsonl --config mm2.properties
    """
    with reported_failures():
        _require_config(config)
        refuse_to_replace(file, begins=_FIRST_LINE)
        exported = run_async(_export(_flow(flow), config))
        engine = _engine("state_file")
        content = b"".join(engine.lines(exported))
        write_private(file, content)
        records = Counter(str(record.role) for record in exported.records)
        exact = sum(copy.target_end is not None for copy in exported.copies)
        if output is Output.JSON:
            print_json(
                {
                    "flow": flow,
                    "file": str(file),
                    "bytes": len(content),
                    "partitions": len(exported.copies),
                    "exact_partitions": exact,
                    "records": dict(records),
                }
            )
            return
        typer.echo(
            f"wrote {file}: {count_of(len(exported.copies), 'partition')} ({exact} exact),"
            f" {count_of(len(exported.records), 'record')}, {len(content)} bytes"
        )
        if exact < len(exported.copies):
            typer.echo("the others were being written: an import compares their copies with the source")


@app.command("import")
def import_command(
    flow: FlowArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An export of `twinlog state export`.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be restored.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    allow_repeats: Annotated[
        bool,
        typer.Option(
            "--allow-repeats",
            help="Copy again what was copied since the export if the exact position is not known.",
        ),
    ] = False,
    without_moves: Annotated[
        bool, typer.Option("--without-moves", help="Do not restore the record of failovers and failbacks.")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Restore the state of a stopped flow that has lost it.

    If more was copied since the export, the command compares both logs to find the position. If it cannot
    find the position of a partition, it writes nothing at all. If an import was interrupted, the flow is not
    copied until you import the same file again.

    Example: twinlog state import 'A->B' state.jsonl --config mm2.properties --dry-run
    """
    with reported_failures():
        _require_config(config)
        content = _read(file)
        state = _engine("state_file").parse(content, name=str(file))
        if not dry_run and not yes:
            require_terminal()
        options = {"allow_repeats": allow_repeats, "without_moves": without_moves}
        plan = run_async(_import(_flow(flow), config, state, options, None))
        refused = [verdict for _, verdict in plan.refused]
        if output is Output.TABLE:
            _show(plan)
        if not refused and not dry_run:
            if not yes:
                typer.confirm(f"Restore the state of {flow}?", abort=True, err=True)
                plan = _still_so(plan, run_async(_import(_flow(flow), config, state, options, None)))
            run_async(_import(_flow(flow), config, state, options, plan))
        done = not refused and not dry_run
        if output is Output.JSON:
            print_json(_as_json(flow, plan, done=done))
        elif done:
            typer.echo(f"restored: start the services of {flow} again")
        else:
            typer.echo("dry run: nothing was changed" if not refused else "nothing was changed")
        if refused:
            line, first = plan.refused[0]
            raise StateError(
                f"{count_of(len(refused), 'partition')} cannot be restored: {first.message}",
                reason=first.reason,
                metadata={"flow": flow, "topic": line.topic, "state_file": str(file)},
            )


def _require_config(config: Path | None) -> None:
    if config is None:
        raise ConfigError("name the properties file with --config", metadata={"key": "--config"})


def _flow(text: str) -> Flow:
    try:
        return Flow.parse(text)
    except ValueError as error:
        raise ConfigError(str(error), metadata={"key": "FLOW"}) from None


def _engine(module: str) -> Any:
    """Raises ConfigError if the package is not installed."""
    try:
        return import_module(f"twinlog_source.state.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("twinlog_source"):
            raise
        raise ConfigError(
            "this command needs the package twinlog-source: install it on this machine"
        ) from None


async def _export(flow: Flow, config: Path | None) -> Any:
    assert config is not None
    async with AsyncExitStack() as stack:
        opened = await _engine("clusters").open_flow(load_config(config), flow, SystemClock(), stack)
        return await _engine("export").StateExport(clusters=opened).run()


async def _import(flow: Flow, config: Path | None, state: Any, options: dict[str, bool], plan: Any) -> Any:
    """Plan, or carry a plan out."""
    assert config is not None
    async with AsyncExitStack() as stack:
        opened = await _engine("clusters").open_flow(load_config(config), flow, SystemClock(), stack)
        work = _engine("restore").StateImport(clusters=opened, state=state, **options)
        return await work.plan() if plan is None else await work.carry_out(plan)


def _still_so(shown: Any, now: Any) -> Any:
    """The plan as of now. Raises StateError if it differs from the confirmed one."""
    if shown.verdicts != now.verdicts:
        raise StateError(
            "the copies have changed since the plan was shown: run the command again", reason="PLAN_STALE"
        )
    return now


def _read(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read: {error.strerror or error}", metadata={"key": "FILE"}
        ) from error


def _show(plan: Any) -> None:
    rows = [
        [
            str(line.source),
            str(line.position),
            "-" if verdict.position is None else str(verdict.position),
            verdict.outcome,
            f"{verdict.reason} {verdict.message}".strip(),
        ]
        for line, verdict in sorted(plan.verdicts.values(), key=lambda each: each[1].outcome != "REFUSED")
    ]
    print_table("", _COPIES, rows[:_MOST_ROWS], empty="no partition was exported")
    if len(rows) > _MOST_ROWS:
        typer.echo(f"… and {len(rows) - _MOST_ROWS} more: -o json shows all")
    typer.echo("")
    topics = [
        [each.topic.topic, each.topic.cluster, "stays as it is" if each.kept else str(len(each.records))]
        for each in plan.topics
    ]
    print_table("", _TOPICS, topics)


def _as_json(flow: str, plan: Any, *, done: bool) -> dict[str, Any]:
    return {
        "flow": flow,
        "restored": done,
        "partitions": [
            {
                "topic": line.topic,
                "partition": line.partition,
                "exported_position": line.position,
                "position": verdict.position,
                "outcome": str(verdict.outcome),
                "reason": verdict.reason,
                "message": verdict.message,
            }
            for line, verdict in plan.verdicts.values()
        ],
        "topics": [
            {
                "topic": each.topic.topic,
                "cluster": each.topic.cluster,
                "records": len(each.records),
                "kept": each.kept,
            }
            for each in plan.topics
        ],
    }
