"""Hop chains of heartbeats topics, and which beats are written where."""

import pytest

from twinlog.policy import DefaultReplicationPolicy, IdentityReplicationPolicy
from twinlog_heartbeat.model.state import PathBook, upstream_chain

POLICIES = [DefaultReplicationPolicy(), IdentityReplicationPolicy(source_cluster_alias="A")]


@pytest.mark.parametrize("policy", POLICIES, ids=["default", "identity"])
@pytest.mark.parametrize(
    ("topic", "chain"),
    [
        ("heartbeats", ()),
        ("A.heartbeats", ("A",)),
        ("B.A.heartbeats", ("A", "B")),
        ("A.B.A.heartbeats", ("B", "A")),
    ],
)
def test_the_chain_starts_at_the_origin(
    policy: DefaultReplicationPolicy, topic: str, chain: tuple[str, ...]
) -> None:
    assert upstream_chain(policy, topic) == chain


def test_a_path_shows_its_newest_heartbeat() -> None:
    book = PathBook()
    book.on_topics("C", DefaultReplicationPolicy(), frozenset({"B.A.heartbeats", "B.heartbeats"}))
    book.on_heartbeat("C", "B.A.heartbeats", emitted_ms=5_000, seen_ms=5_100)
    book.on_heartbeat("C", "B.A.heartbeats", emitted_ms=4_000, seen_ms=5_200)
    book.on_heartbeat("C", "elsewhere", emitted_ms=4_000, seen_ms=5_200)
    first, second = book.paths()
    assert (first.topic, first.upstream_clusters) == ("B.A.heartbeats", ("A", "B"))
    assert (first.last_emitted_ms, first.last_seen_ms) == (5_000, 5_100)
    assert (second.topic, second.last_emitted_ms) == ("B.heartbeats", None)


def test_a_topic_that_is_gone_takes_its_path_with_it() -> None:
    book = PathBook()
    policy = DefaultReplicationPolicy()
    book.on_topics("B", policy, frozenset({"A.heartbeats"}))
    book.on_topics("C", policy, frozenset({"A.heartbeats"}))
    book.on_heartbeat("B", "A.heartbeats", emitted_ms=1, seen_ms=2)
    book.on_topics("B", policy, frozenset())
    assert [(path.observed_on, path.topic) for path in book.paths()] == [("C", "A.heartbeats")]
