"""`twinlog plan` and `twinlog apply`: show the changes that sync a target, and make exactly these."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.failures import EXIT_FAILED, exiting_with, require_terminal
from twinlog.cli.common.fields import Field, Fields, as_json, print_json, table
from twinlog.cli.common.names import counted, flow_name, parse_flow
from twinlog.cli.common.options import (
    FailedFlow,
    argument,
    ask_each,
    failure_as_json,
    flag,
    option,
    telling_failures,
)
from twinlog.cli.common.pasteable import pasteable, say
from twinlog.cli.configsync.topics import chosen_flows
from twinlog.errors import ConfigError
from twinlog.policy.expected_offsets import fill_words
from twinlog.printable import printable

# Plans as a coloured diff on a terminal, and as JSON.

_SKIP: Final = pb2.ACTION_KIND_SKIP
_ADDS = (pb2.ACTION_KIND_CREATE_TOPIC, pb2.ACTION_KIND_GROW_PARTITIONS, pb2.ACTION_KIND_CREATE_ACL)
_REMOVES = (pb2.ACTION_KIND_DELETE_TOPIC, pb2.ACTION_KIND_DELETE_ACL, pb2.ACTION_KIND_DELETE_QUOTA)
_SIGNS: Final = {
    **dict.fromkeys(_ADDS, ("+", typer.colors.GREEN)),
    **dict.fromkeys(_REMOVES, ("-", typer.colors.RED)),
}
_NOTHING_TO_READ: Final = "NO_AUTHORIZER"
"""The reason of a part that a cluster does not have."""


def is_in_step(plan: pb2.Plan) -> bool:
    """Whether every part was read, as far as the clusters have it, and there is nothing to change."""
    return not plan.change_count and all(problem.reason == _NOTHING_TO_READ for problem in plan.problems)


def print_plan(plan: pb2.Plan, *, skips: bool) -> None:
    """A heading, one line per action (`+` adds, `-` removes, `~` changes), and the blockers."""
    typer.secho(
        f"{flow_name(plan.flow)}: {counted(plan.change_count, 'change')} in {', '.join(plan.scopes)}",
        bold=True,
    )
    for sentence in plan.rules:
        say(printable(f"  ! {sentence}"), fg=typer.colors.YELLOW)
    for action in plan.actions:
        if action.kind != _SKIP or skips:
            _print_action(action)
    for problem in plan.problems:
        say(f"  ! {problem.scope}: {problem.message} ({problem.reason})", fg=typer.colors.YELLOW)
    left_out = sum(action.kind == _SKIP for action in plan.actions)
    if left_out and not skips:
        things = counted(left_out, "thing")
        command = f"twinlog plan '{flow_name(plan.flow)}' --skips"
        say(f"  {things} left out on purpose: `{command}` shows them", dim=True)


def print_next_step(plan: pb2.Plan) -> None:
    """The command that carries the plan out, if there is something to do."""
    if plan.change_count:
        command = f"twinlog apply '{flow_name(plan.flow)}' --plan {plan.plan_id}"
        typer.echo(f"  {pasteable(command)}")


def print_outcome(outcome: pb2.ApplySyncResponse, *, shown: bool) -> None:
    """What was done, unless its plan was `shown` before; what was refused, with the reason; and the
    counts."""
    for action in () if shown else outcome.applied:
        _print_action(action)
    for refused in outcome.refused:
        typer.secho(
            f"  ! {refused.action.text}\n    refused: {refused.message} ({refused.reason})",
            fg=typer.colors.RED,
        )
    typer.echo(f"{len(outcome.applied)} done, {len(outcome.refused)} refused")
    if outcome.applied:
        say("undo: none; the target follows the source and the rules (`twinlog rules`): change them instead")


EXPECTED: Fields[pb2.ExpectedOffsets] = table(
    Field("kind", lambda offsets: "preserved" if offsets.preserved else "translated"),
    "reason message filled_offsets filled_bytes",
)
_ACTION: Fields[pb2.PlannedAction] = table(
    Field(
        "offsets", lambda action: as_json(EXPECTED, action.offsets) if action.HasField("offsets") else None
    ),
    "kind scope source_topic target_topic name entity before after configs acl rule drift text",
    "refused_reason refused_message",
)
_ALWAYS = frozenset({"before", "after", "rule", "text", "drift"})
PLAN: Fields[pb2.Plan] = table(
    "flow plan_id scopes change_count",
    Field("actions", lambda plan: [*map(action_as_json, plan.actions)]),
    Field("problems", lambda plan: [as_json(_PROBLEM, each) for each in plan.problems]),
    "rules",
)
_PROBLEM: Fields[pb2.ScopeStatus] = table("scope reason message")
OUTCOME: Fields[pb2.ApplySyncResponse] = (
    Field("applied", lambda outcome: [*map(action_as_json, outcome.applied)]),
    Field("refused", lambda outcome: [as_json(_REFUSED, each) for each in outcome.refused]),
)
_REFUSED: Fields[pb2.RefusedAction] = table(
    Field("action", lambda refused: action_as_json(refused.action)), "reason message"
)


def action_as_json(action: pb2.PlannedAction) -> dict[str, Any]:
    """Only the fields that the action has."""
    fields = as_json(_ACTION, action)
    return {name: value for name, value in fields.items() if value or (name in _ALWAYS and value is not None)}


def offsets_words(offsets: pb2.ExpectedOffsets) -> str:
    """The expected offsets of a copy, in one line."""
    if not offsets.preserved:
        return f"translated: {offsets.message} ({offsets.reason})"
    if not offsets.filled_offsets:
        return "preserved"
    are = "is" if offsets.filled_offsets == 1 else "are"
    return (
        f"preserved; {counted(offsets.filled_offsets, 'offset')} before the first records {are}"
        f" filled, {fill_words(offsets.filled_bytes)} on each replica until Kafka deletes them"
    )


def _print_action(action: pb2.PlannedAction) -> None:
    if action.kind == _SKIP:
        say(f"    {action.text}", dim=True)
        return
    sign, colour = _SIGNS.get(action.kind, ("~", typer.colors.YELLOW))
    say(f"  {sign} {action.text}{' (drift)' if action.drift else ''}", fg=colour)
    if action.HasField("offsets"):
        typer.secho(f"      {offsets_words(action.offsets)}", dim=True)
    if action.refused_reason:
        told = f"{action.refused_message} ({action.refused_reason})"
        say(f"      the target refused it when it was last tried: {told}", fg=typer.colors.RED)


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

    async def plans(at: Services) -> list[pb2.Plan | FailedFlow]:
        if flow is not None:
            return [await _planned(at, parse_flow(flow), scope or [])]
        flows = await chosen_flows(at.configsync, None)
        return await ask_each(flows, lambda each: _planned(at, each, scope or []))

    print_plans(call.ask(plans), call, skips=skips, check=check)


def print_plans(planned: Sequence[pb2.Plan | FailedFlow], call: Call, *, skips: bool, check: bool) -> None:
    """Exits with 1 when a flow could not be planned, or when `check` finds changes, or a part of a flow that
    could not be read."""
    plans = [each for each in planned if isinstance(each, pb2.Plan)]

    def text() -> None:
        for plan in plans:
            print_plan(plan, skips=skips)
            print_next_step(plan)

    documents = [
        {**failure_as_json(each), "plan_id": None} if isinstance(each, FailedFlow) else as_json(PLAN, each)
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
    if not plan and not yes:
        require_terminal()


def _confirmed_plan(call: Call, flow: str, scopes: list[str], *, yes: bool) -> str | None:
    """The id of a new plan that the user has confirmed; None when there is nothing to do."""
    plan = call.ask(lambda at: _planned(at, parse_flow(flow), scopes))
    if not call.in_json:
        print_plan(plan, skips=False)
    if not plan.change_count:
        if call.in_json:
            print_json(as_json(OUTCOME, pb2.ApplySyncResponse()))
        return None
    if not yes:
        typer.confirm(f"Carry out {counted(plan.change_count, 'change')}?", abort=True, err=True)
    return plan.plan_id


async def _planned(at: Services, flow: types_pb2.Flow, scopes: Sequence[str]) -> pb2.Plan:
    return (await at.configsync.PlanSync(pb2.PlanSyncRequest(flow=flow, scopes=scopes))).plan
