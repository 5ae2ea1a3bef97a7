"""Plans as a coloured diff on a terminal, and as JSON."""

from typing import Any, Final

import typer

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.pasteable import pasteable, say
from twinlog.cli.configsync.client import flow_name
from twinlog.policy.offsets_rule import fill_words
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


def plan_as_json(plan: pb2.Plan) -> dict[str, Any]:
    return {
        "flow": flow_name(plan.flow),
        "plan_id": plan.plan_id,
        "scopes": list(plan.scopes),
        "change_count": plan.change_count,
        "actions": [action_as_json(action) for action in plan.actions],
        "problems": [
            {"scope": problem.scope, "reason": problem.reason, "message": problem.message}
            for problem in plan.problems
        ],
        "rules": list(plan.rules),
    }


def outcome_as_json(outcome: pb2.ApplySyncResponse) -> dict[str, Any]:
    return {
        "applied": [action_as_json(action) for action in outcome.applied],
        "refused": [
            {"action": action_as_json(refused.action), "reason": refused.reason, "message": refused.message}
            for refused in outcome.refused
        ],
    }


def action_as_json(action: pb2.PlannedAction) -> dict[str, Any]:
    """Only the fields that the action has."""
    fields: dict[str, Any] = {
        "offsets": offsets_as_json(action.offsets) if action.HasField("offsets") else None,
        "kind": pb2.ActionKind.Name(action.kind).removeprefix("ACTION_KIND_"),
        "scope": action.scope,
        "source_topic": action.source_topic,
        "target_topic": action.target_topic,
        "name": action.name,
        "entity": action.entity,
        "before": action.before if action.HasField("before") else None,
        "after": action.after if action.HasField("after") else None,
        "configs": dict(action.configs),
        "acl": acl_as_json(action.acl) if action.HasField("acl") else None,
        "rule": action.rule,
        "drift": action.drift,
        "text": action.text,
    }
    always = {"before", "after", "rule", "text", "drift"}
    return {name: value for name, value in fields.items() if value or (name in always and value is not None)}


def offsets_as_json(offsets: pb2.ExpectedOffsets) -> dict[str, Any]:
    return {
        "kind": "preserved" if offsets.preserved else "translated",
        "reason": offsets.reason,
        "message": offsets.message,
        "filled_offsets": offsets.filled_offsets,
        "filled_bytes": offsets.filled_bytes,
    }


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


def acl_as_json(binding: pb2.AclBinding) -> dict[str, str]:
    return {descriptor.name: value for descriptor, value in binding.ListFields()}


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
