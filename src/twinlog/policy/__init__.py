"""Names of remote and internal topics (MM2's ReplicationPolicy) and their meaning. Pure."""

from twinlog.policy.configured import DEFAULT_POLICY_CLASS, IDENTITY_POLICY_CLASS, policy_from_config
from twinlog.policy.internal_topics import (
    HostedTopic,
    configsync_topic,
    is_mirror_topic,
    offset_syncs_topic,
    record_kind,
    source_offsets_topic,
)
from twinlog.policy.replication import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
    checkpoint_topics,
    count_hops,
    cycle_alias,
    heartbeat_topics,
    is_cycle,
    remote_topics,
    replication_hops,
    upstream_clusters,
)

__all__ = [
    "DEFAULT_POLICY_CLASS",
    "IDENTITY_POLICY_CLASS",
    "DefaultReplicationPolicy",
    "HostedTopic",
    "IdentityReplicationPolicy",
    "ReplicationPolicy",
    "checkpoint_topics",
    "configsync_topic",
    "count_hops",
    "cycle_alias",
    "heartbeat_topics",
    "is_cycle",
    "is_mirror_topic",
    "offset_syncs_topic",
    "policy_from_config",
    "record_kind",
    "remote_topics",
    "replication_hops",
    "source_offsets_topic",
    "upstream_clusters",
]
