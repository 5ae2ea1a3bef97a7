"""The commands of a move, for either direction: `twinlog failover …` and `twinlog failback …`."""

from dataclasses import dataclass

import typer

from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.output import Output, OutputOption
from twinlog.cli.moves.calls import MoveCall
from twinlog.cli.moves.moves import (
    AcceptLossOption,
    DryRunOption,
    FenceOption,
    GroupsOption,
    IncludeActiveOption,
    WaitOption,
    YesOption,
    options_message,
)
from twinlog.cli.source.client import FlowArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """One of the two, and what its commands say of themselves."""

    kind: str
    """failover or failback."""
    help: str
    plan_help: str
    run_help: str


def commands_of(direction: Direction) -> typer.Typer:
    """plan, run, status, attach, cancel, abort."""
    kind = direction.kind
    app = typer.Typer(no_args_is_help=True, add_completion=False, help=direction.help)

    @app.command("plan", help=direction.plan_help)
    def plan_command(
        flow: FlowArgument,
        group: GroupsOption = None,
        fence: FenceOption = False,
        include_active: IncludeActiveOption = False,
        accept_loss: AcceptLossOption = False,
        config: ConfigOption = None,
        endpoint: EndpointOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        with reported_failures():
            options = options_message(
                group, fence=fence, include_active=include_active, accept_loss=accept_loss, wait_seconds=0
            )
            run_async(MoveCall.of(kind, flow, config, endpoint, output).plan(options))

    @app.command("run", help=direction.run_help)
    def run_command(
        flow: FlowArgument,
        group: GroupsOption = None,
        fence: FenceOption = False,
        include_active: IncludeActiveOption = False,
        accept_loss: AcceptLossOption = False,
        wait: WaitOption = 300.0,
        yes: YesOption = False,
        dry_run: DryRunOption = False,
        config: ConfigOption = None,
        endpoint: EndpointOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        with reported_failures():
            options = options_message(
                group, fence=fence, include_active=include_active, accept_loss=accept_loss, wait_seconds=wait
            )
            call = MoveCall.of(kind, flow, config, endpoint, output)
            if dry_run:
                run_async(call.plan(options))
            else:
                call.asked_and_run(options, yes=yes)

    @app.command("status")
    def status_command(
        flow: FlowArgument,
        config: ConfigOption = None,
        endpoint: EndpointOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        """Show the move of a flow that is under way, or was last, its steps, and what is on record."""
        with reported_failures():
            run_async(MoveCall.of(kind, flow, config, endpoint, output).status())

    @app.command("attach")
    def attach_command(
        flow: FlowArgument,
        config: ConfigOption = None,
        endpoint: EndpointOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        """Follow a move that is under way, as `run` does. Ctrl-C stops following, not the move."""
        with reported_failures():
            run_async(MoveCall.of(kind, flow, config, endpoint, output).attach())

    @app.command("cancel")
    def cancel_command(
        flow: FlowArgument,
        config: ConfigOption = None,
        endpoint: EndpointOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        """Stop a move that is under way. What it did stays, a fence as well; `run` continues it."""
        with reported_failures():
            run_async(MoveCall.of(kind, flow, config, endpoint, output).cancel())

    @app.command("abort")
    def abort_command(
        flow: FlowArgument,
        config: ConfigOption = None,
        endpoint: EndpointOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        """Give up an interrupted or cancelled move: remove its fence. Offsets that it committed stay."""
        with reported_failures():
            run_async(MoveCall.of(kind, flow, config, endpoint, output).abort())

    return app
