"""The requests of export and import to the two clusters of a flow."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from twinlog.clock import Clock
from twinlog.config import Configuration, FlowConfig
from twinlog.config.client_settings import ClientConfig
from twinlog.errors import ConfigError, KafkaError, StateError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import records_to
from twinlog.model import Flow, Record, TopicPartition
from twinlog.policy.internal_topics import HostedTopic, configsync_topic, failover_topic
from twinlog.service.owner.membership import services_of
from twinlog_source.config import SourceFlow, source_flows
from twinlog_source.log.positions import PositionsLog
from twinlog_source.state.state_file import Role

_TIMEOUT_SECONDS = 30.0
"""The longest wait for the next record of a topic that has more."""
OWNERS = ("source", "checkpoint", "configsync")
"""The services that write what is exported and imported."""


@dataclass(slots=True, kw_only=True)
class FlowClusters:
    """A flow's clusters and its internal topics. All methods raise KafkaError."""

    configuration: Configuration
    entry: FlowConfig
    flow: SourceFlow
    source: KafkaCluster
    target: KafkaCluster
    clock: Clock

    def topics(self) -> Mapping[Role, HostedTopic]:
        """The internal topics that hold state, in the order in which they are restored."""
        source, target = self.flow.flow.source, self.flow.flow.target
        found = {
            Role.CONFIGSYNC: HostedTopic(cluster=target, topic=configsync_topic(source)),
            Role.MOVES: HostedTopic(cluster=target, topic=failover_topic(source)),
            Role.CHECKPOINTS: HostedTopic(cluster=target, topic=self.flow.policy.checkpoints_topic(source)),
        }
        if self.flow.offset_syncs is not None:
            found[Role.OFFSET_SYNCS] = self.flow.offset_syncs
        found[Role.POSITIONS] = HostedTopic(cluster=target, topic=self.flow.settings.offset_storage.topic)
        return found

    def cluster_of(self, topic: HostedTopic) -> KafkaCluster:
        return self.source if topic.cluster == self.flow.flow.source else self.target

    async def owners(self) -> list[str]:
        """Services of which a process owns the flow or stands by for it."""
        return sorted(set(OWNERS) & set(await services_of(self.target, self.flow.flow)))

    async def positions_log(self, stack: AsyncExitStack) -> PositionsLog:
        """Not read yet; without partitions if the topic does not exist."""
        topic = self.flow.settings.offset_storage.topic
        return PositionsLog(
            list_offsets=self.target.list_offsets,
            reader=await stack.enter_async_context(self.target.reader(read_committed=True)),
            topic=topic,
            partition_count=await partition_count(self.target, topic),
            source_alias=self.flow.flow.source,
            connector_name=self.flow.settings.connector_name,
        )


async def open_flow(
    configuration: Configuration, flow: Flow, clock: Clock, stack: AsyncExitStack
) -> FlowClusters:
    """Open connections to both clusters; they close with the stack. Raises ConfigError."""
    entry = configuration.flow(flow)
    found = next((each for each in source_flows(configuration) if each.flow == flow), None)
    if found is None:
        raise ConfigError(f"{flow} is not enabled, so it has no state", metadata={"flow": str(flow)})
    return FlowClusters(
        configuration=configuration,
        entry=entry,
        flow=found,
        source=await stack.enter_async_context(_open(entry.clients.source_admin)),
        target=await stack.enter_async_context(_open(entry.clients.target_admin)),
        clock=clock,
    )


def _open(client: ClientConfig) -> KafkaCluster:
    return open_cluster(
        client.alias, client.properties, timeout_seconds=_TIMEOUT_SECONDS, client_id_suffix="state"
    )


async def partition_count(cluster: KafkaCluster, topic: str) -> int:
    """0: the topic does not exist. Raises KafkaError."""
    found = (await cluster.describe_topics([topic]))[topic]
    if isinstance(found, KafkaError):
        if found.reason == KafkaReason.TOPIC_UNKNOWN:
            return 0
        raise found
    return found.partition_count


async def all_records(cluster: KafkaCluster, topic: str) -> AsyncIterator[Record]:
    """The committed records of a topic, partition by partition. Raises KafkaError."""
    partitions = [TopicPartition(topic, number) for number in range(await partition_count(cluster, topic))]
    starts = await known_offsets(cluster, OffsetSpec.EARLIEST, partitions)
    ends = await known_offsets(cluster, OffsetSpec.LATEST, partitions)
    async with cluster.reader(read_committed=True) as reader:
        for partition in partitions:
            async for record in patient_records(reader, partition, starts[partition], ends[partition]):
                yield record


patient_records = partial(records_to, max_bytes=4 << 20, patience_seconds=60.0)
"""Waits for as long as a transaction may be open."""


async def known_offsets(
    cluster: KafkaCluster, spec: OffsetSpec, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Raises the KafkaError of any of them."""
    found: dict[TopicPartition, int] = {}
    for partition, answer in (await cluster.list_offsets(spec, partitions) if partitions else {}).items():
        if isinstance(answer, KafkaError):
            raise answer
        found[partition] = answer
    return found


async def newest(records: AsyncIterator[Record]) -> list[Record]:
    """The newest record of each key; deleted keys are left out."""
    found = {record.key: record async for record in records}
    return [record for record in found.values() if record.value is not None]


def require_stopped(flow: Flow, working: Collection[str]) -> None:
    """Raises StateError (FLOW_RUNS)."""
    if working:
        raise StateError(
            f"{flow} runs: stop {', '.join(working)} first (SIGTERM), on every machine",
            reason="FLOW_RUNS",
            metadata={"flow": str(flow), "services": ", ".join(working)},
        )
