"""What the leader of a partition knows about its producers (DescribeProducers, KIP-664).

Needs Kafka 2.8, and READ on the topics.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar

from twinlog.errors import KafkaError
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.protocol.schemas import SchemaRequest
from twinlog.kafka.raw.leaders import LeaderAnswers, ask_leaders, by_topic
from twinlog.model import TopicPartition

T = TypeVar("T")


class ProducerEntry(NamedTuple):
    """One producer that a leader remembers."""

    producer_id: int
    producer_epoch: int
    """The producer epoch of its last batch there."""
    last_sequence: int
    """-1: none of its batches is remembered, only a marker."""
    coordinator_epoch: int
    """The epoch of the coordinator that wrote its last marker there; -1 = there is none."""
    open_from: int
    """The first offset of its open transaction; -1 = none is open."""
    last_timestamp_ms: int = -1
    """The timestamp of its last batch there; -1 = unknown."""


ProducerStates = dict[int, ProducerEntry]
"""By producer id."""


async def producer_states(
    session: DataClientPool, partitions: Collection[TopicPartition], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, ProducerStates | KafkaError]:
    """The producers that each partition's leader remembers, or the error. Raises KafkaError when no broker
    can be reached in time."""

    def request(led: Collection[TopicPartition]) -> HandWrittenRequest[LeaderAnswers[ProducerStates]]:
        return describe_producers(led, lambda entries: {entry.producer_id: entry for entry in entries})

    return await ask_leaders(
        session, partitions, request, "ask for producers", timeout_seconds=timeout_seconds
    )


def describe_producers(
    partitions: Collection[TopicPartition], answer: Callable[[list[ProducerEntry]], T]
) -> HandWrittenRequest[LeaderAnswers[T]]:
    """DescribeProducers, version 0 (Kafka 2.8); `answer` converts each partition's producers."""

    topics = by_topic(partitions, lambda one: one.partition)
    asked = [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()]

    def told(answered: Any) -> LeaderAnswers[T]:
        return [
            (
                TopicPartition(topic.name, each.partition_index),
                int(each.error_code),
                answer([_entry(producer) for producer in each.active_producers]),
            )
            for topic in answered.topics
            for each in topic.partitions
        ]

    return SchemaRequest("describe_producers", range(1), {"topics": asked}, told)


def _entry(producer: Any) -> ProducerEntry:
    return ProducerEntry(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )
