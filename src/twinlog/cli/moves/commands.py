"""The commands of a move for both directions: `twinlog failover …` and `twinlog failback …`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import typer

from twinlog.cli.common.call import Call, command
from twinlog.cli.common.options import OnlyFlowArgument
from twinlog.cli.moves.calls import MoveCall
from twinlog.cli.moves.moves import (
    AcceptLossOption,
    DryRunOption,
    FenceOption,
    GrantWriteOption,
    GroupsOption,
    IncludeActiveOption,
    WaitOption,
    YesOption,
    options_message,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """One direction, with the help texts of its commands."""

    kind: str
    """failover or failback."""
    help: str
    plan_help: str
    run_help: str


def commands_of(direction: Direction) -> typer.Typer:
    """plan, run, status, watch, stop, give-up; and their names in 0.1.0."""
    kind = direction.kind
    app = typer.Typer(no_args_is_help=True, add_completion=False, help=direction.help)

    @app.command("plan", help=direction.plan_help)
    @command
    def plan_command(
        call: Call,
        flow: OnlyFlowArgument = None,
        group: GroupsOption = None,
        fence: FenceOption = False,
        grant_write: GrantWriteOption = False,
        include_active: IncludeActiveOption = False,
        accept_loss: AcceptLossOption = False,
    ) -> None:
        flags = {"fence": fence, "include_active": include_active, "accept_loss": accept_loss}
        options = options_message(group, 0, **flags, grant_write=grant_write)
        MoveCall.of(kind, flow, call).plan(options)

    @app.command("run", help=direction.run_help)
    @command
    def run_command(
        call: Call,
        flow: OnlyFlowArgument = None,
        group: GroupsOption = None,
        fence: FenceOption = False,
        grant_write: GrantWriteOption = False,
        include_active: IncludeActiveOption = False,
        accept_loss: AcceptLossOption = False,
        wait: WaitOption = 300.0,
        yes: YesOption = False,
        dry_run: DryRunOption = False,
    ) -> None:
        flags = {"fence": fence, "include_active": include_active, "accept_loss": accept_loss}
        options = options_message(group, wait, **flags, grant_write=grant_write)
        move = MoveCall.of(kind, flow, call)
        if dry_run:
            move.plan(options)
        else:
            move.run(options, yes=yes)

    for name, earlier, act, what in _OF_ONE_MOVE:
        _add_command(app, kind, name, act, what)
        if earlier:
            _add_command(app, kind, earlier, act, what, hidden=True)
    return app


_OF_ONE_MOVE: Final = (
    (
        "status",
        "",
        MoveCall.status,
        "Show the failover or failback of a flow that is running or ran last, and its steps.",
    ),
    (
        "watch",
        "attach",
        MoveCall.attach,
        "Show the progress of a running move, as `run` does. Ctrl-C ends the command, not the move.",
    ),
    (
        "stop",
        "cancel",
        MoveCall.cancel,
        "Stop a running move. What it has done stays, also a fence; `run` continues it.",
    ),
    (
        "give-up",
        "abort",
        MoveCall.abort,
        "Give up an interrupted or stopped move, and remove its fence. Committed offsets stay.",
    ),
)


def _add_command(
    app: typer.Typer,
    kind: str,
    name: str,
    act: Callable[[MoveCall], None],
    what: str,
    *,
    hidden: bool = False,
) -> None:
    @app.command(name, help=what, hidden=hidden)
    @command
    def of_one_move(call: Call, flow: OnlyFlowArgument = None) -> None:
        act(MoveCall.of(kind, flow, call))
