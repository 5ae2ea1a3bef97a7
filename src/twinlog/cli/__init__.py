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
    "run": LazyCommand("run:run_command", "Run all four services for the flows of a properties file."),
    "start": LazyCommand(
        "start:start_command", "Copy from one cluster to another without a file, which it writes."
    ),
    "status": LazyCommand(
        "status.command:status_command", "Show services, flows and clusters as they are now."
    ),
    "ui": LazyCommand("ui.command:ui_command", "Show all flows on a live page in the browser."),
    "topology": LazyCommand(
        "topology:topology_command",
        "Draw clusters and flows with the delay of each, as a tree, JSON or for Graphviz.",
    ),
    "preflight": LazyCommand(
        "preflight:preflight_command",
        "Check a properties file against its clusters before anything is started.",
    ),
    "import": LazyCommand(
        "import_estate:import_command",
        "Convert the configuration of another replicator into a properties file, with a report.",
    ),
    "adopt": LazyCommand(
        "adopt:adopt_command",
        "Show where Twinlog would continue what MirrorMaker 2 copied, and whether it may start.",
    ),
    "mirror-maker": LazyCommand(
        "mirror_maker:mirror_maker_command", "Run with the configuration files and options of MirrorMaker 1."
    ),
    "plan": LazyCommand(
        "configsync.plan:plan_command",
        "Show the topics, configs, ACLs and quotas that configsync would change, and why.",
    ),
    "apply": LazyCommand(
        "configsync.plan:apply_command",
        "Carry out a plan, unless the clusters have changed since it was made.",
    ),
    "acls": LazyCommand(
        "configsync.acls:acls_command", "Show the ACLs of a flow or a cluster, and whether each is copied."
    ),
    "rules": LazyCommand("configsync.rules:app", "Show and change the rules of a flow while it runs."),
    "topics": LazyCommand(
        "configsync.topics:topics_command", "Show every topic of a flow, and why one is not copied."
    ),
    "explain": LazyCommand(
        "configsync.explain:app", "Explain why a topic is replicated or a group is translated, or why not."
    ),
    "partitions": LazyCommand(
        "source.partitions:partitions_command",
        "Show the copy of every partition: state, position, lag, lane, rates, reason.",
    ),
    "pause": LazyCommand(
        "source.pause:pause_command", "Stop copying a flow, a topic or a partition, or list what is paused."
    ),
    "resume": LazyCommand("source.pause:resume_command", "End a pause."),
    "throttle": LazyCommand(
        "source.throttle:throttle_command",
        "Limit the bytes per second of a flow or topic, or show the limits.",
        negative_numbers=True,
    ),
    "positions": LazyCommand("source.positions:app", "Show or move where partitions are copied from."),
    "gaps": LazyCommand(
        "source.gaps:gaps_command", "Show or acknowledge source offsets that are missing on the target."
    ),
    "foreign": LazyCommand(
        "source.foreign:foreign_command", "Show or acknowledge records that others wrote into copies."
    ),
    "verify": LazyCommand(
        "verify.command:verify_command",
        "Compare the copies of a flow with their source, and list the differences.",
        failed=3,
    ),
    "repair": LazyCommand(
        "verify.repair:repair_command",
        "Repair the differences that a verification found, or explain why one cannot be repaired.",
    ),
    "copy": LazyCommand(
        "copy:copy_command", "Copy a flow up to now, a time or an offset, verify the copy, and exit."
    ),
    "safe-to-delete": LazyCommand(
        "verify.safe_to_delete:safe_to_delete_command",
        "Show up to which source offset all records are on the target and verified.",
    ),
    "groups": LazyCommand(
        "checkpoint.groups:groups_command", "Show the offsets of every consumer group on both clusters."
    ),
    "translate": LazyCommand(
        "checkpoint.translate:translate_command", "Translate any offset or time, in either direction."
    ),
    "failover": LazyCommand("moves.failover:app", "Move consumer groups to the target cluster."),
    "failback": LazyCommand("moves.failback:app", "Move consumer groups back to the source cluster."),
    "state": LazyCommand(
        "state.commands:app", "Back up and restore what a flow keeps in its internal topics."
    ),
    "debug": LazyCommand("debug.command:app", "Collect what a bug report needs, without secrets."),
    "decode": LazyCommand(
        "decode:decode_command",
        "Print the records of an internal topic in the output format of MM2's formatters.",
    ),
    "completion": LazyCommand("completion:completion_command", "Print a shell completion script."),
    "demo": LazyCommand(
        "demo:demo_command", "Run two clusters and all services, and fail a group over: about a minute."
    ),
    "local": LazyCommand("local:app", "Run real Kafka clusters on this machine for tests."),
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
    epilog="Start with `twinlog start kafka-a:9092 kafka-b:9092`, or `twinlog run mm2.properties`, then"
    " `twinlog status`. Each command has its own --help.",
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


_DRAW_THEMSELVES = (["run"], ["start"], ["mirror-maker"], ["demo"], ["local"])
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
    with traced(command, os.environ) if command not in ("", "run", "start") else nullcontext():
        sys.exit(app(complete_var=COMPLETE_VARIABLE))
