"""Decides which topics a flow replicates, by MM2's rule, and gives the first reason that decided.

replicate = (the topic filter selects it, or it is a heartbeats topic), it is not internal, and copying it
makes no cycle. Beyond MM2, a topic is also internal when its copy would be an internal topic of the flow:
`checkpoints.internal` of cluster A would be written into `A.checkpoints.internal`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from twinlog.filters.name_filters import FilterOutcome, NameFilter, PatternList
from twinlog.model import ClusterAlias, Flow
from twinlog.policy.internal_topics import is_mirror_topic
from twinlog.policy.rename import RenamingPolicy
from twinlog.policy.replication import (
    INTERNAL_PREFIXES,
    DefaultReplicationPolicy,
    ReplicationPolicy,
    cycle_alias,
    is_topic_name,
)

_EVERY_TOPIC: Final = NameFilter(include=PatternList("a route", (".*",)), exclude=PatternList("a route", ()))


class TopicReason(StrEnum):
    """Why a topic is or is not replicated. A closed list; the values are part of the API."""

    SELECTED = "SELECTED"
    """The topic filter selects it."""
    HEARTBEATS = "HEARTBEATS"
    """The filter does not select it, but heartbeats are always replicated
    (heartbeats.replication.enabled)."""
    EXCLUDED = "EXCLUDED"
    NOT_INCLUDED = "NOT_INCLUDED"
    INTERNAL = "INTERNAL"
    CYCLE = "CYCLE"
    """Its name tells that it came through the target or the source."""
    LOOP = "LOOP"
    """With the rules in force, other flows would copy it back."""

    @property
    def selected(self) -> bool:
        return self in (TopicReason.SELECTED, TopicReason.HEARTBEATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDecision:
    topic: str
    reason: TopicReason
    rule: str
    """The deciding rule, for people: key and pattern, or alias."""
    remote_topic: str
    """Its name on the target, whether or not it is replicated."""
    pattern: str | None = None
    """The pattern of SELECTED and EXCLUDED."""
    alias: str | None = None
    """The cluster of a CYCLE."""

    @property
    def selected(self) -> bool:
        return self.reason.selected


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelector:
    """The selection rules of one flow. Topics of the source are given by name and need not exist."""

    flow: Flow
    policy: ReplicationPolicy
    topic_filter: NameFilter
    heartbeats_replication_enabled: bool = True
    own_topics: frozenset[str] = frozenset()
    """Internal topics of flows whose names do not show it (`offset.storage.topic`)."""
    is_stopped: bool = False
    """A rule has stopped the flow: it copies heartbeats only."""
    comes_back: Callable[[str], str] | None = None
    """Why other flows would copy a topic of this name back, "" if none would; None where names tell it."""

    def selects(self, topic: str) -> bool:
        """Whether the flow replicates `topic`."""
        return self.decide(topic).selected

    def topic_named(self, name: str) -> str:
        """The topic of the source that somebody means by its own name or by that of its copy. What the flow
        copies under this name comes first."""
        upstream = self.policy.upstream_topic(name)
        if upstream is None or self.selects(name):
            return name
        return upstream if self.policy.format_remote_topic(self.flow.source, upstream) == name else name

    def decide(self, topic: str) -> TopicDecision:
        """Decide about one topic. The first deciding rule, in MM2's order, is the reason."""
        verdict = self.topic_filter.judge(topic)
        heartbeats = self.heartbeats_replication_enabled and self.policy.is_heartbeats_topic(topic)
        if self.is_stopped and not heartbeats:
            return self._decision(topic, TopicReason.EXCLUDED, "enabled: a rule has stopped the flow")
        if not verdict.included and not heartbeats:
            return self._rejected_by_filter(topic, verdict.outcome, verdict.key, verdict.pattern)
        if self.policy.is_internal_topic(topic):
            return self._decision(topic, TopicReason.INTERNAL, self._internal_rule(topic))
        alias = cycle_alias(self.policy, self.flow, topic)
        if alias is not None:
            rule = f"its name says that it came through cluster {alias}: copying it would form a loop"
            return self._decision(topic, TopicReason.CYCLE, rule, alias=alias)
        renaming = self.policy if isinstance(self.policy, RenamingPolicy) else None
        if renaming is not None and (why := renaming.why_not(self.flow.source, topic)) is not None:
            return self._decision(topic, TopicReason.EXCLUDED, why)
        remote = self.policy.format_remote_topic(self.flow.source, topic)
        if remote.startswith(INTERNAL_PREFIXES):
            # A renamed copy could be the target's own __consumer_offsets.
            rule = f"its copy would be {remote}, an internal topic of the target"
            return self._decision(topic, TopicReason.INTERNAL, rule)
        if remote in self.own_topics or is_mirror_topic(self.policy, remote):
            rule = f"its copy would be {remote}, an internal topic of a flow"
            return self._decision(topic, TopicReason.INTERNAL, rule)
        if (other := self._other_owner(remote)) is not None:
            rule = (
                f"its copy would be {remote}, the name of a copy from cluster {other}: rename or exclude it"
            )
            return self._decision(topic, TopicReason.EXCLUDED, rule)
        if self.comes_back is not None and (loop := self.comes_back(topic)):
            return self._decision(topic, TopicReason.LOOP, f"LOOP: {loop}")
        if verdict.included:
            rule = f"{verdict.key}: pattern {verdict.pattern!r}"
            return self._decision(topic, TopicReason.SELECTED, rule, pattern=verdict.pattern)
        return self._decision(topic, TopicReason.HEARTBEATS, "heartbeats.replication.enabled")

    def explain(self, topic: str) -> TopicDecision:
        """As `decide`; of a topic that no `topics` and `topics.exclude` would have copied, why."""
        whatever = self._without_filter().decide(topic)
        is_free = whatever.selected or whatever.reason is TopicReason.EXCLUDED
        return self.decide(topic) if is_free else whatever

    def _without_filter(self) -> "TopicSelector":
        return replace(self, topic_filter=_EVERY_TOPIC, is_stopped=False)

    def refuses_route(self, name: str) -> str:
        """Why records may not go to the copy that a topic of this name would have; "" = they may."""
        remote = self.policy.format_remote_topic(self.flow.source, name)
        if not is_topic_name(name) or not is_topic_name(remote):
            return f"{remote!r} is no name of a topic"
        if self.policy.is_heartbeats_topic(name):
            return "it is for heartbeats"
        decision = self._without_filter().decide(name)
        return "" if decision.selected else decision.rule

    def _other_owner(self, remote: str) -> ClusterAlias | None:
        """The other cluster of the file whose copies have such names: `A.eu` where `A` copies `eu.orders`."""
        base = self.policy.base if isinstance(self.policy, RenamingPolicy) else self.policy
        if not isinstance(base, DefaultReplicationPolicy):
            return None
        owner = base.topic_source(remote)
        return owner if owner in base.aliases and owner != self.flow.source else None

    def _rejected_by_filter(
        self, topic: str, outcome: FilterOutcome, key: str, pattern: str | None
    ) -> TopicDecision:
        if outcome is FilterOutcome.EXCLUDED:
            rule = f"{key}: pattern {pattern!r}"
            return self._decision(topic, TopicReason.EXCLUDED, rule, pattern=pattern)
        return self._decision(topic, TopicReason.NOT_INCLUDED, f"{key}: no pattern matches")

    def _internal_rule(self, topic: str) -> str:
        if self.policy.is_checkpoints_topic(topic):
            return "a checkpoints topic"
        if self.policy.is_mm2_internal_topic(topic):
            return "an internal topic of the mirror (mm2…internal)"
        return "an internal topic: the name starts with '__' or '.'"

    def _decision(
        self,
        topic: str,
        reason: TopicReason,
        rule: str,
        *,
        pattern: str | None = None,
        alias: str | None = None,
    ) -> TopicDecision:
        return TopicDecision(
            topic=topic,
            reason=reason,
            rule=rule,
            remote_topic=self.policy.format_remote_topic(self.flow.source, topic),
            pattern=pattern,
            alias=alias,
        )
