"""ListOffsets, versions 2 (Kafka 0.11) to 5: the offset of a time in each partition's log."""

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from twinlog.kafka.protocol.encoding import INT32, Frame, string, take_int32, take_string
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces
from twinlog.model import TopicPartition

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
_LIST_OFFSETS = 2
_OLDEST, _NEWEST = 2, 5
_WITH_LEADER_EPOCH = 4
_CONSUMER = -1
_ANY_LEADER_EPOCH = -1
_NUMBER = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_ANSWERED = struct.Struct(">ihqq")
"""Partition, error code, timestamp, offset."""


class LogOffset(NamedTuple):
    """A leader's answer for one partition."""

    offset: int
    """-1 for a time after the last record."""
    leader_epoch: int | None
    """The epoch of the leader that answered (KIP-320); None before version 4."""


def list_offsets_request(
    timestamps_ms: Mapping[TopicPartition, int], *, read_committed: bool, with_leader_epoch: bool = False
) -> HandWrittenRequest[list[tuple[TopicPartition, int, LogOffset]]]:
    """For each partition the first offset at or after a time in ms, or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP.

    The answer has an error code for each partition. `with_leader_epoch` needs Kafka 2.1.
    """

    def encode(version: int) -> Pieces:
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for partition, timestamp_ms in timestamps_ms.items():
            by_topic.setdefault(partition.topic, []).append((partition.partition, timestamp_ms))
        epoch = INT32.pack(_ANY_LEADER_EPOCH) if version >= _WITH_LEADER_EPOCH else b""
        pieces = [INT32.pack(_CONSUMER), bytes((read_committed,)), INT32.pack(len(by_topic))]
        for topic, asked in by_topic.items():
            pieces += (string(topic), INT32.pack(len(asked)))
            pieces += [_NUMBER.pack(number) + epoch + _TIMESTAMP.pack(when) for number, when in asked]
        return pieces

    oldest = _WITH_LEADER_EPOCH if with_leader_epoch else _OLDEST
    return HandWrittenRequest(_LIST_OFFSETS, range(oldest, _NEWEST + 1), encode, _read)


def _read(data: Frame, position: int, version: int) -> list[tuple[TopicPartition, int, LogOffset]]:
    answers = []
    topic_count, position = take_int32(data, position + 4)  # After the throttle time.
    for _ in range(topic_count):
        topic, position = take_string(data, position)
        count, position = take_int32(data, position)
        for _ in range(count):
            number, code, _, offset = _ANSWERED.unpack_from(data, position)
            position += _ANSWERED.size
            epoch: int | None = None
            if version >= _WITH_LEADER_EPOCH:
                epoch, position = take_int32(data, position)
            answers.append((TopicPartition(topic, number), code, LogOffset(offset, epoch)))
    return answers
