"""The command line of a service. Uses argparse, because only the command line's image has typer."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from twinlog import __version__
from twinlog.config import Configuration, load
from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.telemetry.logging import FORMATS

# Command line values that services and `twinlog run` share.


def parse_flows(names: Sequence[str]) -> tuple[Flow, ...]:
    """Read `--flows`. Raises ConfigError."""
    try:
        return tuple(Flow.parse(name) for name in names)
    except ValueError as error:
        raise ConfigError(f"--flows: {error}", key="--flows") from None


def parse_override(text: str) -> tuple[str, str]:
    """Read `--set KEY=VALUE`. Raises ConfigError; the value is not repeated, it may be a secret."""
    key, sign, value = text.partition("=")
    name = key.strip()
    if not (sign and name):
        raise ConfigError(f"--set {name}: expected KEY=VALUE", key=name)
    return name, value


PORT_FILE_VARIABLE = "TWINLOG_PORT_FILE"

_DUTIES = {
    "source": "copies the records of every selected topic, exactly once, and writes offset syncs",
    "checkpoint": "translates the offsets of consumer groups to the target cluster",
    "heartbeat": "emits heartbeats and measures the delay of every flow",
    "configsync": "decides which topics are replicated and keeps them, their partitions and configs in step",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    config: Path
    flows: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    overrides: Sequence[str] = ()
    """`key=value`, later ones win."""
    listen: str | None = None
    log_format: str | None = None
    strict: bool = False
    port_file: Path | None = None
    notices_told: bool = False
    """Whether notices of the configuration are in the log already."""


def parse_options(name: str, argv: Sequence[str] | None, *, environment: Mapping[str, str]) -> ServiceOptions:
    """Read `argv` (the process's own when None). Exits: 2 with usage on stderr for a wrong one, 0 on
    --help."""
    parser = argparse.ArgumentParser(
        prog=f"twinlog-{name}",
        description=f"Twinlog's {name} service: {_DUTIES[name]}.",
        epilog="It runs alone: brokers and peers may be away, it waits for them and says so."
        " SIGTERM or Ctrl-C drains and exits 0; a second one ends at once."
        " Exit codes: 0 clean stop, 1 crash, 2 bad configuration.",
    )
    parser.add_argument(
        "--config", required=True, type=Path, metavar="FILE", help="a MirrorMaker 2 properties file"
    )
    parser.add_argument(
        "--flows",
        type=_names,
        default=(),
        metavar="A->B,…",
        help="only these flows (default: all of the file)",
    )
    parser.add_argument(
        "--clusters",
        type=_names,
        default=(),
        metavar="B,…",
        help="only flows whose target is one of these aliases",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="a property that wins over the file; may be repeated",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help=f"where gRPC is served, wins over twinlog.{name}.listen; port 0 = any",
    )
    parser.add_argument(
        "--port-file",
        type=Path,
        default=environment.get(PORT_FILE_VARIABLE),
        metavar="FILE",
        help=f"write the bound port here (also by {PORT_FILE_VARIABLE})",
    )
    parser.add_argument("--strict", action="store_true", help="an unknown key is an error")
    parser.add_argument("--log-format", choices=FORMATS, help="auto = readable on a terminal, JSON elsewhere")
    parser.add_argument("--notices-told", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"twinlog-{name} {__version__}")
    return ServiceOptions(**vars(parser.parse_args(argv)))


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def load_configuration(
    name: str, options: ServiceOptions, *, environment: Mapping[str, str]
) -> Configuration:
    """The configuration from file and options. Raises ConfigError naming file, line and key."""
    overrides = dict(parse_override(text) for text in options.overrides)
    if options.listen is not None:
        overrides[f"twinlog.{name}.listen"] = options.listen
    if options.log_format is not None:
        overrides["twinlog.log.format"] = options.log_format
    return load(
        options.config,
        environ=environment,
        only_flows=parse_flows(options.flows) or None,
        only_targets=options.clusters or None,
        overrides=overrides,
        strict=options.strict,
    )
