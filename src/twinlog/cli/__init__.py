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
from twinlog.cli.common.fields import filter_output
from twinlog.cli.common.lazy import COMPLETE_VARIABLE, LazyCommand, LazyGroup, prepare_completion, shown
from twinlog.cli.common.options import option
from twinlog.supervisor.runs import complete_standard_streams

_DURING_A_MOVE = ("status", "watch", "stop", "give-up")
_PANELS: dict[str, dict[str, LazyCommand]] = {
    "Start": {
        "run": shown("start:run_command", "Run all four services for the flows of a properties file.",
            "twinlog run mm2.properties"),
        "start": shown("start:start_command",
            "Copy from one cluster to another without a file, which it writes.",
            "twinlog start kafka-a:9092 kafka-b:9092",
            "twinlog start kafka-a:9092 kafka-b:9092 --topics 'orders,payments.*' --dry-run"),
        "init": shown("start:init_command", "Write a first properties file, by five questions.",
            "twinlog init mm2.properties"),
        "preflight": shown("preflight:preflight_command",
            "Check a properties file against its clusters before anything is started.",
            "twinlog preflight mm2.properties"),
        "convert": shown("import_estate:import_command",
            "Convert the configuration of another replicator into a properties file, with a report.",
            "twinlog convert kafkamirrormaker2.yaml --to mm2.properties"),
        "adopt": shown("preflight:adopt_command",
            "Show where Twinlog would continue what MirrorMaker 2 copied, and whether it may start.",
            "twinlog adopt mm2.properties"),
        "mirror-maker": shown("mirror_maker:mirror_maker_command",
            "Run with the configuration files and options of MirrorMaker 1.",
            "twinlog mirror-maker --consumer.config c.properties --producer.config p.properties"
            " --include 'orders.*'"),
    },
    "Look": {
        "status": shown("status.command:status_command", "Show services, flows and clusters as they are now.",
            "twinlog status --config mm2.properties", "twinlog status --check"),
        "ui": shown("ui.command:ui_command", "Show all flows on a live page in the browser.",
            "twinlog ui --config mm2.properties"),
        "topology": shown("topology:topology_command",
            "Draw clusters and flows with the delay of each, as a tree, JSON or for Graphviz.",
            "twinlog topology --config mm2.properties",
            "twinlog topology -o dot --config mm2.properties | dot -Tsvg > topology.svg"),
        "topics": shown("configsync.topics:topics_command",
            "Show every topic that a flow copies, and why one waits.", "twinlog topics 'A->B'"),
        "partitions": shown("source.partitions:partitions_command",
            "Show the copy of every partition: state, position, lag, lane, rates, reason.",
            "twinlog partitions 'A->B' --trouble", "twinlog partitions 'A->B' --topic orders --watch"),
        "groups": shown("checkpoint.groups:groups_command",
            "Show the offsets of every consumer group on both clusters.", "twinlog groups 'A->B'",
            "twinlog groups 'A->B' billing --watch"),
        "gaps": shown("source.gaps:gaps_command",
            "Show or acknowledge source offsets that are missing on the target.", "twinlog gaps 'A->B'",
            "twinlog gaps ack 'A->B' --topic orders --all"),
        "foreign": shown("source.gaps:foreign_command",
            "Show or acknowledge records that others wrote into copies.", "twinlog foreign 'A->B'",
            "twinlog foreign ack 'A->B' --dry-run"),
        "explain": shown("configsync.explain:app",
            "Explain why a topic is replicated or a group is translated, or a reason.",
            "twinlog explain topic orders", "twinlog explain group billing",
            "twinlog explain reason RECORD_TOO_LARGE"),
    },
    "Change": {
        "pause": shown("source.pause:pause_command",
            "Stop copying a flow, a topic or a partition, or list what is paused.",
            "twinlog pause 'A->B' --topic orders", "twinlog pause"),
        "resume": shown("source.pause:resume_command", "End a pause.",
            "twinlog resume 'A->B' --topic orders"),
        "throttle": shown("source.pause:throttle_command",
            "Limit the bytes per second of a flow or topic, or show the limits.",
            "twinlog throttle 'A->B' 50MB/s", "twinlog throttle 'A->B' none", negative_numbers=True),
        "move": shown("owners:move_command",
            "Move a flow to another process of a service, or show who owns what and why.", "twinlog move",
            "twinlog move 'A->B' --to host-2 --dry-run"),
        "calibrate": shown("source.pause:calibrate_command",
            "Measure how fast the target takes records, and with how many slots.",
            "twinlog calibrate 'A->B' --dry-run", "twinlog calibrate 'A->B'"),
        "positions": shown("source.positions:app", "Show or move where partitions are copied from.",
            "twinlog positions get 'A->B' --topic orders",
            "twinlog positions set 'A->B' --topic orders --to 2026-01-31T12:00:00Z --dry-run"),
        "rules": shown("configsync.rules:app", "Show and change the rules of a flow while it runs.",
            "twinlog rules get 'A->B'", "twinlog rules diff 'A->B'",
            "twinlog rules set 'A->B' topics 'orders,payments.*'",
            "twinlog rules add 'A->B' topics 'payments.*' --dry-run",
            "twinlog rules remove 'A->B' topics 'payments.*'", "twinlog rules reset 'A->B' topics",
            "twinlog rules restore 'A->B' topics"),
        "plan": shown("configsync.plan:plan_command",
            "Show the topics, configs, ACLs and quotas that configsync would change, and why.",
            "twinlog plan 'A->B'", "twinlog plan --check"),
        "apply": shown("configsync.plan:apply_command",
            "Carry out a plan, unless the clusters have changed since it was made.", "twinlog apply 'A->B'"),
        "acls": shown("configsync.acls:acls_command",
            "Show the ACLs of a flow or a cluster, and whether each is copied.", "twinlog acls 'A->B'"),
    },
    "Move applications": {
        "failover": shown("moves.commands:failover", "Move consumer groups to the target cluster.",
            "twinlog failover plan 'A->B'", "twinlog failover run 'A->B' --fence --dry-run",
            *(f"twinlog failover {act} 'A->B'" for act in _DURING_A_MOVE)),
        "failback": shown("moves.commands:failback", "Move consumer groups back to the source cluster.",
            "twinlog failback plan 'A->B'", "twinlog failback run 'A->B' --dry-run",
            *(f"twinlog failback {act} 'A->B'" for act in _DURING_A_MOVE)),
        "reverse": shown("moves.reverse:reverse_command",
            "Let the flow back take over, for topics with the same names on both sides.",
            "twinlog reverse 'A->B'", "twinlog reverse 'A->B' --fence --execute"),
        "translate": shown("checkpoint.translate:translate_command",
            "Translate any offset or time, in either direction.",
            "twinlog translate 'A->B' orders:3:1234", "twinlog translate --back A.orders:3:1250",
            "twinlog translate --from offsets.csv --to moved.csv"),
    },
    "Prove": {
        "transform": shown("source.transform:app",
            "Try what Spark makes of the records of a flow, and write nothing.",
            "twinlog transform try 'A->B' --topic orders --last 20"),
        "verify": shown("verify.command:verify_command",
            "Compare the copies of a flow with their source, and list the differences.",
            "twinlog verify 'A->B' --config mm2.properties",
            "twinlog verify 'A->B' --config mm2.properties --topic orders --partition 3 --show",
            "twinlog verify 'A->B' --config mm2.properties --from -1d --report proof.json --html proof.html",
            failed=3),
        "repair": shown("verify.repair:repair_command",
            "Repair the differences that a verification found, or explain why one cannot be repaired.",
            "twinlog repair --from-report proof.json --config mm2.properties"),
        "copy": shown("copy:copy_command",
            "Copy a flow up to now, a time or an offset, verify the copy, and exit.",
            "twinlog copy 'A->B' --until now --config mm2.properties",
            "twinlog copy 'A->B' --until 2026-11-22T14:03:00Z --topic orders --config mm2.properties",
            failed=3),
        "safe-to-delete": shown("verify.command:safe_to_delete_command",
            "Show up to which source offset all records are on the target and verified.",
            "twinlog safe-to-delete 'A->B' --topic orders --before -7d --config mm2.properties"),
    },
    "Rescue": {
        "state": shown("state:app", "Back up and restore what a flow keeps in its internal topics.",
            "twinlog state export 'A->B' state.jsonl --config mm2.properties",
            "twinlog state import 'A->B' state.jsonl --config mm2.properties --dry-run"),
        "debug": shown("debug.command:app", "Collect what a bug report needs, without secrets.",
            "twinlog debug bundle --config mm2.properties --log /var/log/twinlog.log"),
        "decode": shown("decode:decode_command",
            "Print the records of an internal topic in the output format of MM2's formatters.",
            "twinlog decode A.checkpoints.internal --config mm2.properties --cluster B"),
    },
    "Try": {
        "demo": shown("demo:demo_command",
            "Run two clusters and all services, and fail a group over: about a minute.", "twinlog demo"),
        "local": shown("local:app", "Run real Kafka clusters on this machine for tests.",
            "twinlog local up A B --detach", "twinlog local status",
            "twinlog local stop A", "twinlog local start A", "twinlog local down A B"),
        "completion": shown("common.lazy:completion_command", "Print a shell completion script.",
            "twinlog completion bash"),
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
