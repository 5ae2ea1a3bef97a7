"""`twinlog completion`: completion of commands and options in a shell."""

from enum import StrEnum
from typing import Annotated

import typer

COMPLETE_VARIABLE = "_TWINLOG_COMPLETE"
"""Set by the shell while it completes."""

_HELP = """Print the script that makes a shell complete commands and options.

bash: `eval "$(twinlog completion bash)"` in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish: \
`twinlog completion fish > ~/.config/fish/completions/twinlog.fish`.
"""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion_command(
    shell: Annotated[Shell, typer.Argument(help="Which shell.", show_default=False)],
) -> None:
    # typer's own command installs files into a home directory, and guesses the shell.
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="twinlog", complete_var=COMPLETE_VARIABLE, shell=shell.value))


completion_command.__doc__ = _HELP


def prepare_completion() -> None:
    """Let the command line answer the shell."""
    from typer._completion_classes import completion_init

    completion_init()
