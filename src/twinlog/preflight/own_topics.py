"""A flow's internal topics. Pure."""

from typing import Final, NamedTuple

from twinlog.config import FlowConfig
from twinlog.model import ClusterAlias
from twinlog.policy.internal_topics import OffsetSyncsLocation as HostedLocation
from twinlog.policy.internal_topics import (
    configsync_topic,
    failover_topic,
    offset_syncs_topic,
    sync_history_topic,
)
from twinlog.policy.replication import ReplicationPolicy
from twinlog.transforms.expressions import DEAD_LETTERS

WARM_START: Final = "without it the checkpoint service starts more slowly"


class OwnTopic(NamedTuple):
    cluster: ClusterAlias
    """The cluster that holds it."""
    name: str
    purpose: str = ""
    """Its purpose, for a topic without which the flow works; otherwise empty."""
    is_read_whole: bool = False
    """A process reads all of it at its start, however large it is."""


def own_topics(config: FlowConfig, policy: ReplicationPolicy) -> list[OwnTopic]:
    """Every topic that the services create, read and write for a flow."""
    source, target = config.flow.source, config.flow.target
    topics = [
        OwnTopic(target, config.source.offset_storage.topic, is_read_whole=True),
        OwnTopic(target, configsync_topic(source)),
    ]
    if config.source.offset_syncs.enabled:
        location = HostedLocation(config.source.offset_syncs.location.value)
        syncs = offset_syncs_topic(policy, config.flow, location)
        topics.append(OwnTopic(syncs.cluster, syncs.topic))
    if dead_letters := config.policy_config.get(DEAD_LETTERS):
        topics.append(OwnTopic(target, dead_letters, "without it records that fail stop their partitions"))
    if config.checkpoint.enabled:
        topics += [
            OwnTopic(target, policy.checkpoints_topic(source), is_read_whole=True),
            OwnTopic(target, failover_topic(source)),
            OwnTopic(target, sync_history_topic(source), WARM_START),
        ]
    if config.heartbeat.enabled:
        topics += [OwnTopic(cluster, policy.heartbeats_topic()) for cluster in (source, target)]
    return topics
