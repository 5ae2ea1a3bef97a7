"""Which topics a flow copies now: configsync decides, and until it has answered, the stored positions."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.kafka.ports import ConfigEntry, KafkaCluster, TopicDescription
from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicState
from twinlog_source.config import SourceFlow
from twinlog_source.topics.stored_selection import StoredSelection

Topics = Mapping[str, ReplicatedTopic]


def copyable_partitions(topics: Topics) -> frozenset[TopicPartition]:
    """Partitions that exist on both sides."""
    return frozenset(
        TopicPartition(topic.source_topic, number)
        for topic in topics.values()
        for number in range(topic.copyable_partition_count)
    )


@dataclass(slots=True, kw_only=True)
class KnownTopics:
    """Finds topics without configsync: those with a position that are selected and exist on both sides.

    It creates no topic and begins none, because configsync decides that.
    """

    flow: SourceFlow
    source: KafkaCluster
    target: KafkaCluster
    selection: StoredSelection
    topics: dict[str, ReplicatedTopic] = field(default_factory=dict)

    async def look(self, positions: Collection[TopicPartition], *, without: Collection[str] = ()) -> None:
        """Read them again, without the topics that configsync removed from the flow while it ran.

        Raises KafkaError when a cluster does not answer.
        """
        policy, selector = self.flow.policy, await self.selection.selector()
        names = sorted({partition.topic for partition in positions} - set(without))
        targets = {
            name: policy.format_remote_topic(self.flow.flow.source, name)
            for name in names
            if selector.selects(name)
        }
        on_source = await self.source.describe_topics(list(targets))
        on_target = await self.target.describe_topics(list(targets.values()))
        configs = await self.target.describe_topic_configs(
            [name for name, found in on_target.items() if isinstance(found, TopicDescription)]
        )
        self.topics = {}
        for name, target in targets.items():
            here, there, entries = on_source[name], on_target[target], configs.get(target)
            if not isinstance(here, KafkaError) and not isinstance(there, KafkaError):
                settings = () if entries is None or isinstance(entries, KafkaError) else entries
                self.topics[name] = _topic(self.flow.flow, here, there, settings)


def _topic(
    flow: Flow, source: TopicDescription, target: TopicDescription, entries: Iterable[ConfigEntry]
) -> ReplicatedTopic:
    settings = {entry.name: entry.value or "" for entry in entries}
    return ReplicatedTopic(
        flow=flow,
        source_topic=source.name,
        target_topic=target.name,
        partition_count=source.partition_count,
        target_partition_count=target.partition_count,
        source_topic_id=source.topic_id,
        target_topic_id=target.topic_id,
        generation=0,
        created_after_start=False,
        state=TopicState.READY,
        reason="",
        message="",
        target_max_message_bytes=int(settings.get("max.message.bytes") or 0),
        target_compression_type=settings.get("compression.type", ""),
        target_timestamp_type=settings.get("message.timestamp.type", ""),
        source_cleanup_policy="",
    )
