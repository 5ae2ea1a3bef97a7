"""A command group whose commands are imported when they are used: `twinlog --help` imports none of them.

`twinlog completion`: completion of commands and options in a shell.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from twinlog.cli.common.failures import ANSWERS_IN_JSON, COMMAND, FAILED, answers_in_json, told_failures
from twinlog.cli.common.names import MOST_OFFSET, MOST_PARTITION, MOST_SECONDS
from twinlog.cli.common.options import argument

COMPLETE_VARIABLE = "_TWINLOG_COMPLETE"
"""Set by the shell while it completes."""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion_command(
    shell: Shell = argument("SHELL", "bash, zsh or fish."),
) -> None:
    # typer's own command installs files into a home directory, and guesses the shell.
    """Print the script that makes a shell complete commands and options.

    bash: `eval "$(twinlog completion bash)"` in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish:
    `twinlog completion fish > ~/.config/fish/completions/twinlog.fish`.
    """
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="twinlog", complete_var=COMPLETE_VARIABLE, shell=shell.value))


def prepare_completion() -> None:
    """Let the command line answer the shell."""
    from typer._completion_classes import completion_init

    completion_init()


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """One sub-command: its module, and its line in `--help`."""

    target: str
    """`module:attribute` of this package: a function with typer's annotations,
    or a typer.Typer with sub-commands."""
    summary: str
    failed: int = 1
    """Its exit code when it fails."""
    negative_numbers: bool = False
    """Arguments that begin with a minus reach the command, which refuses them with its own message."""
    examples: tuple[str, ...] = ()
    """Command lines at the end of its help, and of that of the command below."""
    panel: str = ""
    """The part of `twinlog --help` that it stands in."""


class LazyGroup(TyperGroup):
    """Set `lazy_commands` in a subclass."""

    lazy_commands: dict[str, LazyCommand] = {}  # noqa: RUF012 (replaced as a whole by the subclass)
    earlier_names: dict[str, str] = {}  # noqa: RUF012 (the same)
    """Names that commands had in the last release: they still work, and no help shows them."""
    _describing = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ANSWERS_IN_JSON.set(answers_in_json(args))
        with told_failures():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with told_failures():
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        for param in found:
            _name_value(param)
        return found

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.lazy_commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.lazy_commands.get(cmd_name)
        if entry is None:
            return None
        if self._describing:
            return TyperCommand(cmd_name, help=entry.summary, rich_help_panel=entry.panel)
        return load(cmd_name, entry)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        args = [self.earlier_names.get(args[0], args[0]), *args[1:]]
        if args[0] not in self.lazy_commands and not args[0].startswith("-"):
            like = get_close_matches(args[0], self.lazy_commands)
            meant = f" Did you mean {' or '.join(map(repr, like))}?" if like else ""
            ctx.fail(f"No such command {args[0]!r}.{meant}")
        name, command, rest = super().resolve_command(ctx, args)
        COMMAND.set(f"twinlog {name}")  # A failure names the help of the failed command.
        FAILED.set(self.lazy_commands[name].failed if name in self.lazy_commands else 1)
        return name, command, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._describing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._describing = False


_PREFORMATTED = "\b"
_MARKUP = re.compile(r"\[(?=[a-z#/@])")
"""What rich would take for a tag and leave out."""


def load(name: str, entry: LazyCommand) -> Any:
    """The command, imported."""
    module, _, attribute = entry.target.partition(":")
    found = getattr(import_module(f"twinlog.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        app = found
    else:
        app = typer.Typer(add_completion=False)
        settings = {"ignore_unknown_options": True} if entry.negative_numbers else None
        app.command(name, context_settings=settings)(found)
    command = typer.main.get_command(app)
    command.name = name
    _write_plainly(command)
    _show_examples(command, entry.examples)
    for below, each in getattr(command, "commands", {}).items():
        start = f"twinlog {name} {below} "
        _show_examples(each, [line for line in entry.examples if f"{line} ".startswith(start)])
    return command


def _show_examples(command: Any, examples: Sequence[str]) -> None:
    if examples:
        command.epilog = "\n\n".join(("Examples:", *map(_plain, examples)))


def _write_plainly(command: Any) -> None:
    """Make help appear as it is written: paragraphs as wide as the terminal, brackets unchanged."""
    if command.help:
        command.help = "\n\n".join(map(_plain, command.help.split("\n\n")))
    for param in filter(None, (*command.params, command.get_help_option(typer.Context(command)))):
        if getattr(param, "help", None):
            param.help = _plain(param.help)
        _name_value(param)
    for each in getattr(command, "commands", {}).values():
        _write_plainly(each)


def _name_value(param: Any) -> None:
    """Show what its author calls the value of an option or argument, and only bounds that somebody may meet.
    The command goes on to check all of them."""
    if getattr(param, "is_flag", False):
        param.metavar = ""
    if param.param_type_name == "argument" and param.metavar is not None:
        param.display_type_rich = lambda ctx: None  # Behind its name it would repeat Python's type.
        usage = param.metavar if param.required or "[" in param.metavar else f"[{param.metavar}]"
        param._usage_display_name = lambda: usage  # noqa: SLF001 (typer brackets what has brackets)
    if getattr(param, "max", None) in (MOST_PARTITION, MOST_OFFSET, MOST_SECONDS):
        param.min, param.max = param.min or None, None


def _plain(paragraph: str) -> str:
    escaped = _MARKUP.sub(r"\[", paragraph)
    return escaped if escaped.startswith(_PREFORMATTED) else " ".join(escaped.split("\n"))
