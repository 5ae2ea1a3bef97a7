"""Where the records of a leader epoch end, to recognise a log that was truncated and continued (KIP-320).

An offset alone does not identify a record: after an unclean election, or after an old disk returned, the log
may have other records at offsets that were read before. Together with the leader's epoch it does.
"""

from collections.abc import Mapping
from typing import Any

from twinlog.errors import KafkaError
from twinlog.kafka.ports import EpochEnd
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.protocol.schemas import SchemaRequest
from twinlog.kafka.raw.leaders import LeaderAnswers, ask_leaders, by_topic
from twinlog.model import TopicPartition

_CONSUMER = -1


async def epoch_ends(
    session: DataClientPool, epochs: Mapping[TopicPartition, int], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, EpochEnd | KafkaError]:
    """For each partition the end of a leader epoch, or the error. Needs Kafka 2.1. Raises KafkaError when no
    broker can be reached in time."""
    return await ask_leaders(
        session,
        epochs,
        lambda led: _request({partition: epochs[partition] for partition in led}),
        "ask for the end of a leader epoch",
        timeout_seconds=timeout_seconds,
    )


def _request(epochs: Mapping[TopicPartition, int]) -> HandWrittenRequest[LeaderAnswers[EpochEnd]]:
    """OffsetForLeaderEpoch as consumers ask it, of leaders of any epoch. Versions 2 (Kafka 2.1) and 3."""
    topics = by_topic(epochs, lambda one: {"partition": one.partition, "leader_epoch": epochs[one]})
    asked = [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]
    return SchemaRequest(
        "offset_for_leader_epoch", range(2, 4), {"replica_id": _CONSUMER, "topics": asked}, _told
    )


def _told(answer: Any) -> LeaderAnswers[EpochEnd]:
    return [
        (
            TopicPartition(topic.topic, each.partition),
            int(each.error_code),
            EpochEnd(each.leader_epoch, each.end_offset),
        )
        for topic in answer.topics
        for each in topic.partitions
    ]
