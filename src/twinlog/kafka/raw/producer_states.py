"""What the leader of a partition knows about its producers (DescribeProducers, KIP-664).

Layouts: DescribeProducersRequest.json and DescribeProducersResponse.json in Kafka's source. Needs Kafka 2.8,
and READ on the topics.
"""

import struct
from collections.abc import Callable, Collection
from typing import NamedTuple, TypeVar

from twinlog.errors import KafkaError
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.encoding import (
    INT32,
    NO_TAGS,
    Frame,
    compact_length,
    compact_string,
    skip_tags,
    take_compact_length,
    take_compact_string,
)
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces
from twinlog.kafka.raw.leaders import LeaderAnswers, ask_leaders
from twinlog.model import TopicPartition

T = TypeVar("T")

_DESCRIBE_PRODUCERS = 61
_PARTITION = struct.Struct(">ih")
"""Number, error code."""
_PRODUCER = struct.Struct(">qiiqiq")
"""Producer id and epoch, last sequence number, last timestamp, coordinator epoch, start of the open
transaction."""
_THROTTLE_BYTES = 4


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

    def encode(_version: int) -> Pieces:
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        pieces = [compact_length(len(by_topic))]
        for topic, numbers in by_topic.items():
            pieces += (
                compact_string(topic),
                compact_length(len(numbers)),
                *map(INT32.pack, numbers),
                NO_TAGS,
            )
        return [*pieces, NO_TAGS]

    def read(data: Frame, position: int, version: int) -> LeaderAnswers[T]:
        return [
            (partition, code, answer(entries))
            for partition, code, entries in read_producer_states(data, position, version)
        ]

    return HandWrittenRequest(_DESCRIBE_PRODUCERS, range(1), encode, read, flexible_from=0)


def read_producer_states(data: Frame, position: int, _version: int) -> LeaderAnswers[list[ProducerEntry]]:
    answers: LeaderAnswers[list[ProducerEntry]] = []
    topic_count, position = take_compact_length(data, position + _THROTTLE_BYTES)
    for _ in range(topic_count):
        topic, position = take_compact_string(data, position)
        count, position = take_compact_length(data, position)
        for _ in range(count):
            number, code = _PARTITION.unpack_from(data, position)
            _, position = take_compact_string(data, position + _PARTITION.size)
            entries, position = _read_entries(data, position)
            position = skip_tags(data, position)
            answers.append((TopicPartition(topic, number), code, entries))
        position = skip_tags(data, position)
    return answers


def _read_entries(data: Frame, position: int) -> tuple[list[ProducerEntry], int]:
    entries = []
    count, position = take_compact_length(data, position)
    for _ in range(count):
        producer_id, epoch, last_sequence, timestamp_ms, coordinator_epoch, open_from = _PRODUCER.unpack_from(
            data, position
        )
        position = skip_tags(data, position + _PRODUCER.size)
        entries.append(
            ProducerEntry(producer_id, epoch, last_sequence, coordinator_epoch, open_from, timestamp_ms)
        )
    return entries, position
