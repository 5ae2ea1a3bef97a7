"""`twinlog failback plan` and `twinlog failback run`: consumer groups go back to the source."""

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
    no_args_is_help=True, add_completion=False, help="Move consumer groups back to the source cluster."
)

_PLAN_HELP = """Show what `failback run` would do now: for every group and partition the offset back on \
the source. Changes nothing.

Exit code 1 when something stands against the move.
"""

_RUN_HELP = """Move the groups of a flow back from its target to its source: their progress on the copies \
becomes progress on the originals, record by record; progress on the target's own topics becomes progress \
on their copies, when the file has the flow in the other direction.

Stop the groups' consumers on the target first. Steps are recorded as by `twinlog failover run`; a fence \
that it left is taken away.
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
        request = pb2.PlanFailbackRequest(flow=parse_flow(flow), options=options)
        return (await answered(stub.PlanFailback(request, timeout=CALL_TIMEOUT_SECONDS))).plan


async def _run(
    flow: str, options: pb2.MoveOptions, config: Path | None, endpoint: list[str] | None, output: Output
) -> None:
    async with checkpoint_stub(config, endpoint) as stub:
        request = pb2.RunFailbackRequest(flow=parse_flow(flow), options=options)
        await print_run(stub.RunFailback(request, timeout=RUN_TIMEOUT_SECONDS), output)
