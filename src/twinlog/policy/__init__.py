"""Names of remote and internal topics (MM2's ReplicationPolicy) and their meaning. Pure."""

from twinlog.policy.configured import DEFAULT_POLICY_CLASS as DEFAULT_POLICY_CLASS
from twinlog.policy.configured import IDENTITY_POLICY_CLASS as IDENTITY_POLICY_CLASS
from twinlog.policy.configured import policy_from_config as policy_from_config
from twinlog.policy.internal_topics import HostedTopic as HostedTopic
from twinlog.policy.internal_topics import configsync_topic as configsync_topic
from twinlog.policy.internal_topics import is_mirror_topic as is_mirror_topic
from twinlog.policy.internal_topics import offset_syncs_topic as offset_syncs_topic
from twinlog.policy.internal_topics import record_kind as record_kind
from twinlog.policy.internal_topics import source_offsets_topic as source_offsets_topic
from twinlog.policy.replication import DefaultReplicationPolicy as DefaultReplicationPolicy
from twinlog.policy.replication import IdentityReplicationPolicy as IdentityReplicationPolicy
from twinlog.policy.replication import ReplicationPolicy as ReplicationPolicy
from twinlog.policy.replication import checkpoint_topics as checkpoint_topics
from twinlog.policy.replication import count_hops as count_hops
from twinlog.policy.replication import cycle_alias as cycle_alias
from twinlog.policy.replication import heartbeat_topics as heartbeat_topics
from twinlog.policy.replication import remote_topics as remote_topics
from twinlog.policy.replication import replication_hops as replication_hops
from twinlog.policy.replication import upstream_clusters as upstream_clusters
