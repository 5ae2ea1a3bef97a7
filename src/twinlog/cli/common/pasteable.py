"""Commands that can be pasted as they are: they ask the services that the running command asks.

Sentences name commands between backticks, also those that services write, which do not know how they are
called. Whatever a command tells people goes through `say`, or is a cell of a table.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict
from typing import Any, Final

import typer

from twinlog.reasons import KAFKA, OWN

GIVEN_FILE: ContextVar[str] = ContextVar("GIVEN_FILE", default="")
"""The properties file that was given to the running command; empty = none."""

FILE_IS_IN_ENVIRONMENT: ContextVar[bool] = ContextVar("FILE_IS_IN_ENVIRONMENT", default=False)
"""Whether the next command finds this file by itself."""

GIVEN_ENDPOINTS: ContextVar[tuple[str, ...]] = ContextVar("GIVEN_ENDPOINTS", default=())
"""The addresses of services that were given to the running command."""

_QUOTED: Final = re.compile(r"`(twinlog [^`]+)`")
_READ_NO_CONFIG: Final = frozenset(
    {
        *("adopt", "completion", "convert", "demo", "explain reason", "import", "init", "local"),
        *("mirror-maker", "preflight", "run", "start"),
    }
)
_OF_FILE: Final = "twinlog preflight"
"""It reads no file but the one that it names."""
_CALL_NO_SERVICE: Final = frozenset({"copy", "decode", "safe-to-delete", "state", "verify"})
"""They read the clusters themselves."""


def pasteable(command: str) -> str:
    """The command with the `--config` and `--endpoint` that the running one was given, if it takes them and
    has none; other text as it is."""
    if command == _OF_FILE:
        return f"{command} {shlex.quote(GIVEN_FILE.get() or 'FILE')}"
    program, _, rest = command.partition(" ")
    name = rest.partition(" ")[0]
    has_places = "--config" in rest or "--endpoint" in rest
    is_complete = has_places or rest.endswith("--help") or name.startswith("-")
    reads_none = not _READ_NO_CONFIG.isdisjoint((name, " ".join(rest.split()[:2])))
    if program != "twinlog" or not name or is_complete or reads_none:
        return command
    endpoints = () if name in _CALL_NO_SERVICE else GIVEN_ENDPOINTS.get()
    file = "" if FILE_IS_IN_ENVIRONMENT.get() else GIVEN_FILE.get()
    places = [word for endpoint in endpoints for word in ("--endpoint", endpoint)]
    return " ".join([command, *map(shlex.quote, [*places, *(("--config", file) if file else ())])])


def with_pasteable(sentence: str) -> str:
    """A sentence, in which every command between backticks is complete."""
    return _QUOTED.sub(lambda found: f"`{pasteable(found[1])}`", sentence)


def document(row: Any) -> dict[str, Any]:
    """A dataclass as a JSON object, in which every `command` is complete."""
    return asdict(row, dict_factory=_with_command)


def _with_command(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: pasteable(value) if name == "command" else value for name, value in fields}


def say(sentence: str, **style: Any) -> None:
    """Print it; `style` as for `typer.secho`."""
    typer.secho(with_pasteable(sentence), **style)


# The commands that undo what a command has just done: the last lines of its output.
#
# They undo what the clusters and the service store; records that were copied meanwhile stay.


MOST_SHOWN = 10


def undo_command(*words: str) -> str:
    """A command line such as `twinlog resume 'A->B'` that asks the same services as the running command."""
    return pasteable(shlex.join(["twinlog", *words]))


def undo_lines(commands: Sequence[str]) -> list[str]:
    """`undo: …`, or a list of several; nothing without a command."""
    if len(commands) < 2:
        return [f"undo: {command}" for command in commands]
    more = len(commands) - MOST_SHOWN
    shown = [f"  {command}" for command in commands[:MOST_SHOWN]]
    return ["undo:", *shown, *([f"  and {more} more: -o json has all of them"] if more > 0 else ())]


def print_undo(commands: Sequence[str]) -> None:
    for line in undo_lines(commands):
        typer.echo(line)


# The command that helps after a failure; every error message ends with one. Pure.
#
# It is chosen by the reason. If the error names flow, topic, group or state file, the command does too.
# `<A->B>`, `<TOPIC>`, `<GROUP>`, `<STATE_FILE>` and `<FILE>` (of properties) are placeholders for the rest.

_STATUS: Final = "twinlog status"
_PREFLIGHT: Final = "twinlog preflight {file}"
"""It checks every cluster and right of the file, and changes nothing."""
_MOVES: Final = tuple(
    f"twinlog {kind} {verb}" for kind in ("failover", "failback") for verb in ("run", "watch")
)
_OF_VALUES: Final = "twinlog rules"
"""What is wrong is the value that the command was given, and not the file."""
_OF_CLUSTERS: Final = frozenset(each.name for each in KAFKA.reasons)
_BY_REASON: Final = {
    each.name: each.command for group in (KAFKA, *OWN) for each in group.reasons if each.command
}

_PLACES: Final = {
    "flow": "<A->B>",
    "topic": "<TOPIC>",
    "group": "<GROUP>",
    "file": "<FILE>",
    "state_file": "<STATE_FILE>",
}


def next_command(
    reason: str,
    metadata: Mapping[str, str],
    *,
    command: str = "twinlog",
    file: str = "",
) -> str:
    """The command that helps after a failure. `command` is the one that failed, `file` the properties file
    that it was given.

    >>> next_command("PAUSED_BY_OPERATOR", {"flow": "A->B"})
    "twinlog resume 'A->B'"
    >>> next_command("INVALID_CONFIG", {}, command="twinlog partitions")
    'twinlog partitions --help'
    >>> next_command("MOVE_BLOCKED", {"flow": "A->B"}, command="twinlog failback run")
    "twinlog failback plan 'A->B'"
    """
    of_file = "" if "field" in metadata or command.startswith(_OF_VALUES) else file
    template = _template(reason, metadata, of_file)
    if template == _PREFLIGHT and reason in _OF_CLUSTERS and command in _MOVES:
        # A cluster ended it at some step: what it did, and whether anything, is on record.
        template = "twinlog failover status {flow}" if metadata.get("flow") else "twinlog failover status"
    if command.startswith("twinlog failback"):
        template = template.replace("twinlog failover", "twinlog failback")
    named = {"command": command}
    for name, place in _PLACES.items():
        value = file if name == "file" else metadata.get(name, "")
        named[name] = shlex.quote(value) if value else place
    return template.format(**named)


def _template(reason: str, metadata: Mapping[str, str], file: str) -> str:
    if reason.startswith("GRPC_"):
        return _STATUS
    if reason == "INVALID_CONFIG" and file and not re.fullmatch(r"--.*|[A-Z]+", metadata.get("key", "")):
        if "convert" in metadata:
            return "twinlog convert {file} --to mm2.properties"
        return "twinlog init {file}" if "missing" in metadata else _PREFLIGHT
    return _BY_REASON.get(reason, _PREFLIGHT)
