"""Derives the path of records from topic names: cycles, hops, upstream clusters (MM2's isCycle and
MirrorClient)."""

from collections.abc import Iterable, Iterator

from twinlog.model import ClusterAlias, Flow
from twinlog.policy.replication import ReplicationPolicy, names_back


def cycle_alias(policy: ReplicationPolicy, flow: Flow, topic: str) -> ClusterAlias | None:
    """Return the alias that would make copying `topic` a cycle, None without a cycle.

    A topic that already passed through the flow's target is not copied again, nor one that is a copy of the
    flow's own source (Kafka 4.4, KAFKA-9914). Policies that keep names check only the target.
    """
    blocked = {flow.target, flow.source} if policy.tracks_topic_sources else {flow.target}
    return next((alias for alias in _hops(policy, topic) if alias in blocked), None)


def is_cycle(policy: ReplicationPolicy, flow: Flow, topic: str) -> bool:
    """Whether copying `topic` from the flow's source to its target would make a cycle."""
    return cycle_alias(policy, flow, topic) is not None


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
