"""Which topics a flow copies now: configsync decides, and until it has answered, the stored positions."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from twinlog.batches import largest_batch_bytes
from twinlog.errors import KafkaError
from twinlog.kafka.ports import ConfigEntry, KafkaCluster, TopicDescription
from twinlog.kafka.reasons import KafkaReason
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
    _absent: frozenset[str] = frozenset()
    """Source topics that did not exist on both sides at the last look."""

    def forget(self) -> None:
        """Another process may have owned the flow since: clusters may have other topics now."""
        self.topics, self._absent = {}, frozenset()

    async def look(self, positions: Collection[TopicPartition], *, without: Collection[str] = ()) -> None:
        """Read them again, without the topics that configsync removed from the flow while it ran.

        A known topic leaves when two looks in a row say that it does not exist on one side: a single answer
        may come from a broker that lags behind. After any other error it stays as it was known: it may heal,
        and its task says what is wrong. Raises KafkaError when a cluster does not answer and no topic is
        known.
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
        silence = _silence(on_source) or _silence(on_target)
        if silence is not None and not self.topics:
            raise silence
        configs = await self.target.describe_topic_configs(
            [name for name, found in on_target.items() if isinstance(found, TopicDescription)]
        )
        known, absent = self.topics, set()
        self.topics = {}
        for name, target in targets.items():
            here, there, before = on_source[name], on_target[target], known.get(name)
            if not isinstance(here, KafkaError) and not isinstance(there, KafkaError):
                self.topics[name] = _topic(self.flow.flow, here, there, configs.get(target, ()), before)
                continue
            if _is_absent(here) or _is_absent(there):
                absent.add(name)
            if before is not None and not (name in absent and name in self._absent):
                self.topics[name] = before
        self._absent = frozenset(absent)


def _silence(described: Mapping[str, TopicDescription | KafkaError]) -> KafkaError | None:
    """The error that a cluster as a whole does not answer now, which is one of each topic."""
    errors = [found for found in described.values() if isinstance(found, KafkaError) and found.retriable]
    return errors[0] if errors and len(errors) == len(described) else None


def _is_absent(found: TopicDescription | KafkaError) -> bool:
    return isinstance(found, KafkaError) and found.reason == KafkaReason.TOPIC_UNKNOWN


def _topic(
    flow: Flow,
    source: TopicDescription,
    target: TopicDescription,
    entries: Iterable[ConfigEntry] | KafkaError,
    before: ReplicatedTopic | None,
) -> ReplicatedTopic:
    """Limits that were not read stay as they were: other ones would end the epoch of the whole flow."""
    settings = {} if isinstance(entries, KafkaError) else {each.name: each.value or "" for each in entries}
    topic = ReplicatedTopic(
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
        target_max_message_bytes=largest_batch_bytes(settings) or 0,
        target_compression_type=settings.get("compression.type", ""),
        target_timestamp_type=settings.get("message.timestamp.type", ""),
        source_cleanup_policy="",
    )
    if not isinstance(entries, KafkaError) or before is None:
        return topic
    return replace(
        topic,
        target_max_message_bytes=before.target_max_message_bytes,
        target_compression_type=before.target_compression_type,
        target_timestamp_type=before.target_timestamp_type,
    )
