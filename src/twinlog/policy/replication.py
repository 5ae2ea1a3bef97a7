"""Names of remote topics, and their origin from the name: MM2's ReplicationPolicy."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from twinlog.errors import ConfigError
from twinlog.model import ClusterAlias, Flow

DEFAULT_SEPARATOR = "."
HEARTBEATS_TOPIC = "heartbeats"

INTERNAL_PREFIXES = ("__", ".")
"""Names that begin so are never replicated (KIP-1074): Kafka's own topics have them."""
LONGEST_NAME = 249
"""The most characters in the name of a topic (org.apache.kafka.common.internals.Topic)."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_UNUSABLE_SEPARATOR = re.compile(r"[^a-zA-Z0-9._-]")


def is_topic_name(name: str) -> bool:
    """Whether Kafka allows a topic of this name."""
    return len(name) <= LONGEST_NAME and name not in (".", "..") and _TOPIC_NAME.fullmatch(name) is not None


class ReplicationPolicy(Protocol):
    """Names of remote and internal topics. Pure: equal arguments always give equal answers.

    "Internal" has MM2's meaning of release 4.0 and later (KIP-1074).
    """

    @property
    def tracks_topic_sources(self) -> bool:
        """True when a topic's name tells its origin; False for policies that keep names (Identity)."""
        ...

    def format_remote_topic(self, source: ClusterAlias, topic: str) -> str:
        """Name on the target of the source's `topic`."""
        ...

    def topic_source(self, topic: str) -> ClusterAlias | None:
        """Alias of the cluster this topic was copied from; None when it is no remote topic."""
        ...

    def upstream_topic(self, topic: str) -> str | None:
        """The topic's name on its source, one hop back; None when it is no remote topic."""
        ...

    def original_topic(self, topic: str) -> str:
        """The topic's name where it was first written, all hops back."""
        ...

    def heartbeats_topic(self) -> str: ...

    def offset_syncs_topic(self, alias: ClusterAlias) -> str:
        """Offset syncs topic for `alias`, which is always the cluster that does *not* host the topic."""
        ...

    def checkpoints_topic(self, source: ClusterAlias) -> str:
        """Checkpoints topic, on the target, of the groups of `source`."""
        ...

    def is_heartbeats_topic(self, topic: str) -> bool:
        """True for `heartbeats` and its copies from any number of hops away."""
        ...

    def is_checkpoints_topic(self, topic: str) -> bool: ...

    def is_mm2_internal_topic(self, topic: str) -> bool:
        """True for topics that MM2 itself writes: offset syncs, checkpoints and Connect's own."""
        ...

    def is_internal_topic(self, topic: str) -> bool:
        """True for topics never replicated: MM2's own, and names that start with `__` or `.`."""
        ...


def names_back(policy: ReplicationPolicy, topic: str) -> list[str]:
    """The names of a topic by its own name, from the cluster that holds it back to its origin: at least
    `topic` itself.

    Ends where a name comes back, as rules such as `a -> b; b -> a` lead to, and where one is longer than a
    topic's name can be: a rule that strips a prefix adds it with each hop back.
    """
    names = [topic]
    while (upstream := policy.upstream_topic(names[-1])) is not None:
        if upstream in names or len(upstream) > LONGEST_NAME:
            break
        names.append(upstream)
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultReplicationPolicy:
    """`orders` of cluster `A` is called `A.orders` on the target.

    Any ordinary topic with the separator in its name looks remote (`orders.v1` has the source `orders`), as
    in MM2. Raises ConfigError when the separator cannot be part of a topic name, or is empty and copies are
    named by it.
    """

    separator: str = DEFAULT_SEPARATOR
    internal_separator: str = DEFAULT_SEPARATOR
    """Separator in the names of offset-syncs and checkpoints topics."""
    aliases: tuple[ClusterAlias, ...] = ()
    """The known clusters; kept are those whose alias contains the separator, the longest first (`A.e.u`
    before `A.e`). MM2 knows none when it reads a name: with the separator `-` it takes `dc-a-orders` for a
    copy from `dc`, and copies such topics back and forth without end."""

    def __post_init__(self) -> None:
        divided = [alias for alias in self.aliases if self.separator and self.separator in alias]
        object.__setattr__(self, "aliases", tuple(sorted(divided, key=len, reverse=True)))
        for separator in (self.separator, self.internal_separator):
            if (self.tracks_topic_sources and not separator) or _UNUSABLE_SEPARATOR.search(separator):
                raise ConfigError(
                    f"replication.policy.separator {separator!r} cannot be used: expected one or more of "
                    "the characters allowed in topic names (letters, digits, '.', '_', '-')",
                    key="replication.policy.separator",
                )

    @property
    def tracks_topic_sources(self) -> bool:
        return True

    def format_remote_topic(self, source: ClusterAlias, topic: str) -> str:
        return f"{source}{self.separator}{topic}"

    def topic_source(self, topic: str) -> ClusterAlias | None:
        if not self.separator:
            # MM2 takes the first letter for the alias (`h` of `heartbeats`), and then knows no heartbeats.
            return None
        for alias in self.aliases:
            prefix = alias + self.separator
            if topic.startswith(prefix) and not self._is_only_separators(topic[len(prefix) :]):
                return alias
        source, separator, rest = topic.partition(self.separator)
        # Java's String.split drops trailing empty pieces: `a.` and `a..` have one piece and are not remote.
        return source if separator and not self._is_only_separators(rest) else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        return names_back(self, topic)[-1]

    def heartbeats_topic(self) -> str:
        return HEARTBEATS_TOPIC

    def offset_syncs_topic(self, alias: ClusterAlias) -> str:
        return f"mm2-offset-syncs{self.internal_separator}{alias}{self.internal_separator}internal"

    def checkpoints_topic(self, source: ClusterAlias) -> str:
        return source + self._checkpoints_suffix

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.original_topic(topic) == HEARTBEATS_TOPIC

    def is_checkpoints_topic(self, topic: str) -> bool:
        return topic.endswith(self._checkpoints_suffix)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        own = topic.startswith("mm2") and topic.endswith(f"{self.internal_separator}internal")
        return own or self.is_checkpoints_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        return self.is_mm2_internal_topic(topic) or topic.startswith(INTERNAL_PREFIXES)

    @property
    def _checkpoints_suffix(self) -> str:
        return f"{self.internal_separator}checkpoints{self.internal_separator}internal"

    def _is_only_separators(self, text: str) -> bool:
        return not text.replace(self.separator, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Topics keep their names, so a name does not tell its origin, and A->B->A loops cannot be detected.

    Names that end with `heartbeats` follow the default policy. The separator may be empty: it is only part of
    the names of copied heartbeats and internal topics.
    """

    source_cluster_alias: ClusterAlias | None = None
    """The answer of topic_source for every topic; None, "not known", in a client without this setting."""

    @property
    def tracks_topic_sources(self) -> bool:
        return False

    def format_remote_topic(self, source: ClusterAlias, topic: str) -> str:
        if self._looks_like_heartbeats(topic):
            return DefaultReplicationPolicy.format_remote_topic(self, source, topic)
        return topic

    def topic_source(self, topic: str) -> ClusterAlias | None:
        if self._looks_like_heartbeats(topic):
            return DefaultReplicationPolicy.topic_source(self, topic)
        return self.source_cluster_alias

    def upstream_topic(self, topic: str) -> str | None:
        if self._looks_like_heartbeats(topic):
            return DefaultReplicationPolicy.upstream_topic(self, topic)
        return topic

    def _looks_like_heartbeats(self, topic: str) -> bool:
        return topic.endswith(HEARTBEATS_TOPIC)


# Derives the path of records from topic names: cycles, hops, upstream clusters (MM2's isCycle and
# MirrorClient).


def cycle_alias(policy: ReplicationPolicy, flow: Flow, topic: str) -> ClusterAlias | None:
    """Return the alias that would make copying `topic` a cycle, None without a cycle.

    A topic that already passed through the flow's target is not copied again, nor one that is a copy of the
    flow's own source (Kafka 4.4, KAFKA-9914). Policies that keep names check only the target.
    """
    blocked = {flow.target, flow.source} if policy.tracks_topic_sources else {flow.target}
    return next((alias for alias in _hops(policy, topic) if alias in blocked), None)


def count_hops(policy: ReplicationPolicy, topic: str, upstream: ClusterAlias) -> int | None:
    """Return the number of hops since `topic` was on cluster `upstream` (1 = copied directly), None for
    never."""
    for hops, alias in enumerate(_clusters_passed(policy, topic), start=1):
        if alias == upstream:
            return hops
    return None


def replication_hops(policy: ReplicationPolicy, topics: Iterable[str], upstream: ClusterAlias) -> int | None:
    """Return the fewest hops from cluster `upstream` to the cluster that holds `topics`, by its heartbeats
    topics.

    None when there is no path; MirrorClient returns -1 then.
    """
    hops = (count_hops(policy, topic, upstream) for topic in heartbeat_topics(policy, topics))
    return min((count for count in hops if count is not None), default=None)


def upstream_clusters(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[ClusterAlias]:
    """Return every cluster that replicates to the one that holds `topics`, over any number of hops."""
    return frozenset(
        alias for topic in heartbeat_topics(policy, topics) for alias in _clusters_passed(policy, topic)
    )


def heartbeat_topics(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[str]:
    """Return the heartbeats topics among `topics`, including the cluster's own."""
    return frozenset(filter(policy.is_heartbeats_topic, topics))


def checkpoint_topics(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[str]:
    """Return the checkpoints topics among `topics`."""
    return frozenset(filter(policy.is_checkpoints_topic, topics))


def remote_topics(
    policy: ReplicationPolicy, topics: Iterable[str], source: ClusterAlias | None = None
) -> frozenset[str]:
    """Return the copies among `topics`; with `source` only those copied directly from it."""
    return frozenset(
        topic
        for topic in topics
        if not policy.is_internal_topic(topic)
        and (alias := policy.topic_source(topic)) is not None
        and source in (None, alias)
    )


def _hops(policy: ReplicationPolicy, topic: str) -> Iterator[ClusterAlias]:
    """Yield the alias of each hop back to the topic's origin: one, where names do not tell more."""
    tells_all = policy.tracks_topic_sources or policy.is_heartbeats_topic(topic)
    for name in names_back(policy, topic) if tells_all else (topic,):
        alias = policy.topic_source(name)
        if alias is not None:
            yield alias


def _clusters_passed(policy: ReplicationPolicy, topic: str) -> Iterator[ClusterAlias]:
    """Yield the alias of each hop back, up to the first repetition: names can form a circle."""
    seen: set[ClusterAlias] = set()
    for alias in _hops(policy, topic):
        if alias in seen:
            return
        seen.add(alias)
        yield alias
