"""`twinlog rules`: show and change the rules of a flow while it runs."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from twinlog.api.checkpoint.v1.checkpoint_service_pb2 import ListGroupsRequest
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.failures import note
from twinlog.cli.common.fields import Field, Fields, as_json, print_rows, table
from twinlog.cli.common.names import MOST_OFFSET, counted, flow_name, parse_flow, who
from twinlog.cli.common.options import argument, group, option, together
from twinlog.cli.common.pasteable import print_undo, say, undo_command
from twinlog.cli.configsync.topics import chosen_flows
from twinlog.errors import ConfigError, TwinlogError
from twinlog.filters import NameFilter, PatternList, split_list
from twinlog.model import Flow
from twinlog.printable import listed, printable
from twinlog.service.feeds.rules_record import RuleOrigin, rule_words

app = group(
    "Show and change the rules of a flow while it runs: topics, groups, intervals, what is synced."
    " A rule is a key of the properties file; changes are stored on the target and win over the file in all"
    " services, until its value changes.",
)

FlowArgument = Annotated[str, argument("A->B", "A flow such as `A->B`.")]
FlowsArgument = Annotated[str | None, argument("[A->B]", "A flow such as `A->B`; all flows when left out.")]
KeyArgument = Annotated[str, argument("KEY", "A key of the properties file, such as topics.exclude.")]
VersionOption = Annotated[
    int | None,
    option(
        "--version N", "Change nothing if the rules have another version meanwhile.", min=0, max=MOST_OFFSET
    ),
]
YesOption = Annotated[bool, option("--yes -y", "Do not ask, on a terminal, where a change stops something.")]
DryRunOption = Annotated[bool, option("--dry-run", "Only check; change nothing.")]

_GROUPS, _NO_GROUPS = "groups", "groups.exclude"
_GROUPS_SECONDS = 10.0
"""For their names: a change does not wait for a checkpoint service that hangs."""


@dataclass(frozen=True, slots=True)
class _Difference:
    flow: types_pb2.Flow
    rule: pb2.Rule


RULE: Fields[pb2.Rule] = table(
    "key|key value|value",
    Field("file", "file_value", "in the file", lambda rule: rule.file_value if rule.changed else ""),
    "changed changed_by? changed_at put_aside",
)
_DIFFERENCE: Fields[_Difference] = table(
    "flow|flow key=rule.key|key file=rule.file_value|file now=rule.value|now"
)


@app.command("get")
@command
def get_command(
    call: Call,
    flow: FlowsArgument = None,
    key: str | None = argument("KEY", "Only this key.", None),
) -> None:
    """Show the rules in effect, and the value of the file if it differs; with KEY also what the key means."""
    all_rules = call.ask(lambda at: _rules(at, flow))
    for rules in all_rules:
        _require_known(rules, key)

    def text() -> None:
        for rules in all_rules:
            chosen = [rule for rule in rules.rules if key in (None, rule.key)]
            print_rows(RULE, chosen, title=_title(rules))
            for sentence in told_of_rules(rules.flow, chosen):
                say(printable(sentence))
            if key is not None:
                for rule in chosen:
                    typer.echo(rule.meaning)

    call.tell([_as_json(rules, key) for rules in all_rules], text)


@app.command("diff")
@command
def diff_command(
    call: Call,
    flow: FlowsArgument = None,
) -> None:
    """Show what differs from the properties file, and which rules were put aside because it has changed."""
    changed = [
        _Difference(rules.flow, rule)
        for rules in call.ask(lambda at: _rules(at, flow))
        for rule in rules.rules
        if is_of_operator(rule)
    ]

    def text() -> None:
        print_rows(_DIFFERENCE, changed, empty="every flow follows its file")
        for each in changed:
            for sentence in told_of_rules(each.flow, [each.rule]):
                say(printable(sentence))

    documents = [
        as_json(_DIFFERENCE, each)
        | ({"put_aside": each.rule.put_aside} if each.rule.HasField("put_aside") else {})
        for each in changed
    ]
    call.tell(documents, text)


def _add_command(
    name: str, operation: pb2.RuleOperation.ValueType, what: str, shown: str = "", meaning: str = ""
) -> None:
    """A command that changes a rule, by a value if that is `shown`."""

    def with_value(value: str = argument(shown, meaning)) -> str:
        return value

    def without() -> str:
        return ""

    @app.command(name, help=what)
    @command
    def change(
        call: Call,
        flow: FlowArgument,
        key: KeyArgument,
        value: str = together(with_value if shown else without),
        version: VersionOption = None,
        dry_run: DryRunOption = False,
        yes: YesOption = False,
    ) -> None:
        rule = pb2.RuleChange(key=key, operation=operation, value=value)
        _change(call, flow, rule, version, dry_run=dry_run, yes=yes)


_add_command(
    *("set", pb2.RULE_OPERATION_SET, "Replace the value of a rule.", "VALUE"),
    "The value, as in the properties file.",
)
_add_command(
    *("add", pb2.RULE_OPERATION_ADD, "Add an element to a list, such as a pattern to topics.", "ELEMENT"),
    "A name or a regular expression.",
)
_add_command(
    *("remove", pb2.RULE_OPERATION_REMOVE, "Remove an element from a list.", "ELEMENT"),
    "The element, as it is in the list.",
)
_add_command(
    *("reset", pb2.RULE_OPERATION_RESET),
    "Restore the value of the properties file. Also drops a rule that was put aside.",
)
_add_command(
    *("restore", pb2.RULE_OPERATION_RESTORE),
    "Put a rule in effect again that was put aside because the properties file has changed since.",
)


def _change(
    call: Call, flow: str, change: pb2.RuleChange, version: int | None, *, dry_run: bool, yes: bool
) -> None:
    wanted = parse_flow(flow)
    request = pb2.UpdateRulesRequest(
        flow=wanted, changes=[change], expected_version=version, dry_run=True, by=who()
    )

    async def tried(at: Services) -> tuple[pb2.Rules, pb2.UpdateRulesResponse, list[str]]:
        before = (await at.configsync.GetRules(pb2.GetRulesRequest(flow=wanted), timeout=5.0)).rules
        answer = await at.configsync.UpdateRules(request)
        return before, answer, await _left_out_groups(at, answer.rules, change.key)

    before, answer, groups = call.ask(tried)
    stops = words_of_stops(flow, answer, groups)
    if not dry_run:
        if stops and not yes:
            note(stops)
            # A script goes on: the answer names what stopped, and the command that undoes it.
            if sys.stdin is not None and sys.stdin.isatty():
                typer.confirm("Change the rule?", abort=True, err=True)
                request.expected_version = before.version
        request.dry_run = False
        answer = call.ask(lambda at: at.configsync.UpdateRules(request))
    rules = answer.rules
    undo = [] if dry_run else undo_of_change(before, rules, change.key)

    def text() -> None:
        print_rows(RULE, [rule for rule in rules.rules if rule.key == change.key], title=_title(rules))
        if stops and (dry_run or yes):
            say(stops)
        if dry_run:
            typer.echo("nothing was changed (--dry-run)")
        print_undo(undo)

    stopped = {
        "stopped_topics": [*answer.stopped_topics],
        "stopped_topic_count": answer.stopped_topic_count,
        "stopped_groups": groups,
    }
    call.tell({**_as_json(rules, change.key), **stopped, "undo": undo}, text)


async def _left_out_groups(at: Services, rules: pb2.Rules, key: str) -> list[str]:
    """The groups that are followed, and that changed rules leave out. Nobody is asked about rules of other
    things; and a rule may be changed while checkpoint does not answer."""
    if key not in (_GROUPS, _NO_GROUPS):
        return []
    values = {rule.key: rule.value for rule in rules.rules}
    include, exclude = (
        PatternList(name, split_list(name, values.get(name, ""))) for name in (_GROUPS, _NO_GROUPS)
    )
    taken = NameFilter(include=include, exclude=exclude)
    try:
        known = await at.checkpoint.ListGroups(ListGroupsRequest(flow=rules.flow), timeout=_GROUPS_SECONDS)
    except TwinlogError as error:
        note(f"which groups it leaves out is not known: {error}")
        return []
    if known.flows and not any(each.HasField("confirmed") for each in known.flows):
        note("which groups it leaves out is not known: the checkpoint service has not read them yet")
    return sorted({row.group for row in known.groups if not taken.takes(row.group)})


def words_of_stops(flow: str, answer: pb2.UpdateRulesResponse, groups: Sequence[str]) -> str:
    """What a changed rule leaves out, as a sentence; empty if nothing."""
    count, parts = answer.stopped_topic_count, []
    if count:
        parts.append(f"copies {counted(count, 'topic')}: {listed(answer.stopped_topics, count=count)}")
    if groups:
        parts.append(f"follows {counted(len(groups), 'group')}: {listed(groups)}")
    return printable(f"with this rule {flow} no longer {', or '.join(parts)}") if parts else ""


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
        key=key,
    )


async def _rules(at: Services, flow: str | None) -> list[pb2.Rules]:
    return [
        (await at.configsync.GetRules(pb2.GetRulesRequest(flow=each), timeout=5.0)).rules
        for each in await chosen_flows(at.configsync, flow)
    ]


def _title(rules: pb2.Rules) -> str:
    title = f"{flow_name(rules.flow)}, version {rules.version}"
    return f"{title}: {rules.problem}" if rules.problem else title


def _as_json(rules: pb2.Rules, key: str | None) -> dict[str, Any]:
    return {
        "flow": flow_name(rules.flow),
        "version": rules.version,
        "problem": rules.problem,
        "rules": [as_json(RULE, rule) for rule in rules.rules if key in (None, rule.key)],
    }
