"""`twinlog failover`: consumer groups continue on the target."""

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

_KIND = "failover"

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Move consumer groups to the target cluster."
)

_PLAN_HELP = """Show what `failover run` would do now: for every group and partition the offset on the \
target, and what has not been copied. Changes nothing.

Exit code 1 when something blocks the move.
"""

_RUN_HELP = """Move the groups of a flow from its source to its target: note where the source's logs end, \
wait until that is copied, commit the translated offsets on the target, read them back.

Stop the groups' consumers on the source first. In a terminal the command shows the plan and asks before it \
changes anything. The move runs in the service: Ctrl-C ends the command, not the move. Every step is \
recorded on the target: start an interrupted run again to continue it. If the source is lost, --accept-loss \
uses the last checkpoints and says what is missing. --fence keeps writers out of the source until `twinlog \
failback run`.

Exit code 0 means that the source may be switched off: no group asked for was kept back by its members, each \
of their offsets on a copied topic has its place on the target, and all that the source held when the final \
offsets were taken is copied. --accept-loss accepts what is missing. Exit code 1 otherwise.
"""


@app.command("plan")
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
        run_async(MoveCall.of(_KIND, flow, config, endpoint, output).plan(options))


@app.command("run")
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
        call = MoveCall.of(_KIND, flow, config, endpoint, output)
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
        run_async(MoveCall.of(_KIND, flow, config, endpoint, output).status())


@app.command("attach")
def attach_command(
    flow: FlowArgument,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Follow a move that is under way, as `run` does. Ctrl-C stops following, not the move."""
    with reported_failures():
        run_async(MoveCall.of(_KIND, flow, config, endpoint, output).attach())


@app.command("cancel")
def cancel_command(
    flow: FlowArgument,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop a move that is under way. What it did stays, a fence as well; `run` continues it."""
    with reported_failures():
        run_async(MoveCall.of(_KIND, flow, config, endpoint, output).cancel())


@app.command("abort")
def abort_command(
    flow: FlowArgument,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give up an interrupted or cancelled move: remove its fence. Offsets that it committed stay."""
    with reported_failures():
        run_async(MoveCall.of(_KIND, flow, config, endpoint, output).abort())


plan_command.__doc__ = _PLAN_HELP
run_command.__doc__ = _RUN_HELP
