"""The `twinlog` command. A new sub-command is a module and a line in COMMANDS."""

import os
import sys
from contextlib import nullcontext
from typing import Annotated

import typer

from twinlog import __version__
from twinlog import service as _before_grpc  # noqa: F401 (see there)
from twinlog.cli.common.lazy import LazyCommand, LazyGroup
from twinlog.cli.common.output import filter_output
from twinlog.cli.completion import COMPLETE_VARIABLE, prepare_completion
from twinlog.supervisor.streams import complete_standard_streams

COMMANDS: dict[str, LazyCommand] = {
    "run": LazyCommand(
        target="twinlog.cli.run:run_command",
        summary="Run all four services for the flows of a properties file.",
    ),
    "status": LazyCommand(
        target="twinlog.cli.status.command:status_command",
        summary="Show services, flows and clusters as they are now.",
    ),
    "ui": LazyCommand(
        target="twinlog.cli.ui.command:ui_command",
        summary="Show all flows on a live page in the browser.",
    ),
    "topology": LazyCommand(
        target="twinlog.cli.topology:topology_command",
        summary="Draw clusters and flows with the delay of each, as a tree, JSON or for Graphviz.",
    ),
    "preflight": LazyCommand(
        target="twinlog.cli.preflight:preflight_command",
        summary="Check a properties file against its clusters before anything is started.",
    ),
    "import": LazyCommand(
        target="twinlog.cli.import_estate:import_command",
        summary="Convert the configuration of another replicator into a properties file, with a report.",
    ),
    "adopt": LazyCommand(
        target="twinlog.cli.adopt:adopt_command",
        summary="Show where Twinlog would continue what MirrorMaker 2 copied, and whether it may start.",
    ),
    "mirror-maker": LazyCommand(
        target="twinlog.cli.mirror_maker:mirror_maker_command",
        summary="Run with the configuration files and options of MirrorMaker 1.",
    ),
    "plan": LazyCommand(
        target="twinlog.cli.configsync.plan:plan_command",
        summary="Show the topics, configs, ACLs and quotas that configsync would change, and why.",
    ),
    "apply": LazyCommand(
        target="twinlog.cli.configsync.plan:apply_command",
        summary="Carry out a plan, unless the clusters have changed since it was made.",
    ),
    "acls": LazyCommand(
        target="twinlog.cli.configsync.acls:acls_command",
        summary="Show the ACLs of a flow or a cluster, and whether each is copied.",
    ),
    "rules": LazyCommand(
        target="twinlog.cli.configsync.rules:app",
        summary="Show and change the rules of a flow while it runs.",
    ),
    "topics": LazyCommand(
        target="twinlog.cli.configsync.topics:topics_command",
        summary="Show every topic of a flow, and why one is not copied.",
    ),
    "explain": LazyCommand(
        target="twinlog.cli.configsync.explain:app",
        summary="Explain why a topic is replicated or a group is translated, or why not.",
    ),
    "partitions": LazyCommand(
        target="twinlog.cli.source.partitions:partitions_command",
        summary="Show the copy of every partition: state, position, lag, lane, rates, reason.",
    ),
    "pause": LazyCommand(
        target="twinlog.cli.source.pause:pause_command",
        summary="Stop copying a flow, a topic or a partition, or list what is paused.",
    ),
    "resume": LazyCommand(target="twinlog.cli.source.pause:resume_command", summary="End a pause."),
    "throttle": LazyCommand(
        target="twinlog.cli.source.throttle:throttle_command",
        summary="Limit the bytes per second of a flow or topic, or show the limits.",
        negative_numbers=True,
    ),
    "positions": LazyCommand(
        target="twinlog.cli.source.positions:app", summary="Show or move where partitions are copied from."
    ),
    "gaps": LazyCommand(
        target="twinlog.cli.source.gaps:gaps_command",
        summary="Show or acknowledge source offsets that are missing on the target.",
    ),
    "foreign": LazyCommand(
        target="twinlog.cli.source.foreign:foreign_command",
        summary="Show or acknowledge records that others wrote into copies.",
    ),
    "verify": LazyCommand(
        target="twinlog.cli.verify.command:verify_command",
        summary="Compare the copies of a flow with their source, and list the differences.",
        failed=3,
    ),
    "repair": LazyCommand(
        target="twinlog.cli.verify.repair:repair_command",
        summary="Repair the differences that a verification found, or explain why one cannot be repaired.",
    ),
    "copy": LazyCommand(
        target="twinlog.cli.copy:copy_command",
        summary="Copy a flow up to now, a time or an offset, verify the copy, and exit.",
    ),
    "safe-to-delete": LazyCommand(
        target="twinlog.cli.verify.safe_to_delete:safe_to_delete_command",
        summary="Show up to which source offset all records are on the target and verified.",
    ),
    "groups": LazyCommand(
        target="twinlog.cli.checkpoint.groups:groups_command",
        summary="Show the offsets of every consumer group on both clusters.",
    ),
    "translate": LazyCommand(
        target="twinlog.cli.checkpoint.translate:translate_command",
        summary="Translate any offset or time, in either direction.",
    ),
    "failover": LazyCommand(
        target="twinlog.cli.moves.failover:app", summary="Move consumer groups to the target cluster."
    ),
    "failback": LazyCommand(
        target="twinlog.cli.moves.failback:app", summary="Move consumer groups back to the source cluster."
    ),
    "state": LazyCommand(
        target="twinlog.cli.state.commands:app",
        summary="Back up and restore what a flow keeps in its internal topics.",
    ),
    "debug": LazyCommand(
        target="twinlog.cli.debug.command:app", summary="Collect what a bug report needs, without secrets."
    ),
    "decode": LazyCommand(
        target="twinlog.cli.decode:decode_command",
        summary="Print the records of an internal topic in the output format of MM2's formatters.",
    ),
    "completion": LazyCommand(
        target="twinlog.cli.completion:completion_command",
        summary="Print a shell completion script.",
    ),
    "demo": LazyCommand(
        target="twinlog.cli.demo:demo_command",
        summary="Run two clusters and all services, and fail a group over: about a minute.",
    ),
    "local": LazyCommand(
        target="twinlog.cli.local:app", summary="Run real Kafka clusters on this machine for tests."
    ),
}


class _Commands(LazyGroup):
    lazy_commands = COMMANDS


app = typer.Typer(
    name="twinlog",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    # A traceback with the values of variables would show secrets.
    pretty_exceptions_show_locals=False,
    help="Twinlog copies topics, their configuration and the progress of consumer groups between Kafka"
    " clusters: the drop-in successor of MirrorMaker 2, with the same properties file and internal topics.",
    epilog="Start with `twinlog run mm2.properties`, then `twinlog status`. Each command has its own --help.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"twinlog {__version__}")
        raise typer.Exit


@app.callback()
def twinlog(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Options of all commands."""


_DRAW_THEMSELVES = (["run"], ["mirror-maker"], ["demo"], ["local"])
"""These commands move the cursor, or pass on their children's output; names from other programs never reach
them unescaped."""


def main() -> None:
    """The console script."""
    complete_standard_streams()
    if COMPLETE_VARIABLE in os.environ:
        prepare_completion()
    if sys.argv[1:2] not in _DRAW_THEMSELVES:
        filter_output()
    if not any(name.startswith("OTEL_EXPORTER_OTLP_") or name == "TRACEPARENT" for name in os.environ):
        sys.exit(app(complete_var=COMPLETE_VARIABLE))
    from twinlog.cli.common.tracing import traced

    # Services that `run` starts set their own titles; the arguments after the name may be secret.
    command = next((name for name in sys.argv[1:2] if name in COMMANDS), "")
    with traced(command, os.environ) if command not in ("", "run") else nullcontext():
        sys.exit(app(complete_var=COMPLETE_VARIABLE))
