"""`twinlog plan` and `twinlog apply`: show the changes that sync a target, and make exactly these."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.cli.common.each_flow import FlowFailure, ask_each, failure_as_json, print_failure
from twinlog.cli.common.failures import EXIT_FAILED, exiting_with, reported_failures, run_async
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.output import Output, OutputOption, print_json
from twinlog.cli.configsync.client import (
    PAGE,
    PASS_TIMEOUT_SECONDS,
    answered,
    chosen_flows,
    configsync_stub,
    parse_flow,
)
from twinlog.cli.configsync.plan_view import (
    count_of,
    is_in_step,
    outcome_as_json,
    plan_as_json,
    print_next_step,
    print_outcome,
    print_plan,
)
from twinlog.errors import ConfigError

_PLAN_HELP = """Show the changes that configsync would make on a target: every action with its rule.

It shows topics, configs, ACLs and quotas, and for new topics whether their copies will have the source's \
offsets. The command changes nothing. `twinlog apply --plan ID` makes exactly these changes, or none if \
the clusters have changed since.

Exit code 0, also if there are changes to make, or if something could not be read: ACLs, quotas, or topics \
and configs, which the plan names. With --check the exit code is 1 in these cases, except for NO_AUTHORIZER: \
such a cluster has no ACLs. Also 1 if the plan of a flow could not be made: the flow is named, with its \
reason, after the plans of the others.
"""

_APPLY_HELP = """Carry out a plan: that of --plan, or a new one, which the command shows and asks about.

Exit code 0 if every change was made, 1 if the target refused a change, or if the clusters changed after \
the plan was made (then make a new plan).
"""

FlowArgument = Annotated[
    str | None, typer.Argument(metavar="[A->B]", help="A flow such as `A->B`; all flows when left out.")
]
ScopeOption = Annotated[
    list[str] | None,
    typer.Option("--scope", help="Only topics, configs, acls or quotas. May be repeated."),
]
SkipsOption = Annotated[bool, typer.Option("--skips", help="Also show what is left out, and by which rule.")]


def plan_command(
    flow: FlowArgument = None,
    scope: ScopeOption = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
    skips: SkipsOption = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with 1 if something is to be changed, or could not be read."),
    ] = False,
) -> None:
    if flow is None:
        planned = run_async(_plans(scope or [], config, endpoint))
    else:
        planned = [run_async(_plan(flow, scope or [], config, endpoint))]
    print_plans(planned, output, skips=skips, check=check)


def print_plans(
    planned: Sequence[pb2.Plan | FlowFailure], output: Output, *, skips: bool, check: bool
) -> None:
    """Exits with 1 when a flow could not be planned, or when `check` finds changes, or a part of a flow that
    could not be read."""
    plans = [each for each in planned if isinstance(each, pb2.Plan)]
    unplanned = [each for each in planned if isinstance(each, FlowFailure)]
    fails = unplanned or (check and not all(map(is_in_step, plans)))
    with exiting_with(EXIT_FAILED if fails else 0):
        if output is Output.JSON:
            print_json(
                [
                    {**failure_as_json(each), "plan_id": None}
                    if isinstance(each, FlowFailure)
                    else plan_as_json(each)
                    for each in planned
                ]
            )
        else:
            for plan in plans:
                print_plan(plan, skips=skips)
                print_next_step(plan)
        for each in unplanned:
            print_failure(each)


def apply_command(
    flow: Annotated[str, typer.Argument(metavar="A->B", help="A flow such as `A->B`.")],
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan", metavar="ID", help="The id of a plan; without it the command makes and shows one."
        ),
    ] = None,
    scope: ScopeOption = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    with reported_failures():
        _require_clear(plan, scope or [], output, yes=yes)
    plan_id = plan or _confirmed_plan(flow, scope or [], config, endpoint, output, yes=yes)
    if plan_id is None:
        return
    outcome = run_async(_apply(flow, plan_id, config, endpoint))
    with exiting_with(EXIT_FAILED if outcome.refused else 0):
        if output is Output.JSON:
            print_json(outcome_as_json(outcome))
        else:
            print_outcome(outcome, shown=plan is None)


def _require_clear(plan: str | None, scopes: list[str], output: Output, *, yes: bool) -> None:
    """Raises ConfigError for options that do not clearly say what to carry out."""
    if plan and scopes:
        raise ConfigError(
            "--scope and --plan exclude each other: a plan already has its scope",
            metadata={"key": "--scope"},
        )
    if output is Output.JSON and not plan and not yes:
        raise ConfigError(
            "-o json cannot ask for confirmation: give --plan ID or --yes", metadata={"key": "--output"}
        )


def _confirmed_plan(
    flow: str,
    scopes: list[str],
    config: Path | None,
    endpoint: list[str] | None,
    output: Output,
    *,
    yes: bool,
) -> str | None:
    """The id of a new plan that the user has confirmed; None when there is nothing to do."""
    plan = run_async(_plan(flow, scopes, config, endpoint))
    with reported_failures():
        if output is Output.TABLE:
            print_plan(plan, skips=False)
        if not plan.change_count:
            if output is Output.JSON:
                print_json(outcome_as_json(pb2.ApplySyncResponse()))
            return None
    if not yes:
        typer.confirm(f"Carry out {count_of(plan.change_count, 'change')}?", abort=True, err=True)
    return plan.plan_id


async def _plans(
    scopes: list[str], config: Path | None, endpoint: list[str] | None
) -> list[pb2.Plan | FlowFailure]:
    async with configsync_stub(config, endpoint) as stub:
        flows = await chosen_flows(stub, None)
        return await ask_each(flows, lambda flow: whole_plan(stub, flow, scopes))


async def _plan(flow: str, scopes: list[str], config: Path | None, endpoint: list[str] | None) -> pb2.Plan:
    async with configsync_stub(config, endpoint) as stub:
        return await whole_plan(stub, parse_flow(flow), scopes)


async def whole_plan(
    stub: ConfigSyncServiceStub, flow: types_pb2.Flow, scopes: Sequence[str], *, page: int = PAGE
) -> pb2.Plan:
    """One plan with all its pages. Raises the service's error."""
    request = pb2.PlanSyncRequest(flow=flow, scopes=scopes, page_size=page)
    answer = await answered(stub.PlanSync(request, timeout=PASS_TIMEOUT_SECONDS))
    plan = answer.plan
    while answer.next_page_token:
        request.page_token = answer.next_page_token
        answer = await answered(stub.PlanSync(request, timeout=PASS_TIMEOUT_SECONDS))
        plan.actions.extend(answer.plan.actions)
    return plan


async def _apply(
    flow: str, plan_id: str, config: Path | None, endpoint: list[str] | None
) -> pb2.ApplySyncResponse:
    async with configsync_stub(config, endpoint) as stub:
        request = pb2.ApplySyncRequest(flow=parse_flow(flow), plan_id=plan_id)
        return await answered(stub.ApplySync(request, timeout=PASS_TIMEOUT_SECONDS))


plan_command.__doc__ = _PLAN_HELP
apply_command.__doc__ = _APPLY_HELP
