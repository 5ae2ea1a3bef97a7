"""What is remembered of every topic of a flow: which topic it was, which one its copy, whether it left."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog.service.feeds.topics import TopicsWatch
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import CopyFact, TopicFact
from twinlog_source.log.journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """All methods that write raise KafkaError."""

    flow: Flow
    watch: TopicsWatch
    control: ControlState
    journal: Journal

    def source_was_recreated(self, topic: ReplicatedTopic) -> bool:
        """Whether it is not the topic that its positions are of."""
        mark = self.control.topics.get(topic.source_topic)
        return mark is not None and bool(topic.source_topic_id) and mark.topic_id != topic.source_topic_id

    def target_was_recreated(self, topic: ReplicatedTopic) -> bool:
        """Whether its copy is not the one that was written before."""
        mark = self.control.topics.get(topic.source_topic)
        before = "" if mark is None else mark.target_topic_id
        return bool(before) and bool(topic.target_topic_id) and before != topic.target_topic_id

    def copy_of(self, partition: TopicPartition, topic: ReplicatedTopic) -> CopyFact | None:
        """How the partition is copied; None when that is not on the log, or of an earlier target topic."""
        fact = self.control.copies.get(partition)
        return fact if fact is not None and fact.target_topic_id == topic.target_topic_id else None

    async def record(self, topic: ReplicatedTopic, *, known_partitions: int) -> None:
        """The topic and its copy as they are now; partitions beyond `known_partitions` came after the flow
        began."""
        mark = TopicFact(
            topic=topic.source_topic,
            topic_id=topic.source_topic_id,
            known_partitions=known_partitions,
            target_topic_id=topic.target_topic_id,
        )
        await self.journal.record(mark)
        self.control.record(mark)

    async def record_new(self, topics: Mapping[str, ReplicatedTopic]) -> None:
        """Those that nothing is remembered of yet."""
        for topic in topics.values():
            if topic.source_topic_id and topic.source_topic not in self.control.topics:
                await self.record(topic, known_partitions=topic.partition_count)

    async def record_left(self, topics: Mapping[str, ReplicatedTopic]) -> None:
        """Which topics configsync took out of the flow, and which it took in again."""
        changed = [
            replace(mark, left=not mark.left)
            for mark in self.control.topics.values()
            if mark.left == (mark.topic in topics) and (mark.left or self._was_taken_out(mark.topic))
        ]
        await self.journal.record_all(changed)
        for mark in changed:
            self.control.record(mark)

    def _was_taken_out(self, topic: str) -> bool:
        return self.watch.settled(self.flow) and topic not in self.watch.topics(self.flow)
