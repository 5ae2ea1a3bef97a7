"""Which topics of a cluster form one logical topic. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from twinlog.model import ClusterAlias
from twinlog.policy import ReplicationPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A topic that is part of a logical topic."""

    topic: str
    """Its name on the cluster that is read."""
    logical_topic: str
    upstream: tuple[ClusterAlias, ...]
    """The clusters its records passed, origin first; empty for the cluster's own topic."""

    @property
    def origin(self) -> ClusterAlias | None:
        """Where the records were first written; None = this cluster."""
        return self.upstream[0] if self.upstream else None


def members(
    policy: ReplicationPolicy,
    topics: Collection[str],
    logical_topics: Collection[str],
    clusters: Collection[ClusterAlias] | None = None,
) -> dict[str, Member]:
    """The topics that together have every record of `logical_topics` once, by their names on the cluster.

    Of several copies of one origin (in a mesh `A.orders` and `C.A.orders`) the one with the fewest hops is
    taken, or the first by name among equals, so that every member of a group chooses the same. An ordinary
    topic whose name looks like a copy (`v1.orders`) counts as one, because only names can tell, unless
    `clusters` lists the aliases.
    """
    wanted = set(logical_topics)
    nearest: dict[tuple[str, ClusterAlias | None], Member] = {}
    for member in _candidates(policy, sorted(topics), wanted):
        if clusters is not None and not set(clusters).issuperset(member.upstream):
            continue
        key = (member.logical_topic, member.origin)
        if key not in nearest or len(member.upstream) < len(nearest[key].upstream):
            nearest[key] = member
    return {member.topic: member for member in nearest.values()}


def _candidates(policy: ReplicationPolicy, topics: Iterable[str], wanted: set[str]) -> Iterable[Member]:
    """Each topic that is requested, or a copy of one over any number of hops."""
    for topic in topics:
        logical, upstream = topic, tuple[ClusterAlias, ...]()
        while logical not in wanted:
            source, above = policy.topic_source(logical), policy.upstream_topic(logical)
            if source is None or above is None or above == logical:
                break
            logical, upstream = above, (source, *upstream)
        if logical in wanted:
            yield Member(topic=topic, logical_topic=logical, upstream=upstream)
