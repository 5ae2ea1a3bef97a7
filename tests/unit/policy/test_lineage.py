"""Cycles (MirrorSourceConnectorTest), hops and upstream clusters (MirrorClientTest), internal topics of a
flow.
"""

import pytest

from twinlog.config import OffsetSyncsLocation
from twinlog.model import Flow
from twinlog.policy import (
    DefaultReplicationPolicy,
    HostedTopic,
    IdentityReplicationPolicy,
    configsync_topic,
    count_hops,
    cycle_alias,
    heartbeat_topics,
    offset_syncs_topic,
    record_kind,
    remote_topics,
    source_offsets_topic,
    upstream_clusters,
)
from twinlog.wire.formatters import RecordKind

DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy(source_cluster_alias="source")
FLOW = Flow("source", "target")

BLOCKED = [
    "source.topic1",
    "target.topic1",
    "target.source.topic1",
    "source.target.topic1",
    "target.source.target.topic1",
    "source.target.source.topic1",
]
ALLOWED = ["topic1", "othersource.topic1", "othertarget.topic1", "other.another.topic1"]


@pytest.mark.parametrize("topic", BLOCKED)
def test_default_blocks_cycles_through_either_end_of_the_flow(topic: str) -> None:
    assert cycle_alias(DEFAULT, FLOW, topic)


@pytest.mark.parametrize("topic", ALLOWED)
def test_default_allows_other_chains(topic: str) -> None:
    assert not cycle_alias(DEFAULT, FLOW, topic)


@pytest.mark.parametrize("topic", BLOCKED + ALLOWED)
def test_identity_sees_no_cycle_in_data_topics(topic: str) -> None:
    assert not cycle_alias(IDENTITY, FLOW, topic)


@pytest.mark.parametrize(
    "topic", ["target.heartbeats", "source.target.heartbeats", "target.source.heartbeats"]
)
def test_identity_blocks_heartbeats_that_passed_the_target(topic: str) -> None:
    assert cycle_alias(IDENTITY, FLOW, topic)


@pytest.mark.parametrize("topic", ["heartbeats", "othersource.heartbeats", "source.heartbeats"])
def test_identity_allows_other_heartbeats(topic: str) -> None:
    assert not cycle_alias(IDENTITY, FLOW, topic)


def test_is_cycle_with_null_upstream_topic() -> None:
    class NoUpstream(IdentityReplicationPolicy):
        def upstream_topic(self, topic: str) -> str | None:
            return None

    assert not cycle_alias(NoUpstream(source_cluster_alias="other"), FLOW, "topic1")
    assert cycle_alias(NoUpstream(source_cluster_alias="target"), FLOW, "topic1")


def test_cycle_alias_is_the_first_on_the_way_back() -> None:
    assert cycle_alias(DEFAULT, FLOW, "x.target.source.topic1") == "target"
    assert cycle_alias(DEFAULT, FLOW, "x.x.topic1") is None


def test_heartbeats_topics() -> None:
    topics = ["topic1", "heartbeats", "source1.heartbeats", "source2.source1.heartbeats", "source1heartbeats"]
    topics += ["heartbeats!", "!heartbeats", "source1-heartbeats"]
    assert heartbeat_topics(DEFAULT, topics) == {
        "heartbeats",
        "source1.heartbeats",
        "source2.source1.heartbeats",
    }


@pytest.mark.parametrize(
    ("topic", "source", "hops"),
    [
        ("topic", "source", None),
        ("source", "source", None),
        ("sourcetopic", "source", None),
        ("source1.topic", "source2", None),
        ("source1.topic", "source1", 1),
        ("source2.source1.topic", "source2", 1),
        ("source2.source1.topic", "source1", 2),
        ("source3.source2.source1.topic", "source1", 3),
        ("source3.source2.source1.topic", "source4", None),
        ("source1.source1.source2.topic", "source2", None),
    ],
)
def test_count_hops(topic: str, source: str, hops: int | None) -> None:
    assert count_hops(DEFAULT, topic, source) == hops


@pytest.mark.parametrize("policy", [DEFAULT, IDENTITY])
def test_upstream_clusters(policy: DefaultReplicationPolicy) -> None:
    topics = ["topic1", "heartbeats", "source1.heartbeats", "source1.source2.heartbeats"]
    topics.append("source3.source4.source5.heartbeats")
    assert upstream_clusters(policy, topics) == {"source1", "source2", "source3", "source4", "source5"}


def test_identity_that_was_not_told_its_source_finds_heartbeats_only() -> None:
    assert remote_topics(IdentityReplicationPolicy(), ["t", "A.heartbeats"]) == {"A.heartbeats"}


def test_offset_syncs_topic_is_named_after_the_other_cluster() -> None:
    flow = Flow("A", "B")
    assert offset_syncs_topic(DEFAULT, flow) == HostedTopic(cluster="A", topic="mm2-offset-syncs.B.internal")
    assert offset_syncs_topic(DEFAULT, flow, OffsetSyncsLocation.TARGET) == HostedTopic(
        cluster="B", topic="mm2-offset-syncs.A.internal"
    )


def test_topics_of_connect_and_configsync() -> None:
    assert source_offsets_topic("A") == "mm2-offsets.A.internal"
    assert configsync_topic("A") == "mm2-configsync.A.internal"
    assert DEFAULT.is_internal_topic(configsync_topic("A"))


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("heartbeats", RecordKind.HEARTBEAT),
        ("A.heartbeats", RecordKind.HEARTBEAT),
        ("A.checkpoints.internal", RecordKind.CHECKPOINT),
        ("mm2-offset-syncs.B.internal", RecordKind.OFFSET_SYNC),
        ("mm2-offsets.A.internal", None),
        ("orders", None),
    ],
)
def test_record_kind_by_topic_name(topic: str, kind: RecordKind | None) -> None:
    assert record_kind(DEFAULT, topic) is kind
