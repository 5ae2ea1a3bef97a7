"""`twinlog explain topic` and `group`: why a topic is replicated, a group translated, or not."""

import ast
import asyncio
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple

import typer

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.cli.checkpoint.groups import group_command
from twinlog.cli.common.call import Call, Services, command, printing
from twinlog.cli.common.fields import Field, Fields, as_json, table
from twinlog.cli.common.names import counted, flow_name, parse_flow, partition_name, shortened, shown_bytes
from twinlog.cli.common.options import argument, group, named_of_flow
from twinlog.cli.configsync.plan import EXPECTED
from twinlog.cli.configsync.plan import offsets_words as expected_words
from twinlog.cli.source.client import every_partition, list_flows, scope_name, scope_words
from twinlog.cli.source.gaps import gaps_words
from twinlog.cli.source.partitions import (
    OFFSETS,
    TRANSFORM,
    left_out_words,
    state_name,
    troubles_of,
    worst_first,
)
from twinlog.cli.status.rows import outages
from twinlog.cli.verdict.flows import cause_of
from twinlog.errors import ConfigError, TwinlogError
from twinlog.reasons import KAFKA, OWN, known_reasons, shown_remedy

# Which offsets the copy of an explained topic has, and what is wrong with it, by the source service.

ASK_SECONDS = 10.0
_EXCLUDING = re.compile(r"""topics\.exclude: pattern ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_PATTERN = re.compile(r"""pattern ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_KEPT_OUT = {
    pb2.TOPIC_VERDICT_CYCLE: "CYCLE",
    pb2.TOPIC_VERDICT_TOPIC_UNAUTHORIZED: "TOPIC_UNAUTHORIZED",
}
"""Verdicts whose rule does not say what would have the topic copied, with their reasons."""
_COPIED = (pb2.TOPIC_VERDICT_REPLICATED, pb2.TOPIC_VERDICT_COUNTERPART)

Partitions = Sequence[source_pb.PartitionStatus]


async def _copies(explanation: pb2.TopicExplanation, at: Services) -> Partitions | None:
    if explanation.verdict not in _COPIED:
        return None
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await every_partition(at.source, explanation.flow, explanation.source_topic)
    except (TwinlogError, TimeoutError):
        return None  # The user asked for configsync's answer; this is only added if it is known.


async def _gaps(explanation: pb2.TopicExplanation, at: Services) -> Sequence[source_pb.LedgerGap]:
    """None while they are unknown: then `twinlog status` says so."""
    if explanation.verdict not in _COPIED:
        return ()
    try:
        async with asyncio.timeout(ASK_SECONDS):
            request = source_pb.ListGapsRequest(flow=explanation.flow, source_topic=explanation.source_topic)
            return (await at.source.ListGaps(request)).gaps
    except (TwinlogError, TimeoutError):
        return ()


def offsets_words(partitions: Partitions | None) -> str:
    """`preserved`, `translated: COMPACTED`, `2 preserved, 1 translated: FILL_TOO_LARGE`; empty while
    unknown."""
    kinds = Counter(
        f"{each.offsets}: {each.offsets_reason}" if each.offsets_reason else each.offsets
        for each in partitions or ()
        if each.offsets
    )
    if len(kinds) == 1:
        return next(iter(kinds))
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def changed_words(partitions: Partitions | None) -> str:
    """From which offsets of the source on the present transform holds: `from 1200`, `0 from 1200, 1 from 7`;
    empty where no record was ever changed."""
    found = {
        each.source.partition: f"{'' if each.transform else 'no more '}from {each.transform_since}"
        for each in partitions or ()
        if each.HasField("transform_since")
    }
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{number} {words}" for number, words in sorted(found.items()))


def standing_words(partitions: Partitions | None) -> str:
    """`RUNNING, 0 behind`, `2 PAUSED, 1 RUNNING; 700 behind`; empty while unknown."""
    if not partitions:
        return ""
    states = Counter(state_name(each) for each in partitions)
    known = next(iter(states)) if len(states) == 1 else ""
    told = known or ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    lags = [each.lag_records for each in partitions if each.HasField("lag_records")]
    behind = f"{sum(lags):,} behind" if len(lags) == len(partitions) else "behind by an unknown number"
    left_out = sum((Counter(each.left_out_records) for each in partitions), Counter())
    kept_out = f"; transforms kept out {left_out_words(left_out)}" if left_out else ""
    return f"{told}{', ' if known else '; '}{behind}{kept_out}"


async def _flows(at: Services) -> dict[str, source_pb.FlowStatus]:
    """By name; none while the source service does not answer."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return {flow_name(each.flow): each for each in await list_flows(at.source, None)}
    except (TwinlogError, TimeoutError):
        return {}


def _limits(flow: source_pb.FlowStatus, topic: str) -> list[str]:
    """Those in force on a topic and its flow, in words."""
    return [
        f"{scope_name(limit.scope)} limited to {shown_bytes(limit.bytes_per_second)}/s"
        for limit in flow.throttles
        if limit.scope.source_topic in ("", topic)
    ]


class _Trouble(NamedTuple):
    partition: str
    reason: str
    words: str


def trouble_lines(partitions: Partitions | None, flow: source_pb.FlowStatus, most: int = 3) -> list[str]:
    """What the source service says of partitions that are not copied as they should, and what to do, each
    cause once; none where all are. `flow`: as far as it is known."""
    rows = {row.alias: row for row in outages("source", flow.clusters)}
    by_cause: dict[tuple[str, str], list[_Trouble]] = {}
    for each in worst_first(partitions or ()):
        for reason, words in troubles_of(each).items():
            alias = cause_of(reason, rows.values())
            found = by_cause.setdefault((alias, "" if alias else reason), [])
            found.append(_Trouble(partition_name(each.source), reason, words))
    lines: list[str] = []
    reasons = known_reasons(flow_name(flow.flow))
    for (alias, reason), found in islice(by_cause.items(), most):
        words, remedy = found[0].words, reasons.get(reason, {}).get("remedy", "")
        if reason == "PAUSED_BY_OPERATOR":
            remedy = _resume(flow.pauses, found) or remedy
        if alias:
            row = rows.pop(alias)
            words = f"{', '.join(dict.fromkeys(each.reason for each in found))}: {row.outage_words}"
            remedy = "" if row.outage.remedy else reasons.get(row.outage.reason, {}).get("remedy", "")
        lines.append(f"{_first_of([each.partition for each in found])}: {words}")
        lines += [f"  do: {remedy}"] if remedy else []
    left = len(by_cause) - most
    lines += [f"and {counted(left, 'more reason')}"] if left > 0 else []
    return lines + [row.outage_words for row in rows.values()]


def _resume(pauses: Iterable[source_pb.Pause], paused: Sequence[_Trouble]) -> str:
    """The commands that end what holds these partitions; empty where it is not known."""
    scopes = [pause.scope for pause in pauses if any(_holds(pause.scope, each.partition) for each in paused)]
    return ", ".join(f"`{shlex.join(['twinlog', 'resume', *scope_words(each)])}`" for each in scopes)


def _holds(scope: source_pb.Scope, partition: str) -> bool:
    topic, _, number = partition.rpartition("-")
    return scope.source_topic in ("", topic) and (
        not scope.HasField("partition") or str(scope.partition) == number
    )


def _first_of(names: Sequence[str]) -> str:
    """
    >>> _first_of(["orders-0", "orders-1"])
    'orders-0 and 1 more partition'
    """
    return names[0] + (f" and {counted(len(names) - 1, 'more partition')}" if len(names) > 1 else "")


_COPY: Fields[source_pb.PartitionStatus] = table(
    "partition=source.partition", *OFFSETS, *TRANSFORM, "state reason message"
)


def offsets_document(partitions: Partitions | None) -> list[dict[str, Any]] | None:
    return None if partitions is None else [as_json(_COPY, each) for each in partitions]


# `twinlog explain reason NAME`: what a reason means, and what to do. It asks no service.


@printing
def reason_command(
    call: Call, name: str = argument("REASON", "As in `status` and logs; also a state or a verdict.")
) -> None:
    """Explain a reason: what it means, and what to do.

    docs/reasons.md has all of them.
    """
    reasons = known_reasons()
    asked = name.upper().replace("-", "_")
    asked = asked if asked in reasons else of_kafka(name) or asked
    if asked not in reasons:
        like = get_close_matches(asked, reasons, n=3, cutoff=0.5)
        meant = f": {' or '.join(like)}?" if like else ""
        raise ConfigError(f"{name} is not a reason of Twinlog{meant}", key="REASON")
    found = reasons[asked]
    meanings = [
        _meaning(f"{asked}: {place.title}", each.meaning, shown_remedy(each))
        for place in OWN
        for each in place.reasons
        if each.name == asked
    ]
    told = meanings if len(meanings) > 1 else [_meaning(asked, **found)]
    call.tell({"reason": asked, **found}, lambda: typer.echo("\n\n".join(told)))


def of_kafka(name: str) -> str:
    """Twinlog's reason for an error of Kafka, by its name or that of its exception in Java; empty for others.

    >>> of_kafka("NotLeaderOrFollowerException") == of_kafka("NOT_LEADER_OR_FOLLOWER") == "LEADER_UNAVAILABLE"
    True
    """
    from twinlog.kafka.codes import ErrorCode

    codes = {_plain(code.name): code for code in ErrorCode}
    code = codes.get(_plain(name))
    return next((reason.name for reason in KAFKA.reasons if code in reason.codes), "")


def _plain(name: str) -> str:
    return name.replace("_", "").lower().removesuffix("exception").removesuffix("error")


def _meaning(title: str, meaning: str, remedy: str) -> str:
    return f"{title}\nmeans: {meaning}\ndo:    {remedy}"


app = group("Explain why a topic is replicated or a group is translated, or why not; or a reason.")


@app.command("topic")
@command
def topic_command(
    call: Call,
    names: list[str] = argument("[A->B] TOPIC", "Only this flow; a topic's name, on either side."),
) -> None:
    """Explain why a topic is replicated or not: the rule that decides, for each flow.

    TOPIC is a topic on a source (orders) or on a target (A.orders); it need not exist. `now` is the state of
    its partitions, what is left to copy, and the limits in force. `offsets` says whether its copy has the
    source's offsets (docs/offsets.md), if the source service answers; of a topic that waits for its copy,
    which offsets that will have, and what filling costs. `changed` says from which offsets of the source on
    transforms are what they are now, by partition.
    """
    named, name = named_of_flow(names, "topic")
    rows = call.ask(lambda at: _explain(at, name, named))
    lines = [line for row in rows for line in (*trouble_lines(row.copies, row.status), *_lost(row))]
    lines += _how_to_include([row.told for row in rows])
    call.tell_rows(_EXPLAINED, rows, lines=list(dict.fromkeys(lines)))


def _lost(row: "_Explained") -> list[str]:
    """What is missing in the copy and not acknowledged, and the command that shows it."""
    gaps = [gap for gap in row.gaps if not gap.acknowledged_by]
    if not gaps:
        return []
    topic = row.told.source_topic
    shows = shlex.join(["twinlog", "gaps", flow_name(row.told.flow), "--topic", topic])
    return [f"{topic}: GAPS: {gaps_words(gaps)}", f"  do: `{shows}` shows them, and how to acknowledge them"]


def _how_to_include(told: Sequence[pb2.TopicExplanation]) -> list[str]:
    """For a topic of a source that is not copied: what would have it copied."""
    lines = []
    for each in told:
        flow, pattern = shlex.quote(flow_name(each.flow)), _EXCLUDING.match(each.rule)
        if each.verdict == pb2.TOPIC_VERDICT_NOT_INCLUDED and each.source_topic:
            name = shlex.quote(each.source_topic.replace(".", chr(92) + "."))
            lines.append(f"to copy it: `twinlog rules add {flow} topics {name}`")
        if pattern and each.source_topic:
            matches = ast.literal_eval(pattern[1])
            does = f"rules remove {flow} topics.exclude {shlex.quote(matches)}`, for all that it matches"
            if f"replaces it by '{matches}'" in each.rule:  # Without it nothing would be excluded.
                does = f"rules reset {flow} topics.exclude`, back to the value of the file"
            lines.append(f"to copy it: `twinlog {does}")
        if each.verdict == pb2.TOPIC_VERDICT_INTERNAL and not each.rule.startswith("its copy would be"):
            lines.append("nothing to do: no flow copies an internal topic, nor did MirrorMaker 2")
        waits = each.topic.reason if each.verdict == pb2.TOPIC_VERDICT_WAITING else ""
        if reason := _KEPT_OUT.get(each.verdict, waits):
            lines.append(f"do: {known_reasons(flow_name(each.flow))[reason]['remedy']}")
    return lines


app.command("group")(group_command)
app.command("reason")(reason_command)


@dataclass(frozen=True, slots=True)
class _Explained:
    told: pb2.TopicExplanation
    copies: Partitions | None
    status: source_pb.FlowStatus
    """Of its flow; empty while unknown."""
    gaps: Sequence[source_pb.LedgerGap]


_EXPLAINED: Fields[_Explained] = table(
    "flow=told.flow|flow cluster=told.cluster|on verdict=told.verdict|verdict",
    Field(
        "",
        column="now",
        text=lambda row: "; ".join(
            each
            for each in (
                standing_words(row.copies),
                *(each.outage.who(each.alias) for each in outages("source", row.status.clusters)),
                *_limits(row.status, row.told.source_topic),
            )
            if each
        ),
    ),
    Field("", column="offsets", text=lambda row: _offsets(row)),
    Field("", column="changed", text=lambda row: changed_words(row.copies)),
    Field("rule", "told.rule", column="because", text=lambda row: because(row.told.rule)),
    "source_topic=told.source_topic target_topic=told.target_topic generation=told.topic.generation",
    Field("partitions", lambda row: offsets_document(row.copies)),
    Field(
        "expected_offsets",
        lambda row: as_json(EXPECTED, row.told.offsets) if row.told.HasField("offsets") else None,
    ),
)


def because(rule: str) -> str:
    """The rule that decides; of a long pattern the beginning."""
    return _PATTERN.sub(lambda found: f"pattern {shortened(ast.literal_eval(found[1]))}", rule)


def _offsets(row: _Explained) -> str:
    return expected_words(row.told.offsets) if row.told.HasField("offsets") else offsets_words(row.copies)


async def _explain(at: Services, topic: str, flow: str | None) -> list[_Explained]:
    request = pb2.ExplainTopicRequest(topic=topic, flow=None if flow is None else parse_flow(flow))
    found = (await at.configsync.ExplainTopic(request)).explanations
    flows = await _flows(at)
    rows: list[_Explained] = []
    told: set[tuple[str, str]] = set()
    for each in found:
        # Of a copy with the name of its source the row before says it.
        place = flow_name(each.flow), each.source_topic
        copies, gaps = (None, ()) if place in told else (await _copies(each, at), await _gaps(each, at))
        rows.append(_Explained(each, copies, flows.get(place[0], source_pb.FlowStatus()), gaps))
        if copies is not None:
            told.add(place)
    return rows
