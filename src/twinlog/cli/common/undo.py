"""The commands that undo what a command has just done: the last lines of its output.

They undo what the clusters and the service store; records that were copied meanwhile stay.
"""

import shlex
from collections.abc import Sequence

import typer

from twinlog.cli.common.pasteable import pasteable

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
