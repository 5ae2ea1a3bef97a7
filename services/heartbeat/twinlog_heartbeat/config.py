"""The part of the configuration that the heartbeat service uses."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from twinlog.config import ClientConfig, Configuration, FlowClients, FlowConfig
from twinlog.config.flow.filters import topic_filter
from twinlog.config.values.precedence import Connector
from twinlog.model import ClusterAlias, Flow
from twinlog.policy import ReplicationPolicy, policy_from_config

SHORTEST_SILENCE_SECONDS = 5.0
SILENT_AFTER_INTERVALS = 5
"""A path is SILENT after this many intervals without heartbeats, but not before the shortest silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatFlow:
    """One running flow (with a herder, in MM2's terms), whether or not it replicates."""

    flow: Flow
    replicates: bool
    """The flow copies topics, so a heartbeat on its source must arrive on its target."""
    emits: bool
    """emit.heartbeats.enabled."""
    copies_heartbeats: bool
    """heartbeats.replication.enabled, or the topic filter selects the topic."""
    interval_seconds: float
    delay_seconds: float
    """twinlog.delay.seconds: no heartbeat arrives sooner than this."""
    topic_replication_factor: int
    policy: ReplicationPolicy
    clients: FlowClients
    """With the roles of heartbeats."""

    @property
    def silent_after_ms(self) -> int:
        return round(1000 * max(SHORTEST_SILENCE_SECONDS, SILENT_AFTER_INTERVALS * self.interval_seconds))


def heartbeat_flows(configuration: Configuration) -> tuple[HeartbeatFlow, ...]:
    """The flows of this process, sorted. Raises ConfigError for a policy or filter that cannot be used."""
    flows = (heartbeat_flow(flow) for flow in configuration.flows)
    return tuple(sorted(flows, key=lambda entry: entry.flow))


def heartbeat_flow(config: FlowConfig) -> HeartbeatFlow:
    """One flow. Raises as `heartbeat_flows`."""
    policy = policy_from_config({**config.policy_config, "source.cluster.alias": config.flow.source})
    clients = config.clients

    def client(config_of_client: ClientConfig, role: str) -> ClientConfig:
        return config_of_client.for_role(config.flow, Connector.HEARTBEAT, role)

    return HeartbeatFlow(
        flow=config.flow,
        replicates=config.enabled,
        emits=config.heartbeat.enabled,
        copies_heartbeats=(
            config.configsync.heartbeats_replication_enabled
            or topic_filter(config).takes(policy.heartbeats_topic())
        ),
        interval_seconds=config.heartbeat.interval_seconds,
        delay_seconds=config.source.delay_seconds,
        topic_replication_factor=config.heartbeat.topic_replication_factor,
        policy=policy,
        clients=replace(
            clients,
            source_admin=client(clients.source_admin, "heartbeats-source-admin"),
            source_producer=client(clients.source_producer, "heartbeats-source-producer"),
            target_admin=client(clients.target_admin, "heartbeats-target-admin"),
            target_producer=client(clients.data_producer, "heartbeats-target-producer"),
            target_consumer=client(clients.target_consumer, "heartbeats-target-consumer"),
        ),
    )


def expected_topics(flows: Iterable[HeartbeatFlow], target: ClusterAlias) -> frozenset[str]:
    """The replicated heartbeats topics that flows write to a cluster, or may begin to write when a changed
    rule selects heartbeats."""
    return frozenset(
        entry.policy.format_remote_topic(entry.flow.source, entry.policy.heartbeats_topic())
        for entry in flows
        if entry.flow.target == target and entry.replicates
    )
