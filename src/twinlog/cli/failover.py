"""`twinlog failover plan` and `twinlog failover run`: consumer groups go on at the target."""

from pathlib import Path

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.checkpoint_client import CALL_TIMEOUT_SECONDS, answered, checkpoint_stub
from twinlog.cli.configsync_client import parse_flow
from twinlog.cli.failures import reported_failures, run_async
from twinlog.cli.location import ConfigOption, EndpointOption
from twinlog.cli.moves import (
    RUN_TIMEOUT_SECONDS,
    AcceptLossOption,
    DryRunOption,
    FenceOption,
    GroupsOption,
    IncludeActiveOption,
    WaitOption,
    options_message,
    print_plan,
    print_run,
)
from twinlog.cli.output import Output, OutputOption
from twinlog.cli.source_client import FlowArgument

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Move consumer groups to the target cluster."
)

_PLAN_HELP = """Show what `failover run` would do now: for every group and partition the offset on the \
target, and what has not been copied. Changes nothing.

Exit code 1 when something stands against the move.
"""

_RUN_HELP = """Move the groups of a flow from its source to its target: note where the source's logs end, \
wait until that is copied, commit the translated offsets on the target, read them back.

Stop the groups' consumers on the source first. Every step is recorded on the target: a run that was cut \
goes on when it is started again, a second run changes nothing. With the source gone --accept-loss goes on \
with the last checkpoints and says what is missing. --fence keeps writers out of the source until `twinlog \
failback run`.
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
        print_plan(run_async(_plan(flow, options, config, endpoint)), output)


@app.command("run")
def run_command(
    flow: FlowArgument,
    group: GroupsOption = None,
    fence: FenceOption = False,
    include_active: IncludeActiveOption = False,
    accept_loss: AcceptLossOption = False,
    wait: WaitOption = 300.0,
    dry_run: DryRunOption = False,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    with reported_failures():
        options = options_message(
            group, fence=fence, include_active=include_active, accept_loss=accept_loss, wait_seconds=wait
        )
        if dry_run:
            print_plan(run_async(_plan(flow, options, config, endpoint)), output)
        else:
            run_async(_run(flow, options, config, endpoint, output))


plan_command.__doc__ = _PLAN_HELP
run_command.__doc__ = _RUN_HELP


async def _plan(
    flow: str, options: pb2.MoveOptions, config: Path | None, endpoint: list[str] | None
) -> pb2.MovePlan:
    async with checkpoint_stub(config, endpoint) as stub:
        request = pb2.PlanFailoverRequest(flow=parse_flow(flow), options=options)
        return (await answered(stub.PlanFailover(request, timeout=CALL_TIMEOUT_SECONDS))).plan


async def _run(
    flow: str, options: pb2.MoveOptions, config: Path | None, endpoint: list[str] | None, output: Output
) -> None:
    async with checkpoint_stub(config, endpoint) as stub:
        request = pb2.RunFailoverRequest(flow=parse_flow(flow), options=options)
        await print_run(stub.RunFailover(request, timeout=RUN_TIMEOUT_SECONDS), output)
