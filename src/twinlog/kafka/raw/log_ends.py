"""Where logs end, with the epoch of the leader that says so (ListOffsets from version 4 on, KIP-320)."""

import struct
from collections.abc import Collection
from typing import NamedTuple

from twinlog.errors import KafkaError
from twinlog.kafka.protocol.connection import DataClientPool
from twinlog.kafka.protocol.encoding import INT32, Frame, string, take_int32, take_string
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces
from twinlog.kafka.raw.leaders import LeaderAnswers, ask_leaders
from twinlog.model import TopicPartition

_LIST_OFFSETS = 2
_CONSUMER = -1
_READ_UNCOMMITTED = b"\0"
_ANY_LEADER_EPOCH = -1
_LATEST = -1
_ASKED = struct.Struct(">iiq")
"""Partition, current leader epoch, timestamp."""
_ANSWERED = struct.Struct(">ihqqi")
"""Partition, error code, timestamp, offset, leader epoch."""


class LogEnd(NamedTuple):
    """What consumers see as the end of a partition."""

    offset: int
    """The high watermark."""
    leader_epoch: int
    """Of the leader that answered."""


async def log_ends(
    session: DataClientPool, partitions: Collection[TopicPartition], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, LogEnd | KafkaError]:
    """The end of each partition, or why it is not known. Needs Kafka 2.1.

    Raises KafkaError when no broker can be reached in time.
    """
    return await ask_leaders(
        session, partitions, _request, "ask for the end of logs", timeout_seconds=timeout_seconds
    )


def _request(partitions: Collection[TopicPartition]) -> HandWrittenRequest[LeaderAnswers[LogEnd]]:
    def encode(_version: int) -> Pieces:
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        pieces = [INT32.pack(_CONSUMER), _READ_UNCOMMITTED, INT32.pack(len(by_topic))]
        for topic, numbers in by_topic.items():
            pieces += (string(topic), INT32.pack(len(numbers)))
            pieces += [_ASKED.pack(number, _ANY_LEADER_EPOCH, _LATEST) for number in numbers]
        return pieces

    return HandWrittenRequest(_LIST_OFFSETS, range(4, 6), encode, _read)


def _read(data: Frame, position: int, _version: int) -> LeaderAnswers[LogEnd]:
    answers: LeaderAnswers[LogEnd] = []
    topic_count, position = take_int32(data, position + 4)  # after the throttle time
    for _ in range(topic_count):
        topic, position = take_string(data, position)
        count, position = take_int32(data, position)
        for _ in range(count):
            number, code, _, offset, epoch = _ANSWERED.unpack_from(data, position)
            position += _ANSWERED.size
            answers.append((TopicPartition(topic, number), code, LogEnd(offset, epoch)))
    return answers
