"""The recorded identity of each topic of a flow and of its copy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import CopyFact, TopicFact
from twinlog_source.log.journal import Journal

MOST_FORMER_IDS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """All methods that write raise KafkaError."""

    flow: Flow
    control: ControlState
    journal: Journal

    def source_was_recreated(self, topic: ReplicatedTopic) -> bool:
        """Whether the source topic is another one than that of its positions. An unknown id is no other
        one."""
        mark = self.control.topics.get(topic.source_topic)
        before = "" if mark is None else mark.topic_id
        return bool(before) and bool(topic.source_topic_id) and before != topic.source_topic_id

    def target_was_recreated(self, topic: ReplicatedTopic) -> bool:
        """Whether the copy is another topic than the one that was written before."""
        mark = self.control.topics.get(topic.source_topic)
        before = "" if mark is None else mark.target_topic_id
        return bool(before) and bool(topic.target_topic_id) and before != topic.target_topic_id

    def copy_of(self, partition: TopicPartition, topic: ReplicatedTopic) -> CopyFact | None:
        """The kind of the partition's copy; None when it is not on the log, or belongs to an earlier target
        topic."""
        fact = self.control.copies.get(partition)
        return fact if fact is not None and fact.target_topic_id == topic.target_topic_id else None

    def has_new_target(self, partition: TopicPartition, topic: ReplicatedTopic) -> bool:
        """Whether the decision about the copy belongs to an earlier target topic, and nothing was written to
        the present one since."""
        fact, mark = self.control.copies.get(partition), self.control.targets.get(partition)
        if fact is None or fact.target_topic_id in ("", topic.target_topic_id) or not topic.target_topic_id:
            return False
        return mark is None or mark.topic_id != topic.target_topic_id or not mark.end_offset

    async def record(self, topic: ReplicatedTopic, *, known_partitions: int) -> None:
        """Record the present topic and its copy; partitions from `known_partitions` on are newer than the
        flow. A source that shows no ids now does not make the topic another one."""
        before = self.control.topics.get(topic.source_topic)
        former_ids = () if before is None else before.former_ids
        if before is not None and before.topic_id and topic.source_topic_id not in ("", before.topic_id):
            kept = [each for each in former_ids if each != topic.source_topic_id]
            former_ids = (*kept, before.topic_id)[-MOST_FORMER_IDS:]
        mark = TopicFact(
            topic=topic.source_topic,
            topic_id=topic.source_topic_id or ("" if before is None else before.topic_id),
            known_partitions=known_partitions,
            target_topic_id=topic.target_topic_id,
            former_ids=former_ids,
        )
        await self.journal.record(mark)
        self.control.record(mark)

    async def record_new(self, topics: Mapping[str, ReplicatedTopic]) -> None:
        """Record the topics that have no record yet, and ids that were unknown."""
        for topic in topics.values():
            mark = self.control.topics.get(topic.source_topic)
            if not topic.source_topic_id:
                continue
            if mark is None:
                await self.record(topic, known_partitions=topic.partition_count)
            elif not mark.topic_id:
                known = replace(mark, topic_id=topic.source_topic_id)
                await self.journal.record(known)
                self.control.record(known)
