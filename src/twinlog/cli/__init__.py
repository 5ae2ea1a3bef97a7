"""The `twinlog` command. A new sub-command is a module and a row of commands.txt."""

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import typer

from twinlog import __version__
from twinlog import service as _before_grpc  # noqa: F401 (see there)
from twinlog.cli.common.failures import RUN, run_logging_to_stderr
from twinlog.cli.common.fields import filter_output
from twinlog.cli.common.lazy import COMPLETE_VARIABLE, LazyCommand, LazyGroup, prepare_completion
from twinlog.cli.common.options import option
from twinlog.supervisor.runs import complete_standard_streams
from twinlog.text_tables import read_table


def _commands() -> dict[str, LazyCommand]:
    found: dict[str, LazyCommand] = {}
    name = ""
    for (panel,), rows in read_table("twinlog.cli", "commands.txt"):
        for row in rows:
            if row.startswith("twinlog "):
                found[name] = replace(found[name], examples=(*found[name].examples, row))
                continue
            declared, _, summary = row.partition(": ")
            name, target, *more = declared.split()
            given: dict[str, Any] = {field: int(value) for field, value in (each.split("=") for each in more)}
            found[name] = LazyCommand(target, summary, panel=panel, **given)
    # Developers' tools are in a clone, and in no wheel.
    absent = {each for each in ("demo", "local") if find_spec(f"twinlog.cli.{each}") is None}
    return {name: command for name, command in found.items() if name not in absent}


COMMANDS = _commands()


class _Commands(LazyGroup):
    lazy_commands = COMMANDS
    earlier_names = {"import": "convert"}  # noqa: RUF012 (a constant)


app = typer.Typer(
    name="twinlog",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    # A traceback with the values of variables would show secrets.
    pretty_exceptions_show_locals=False,
    help="Twinlog copies topics, their configuration and the progress of consumer groups between Kafka"
    " clusters: the drop-in successor of MirrorMaker 2, with the same properties file and internal topics.",
    epilog=("New here? `twinlog demo`. " if "demo" in COMMANDS else "")
    + "Two clusters? `twinlog start kafka-a:9092 kafka-b:9092`. A file of"
    " MirrorMaker 2? `twinlog preflight mm2.properties`. Each command has its own --help.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"twinlog {__version__}")
        raise typer.Exit


@app.callback()
def twinlog(
    _version: bool = option(
        "--version", "Show the version and exit.", False, callback=_print_version, is_eager=True
    ),
) -> None:
    """Options of all commands."""


_DRAW_THEMSELVES = (["run"], ["start"], ["mirror-maker"], ["demo"], ["local"])
"""These commands move the cursor, or pass on their children's output; names from other programs never reach
them unescaped."""


def main() -> None:
    """The console script."""
    complete_standard_streams()
    RUN.set(run_logging_to_stderr)
    if COMPLETE_VARIABLE in os.environ:
        prepare_completion()
    if sys.argv[1:2] not in _DRAW_THEMSELVES:
        filter_output()
    if not any(name.startswith("OTEL_EXPORTER_OTLP_") or name == "TRACEPARENT" for name in os.environ):
        sys.exit(app(complete_var=COMPLETE_VARIABLE))
    from twinlog.cli.common.tracing import traced

    # Services that `run` starts set their own titles; the arguments after the name may be secret.
    command = next((name for name in sys.argv[1:2] if name in COMMANDS), "")
    with traced(command, os.environ) if command not in ("", "run", "start") else nullcontext():
        sys.exit(app(complete_var=COMPLETE_VARIABLE))
