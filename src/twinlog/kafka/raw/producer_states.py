"""What the leader of a partition knows about its producers (DescribeProducers, KIP-664).

Needs Kafka 2.8, and READ on the topics.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime
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


# The open transactions of a partition, according to its leader (DescribeProducers, KIP-664).


class OpenTransaction(NamedTuple):
    """A transaction with records on a partition and without a marker there."""

    producer_id: int
    producer_epoch: int
    """The producer epoch of its last batch there."""
    first_offset: int
    last_timestamp_ms: int = -1
    """The timestamp of its last batch there: it is open at least since then. -1 = unknown."""

    def __str__(self) -> str:
        """
        >>> str(OpenTransaction(7, 0, 5, 1_795_870_164_688))
        'producer id 7 has a transaction open from offset 5, at least since 2026-11-28T12:49:24Z'
        """
        told = f"producer id {self.producer_id} has a transaction open from offset {self.first_offset}"
        if self.last_timestamp_ms < 0:
            return told
        since = datetime.fromtimestamp(self.last_timestamp_ms / 1000, UTC)
        return f"{told}, at least since {since:%Y-%m-%dT%H:%M:%SZ}"


async def open_transactions(
    session: DataClientPool, partitions: Collection[TopicPartition], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, list[OpenTransaction] | KafkaError]:
    """The open transactions of each partition, or the error. Needs Kafka 2.8, and READ on the topics. Raises
    KafkaError when no broker can be reached in time."""
    return await ask_leaders(
        session,
        partitions,
        describe_producers_request,
        "ask for open transactions",
        timeout_seconds=timeout_seconds,
    )


def describe_producers_request(
    partitions: Collection[TopicPartition],
) -> HandWrittenRequest[LeaderAnswers[list[OpenTransaction]]]:
    """DescribeProducers, version 0 (Kafka 2.8)."""
    return describe_producers(partitions, _open)


def _open(entries: list[ProducerEntry]) -> list[OpenTransaction]:
    return [
        OpenTransaction(entry.producer_id, entry.producer_epoch, entry.open_from, entry.last_timestamp_ms)
        for entry in entries
        if entry.open_from >= 0
    ]
