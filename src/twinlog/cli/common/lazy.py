"""A command group whose commands are imported when they are used: `twinlog --help` imports none of them."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyCommand:
    """One sub-command: where it is and what `--help` of the whole says about it."""

    target: str
    """`module:attribute`: a function with typer's annotations, or a typer.Typer with sub-commands of its
    own.
    """
    summary: str
    negative_numbers: bool = False
    """Arguments that begin with a minus reach the command, which refuses them in its own words."""


class LazyGroup(TyperGroup):
    """Set `lazy_commands` in a subclass."""

    lazy_commands: dict[str, LazyCommand] = {}  # noqa: RUF012 (replaced as a whole by the subclass)
    _describing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.lazy_commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.lazy_commands.get(cmd_name)
        if entry is None:
            return None
        if self._describing:
            return TyperCommand(cmd_name, help=entry.summary)
        return _load(cmd_name, entry)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._describing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._describing = False


def _load(name: str, entry: LazyCommand) -> Any:
    module, _, attribute = entry.target.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        app = found
    else:
        app = typer.Typer(add_completion=False)
        settings = {"ignore_unknown_options": True} if entry.negative_numbers else None
        app.command(name, context_settings=settings)(found)
    command = typer.main.get_command(app)
    command.name = name
    return command
