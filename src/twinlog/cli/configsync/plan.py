"""`twinlog plan` and `twinlog apply`: show the changes that sync a target, and make exactly these."""

from collections.abc import Sequence
from typing import Annotated

import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.cli.common.call import PAGE, Call, Services, command
from twinlog.cli.common.failures import EXIT_FAILED, exiting_with
from twinlog.cli.common.fields import as_json
from twinlog.cli.common.names import parse_flow
from twinlog.cli.common.options import (
    FlowFailure,
    argument,
    ask_each,
    failure_as_json,
    flag,
    option,
    telling_failures,
)
from twinlog.cli.common.output import print_json
from twinlog.cli.configsync.client import chosen_flows
from twinlog.cli.configsync.plan_view import (
    OUTCOME,
    PLAN,
    count_of,
    is_in_step,
    print_next_step,
    print_outcome,
    print_plan,
)
from twinlog.errors import ConfigError
from twinlog.service.feeds.pages import every

FlowArgument = Annotated[str | None, argument("[A->B]", "A flow such as `A->B`; all flows when left out.")]
ScopeOption = Annotated[
    list[str] | None, option("--scope SCOPE", "Only topics, configs, acls or quotas. May be repeated.")
]
SkipsOption = Annotated[bool, option("--skips", "Also show what is left out, and by which rule.")]


@command
def plan_command(
    call: Call,
    flow: FlowArgument = None,
    scope: ScopeOption = None,
    skips: SkipsOption = False,
    check: bool = flag("--check", "Exit with 1 if something is to be changed, or could not be read."),
) -> None:
    """Show the changes that configsync would make on a target: every action with its rule.

    It shows topics, configs, ACLs and quotas, and for new topics whether their copies will have the source's
    offsets. The command changes nothing. `twinlog apply --plan ID` makes exactly these changes, or none if
    the clusters have changed since.

    Exit code 0, also if there are changes to make, or if something could not be read: ACLs, quotas, or
    topics and configs, which the plan names. With --check the exit code is 1 in these cases, except for
    NO_AUTHORIZER: such a cluster has no ACLs. Also 1 if the plan of a flow could not be made: the flow is
    named, with its reason, after the plans of the others.
    """

    async def plans(at: Services) -> list[pb2.Plan | FlowFailure]:
        if flow is not None:
            return [await whole_plan(at.configsync, parse_flow(flow), scope or [])]
        flows = await chosen_flows(at.configsync, None)
        return await ask_each(flows, lambda each: whole_plan(at.configsync, each, scope or []))

    print_plans(call.ask(plans), call, skips=skips, check=check)


def print_plans(planned: Sequence[pb2.Plan | FlowFailure], call: Call, *, skips: bool, check: bool) -> None:
    """Exits with 1 when a flow could not be planned, or when `check` finds changes, or a part of a flow that
    could not be read."""
    plans = [each for each in planned if isinstance(each, pb2.Plan)]

    def text() -> None:
        for plan in plans:
            print_plan(plan, skips=skips)
            print_next_step(plan)

    documents = [
        {**failure_as_json(each), "plan_id": None} if isinstance(each, FlowFailure) else as_json(PLAN, each)
        for each in planned
    ]
    fails = check and not all(map(is_in_step, plans))
    with exiting_with(EXIT_FAILED if fails else 0), telling_failures(planned):
        call.tell(documents, text)


@command
def apply_command(
    call: Call,
    flow: str = argument("A->B", "A flow such as `A->B`."),
    plan: str | None = option(
        "--plan ID", "The id of a plan; without it the command makes and shows one.", None
    ),
    scope: ScopeOption = None,
    yes: bool = flag("--yes -y", "Do not ask."),
) -> None:
    """Carry out a plan: that of --plan, or a new one, which the command shows and asks about.

    Exit code 0 if every change was made, 1 if the target refused a change, or if the clusters changed after
    the plan was made (then make a new plan).
    """
    _require_clear(plan, scope or [], call, yes=yes)
    plan_id = plan or _confirmed_plan(call, flow, scope or [], yes=yes)
    if plan_id is None:
        return
    request = pb2.ApplySyncRequest(flow=parse_flow(flow), plan_id=plan_id)
    outcome = call.ask(lambda at: at.configsync.ApplySync(request))
    call.tell(
        as_json(OUTCOME, outcome),
        lambda: print_outcome(outcome, shown=plan is None),
        fails=bool(outcome.refused),
    )


def _require_clear(plan: str | None, scopes: list[str], call: Call, *, yes: bool) -> None:
    """Raises ConfigError for options that do not clearly say what to carry out."""
    if plan and scopes:
        raise ConfigError(
            "--scope and --plan exclude each other: a plan already has its scope", key="--scope"
        )
    if call.in_json and not plan and not yes:
        raise ConfigError("-o json cannot ask for confirmation: give --plan ID or --yes", key="--output")


def _confirmed_plan(call: Call, flow: str, scopes: list[str], *, yes: bool) -> str | None:
    """The id of a new plan that the user has confirmed; None when there is nothing to do."""
    plan = call.ask(lambda at: whole_plan(at.configsync, parse_flow(flow), scopes))
    if not call.in_json:
        print_plan(plan, skips=False)
    if not plan.change_count:
        if call.in_json:
            print_json(as_json(OUTCOME, pb2.ApplySyncResponse()))
        return None
    if not yes:
        typer.confirm(f"Carry out {count_of(plan.change_count, 'change')}?", abort=True, err=True)
    return plan.plan_id


async def whole_plan(
    stub: ConfigSyncServiceStub, flow: types_pb2.Flow, scopes: Sequence[str], *, page: int = PAGE
) -> pb2.Plan:
    """One plan with all its pages. Raises the service's error."""
    request = pb2.PlanSyncRequest(flow=flow, scopes=scopes, page_size=page)
    return (await every(stub.PlanSync, request, "plan.actions")).plan
