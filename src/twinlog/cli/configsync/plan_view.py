"""Plans as a coloured diff on a terminal, and as JSON."""

from typing import Any, Final

import typer

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.fields import Field, Fields, as_json, table
from twinlog.cli.common.names import flow_name
from twinlog.cli.common.pasteable import pasteable, say
from twinlog.policy.expected_offsets import fill_words
from twinlog.printable import printable

_SKIP: Final = pb2.ACTION_KIND_SKIP
_ADDS: Final = frozenset(
    {pb2.ACTION_KIND_CREATE_TOPIC, pb2.ACTION_KIND_GROW_PARTITIONS, pb2.ACTION_KIND_CREATE_ACL}
)
_REMOVES: Final = frozenset(
    {pb2.ACTION_KIND_DELETE_TOPIC, pb2.ACTION_KIND_DELETE_ACL, pb2.ACTION_KIND_DELETE_QUOTA}
)
_NOTHING_TO_READ: Final = "NO_AUTHORIZER"
"""The reason of a part that a cluster does not have."""


def is_in_step(plan: pb2.Plan) -> bool:
    """Whether every part was read, as far as the clusters have it, and there is nothing to change."""
    return not plan.change_count and all(problem.reason == _NOTHING_TO_READ for problem in plan.problems)


def print_plan(plan: pb2.Plan, *, skips: bool) -> None:
    """A heading, one line per action (`+` adds, `-` removes, `~` changes), and the blockers."""
    typer.secho(
        f"{flow_name(plan.flow)}: {count_of(plan.change_count, 'change')} in {', '.join(plan.scopes)}",
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
        things = count_of(left_out, "thing")
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
        return f"offsets of its own: {offsets.message} ({offsets.reason})"
    if not offsets.filled_offsets:
        return "the source's offsets"
    are = "is" if offsets.filled_offsets == 1 else "are"
    return (
        f"the source's offsets; {count_of(offsets.filled_offsets, 'offset')} before the first records {are}"
        f" filled, {fill_words(offsets.filled_bytes)} on each replica until Kafka deletes them"
    )


def _print_action(action: pb2.PlannedAction) -> None:
    if action.kind == _SKIP:
        say(f"    {action.text}", dim=True)
        return
    if action.kind in _ADDS:
        sign, colour = "+", typer.colors.GREEN
    elif action.kind in _REMOVES:
        sign, colour = "-", typer.colors.RED
    else:
        sign, colour = "~", typer.colors.YELLOW
    say(f"  {sign} {action.text}{' (drift)' if action.drift else ''}", fg=colour)
    if action.HasField("offsets"):
        typer.secho(f"      {offsets_words(action.offsets)}", dim=True)


def count_of(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
