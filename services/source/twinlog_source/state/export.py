"""`twinlog state export`: writes a flow's state from its internal topics to one file.

Positions are read before and after the ends of the copies. If nothing was copied in between, they belong
together; otherwise the file gets a pair that the flow itself has stored.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from twinlog import __version__
from twinlog.clock import Clock
from twinlog.config import Configuration, FlowConfig
from twinlog.config.client_settings import ClientConfig
from twinlog.errors import ConfigError, KafkaError, NotFoundError, StateError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import known_offsets, records_to
from twinlog.model import Flow, Record, TopicPartition
from twinlog.policy.internal_topics import HostedTopic, configsync_topic, failover_topic
from twinlog.service.owner.membership import services_of
from twinlog.wire.source_offset import CONTROL_CONNECTOR, GAP_CONNECTOR, decode_connect_key
from twinlog_source.config import SourceFlow, source_flows
from twinlog_source.log.control import ControlState
from twinlog_source.log.fact_records import parse_control
from twinlog_source.log.facts import CopyFact, LeaderEpochsFact
from twinlog_source.log.positions import PositionsLog
from twinlog_source.log.producers import foreign_positions
from twinlog_source.state.state_file import CopyLine, ExportedFlow, Header, StateRecord, TopicRole

# The requests of export and import to the two clusters of a flow.

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

    def topics(self) -> Mapping[TopicRole, HostedTopic]:
        """The internal topics that hold state, in the order in which they are restored."""
        source, target = self.flow.flow.source, self.flow.flow.target
        found = {
            TopicRole.CONFIGSYNC: HostedTopic(cluster=target, topic=configsync_topic(source)),
            TopicRole.MOVES: HostedTopic(cluster=target, topic=failover_topic(source)),
            TopicRole.CHECKPOINTS: HostedTopic(
                cluster=target, topic=self.flow.policy.checkpoints_topic(source)
            ),
        }
        if self.flow.offset_syncs is not None:
            found[TopicRole.OFFSET_SYNCS] = self.flow.offset_syncs
        found[TopicRole.POSITIONS] = HostedTopic(
            cluster=target, topic=self.flow.settings.offset_storage.topic
        )
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StateExport:
    clusters: FlowClusters

    async def run(self) -> ExportedFlow:
        """Raises NotFoundError if the flow has no positions, KafkaError."""
        clusters = self.clusters
        header = Header(
            flow=str(clusters.flow.flow),
            exported_at_ms=clusters.clock.now_ms(),
            version=__version__,
            source_cluster_id=await clusters.source.cluster_id(),
            target_cluster_id=await clusters.target.cluster_id(),
        )
        async with AsyncExitStack() as stack:
            log = await clusters.positions_log(stack)
            if not log.partition_count:
                raise NotFoundError(
                    f"{clusters.flow.flow} has no topic {log.topic}: it never ran, or its positions are lost",
                    metadata={"topic": log.topic},
                )
            worked_before = await clusters.owners()
            await log.refresh()
            foreign = foreign_positions(log, header.target_cluster_id)
            copies = await self._copies(log, foreign)
            records = [
                record
                for role in clusters.topics()
                for record in await self._records(role)
                if role is not TopicRole.POSITIONS or not self._is_about_ours(record, foreign)
            ]
            is_still = not worked_before and not await clusters.owners()
            lines = [line if is_still else _of_a_running_flow(line, log.control) for line in copies]
        return ExportedFlow(header=header, copies=tuple(lines), records=tuple(records))

    async def _copies(self, log: PositionsLog, foreign: Collection[TopicPartition]) -> list[CopyLine]:
        """The copies of a flow that is not being copied. The end of a copy does not belong to a `foreign`
        position: MirrorMaker 2 does not store one with each record."""
        positions = dict(await log.refresh())
        names = {topic: self._target_topic(topic) for topic in sorted({each.topic for each in positions})}
        copies = {each: TopicPartition(names[each.topic], each.partition) for each in positions}
        ends = await settled_ends(self.clusters.target, copies.values())
        changed = {
            each for each, position in (await log.refresh()).items() if positions.get(each) != position
        }
        source_ids = await topic_ids(self.clusters.source, names)
        target_ids = await topic_ids(self.clusters.target, names.values())
        lines = []
        for partition, position in sorted(positions.items()):
            copy, control = copies[partition], log.control
            fact, mark = control.copies.get(partition), control.topics.get(partition.topic)
            target_id = target_ids.get(copy.topic, "")
            end = None if partition in changed or partition in foreign else ends.get(copy)
            preserved = fact is not None and fact.preserved and fact.target_topic_id == target_id
            # The position was read before the end: a copy that was empty then had nothing of what follows it.
            pair = (position, position if preserved else 0 if ends.get(copy) == 0 else end)
            line = CopyLine(
                topic=partition.topic,
                partition=partition.partition,
                position=position,
                target_topic=copy.topic,
                # Of the topics to which the position belongs, which may differ from the present ones.
                source_topic_id=source_ids.get(partition.topic, "") if mark is None else mark.topic_id,
                target_topic_id=(mark.target_topic_id if mark is not None else "") or target_id,
                preserved=preserved,
                anchor_position=None if pair[1] is None else pair[0],
                anchor_end=pair[1],
                target_end=end,
            )
            lines.append(line if end is not None else _of_a_running_flow(line, control))
        return lines

    def _target_topic(self, topic: str) -> str:
        return self.clusters.flow.policy.format_remote_topic(self.clusters.flow.flow.source, topic)

    async def _records(self, role: TopicRole) -> list[StateRecord]:
        hosted = self.clusters.topics()[role]
        records = all_records(self.clusters.cluster_of(hosted), hosted.topic)
        if role is TopicRole.OFFSET_SYNCS:  # Each of these tells something.
            found = [record async for record in records]
        else:
            found = await newest(records)
        if role is TopicRole.POSITIONS:
            found = [record for record in found if self._is_ours(record.key)]
        return [
            StateRecord(role=role, key=record.key, value=record.value, timestamp_ms=record.timestamp_ms)
            for record in found
        ]

    def _is_about_ours(self, record: StateRecord, foreign: Collection[TopicPartition]) -> bool:
        """Whether it belongs to a position of the flow, and the newest position is foreign."""
        found = parse_control(self.clusters.flow.flow.source, record.key, record.value)
        match None if found is None else found.fact:
            case LeaderEpochsFact(partition=partition) | CopyFact(partition=partition, preserved=True):
                return partition in foreign
            case _:
                return False

    def _is_ours(self, key: bytes | None) -> bool:
        flow = self.clusters.flow
        return of_flow(key, flow.flow.source, flow.settings.connector_name)


def of_flow(key: bytes | None, source: str, connector: str) -> bool:
    """Whether a record of the positions topic is about the flow's copies."""
    decoded = decode_connect_key(key)
    return (
        decoded is not None
        and decoded.connector in (connector, GAP_CONNECTOR, CONTROL_CONNECTOR)
        and decoded.partition.get("cluster") == source
    )


def _of_a_running_flow(line: CopyLine, control: ControlState) -> CopyLine:
    """The copies of a running flow, with a pair that the flow has stored: the ends that were read belong to
    another moment."""
    anchor: tuple[int | None, int | None] = (None, None)
    fact = control.targets.get(line.source)
    if line.preserved:
        anchor = (line.position, line.position)
    elif line.anchor_end == 0:
        anchor = (line.position, 0)
    elif fact is not None and fact.topic_id == line.target_topic_id and fact.end_offset:
        anchor = (fact.position, fact.end_offset)
    return replace(line, anchor_position=anchor[0], anchor_end=anchor[1], target_end=None)


async def settled_ends(
    cluster: KafkaCluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The ends of logs without an open transaction; missing logs are left out. Raises KafkaError of a cluster
    that does not answer."""
    found: dict[TopicPartition, int] = {}
    if not partitions:
        return found
    ends = await cluster.list_offsets(OffsetSpec.LATEST, partitions)
    stable = await cluster.list_offsets(OffsetSpec.LAST_STABLE, partitions)
    for partition, end in ends.items():
        answer = stable[partition]
        if isinstance(end, KafkaError) and end.retriable and end.reason != KafkaReason.TOPIC_UNKNOWN:
            raise end
        if isinstance(end, int) and answer == end:
            found[partition] = end
    return found


async def topic_ids(cluster: KafkaCluster, topics: Collection[str] | Mapping[str, str]) -> dict[str, str]:
    """The ids of the topics that exist. Raises KafkaError if the cluster does not answer."""
    found: dict[str, str] = {}
    for topic, answer in (await cluster.describe_topics(list(topics)) if topics else {}).items():
        if isinstance(answer, KafkaError):
            if answer.retriable and answer.reason != KafkaReason.TOPIC_UNKNOWN:
                raise answer
            continue
        found[topic] = answer.topic_id
    return found
