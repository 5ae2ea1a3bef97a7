"""The `twinlog` command. A new sub-command is a module and an entry of _PANELS."""

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec

import typer

from twinlog import __version__
from twinlog import service as _before_grpc  # noqa: F401 (see there)
from twinlog.cli.common.failures import RUN, run_logging_to_stderr
from twinlog.cli.common.lazy import COMPLETE_VARIABLE, LazyCommand, LazyGroup, prepare_completion
from twinlog.cli.common.options import option
from twinlog.cli.common.output import filter_output
from twinlog.supervisor.runs import complete_standard_streams

_PANELS: dict[str, dict[str, LazyCommand]] = {
    "Start": {
        "run": LazyCommand("start:run_command", "Run all four services for the flows of a properties file.",
            examples=("twinlog run mm2.properties",)),
        "start": LazyCommand("start:start_command",
            "Copy from one cluster to another without a file, which it writes."),
        "init": LazyCommand("init:init_command", "Write a first properties file, by five questions."),
        "preflight": LazyCommand("preflight:preflight_command",
            "Check a properties file against its clusters before anything is started.",
            examples=("twinlog preflight mm2.properties",)),
        "convert": LazyCommand("import_estate:import_command",
            "Convert the configuration of another replicator into a properties file, with a report.",
            examples=("twinlog convert kafkamirrormaker2.yaml --to mm2.properties",)),
        "adopt": LazyCommand("adopt:adopt_command",
            "Show where Twinlog would continue what MirrorMaker 2 copied, and whether it may start.",
            examples=("twinlog adopt mm2.properties",)),
        "mirror-maker": LazyCommand(
            "mirror_maker:mirror_maker_command",
            "Run with the configuration files and options of MirrorMaker 1.",
            examples=(
                (
                    "twinlog mirror-maker --consumer.config c.properties --producer.config p.properties"
                    " --include 'orders.*'"
                ),
            ),
        ),
    },
    "Look": {
        "status": LazyCommand("status.command:status_command",
            "Show services, flows and clusters as they are now.",
            examples=("twinlog status --config mm2.properties", "twinlog status --check")),
        "ui": LazyCommand("ui.command:ui_command", "Show all flows on a live page in the browser.",
            examples=("twinlog ui --config mm2.properties",)),
        "topology": LazyCommand("topology:topology_command",
            "Draw clusters and flows with the delay of each, as a tree, JSON or for Graphviz.",
            examples=("twinlog topology --config mm2.properties",)),
        "topics": LazyCommand("configsync.topics:topics_command",
            "Show every topic of a flow, and why one is not copied.", examples=("twinlog topics 'A->B'",)),
        "partitions": LazyCommand(
            "source.partitions:partitions_command",
            "Show the copy of every partition: state, position, lag, lane, rates, reason.",
            examples=(
                "twinlog partitions 'A->B' --trouble",
                "twinlog partitions 'A->B' --topic orders --watch",
            ),
        ),
        "groups": LazyCommand("checkpoint.groups:groups_command",
            "Show the offsets of every consumer group on both clusters.",
            examples=("twinlog groups 'A->B'", "twinlog groups 'A->B' billing --watch")),
        "gaps": LazyCommand("source.gaps:gaps_command",
            "Show or acknowledge source offsets that are missing on the target.",
            examples=("twinlog gaps 'A->B'", "twinlog gaps ack 'A->B' --topic orders --all")),
        "foreign": LazyCommand("source.gaps:foreign_command",
            "Show or acknowledge records that others wrote into copies.",
            examples=("twinlog foreign 'A->B'", "twinlog foreign ack 'A->B' --dry-run")),
        "explain": LazyCommand(
            "configsync.explain:app",
            "Explain why a topic is replicated or a group is translated, or a reason.",
            examples=(
                "twinlog explain topic orders",
                "twinlog explain group billing",
                "twinlog explain reason RECORD_TOO_LARGE",
            ),
        ),
    },
    "Change": {
        "pause": LazyCommand("source.pause:pause_command",
            "Stop copying a flow, a topic or a partition, or list what is paused.",
            examples=("twinlog pause 'A->B' --topic orders", "twinlog pause")),
        "resume": LazyCommand("source.pause:resume_command", "End a pause.",
            examples=("twinlog resume 'A->B' --topic orders",)),
        "throttle": LazyCommand("source.pause:throttle_command",
            "Limit the bytes per second of a flow or topic, or show the limits.",
            examples=("twinlog throttle 'A->B' 50MB/s", "twinlog throttle 'A->B' none"),
            negative_numbers=True),
        "move": LazyCommand("owners:move_command",
            "Move a flow to another process of a service, or show who owns what and why.",
            examples=("twinlog move", "twinlog move 'A->B' --to host-2 --dry-run")),
        "calibrate": LazyCommand("source.calibrate:calibrate_command",
            "Measure how fast the target takes records, and with how many slots.",
            examples=("twinlog calibrate 'A->B' --dry-run", "twinlog calibrate 'A->B'")),
        "positions": LazyCommand("source.positions:app", "Show or move where partitions are copied from.",
            examples=("twinlog positions get 'A->B' --topic orders",)),
        "rules": LazyCommand("configsync.rules:app", "Show and change the rules of a flow while it runs.",
            examples=("twinlog rules get 'A->B'", "twinlog rules add 'A->B' topics 'payments.*' --dry-run")),
        "plan": LazyCommand("configsync.plan:plan_command",
            "Show the topics, configs, ACLs and quotas that configsync would change, and why.",
            examples=("twinlog plan 'A->B'", "twinlog plan --check")),
        "apply": LazyCommand("configsync.plan:apply_command",
            "Carry out a plan, unless the clusters have changed since it was made.",
            examples=("twinlog apply 'A->B'",)),
        "acls": LazyCommand("configsync.acls:acls_command",
            "Show the ACLs of a flow or a cluster, and whether each is copied.",
            examples=("twinlog acls 'A->B'",)),
    },
    "Move applications": {
        "failover": LazyCommand("moves.failover:app", "Move consumer groups to the target cluster.",
            examples=("twinlog failover plan 'A->B'", "twinlog failover run 'A->B' --fence --dry-run")),
        "failback": LazyCommand("moves.failback:app", "Move consumer groups back to the source cluster.",
            examples=("twinlog failback plan 'A->B'",)),
        "reverse": LazyCommand("moves.reverse:reverse_command",
            "Let the flow back take over, for topics with the same names on both sides.",
            examples=("twinlog reverse 'A->B'", "twinlog reverse 'A->B' --fence --execute")),
        "translate": LazyCommand("checkpoint.translate:translate_command",
            "Translate any offset or time, in either direction."),
    },
    "Prove": {
        "transform": LazyCommand("source.transform:app",
            "Try what Spark makes of the records of a flow, and write nothing.",
            examples=("twinlog transform try 'A->B' --topic orders --last 20",)),
        "verify": LazyCommand("verify.command:verify_command",
            "Compare the copies of a flow with their source, and list the differences.", failed=3),
        "repair": LazyCommand("verify.repair:repair_command",
            "Repair the differences that a verification found, or explain why one cannot be repaired."),
        "copy": LazyCommand("copy:copy_command",
            "Copy a flow up to now, a time or an offset, verify the copy, and exit.", failed=3),
        "safe-to-delete": LazyCommand("verify.safe_to_delete:safe_to_delete_command",
            "Show up to which source offset all records are on the target and verified."),
    },
    "Rescue": {
        "state": LazyCommand("state:app",
            "Back up and restore what a flow keeps in its internal topics.",
            examples=("twinlog state export 'A->B' backup.jsonl",)),
        "debug": LazyCommand("debug.command:app", "Collect what a bug report needs, without secrets.",
            examples=("twinlog debug bundle --config mm2.properties",)),
        "decode": LazyCommand("decode:decode_command",
            "Print the records of an internal topic in the output format of MM2's formatters."),
    },
    "Try": {
        "demo": LazyCommand("demo:demo_command",
            "Run two clusters and all services, and fail a group over: about a minute.",
            examples=("twinlog demo",)),
        "local": LazyCommand("local:app", "Run real Kafka clusters on this machine for tests.",
            examples=("twinlog local up A B --detach",)),
        "completion": LazyCommand("common.lazy:completion_command", "Print a shell completion script.",
            examples=("twinlog completion bash",)),
    },
}  # fmt: skip
"""The commands by what one wants to do, in the order of `twinlog --help`."""
COMMANDS: dict[str, LazyCommand] = {
    name: replace(command, panel=panel)
    for panel, commands in _PANELS.items()
    for name, command in commands.items()
    # Developers' tools are in a clone, and in no wheel.
    if name not in ("demo", "local") or find_spec(f"twinlog.cli.{name}") is not None
}


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
