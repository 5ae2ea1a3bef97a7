"""Why a topic is replicated or not: the first rule that decides, for a name on either side of a flow.
Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from twinlog.errors import KafkaError
from twinlog.kafka.ports import TopicDescription
from twinlog.model import ClusterAlias
from twinlog.policy.expected_offsets import ExpectedOffsets
from twinlog.selection import TopicDecision, TopicReason, TopicSelector
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicState
from twinlog_configsync.model.actions import number_text
from twinlog_configsync.model.observation import is_absent
from twinlog_configsync.planning.topic_plan import DeleteRules


class Explained(StrEnum):
    REPLICATED = "REPLICATED"
    WAITING = "WAITING"
    """Selected, but not copied yet."""
    EXCLUDED = "EXCLUDED"
    NOT_INCLUDED = "NOT_INCLUDED"
    INTERNAL = "INTERNAL"
    CYCLE = "CYCLE"
    TOPIC_UNAUTHORIZED = "TOPIC_UNAUTHORIZED"
    NO_SUCH_TOPIC = "NO_SUCH_TOPIC"
    DELETED_AT_SOURCE = "DELETED_AT_SOURCE"
    COUNTERPART = "COUNTERPART"
    """On the target: the copy of a source topic."""
    NO_COUNTERPART = "NO_COUNTERPART"
    """On the target: no source topic is copied to it."""
    UNKNOWN = "UNKNOWN"
    """The cluster does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    cluster: ClusterAlias
    verdict: Explained
    rule: str
    source_topic: str
    target_topic: str
    entry: ReplicatedTopic | None = None
    offsets: ExpectedOffsets | None = None
    """Which offsets its copy will have; None when that exists already, or is not known."""


Found = TopicDescription | KafkaError

_LEGAL_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")

_ROUTES_NAMED: Final = 5

_REJECTED: Final = {
    TopicReason.EXCLUDED: Explained.EXCLUDED,
    TopicReason.NOT_INCLUDED: Explained.NOT_INCLUDED,
    TopicReason.INTERNAL: Explained.INTERNAL,
    TopicReason.CYCLE: Explained.CYCLE,
    TopicReason.LOOP: Explained.CYCLE,
}


def explain(
    topic: str,
    selector: TopicSelector,
    entries: Mapping[str, ReplicatedTopic],
    deletes: DeleteRules,
    *,
    on_source: Found,
    on_target: Found,
) -> list[Explanation]:
    """Answer for the name on the source, then on the target. A cluster without such a topic is left out,
    unless neither has it. A target that does not allow the request is left out if the source has an
    answer."""
    if not _LEGAL_NAME.fullmatch(topic):
        return [_impossible(topic, selector)]
    explanations: list[Explanation] = []
    known = entries.get(topic)
    if not is_absent(on_source) or (known is not None and known.selected):
        answer = _on_source(topic, selector, known, deletes, on_source)
        explanations.append(replace(answer, rule=answer.rule + _routes(topic, entries)))
    is_copy = any(entry.target_topic == topic for entry in entries.values())
    hidden = isinstance(on_target, KafkaError) and not on_target.retriable
    if not is_absent(on_target) and not (hidden and explanations and not is_copy):
        explanations.append(_on_target(topic, selector, entries, on_target))
    return explanations or [_nowhere(selector.explain(topic), selector)]


def _routes(topic: str, entries: Mapping[str, ReplicatedTopic]) -> str:
    """The topics to which its records are routed, or were before the routers left the file."""
    words = ""
    for are, selected in (("are", True), ("were", False)):
        routes = sorted(
            entry.target_topic
            for entry in entries.values()
            if (entry.routed_from, entry.selected) == (topic, selected) and entry.target_partition_count
        )
        more = f" and {len(routes) - _ROUTES_NAMED} more" if len(routes) > _ROUTES_NAMED else ""
        words += f"; records {are} routed to {', '.join(routes[:_ROUTES_NAMED])}{more}" if routes else ""
    return words


def _on_source(
    topic: str, selector: TopicSelector, entry: ReplicatedTopic | None, deletes: DeleteRules, found: Found
) -> Explanation:
    decision = selector.explain(topic)
    verdict, rule = _source_verdict(decision, entry, deletes, found)
    return Explanation(
        cluster=selector.flow.source,
        verdict=verdict,
        rule=rule,
        source_topic=topic,
        target_topic=decision.remote_topic,
        entry=entry,
    )


def _source_verdict(
    decision: TopicDecision, entry: ReplicatedTopic | None, deletes: DeleteRules, found: Found
) -> tuple[Explained, str]:
    if entry is not None and entry.routed_from:
        is_there = entry.state is TopicState.READY
        words = f"records of {entry.routed_from} are routed to {entry.target_topic}"
        return (Explained.REPLICATED if is_there else Explained.WAITING), words
    failure = found if isinstance(found, KafkaError) and not is_absent(found) else None
    if failure is not None and failure.retriable:
        left_out = f"; if it has {decision.topic}, that is not copied: {decision.rule}"
        return Explained.UNKNOWN, f"{failure}{'' if decision.selected else left_out}"
    if not decision.selected:
        return _REJECTED[decision.reason], decision.rule
    if failure is not None:
        return Explained.TOPIC_UNAUTHORIZED, str(failure)
    if entry is None or not entry.selected:
        return Explained.WAITING, f"selected ({decision.rule}); it is created with the next refresh"
    match entry.state:
        case TopicState.DELETED_AT_SOURCE:
            return Explained.DELETED_AT_SOURCE, f"{entry.message}; {_fate(entry, deletes)}"
        case TopicState.WAITING:
            return Explained.WAITING, f"waiting for creation because {entry.reason}: {entry.message}"
        case TopicState.READY:
            return Explained.REPLICATED, f"replicated as {entry.target_topic}: {decision.rule}"


def _fate(entry: ReplicatedTopic, deletes: DeleteRules) -> str:
    """What will happen to the copy of a deleted topic."""
    if entry.kept:
        return f"{entry.target_topic} stays: restore the topic on the source, or delete its copy"
    if deletes.enabled:
        seconds = number_text(deletes.grace_seconds)
        return f"{entry.target_topic} is deleted {seconds} s after it (`twinlog plan --skips`)"
    return f"{entry.target_topic} stays (twinlog.sync.topic.deletes.enabled=false)"


def _on_target(
    topic: str, selector: TopicSelector, entries: Mapping[str, ReplicatedTopic], found: Found
) -> Explanation:
    entry = next((each for each in entries.values() if each.target_topic == topic and each.selected), None)
    verdict, rule, source_topic = _target_verdict(topic, selector, entry, found)
    return Explanation(
        cluster=selector.flow.target,
        verdict=verdict,
        rule=rule,
        source_topic=source_topic,
        target_topic=topic,
        entry=entry,
    )


def _target_verdict(
    topic: str, selector: TopicSelector, entry: ReplicatedTopic | None, found: Found
) -> tuple[Explained, str, str]:
    source, policy = selector.flow.source, selector.policy
    if entry is not None:
        if entry.routed_from:
            return (
                Explained.COUNTERPART,
                f"records of {entry.routed_from} of {source} go there",
                entry.routed_from,
            )
        rule = f"the copy of {entry.source_topic} of {source}"
        if entry.state is TopicState.DELETED_AT_SOURCE:
            rule += ", which was deleted there"
        return Explained.COUNTERPART, rule, entry.source_topic
    if isinstance(found, KafkaError):
        return (Explained.UNKNOWN if found.retriable else Explained.TOPIC_UNAUTHORIZED), str(found), ""
    if policy.is_internal_topic(topic):
        return Explained.INTERNAL, "a topic of Kafka or of the mirror itself", ""
    upstream = policy.upstream_topic(topic)
    if policy.topic_source(topic) != source or upstream is None:
        return Explained.NO_COUNTERPART, f"no topic of {source} is copied to it", ""
    decision = selector.explain(upstream)
    if decision.selected:
        return (
            Explained.NO_COUNTERPART,
            f"it would be the copy of {upstream} of {source}, which does not exist",
            upstream,
        )
    return (
        Explained.NO_COUNTERPART,
        f"it would be the copy of {upstream} of {source}, which is not replicated: {decision.rule}",
        upstream,
    )


def _impossible(topic: str, selector: TopicSelector) -> Explanation:
    return Explanation(
        cluster=selector.flow.source,
        verdict=Explained.NO_SUCH_TOPIC,
        rule="no topic can have this name: Kafka allows letters, digits, '.', '_' and '-', 249 at most",
        source_topic=topic,
        target_topic="",
    )


def _nowhere(decision: TopicDecision, selector: TopicSelector) -> Explanation:
    would = f"be replicated as {decision.remote_topic}" if decision.selected else "not be replicated"
    return Explanation(
        cluster=selector.flow.source,
        verdict=Explained.NO_SUCH_TOPIC,
        rule=(
            f"neither {selector.flow.source} nor {selector.flow.target} shows it; "
            f"it would {would} ({decision.rule})"
        ),
        source_topic=decision.topic,
        target_topic=decision.remote_topic,
    )
