"""Where a partition begins that has no stored position."""

from twinlog.config import AutoOffsetReset
from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.topics import ReplicatedTopic, TopicState
from twinlog_source.log.facts import TopicFact
from twinlog_source.topics.start_positions import begins_at

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def topic(*, created_after_start: bool = False) -> ReplicatedTopic:
    return ReplicatedTopic(
        flow=Flow("A", "B"),
        source_topic="t",
        target_topic="A.t",
        partition_count=2,
        target_partition_count=2,
        source_topic_id="id",
        target_topic_id="",
        generation=1,
        created_after_start=created_after_start,
        state=TopicState.READY,
        reason="",
        message="",
        target_max_message_bytes=0,
        target_compression_type="",
        target_timestamp_type="",
        source_cleanup_policy="",
    )


def test_what_came_after_the_flow_began_is_copied_from_its_beginning() -> None:
    latest, mark = AutoOffsetReset.LATEST, TopicFact(topic="t", topic_id="id", known_partitions=1)
    assert begins_at(P, topic(), mark, latest) is latest
    assert begins_at(P, topic(), None, latest) is latest
    assert begins_at(Q, topic(), mark, latest) is AutoOffsetReset.EARLIEST
    assert begins_at(P, topic(created_after_start=True), mark, latest) is AutoOffsetReset.EARLIEST
