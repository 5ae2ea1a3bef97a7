"""Which transactions are open on a partition, by its leader's word (DescribeProducers, KIP-664).

Layouts: DescribeProducersRequest.json and DescribeProducersResponse.json in Kafka's source.
"""

import struct
from collections.abc import Collection
from typing import NamedTuple

from twinlog.errors import KafkaError
from twinlog.kafka.protocol.connection import DataSession
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

_DESCRIBE_PRODUCERS = 61
_PARTITION = struct.Struct(">ih")
"""Number, error code."""
_PRODUCER = struct.Struct(">qiiqiq")
"""Producer id and epoch, last sequence number, last timestamp, coordinator epoch, start of the open
transaction."""
_THROTTLE_BYTES = 4


class OpenTransaction(NamedTuple):
    """A transaction that has records on a partition and no marker there yet."""

    producer_id: int
    producer_epoch: int
    """Of its last batch there."""
    first_offset: int


async def open_transactions(
    session: DataSession, partitions: Collection[TopicPartition], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, list[OpenTransaction] | KafkaError]:
    """What is open on each partition, or why that is not known. Needs Kafka 2.8, and READ on the topics.

    Raises KafkaError when no broker can be reached in time.
    """
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

    return HandWrittenRequest(_DESCRIBE_PRODUCERS, range(1), encode, _read, flexible_from=0)


def _read(data: Frame, position: int, _version: int) -> LeaderAnswers[list[OpenTransaction]]:
    answers: LeaderAnswers[list[OpenTransaction]] = []
    topic_count, position = take_compact_length(data, position + _THROTTLE_BYTES)
    for _ in range(topic_count):
        topic, position = take_compact_string(data, position)
        count, position = take_compact_length(data, position)
        for _ in range(count):
            number, code = _PARTITION.unpack_from(data, position)
            _, position = take_compact_string(data, position + _PARTITION.size)
            producers, position = _read_producers(data, position)
            position = skip_tags(data, position)
            answers.append((TopicPartition(topic, number), code, producers))
        position = skip_tags(data, position)
    return answers


def _read_producers(data: Frame, position: int) -> tuple[list[OpenTransaction], int]:
    producers = []
    count, position = take_compact_length(data, position)
    for _ in range(count):
        producer_id, epoch, _, _, _, first_offset = _PRODUCER.unpack_from(data, position)
        position = skip_tags(data, position + _PRODUCER.size)
        if first_offset >= 0:
            producers.append(OpenTransaction(producer_id, epoch, first_offset))
    return producers, position
