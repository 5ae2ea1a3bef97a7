"""Reads what MirrorMaker 2 and the flow left on both clusters; looks twice for a running writer. Changes
nothing."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from twinlog.config import ClientConfig, Configuration, FlowConfig
from twinlog.errors import KafkaError, WireFormatError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, OffsetSpec, TopicDescription
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import read_to, records_to
from twinlog.model import Record, TopicPartition
from twinlog.policy.replication import ReplicationPolicy
from twinlog.preflight.adoption import AdoptionFacts, Log, Signs, StoredPositions
from twinlog.preflight.facts import own_topics
from twinlog.selection_configured import topic_selector
from twinlog.service.feeds.rules import flow_in_force
from twinlog.service.owner.membership import services_of
from twinlog.service.waiting import wait_or_stop
from twinlog.wire.connect_json import JsonValue
from twinlog.wire.heartbeat import HEARTBEATS_PARTITION, decode_heartbeat
from twinlog.wire.source_offset import (
    CONTROL_CONNECTOR,
    GAP_CONNECTOR,
    decode_connect_key,
    decode_document,
    decode_source_offset,
    decode_source_offset_key,
)

_FETCH_BYTES = 4 << 20
_OWN_RECORDS = (CONTROL_CONNECTOR, GAP_CONNECTOR)
_DEDICATED = "mm2-offsets."


async def gather_adoption(
    configuration: Configuration, *, connect_group: str, look_seconds: float, timeout_seconds: float
) -> list[AdoptionFacts]:
    """One result for each enabled flow.

    `connect_group` is the group of MirrorMaker 2's workers; empty = that of the dedicated mode, if its
    positions topic is used. `look_seconds` lie between the two looks. Raises KafkaError, and StateError for
    rules that cannot be read: a flow whose state is not known is not taken over.
    """
    facts: list[AdoptionFacts] = []
    for config in configuration.enabled_flows:
        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(_open(config.clients.target_admin, timeout_seconds))
            in_force = await flow_in_force(configuration, config.flow, target, starting=True)
            look = _Look(
                config=in_force.config,
                connect_group=connect_group or _dedicated_group(config),
                source=await stack.enter_async_context(_open(config.clients.source_admin, timeout_seconds)),
                target=target,
            )
            facts.append(await look.facts(look_seconds))
    return facts


def _open(client: ClientConfig, timeout_seconds: float) -> KafkaCluster:
    return open_cluster(client.alias, client.properties, timeout_seconds=timeout_seconds)


def _dedicated_group(config: FlowConfig) -> str:
    topic = config.source.offset_storage.topic
    return f"{config.flow.source}-mm2" if topic.startswith(_DEDICATED) else ""


class BegunCopy(NamedTuple):
    target_topic_id: str
    is_preserved: bool
    """It has the source's offsets."""


@dataclass(slots=True, kw_only=True)
class PositionsRead:
    """Collects the positions of a source alias, of every connector, from the records."""

    source_alias: str
    connector_name: str
    by_connector: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    unreadable: dict[TopicPartition, str] = field(default_factory=dict)
    written: int = 0
    newest_ms: int | None = None
    twinlog_was_here: bool = False
    begun: dict[TopicPartition, BegunCopy] = field(default_factory=dict)
    """What is stored of the kinds of copies, before their first record."""
    _next: dict[TopicPartition, int] = field(default_factory=dict)

    async def read(self, cluster: KafkaCluster, topic: str) -> None:
        """Read what has come since the last time. Raises KafkaError."""
        async with cluster.reader() as reader:
            for partition in await _partitions(cluster, topic):
                start = self._next.get(partition)
                log = (await _logs(cluster, [partition]))[partition]
                begin = log.start if start is None else max(start, log.start)
                async for fetched in read_to(reader, partition, begin, log.end, max_bytes=_FETCH_BYTES):
                    for record in fetched.records:
                        self.take(record)
                    self._next[partition] = fetched.next_offset

    @property
    def own(self) -> Mapping[TopicPartition, int]:
        """Those of the flow's connector."""
        return self.by_connector.get(self.connector_name, {})

    def take(self, record: Record) -> None:
        decoded = decode_connect_key(record.key)
        if decoded is None:
            return
        if decoded.connector in _OWN_RECORDS:
            if decoded.partition.get("cluster") == self.source_alias:
                self.twinlog_was_here = True
                self._take_copy(decoded.partition, record.value)
            return
        key = decode_source_offset_key(record.key, connector=decoded.connector)
        if key is None or key.cluster != self.source_alias:
            return
        own = decoded.connector == self.connector_name
        positions = self.by_connector.setdefault(decoded.connector, {})
        try:
            position = decode_source_offset(record.value)
        except WireFormatError as error:
            if own:
                self.unreadable[key.partition] = str(error)
            return
        if own:
            self.written += 1
            self.newest_ms = max(self.newest_ms or 0, record.timestamp_ms)
            self.unreadable.pop(key.partition, None)
        if position is None:
            positions.pop(key.partition, None)
        else:
            positions[key.partition] = position

    def _take_copy(self, subject: Mapping[str, JsonValue], value: bytes | None) -> None:
        match subject:
            case {"kind": "copy", "topic": str(topic), "partition": int(number)}:
                partition = TopicPartition(topic, number)
            case _:
                return
        try:
            document = decode_document(value) or {}
        except WireFormatError:
            document = {}
        match document:
            case {"offsets": str(offsets), "topic_id": str(topic_id)}:
                self.begun[partition] = BegunCopy(topic_id, offsets == "preserved")
            case _:
                self.begun.pop(partition, None)

    def stored(self, topic: str, *, exists: bool) -> StoredPositions:
        return StoredPositions(
            topic=topic,
            exists=exists,
            by_connector={name: dict(found) for name, found in self.by_connector.items() if found},
            unreadable=dict(self.unreadable),
            newest_ms=self.newest_ms,
            twinlog_was_here=self.twinlog_was_here,
        )


@dataclass(slots=True, kw_only=True)
class TargetLogs:
    """Of target topics."""

    ends: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Where those end, by name, to which nothing was copied."""
    held: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """`TopicFacts.held`, by source topic."""
    preserved: Collection[str] = ()
    """The source topics of which a copy has begun that has their offsets."""
    unread: Mapping[str, KafkaError] = field(default_factory=dict)
    """What could not be read, by name."""


async def target_logs(
    config: FlowConfig,
    policy: ReplicationPolicy,
    target: KafkaCluster,
    targets: Mapping[str, TopicDescription | KafkaError],
) -> TargetLogs:
    """What is known of target topics, which are given by source topic."""
    positions = config.source.offset_storage.topic
    is_first = is_absent((await target.describe_topics([positions]))[positions])
    read = PositionsRead(source_alias=config.flow.source, connector_name=config.source.connector_name)
    present = {name: topic for name, topic in targets.items() if not isinstance(topic, KafkaError)}
    try:
        if present and not is_first:
            await read.read(target, positions)
    except KafkaError as error:
        return TargetLogs(unread={topic.name: error for topic in present.values()})
    begun = {
        partition: copy
        for partition, copy in read.begun.items()
        if partition.topic in present and copy.target_topic_id == present[partition.topic].topic_id
    }
    new = {
        name: [
            number
            for number in range(topic.partition_count)
            if (partition := TopicPartition(name, number)) not in begun and not read.own.get(partition)
        ]
        for name, topic in present.items()
    }
    asked = [topic for name, topic in present.items() if new[name]]
    ends, unread = await offsets_of(target, OffsetSpec.LATEST, asked)
    starts, starts_unread = await offsets_of(target, OffsetSpec.EARLIEST, asked)
    unread = {**unread, **starts_unread}
    held = {
        name: {each: size for each in new[name] if (size := ends[copy][each] - starts[copy][each])}
        for name, copy in ((name, topic.name) for name, topic in present.items())
        if new[name] and copy not in unread and not policy.is_heartbeats_topic(name)
    }
    return TargetLogs(
        ends=ends if is_first else {},
        held=held,
        preserved={partition.topic for partition, copy in begun.items() if copy.is_preserved},
        unread=unread,
    )


_Offsets: TypeAlias = tuple[Mapping[str, Sequence[int]], Mapping[str, KafkaError]]
"""Of each partition, by topic; and why it is not known, of a topic of which a partition did not tell."""


async def offsets_of(
    cluster: KafkaCluster, spec: OffsetSpec, topics: Iterable[TopicDescription | KafkaError]
) -> _Offsets:
    every = {
        topic.name: [TopicPartition(topic.name, number) for number in range(topic.partition_count)]
        for topic in topics
        if not isinstance(topic, KafkaError)
    }
    asked = [partition for partitions in every.values() for partition in partitions]
    try:
        found = await cluster.list_offsets(spec, asked) if asked else {}
    except KafkaError as error:
        return {}, dict.fromkeys(every, error)
    told: dict[str, list[int]] = {name: [] for name in every}
    unread: dict[str, KafkaError] = {}
    for partition in asked:
        offset = found[partition]
        if isinstance(offset, KafkaError):
            unread[partition.topic] = offset
        else:
            told[partition.topic].append(offset)
    return {name: offsets for name, offsets in told.items() if name not in unread}, unread


def is_absent(topic: TopicDescription | KafkaError) -> bool:
    return isinstance(topic, KafkaError) and topic.reason == KafkaReason.TOPIC_UNKNOWN


class _Look:
    """Reads the state of one flow."""

    def __init__(
        self, *, config: FlowConfig, connect_group: str, source: KafkaCluster, target: KafkaCluster
    ) -> None:
        self._config, self._group = config, connect_group
        self._source, self._target = source, target
        self._selector = topic_selector(config)
        self._read = PositionsRead(
            source_alias=config.flow.source, connector_name=config.source.connector_name
        )

    async def facts(self, look_seconds: float) -> AdoptionFacts:
        before = await self._signs()
        on_target = frozenset(await self._target.list_topics())
        logs = await self._source_logs()
        # No condition to wait for: the look must see that nothing happens.
        await wait_or_stop(asyncio.Event(), look_seconds)
        after = await self._signs()
        config = self._config
        policy = self._policy
        topic = config.source.offset_storage.topic
        remote = {
            partition.topic: policy.format_remote_topic(config.flow.source, partition.topic)
            for partition in logs
        }
        return AdoptionFacts(
            config=config,
            connect_group=self._group,
            before=before,
            after=after,
            positions=self._read.stored(topic, exists=topic in on_target),
            source_logs=logs,
            target_topics=on_target,
            remote=remote,
            missing_topics=tuple(
                own.name
                for own in own_topics(config, policy)
                if own.cluster == config.flow.target and own.name not in on_target
            ),
        )

    @property
    def _policy(self) -> ReplicationPolicy:
        return self._selector.policy

    async def _signs(self) -> Signs:
        flow = self._config.flow
        connect_members = 0
        for found in (await self._target.describe_groups([self._group] if self._group else [])).values():
            if isinstance(found, KafkaError):
                raise found
            connect_members += found.member_count
        await self._read.read(self._target, self._config.source.offset_storage.topic)
        return Signs(
            connect_members=connect_members,
            twinlog_members=len(await services_of(self._target, flow)),
            positions_written=self._read.written,
            newest_heartbeat_ms=await self._newest_heartbeat(),
        )

    async def _newest_heartbeat(self) -> int | None:
        """When this flow's newest heartbeat was sent, among the last ones on the target; None without one."""
        topic = self._policy.heartbeats_topic()
        partition = TopicPartition(topic, HEARTBEATS_PARTITION)
        if partition not in await _partitions(self._target, topic):
            return None
        log = (await _logs(self._target, [partition]))[partition]
        newest = None
        async with self._target.reader() as reader:
            async for record in records_to(reader, partition, max(log.start, log.end - 1000), log.end):
                try:
                    beat = decode_heartbeat(record.key, record.value)
                except WireFormatError:
                    continue
                if (beat.source, beat.target) == (self._config.flow.source, self._config.flow.target):
                    newest = beat.timestamp_ms
        return newest

    async def _source_logs(self) -> Mapping[TopicPartition, Log]:
        selected = [name for name in await self._source.list_topics() if self._selector.selects(name)]
        described = await self._source.describe_topics(selected) if selected else {}
        partitions = [each for name, found in described.items() for each in _of_topic(name, found)]
        return await _logs(self._source, partitions)


async def _partitions(cluster: KafkaCluster, topic: str) -> list[TopicPartition]:
    """Empty without such a topic. Raises KafkaError when that is not known."""
    if topic not in await cluster.list_topics():
        return []
    found = (await cluster.describe_topics([topic]))[topic]
    return _of_topic(topic, found)


def _of_topic(name: str, found: TopicDescription | KafkaError) -> list[TopicPartition]:
    if isinstance(found, KafkaError):
        raise found
    return [TopicPartition(name, number) for number in range(found.partition_count)]


async def _logs(cluster: KafkaCluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Log]:
    starts = await cluster.list_offsets(OffsetSpec.EARLIEST, partitions)
    ends = await cluster.list_offsets(OffsetSpec.LAST_STABLE, partitions)
    return {each: Log(start=_offset(starts[each]), end=_offset(ends[each])) for each in partitions}


def _offset(answer: int | KafkaError) -> int:
    if isinstance(answer, KafkaError):
        raise answer
    return answer
