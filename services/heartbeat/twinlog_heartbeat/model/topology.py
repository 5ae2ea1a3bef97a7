"""The paths that heartbeats have travelled, from the names and the newest records of heartbeats topics.
Pure."""

from dataclasses import dataclass

from twinlog.model import ClusterAlias
from twinlog.policy import ReplicationPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A chain of clusters that ends at the cluster of the topic."""

    observed_on: ClusterAlias
    topic: str
    """The heartbeats topic there, such as `B.A.heartbeats` on C."""
    upstream_clusters: tuple[ClusterAlias, ...]
    """From the origin to the last hop: A, B for `B.A.heartbeats`."""
    last_emitted_ms: int | None
    """When the newest heartbeat in it was emitted; None while none was read."""
    last_seen_ms: int | None


def upstream_chain(policy: ReplicationPolicy, topic: str) -> tuple[ClusterAlias, ...]:
    """The clusters that the topic's records passed, origin first; empty for the cluster's own `heartbeats`.

    Ends at an alias that occurs again, because names can form a circle.
    """
    chain: list[ClusterAlias] = []
    while (alias := policy.topic_source(topic)) is not None and alias not in chain:
        chain.append(alias)
        upstream = policy.upstream_topic(topic)
        if upstream is None or upstream == topic:
            break
        topic = upstream
    return tuple(reversed(chain))


class PathBook:
    """What was seen in the replicated heartbeats topics of every cluster."""

    def __init__(self) -> None:
        self._paths: dict[tuple[ClusterAlias, str], Path] = {}

    def on_topics(self, cluster: ClusterAlias, policy: ReplicationPolicy, topics: frozenset[str]) -> None:
        """Replace the known replicated heartbeats topics of a cluster."""
        for key in [key for key in self._paths if key[0] == cluster and key[1] not in topics]:
            del self._paths[key]
        for topic in topics:
            self._paths.setdefault(
                (cluster, topic),
                Path(
                    observed_on=cluster,
                    topic=topic,
                    upstream_clusters=upstream_chain(policy, topic),
                    last_emitted_ms=None,
                    last_seen_ms=None,
                ),
            )

    def on_heartbeat(self, cluster: ClusterAlias, topic: str, *, emitted_ms: int, seen_ms: int) -> None:
        """A heartbeat was read; one that is older than the newest changes nothing."""
        path = self._paths.get((cluster, topic))
        if path is None:
            return
        newest_ms = path.last_emitted_ms
        # One from the future was written before the clock was set back.
        if newest_ms is not None and emitted_ms < newest_ms <= seen_ms:
            return
        self._paths[cluster, topic] = Path(
            observed_on=cluster,
            topic=topic,
            upstream_clusters=path.upstream_clusters,
            last_emitted_ms=emitted_ms,
            last_seen_ms=seen_ms,
        )

    def paths(self) -> list[Path]:
        """All paths, sorted by cluster and topic."""
        return [self._paths[key] for key in sorted(self._paths)]
