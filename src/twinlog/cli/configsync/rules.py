"""`twinlog rules`: show and change the rules of a flow while it runs."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.numbers import MOST_OFFSET
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.common.pasteable import say
from twinlog.cli.common.undo import print_undo, undo_command
from twinlog.cli.configsync.client import (
    PASS_TIMEOUT_SECONDS,
    answered,
    chosen_flows,
    configsync_stub,
    flow_name,
    parse_flow,
)
from twinlog.cli.source.client import who
from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.printable import printable
from twinlog.service.feeds.rules_record import RuleOrigin, rule_words

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show and change the rules of a flow while it runs: topics, groups, intervals, what is synced."
    " A rule is a key of the properties file; changes are stored on the target and win over the file, in all"
    " services.",
)

FlowArgument = Annotated[str, typer.Argument(metavar="A->B", help="A flow such as `A->B`.")]
FlowsArgument = Annotated[
    str | None, typer.Argument(metavar="[A->B]", help="A flow such as `A->B`; all flows when left out.")
]
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="A key of the properties file, such as topics.exclude.")
]
VersionOption = Annotated[
    int | None,
    typer.Option(
        "--version",
        min=0,
        max=MOST_OFFSET,
        help="Change nothing if the rules have another version meanwhile.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only check; change nothing.")]

_COLUMNS = (Column(title="key"), Column(title="value"), Column(title="in the file"))
_DIFF_COLUMNS = (Column(title="flow"), Column(title="key"), Column(title="file"), Column(title="now"))


@app.command("get")
def get_command(
    flow: FlowsArgument = None,
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="Only this key.")] = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the rules in effect, and the value of the file if it differs; with KEY also what the key means."""
    all_rules = run_async(_get(flow, config, endpoint))
    with reported_failures():
        for rules in all_rules:
            _require_known(rules, key)
        if output is Output.JSON:
            print_json([_as_json(rules, key) for rules in all_rules])
            return
        for rules in all_rules:
            chosen = [rule for rule in rules.rules if key in (None, rule.key)]
            print_table(_title(rules), _COLUMNS, [_cells(rule) for rule in chosen])
            for sentence in told_of_rules(rules.flow, chosen):
                say(printable(sentence))
            if key is not None:
                for rule in chosen:
                    typer.echo(rule.meaning)


@app.command("diff")
def diff_command(
    flow: FlowsArgument = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what differs from the properties file, and which rules were put aside because it has changed."""
    all_rules = run_async(_get(flow, config, endpoint))
    changed = [(rules, rule) for rules in all_rules for rule in rules.rules if is_of_operator(rule)]
    with reported_failures():
        if output is Output.JSON:
            print_json(
                [
                    {
                        "flow": flow_name(rules.flow),
                        "key": rule.key,
                        "file": rule.file_value,
                        "now": rule.value,
                    }
                    | ({"put_aside": rule.put_aside} if rule.HasField("put_aside") else {})
                    for rules, rule in changed
                ]
            )
        elif changed:
            rows = [[flow_name(rules.flow), rule.key, rule.file_value, rule.value] for rules, rule in changed]
            print_table("", _DIFF_COLUMNS, rows)
            for rules, rule in changed:
                for sentence in told_of_rules(rules.flow, [rule]):
                    say(printable(sentence))
        else:
            typer.echo("every flow follows its file")


ValueArgument = Annotated[str, typer.Argument(metavar="VALUE", help="The value, as in the properties file.")]
NewElementArgument = Annotated[str, typer.Argument(metavar="ELEMENT", help="A name or a regular expression.")]
ElementArgument = Annotated[str, typer.Argument(metavar="ELEMENT", help="The element, as it is in the list.")]


def _add_command(name: str, operation: pb2.RuleOperation.ValueType, value_argument: Any, what: str) -> None:
    """A command that changes a rule by one value."""

    @app.command(name, help=what)
    def command(
        flow: FlowArgument,
        key: KeyArgument,
        value: value_argument,
        version: VersionOption = None,
        dry_run: DryRunOption = False,
        config: ConfigOption = None,
        endpoint: EndpointOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        change = pb2.RuleChange(key=key, operation=operation, value=value)
        _change(flow, change, version, dry_run, config, endpoint, output)


_add_command("set", pb2.RULE_OPERATION_SET, ValueArgument, "Replace the value of a rule.")
_add_command(
    "add",
    pb2.RULE_OPERATION_ADD,
    NewElementArgument,
    "Add an element to a list, such as a pattern to topics.",
)
_add_command("remove", pb2.RULE_OPERATION_REMOVE, ElementArgument, "Remove an element from a list.")


def _add_plain_command(name: str, operation: pb2.RuleOperation.ValueType, what: str) -> None:
    """A command that changes a rule without a value."""

    @app.command(name, help=what)
    def command(
        flow: FlowArgument,
        key: KeyArgument,
        version: VersionOption = None,
        dry_run: DryRunOption = False,
        config: ConfigOption = None,
        endpoint: EndpointOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        change = pb2.RuleChange(key=key, operation=operation)
        _change(flow, change, version, dry_run, config, endpoint, output)


_add_plain_command(
    "reset",
    pb2.RULE_OPERATION_RESET,
    "Restore the value of the properties file. Also drops a rule that was put aside.",
)
_add_plain_command(
    "restore",
    pb2.RULE_OPERATION_RESTORE,
    "Put a rule in effect again that was put aside because the properties file has changed since.",
)


def _change(
    flow: str,
    change: pb2.RuleChange,
    version: int | None,
    dry_run: bool,
    config: Path | None,
    endpoint: list[str] | None,
    output: Output,
) -> None:
    before, rules = run_async(_update(flow, change, version, dry_run, config, endpoint))
    undo = [] if dry_run else undo_of_change(before, rules, change.key)
    with reported_failures():
        if output is Output.JSON:
            print_json({**_as_json(rules, change.key), "undo": undo})
            return
        chosen = [rule for rule in rules.rules if rule.key == change.key]
        print_table(_title(rules), _COLUMNS, [_cells(rule) for rule in chosen])
        if dry_run:
            typer.echo("nothing was changed (--dry-run)")
        print_undo(undo)


def undo_of_change(before: pb2.Rules, after: pb2.Rules, key: str) -> list[str]:
    """The command that restores the previous value; nothing if it is the same."""
    flow = flow_name(after.flow)
    was = next((rule for rule in before.rules if rule.key == key), None)
    now = next((rule for rule in after.rules if rule.key == key), None)
    if was is None or now is None or (was.value, was.changed) == (now.value, now.changed):
        return []  # Nothing brings a rule back that was put aside, and then dropped.
    if not was.changed:
        return [undo_command("rules", "reset", flow, key)]
    return [undo_command("rules", "set", flow, key, was.value)]


def is_of_operator(rule: pb2.Rule) -> bool:
    """Whether somebody set it while the flow ran: it is in effect, or put aside."""
    return rule.changed or rule.HasField("put_aside")


def told_of_rules(flow: types_pb2.Flow, rules: Iterable[pb2.Rule]) -> list[str]:
    """Each rule that is not the file's, as a sentence with the commands that end this."""
    return [
        rule_words(
            Flow(flow.source, flow.target),
            rule.key,
            value=rule.value if rule.changed else rule.put_aside,
            file_value=rule.file_value,
            origin=RuleOrigin(
                by=rule.changed_by,
                at_ms=rule.changed_at.ToMilliseconds() if rule.HasField("changed_at") else 0,
                replaced=rule.replaced if rule.HasField("replaced") else None,
            ),
            is_aside=not rule.changed,
        )
        for rule in rules
        if is_of_operator(rule)
    ]


def _require_known(rules: pb2.Rules, key: str | None) -> None:
    """Raises ConfigError for a key that is no rule."""
    known = [rule.key for rule in rules.rules]
    if key is None or key in known:
        return
    nearest = get_close_matches(key, known, n=1)
    meant = f" (did you mean {nearest[0]}?)" if nearest else ""
    raise ConfigError(
        f"{key}: is not a rule that can be changed while a flow runs{meant}; `twinlog rules get` lists them",
        metadata={"key": key},
    )


async def _get(flow: str | None, config: Path | None, endpoint: list[str] | None) -> list[pb2.Rules]:
    async with configsync_stub(config, endpoint) as stub:
        found: list[pb2.Rules] = []
        for each in await chosen_flows(stub, flow):
            answer = await answered(stub.GetRules(pb2.GetRulesRequest(flow=each), timeout=5.0))
            found.append(answer.rules)
        return found


async def _update(
    flow: str,
    change: pb2.RuleChange,
    version: int | None,
    dry_run: bool,
    config: Path | None,
    endpoint: list[str] | None,
) -> tuple[pb2.Rules, pb2.Rules]:
    """The rules before and after."""
    async with configsync_stub(config, endpoint) as stub:
        asked = pb2.GetRulesRequest(flow=parse_flow(flow))
        before = (await answered(stub.GetRules(asked, timeout=5.0))).rules
        request = pb2.UpdateRulesRequest(
            flow=parse_flow(flow), changes=[change], expected_version=version, dry_run=dry_run, by=who()
        )
        return before, (await answered(stub.UpdateRules(request, timeout=PASS_TIMEOUT_SECONDS))).rules


def _title(rules: pb2.Rules) -> str:
    title = f"{flow_name(rules.flow)}, version {rules.version}"
    return f"{title}: {rules.problem}" if rules.problem else title


def _cells(rule: pb2.Rule) -> list[str]:
    return [rule.key, rule.value, rule.file_value if rule.changed else ""]


def _as_json(rules: pb2.Rules, key: str | None) -> dict[str, Any]:
    return {
        "flow": flow_name(rules.flow),
        "version": rules.version,
        "problem": rules.problem,
        "rules": [
            {
                "key": rule.key,
                "value": rule.value,
                "file": rule.file_value,
                "changed": rule.changed,
                "changed_by": rule.changed_by or None,
                "changed_at": rule.changed_at.ToJsonString() if rule.HasField("changed_at") else None,
                "put_aside": rule.put_aside if rule.HasField("put_aside") else None,
            }
            for rule in rules.rules
            if key in (None, rule.key)
        ],
    }
