"""Where a finite copy ends: an offset of the source for each partition."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from twinlog.config import ClientConfig, Configuration
from twinlog.errors import ConfigError, KafkaError, required
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, OffsetSpec, TopicDescription
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import known_offsets
from twinlog.model import Flow, TopicPartition
from twinlog.selection import TopicSelector
from twinlog.selection_configured import topic_selector
from twinlog.service.feeds.rules import flow_in_force

_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """At most one of the two; neither: the present ends of the logs."""

    timestamp_ms: int | None = None
    """The first record of this time or later is not copied, nor are the records behind it."""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Only these partitions, up to these offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    ends: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of the source's topics."""
    without_copy: frozenset[TopicPartition] = frozenset()
    """Partitions whose topic or partition does not exist on the target yet; also those of a target that does
    not answer."""

    @property
    def to_copy(self) -> dict[TopicPartition, int]:
        """Partitions with something to copy, or without a copy yet."""
        return {
            partition: end
            for partition, end in self.ends.items()
            if end > self.starts[partition] or partition in self.without_copy
        }


async def find_ends(configuration: Configuration, flow: Flow, topics: Collection[str], until: Until) -> Ends:
    """Return the ends of all partitions of these topics; without names, of all topics that the flow would
    copy if its services started now.

    Raises ConfigError for a topic that the flow does not have, KafkaError, and as `flow_in_force`.
    """
    clients = configuration.flow(flow).clients
    client = clients.source_admin
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(_open(clients.target_admin))
        configured = (await flow_in_force(configuration, flow, target, starting=True)).config
        selector = topic_selector(configured)
        source = await stack.enter_async_context(_open(client))
        there = await source.list_topics()
        asked = {partition.topic for partition in until.offsets} or {*map(selector.topic_named, topics)}
        for topic in sorted(asked):
            if topic not in there or not selector.selects(topic):
                raise ConfigError(f"--topic {topic}: {flow} does not copy it", metadata={"topic": topic})
        names = sorted(topic for topic in (asked or there) if selector.selects(topic))
        described = await _described(source, names)
        partitions = [
            TopicPartition(name, number)
            for name, topic in described.items()
            for number in range(topic.partition_count)
        ]
        if until.offsets:
            unknown = sorted(until.offsets.keys() - set(partitions))
            if unknown:
                raise ConfigError(f"--until: the source has no partition {unknown[0]}")
            partitions = sorted(until.offsets)
        # Not the last stable offset: records behind an open transaction were acknowledged, too.
        ends = await known_offsets(source, OffsetSpec.LATEST, partitions)
        starts = await known_offsets(source, OffsetSpec.EARLIEST, partitions)
        if until.offsets:
            for partition, end in ends.items():
                if until.offsets[partition] > end:
                    raise ConfigError(
                        f"--until: {partition} of {client.alias} can only be copied up to offset {end} now",
                        key="--until",
                    )
            ends = {partition: until.offsets[partition] for partition in partitions}
        elif until.timestamp_ms is not None:
            found = await source.offsets_for_times(dict.fromkeys(partitions, until.timestamp_ms))
            ends = {
                partition: end if (offset := required(found[partition])) is None else min(offset, end)
                for partition, end in ends.items()
            }
        without_copy = await _without_copy(target, selector, ends)
    ids = {name: topic.topic_id for name, topic in described.items()}
    return Ends(ends=ends, starts=starts, topic_ids=ids, without_copy=without_copy)


async def _without_copy(
    target: KafkaCluster, selector: TopicSelector, partitions: Collection[TopicPartition]
) -> frozenset[TopicPartition]:
    copies = {
        topic: selector.policy.format_remote_topic(selector.flow.source, topic)
        for topic in {partition.topic for partition in partitions}
    }
    try:
        found = await target.describe_topics(list(copies.values()))
    except KafkaError:
        return frozenset(partitions)
    return frozenset(
        partition
        for partition in partitions
        if isinstance(copy := found[copies[partition.topic]], KafkaError)
        or partition.partition >= copy.partition_count
    )


@asynccontextmanager
async def watched_topics(
    configuration: Configuration, flow: Flow, ends: Ends
) -> AsyncIterator[Callable[[], Awaitable[frozenset[str]]]]:
    """Yield a function that returns the topics that were recreated or deleted since their ends were found;
    call it during the copy. A source that does not answer has lost none."""
    client = configuration.flow(flow).clients.source_admin
    async with _open(client) as source:

        async def gone() -> frozenset[str]:
            try:
                found = await source.describe_topics(sorted(ends.topic_ids))
            except KafkaError:
                return frozenset()
            return frozenset(name for name, topic in found.items() if _is_gone(topic, ends.topic_ids[name]))

        yield gone


def _open(client: ClientConfig) -> KafkaCluster:
    return open_cluster(
        client.alias, client.properties, timeout_seconds=_TIMEOUT_SECONDS, client_id_suffix="copy"
    )


def _is_gone(found: TopicDescription | KafkaError, topic_id: str) -> bool:
    if isinstance(found, KafkaError):
        return found.reason == KafkaReason.TOPIC_UNKNOWN
    return found.topic_id != topic_id


async def _described(source: KafkaCluster, names: Collection[str]) -> dict[str, TopicDescription]:
    return {name: required(topic) for name, topic in (await source.describe_topics(names)).items()}
