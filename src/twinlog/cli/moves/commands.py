"""The commands of a move for both directions: `twinlog failover …` and `twinlog failback …`."""

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.common.call import Call, command
from twinlog.cli.common.options import OnlyFlowArgument, flag, together
from twinlog.cli.moves.calls import MoveCall
from twinlog.cli.moves.moves import WAIT, YesOption, move_options

_GRANT_WRITE = (
    "--grant-write",
    "Let those who may write the source's topics write their copies, until the failback.",
)
_EARLIER = {"watch": "attach", "stop": "cancel", "give_up": "abort"}
"""Their names in 0.1.0."""


def commands_of(kind: type[MoveCall]) -> typer.Typer:
    """plan, run, status, watch, stop, give-up; their help is that of the methods."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, help=kind.__doc__)

    @app.command("plan", help=kind.plan.__doc__)
    @command
    def plan_command(
        call: Call,
        flow: OnlyFlowArgument = None,
        options: pb2.MoveOptions = together(move_options),
        grant_write: bool = flag(*_GRANT_WRITE),
    ) -> None:
        options.grant_write = grant_write
        kind.of(flow, call).plan(options)

    @app.command("run", help=kind.run.__doc__)
    @command
    def run_command(
        call: Call,
        flow: OnlyFlowArgument = None,
        options: pb2.MoveOptions = together(move_options),
        grant_write: bool = flag(*_GRANT_WRITE),
        wait: float = WAIT,
        yes: YesOption = False,
        dry_run: bool = flag("--dry-run", "Only show the plan."),
    ) -> None:
        options.grant_write = grant_write
        options.wait.FromMilliseconds(round(wait * 1000))
        move = kind.of(flow, call)
        if dry_run:
            move.plan(options)
        else:
            move.run(options, yes=yes)

    def add(name: str, act: str, *, hidden: bool = False) -> None:
        @app.command(name.replace("_", "-"), help=getattr(kind, act).__doc__, hidden=hidden)
        @command
        def of_one_move(call: Call, flow: OnlyFlowArgument = None) -> None:
            getattr(kind.of(flow, call), act)()

    for act in ("status", *_EARLIER):
        add(act, act)
        if act in _EARLIER:
            add(_EARLIER[act], act, hidden=True)
    return app
