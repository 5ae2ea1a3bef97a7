"""Where the records of a leader epoch end, to recognise a log that was truncated and continued (KIP-320).

An offset alone does not identify a record: after an unclean election, or after an old disk returned, the log
may have other records at offsets that were read before. Together with the leader's epoch it does.
"""

import struct
from collections.abc import Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.ports import EpochEnd
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.encoding import INT32, Frame, string, take_int32, take_string
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces
from twinlog.kafka.raw.leaders import LeaderAnswers, ask_leaders
from twinlog.model import TopicPartition

_OFFSET_FOR_LEADER_EPOCH = 23
_CONSUMER = -1
_ANY_CURRENT_EPOCH = -1
_ASKED = struct.Struct(">iii")
"""Partition, current leader epoch, requested epoch."""
_ANSWERED = struct.Struct(">hiiq")
"""error code, partition, leader epoch, end offset."""


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
    """OffsetForLeaderEpoch. Versions 2 (Kafka 2.1) and 3."""

    def encode(version: int) -> Pieces:
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for partition, epoch in epochs.items():
            by_topic.setdefault(partition.topic, []).append((partition.partition, epoch))
        pieces = [INT32.pack(_CONSUMER)] if version >= 3 else []
        pieces.append(INT32.pack(len(by_topic)))
        for topic, wanted in by_topic.items():
            pieces += (string(topic), INT32.pack(len(wanted)))
            pieces += [_ASKED.pack(number, _ANY_CURRENT_EPOCH, epoch) for number, epoch in wanted]
        return pieces

    return HandWrittenRequest(_OFFSET_FOR_LEADER_EPOCH, range(2, 4), encode, read_epoch_ends)


def read_epoch_ends(data: Frame, position: int, _version: int) -> LeaderAnswers[EpochEnd]:
    answers: LeaderAnswers[EpochEnd] = []
    topic_count, position = take_int32(data, position + 4)  # After the throttle time.
    for _ in range(topic_count):
        topic, position = take_string(data, position)
        count, position = take_int32(data, position)
        for _ in range(count):
            code, number, epoch, end_offset = _ANSWERED.unpack_from(data, position)
            position += _ANSWERED.size
            answers.append((TopicPartition(topic, number), code, EpochEnd(epoch, end_offset)))
    return answers
