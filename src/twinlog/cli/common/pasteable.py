"""Commands that can be pasted as they are: they ask the services that the running command asks.

Sentences name commands between backticks, also those that services write, which do not know how they are
called. Whatever a command tells people goes through `say`, or is a cell of a table.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import asdict
from typing import Any, Final

import typer

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
_CALL_NO_SERVICE: Final = frozenset({"copy", "decode", "safe-to-delete", "state", "verify"})
"""They read the clusters themselves."""


def pasteable(command: str) -> str:
    """The command with the `--config` and `--endpoint` that the running one was given, if it takes them and
    has none; other text as it is."""
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
