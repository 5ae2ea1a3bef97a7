"""The part of the configuration that the checkpoint service uses."""

from dataclasses import dataclass

from twinlog.config import CheckpointSettings, ClientConfig, Configuration, FlowConfig, OffsetSyncsLocation
from twinlog.config.flow.filters import group_filter
from twinlog.config.values.precedence import Connector
from twinlog.filters import NameFilter
from twinlog.model import Flow
from twinlog.policy import HostedTopic, ReplicationPolicy, offset_syncs_topic, policy_from_config
from twinlog.policy.transformed import TopicTransforms
from twinlog.selection import TopicSelector
from twinlog.selection_configured import topic_selector


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointClients:
    """The Kafka clients of a flow's checkpoints, by purpose."""

    source_admin: ClientConfig
    """Reads groups, their offsets and log ends on the source."""
    target_admin: ClientConfig
    """The same on the target; also commits group offsets."""
    source_reader: ClientConfig
    target_reader: ClientConfig
    syncs_reader: ClientConfig
    """On the cluster that hosts the offset syncs."""
    checkpoints_writer: ClientConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFlow:
    """One flow whose groups are translated."""

    flow: Flow
    is_stopped: bool
    """By a rule: it copies heartbeats only."""
    policy: ReplicationPolicy
    topics: TopicSelector
    """Decides which topics get checkpoints. As MM2, it uses the raw topic filter; the other rules explain why
    a topic has no sync."""
    groups: NameFilter
    syncs_topic: HostedTopic
    checkpoints_topic: str
    settings: CheckpointSettings
    clients: CheckpointClients
    transforms: TopicTransforms


def checkpoint_flows(configuration: Configuration) -> tuple[CheckpointFlow, ...]:
    """The flows of this process that translate groups, sorted.

    Raises ConfigError for a policy or filter that cannot be used.
    """
    flows = (checkpoint_flow(flow) for flow in configuration.flows if flow.checkpoint.enabled)
    return tuple(sorted(flows, key=lambda entry: entry.flow))


def with_flow(configuration: Configuration, flow: Flow) -> Configuration | None:
    """The configuration that has the flow; None if the file has none that copies. Another process may run it.
    Blocks as `load` does. Raises ConfigError."""
    found: Configuration | None = configuration
    if all(entry.flow != flow for entry in configuration.flows):
        found = None if configuration.base is None else configuration.base.other_flow(flow)
    return found if found is not None and found.flow(flow).enabled else None


def checkpoint_flow(config: FlowConfig) -> CheckpointFlow:
    """One flow. Raises as `checkpoint_flows`."""
    flow, settings, clients = config.flow, config.checkpoint, config.clients
    policy = policy_from_config({**config.policy_config, "source.cluster.alias": flow.source})
    syncs_topic = offset_syncs_topic(policy, flow, settings.offset_syncs_location)
    on_source = settings.offset_syncs_location is OffsetSyncsLocation.SOURCE

    def client(of_flow: ClientConfig, role: str | None) -> ClientConfig:
        return of_flow.for_role(flow, Connector.CHECKPOINT, role)

    return CheckpointFlow(
        flow=flow,
        is_stopped=not config.enabled,
        policy=policy,
        topics=topic_selector(config, settings.topics),
        groups=group_filter(config),
        syncs_topic=syncs_topic,
        checkpoints_topic=policy.checkpoints_topic(flow.source),
        settings=settings,
        transforms=TopicTransforms(config.policy_config, flow.source),
        clients=CheckpointClients(
            source_admin=client(clients.source_admin, "checkpoint-source-admin"),
            target_admin=client(clients.target_admin, "checkpoint-target-admin"),
            source_reader=client(clients.source_consumer, "alignment-source-consumer"),
            target_reader=client(clients.target_consumer, "checkpoints-target-consumer"),
            syncs_reader=client(
                clients.source_consumer if on_source else clients.target_consumer,
                f"offset-syncs-{settings.offset_syncs_location}-consumer",
            ),
            checkpoints_writer=client(clients.data_producer, "checkpoints-target-producer"),
        ),
    )
