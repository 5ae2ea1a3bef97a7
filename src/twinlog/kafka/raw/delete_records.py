"""Deletes records before an offset (DeleteRecords, KIP-107) at the leaders.

Layouts: DeleteRecordsRequest.json and DeleteRecordsResponse.json in Kafka's source. Needs DELETE on the
topics.
"""

import struct
from collections.abc import Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.encoding import INT32, Frame, string, take_int32, take_string
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces
from twinlog.kafka.raw.leaders import LeaderAnswers, ask_leaders
from twinlog.model import TopicPartition

_DELETE_RECORDS = 21
_ASKED = struct.Struct(">iq")
"""Partition, and the first offset that stays."""
_ANSWERED = struct.Struct(">iqh")
"""Partition, start of the log, error code."""


async def delete_records(
    session: DataClientPool, before: Mapping[TopicPartition, int], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, int | KafkaError]:
    """Let each log start at an offset; return its new start, or the error. Deleting what is already deleted
    is not an error.

    Raises KafkaError when no broker can be reached in time.
    """
    timeout_ms = int(timeout_seconds * 1000)
    return await ask_leaders(
        session,
        before,
        lambda led: _request({partition: before[partition] for partition in led}, timeout_ms),
        "delete records",
        timeout_seconds=timeout_seconds,
    )


def _request(before: Mapping[TopicPartition, int], timeout_ms: int) -> HandWrittenRequest[LeaderAnswers[int]]:
    """Versions 0 and 1 (Kafka 0.11 and 2.0) have the same layout."""

    def encode(_version: int) -> Pieces:
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for partition, offset in before.items():
            by_topic.setdefault(partition.topic, []).append((partition.partition, offset))
        pieces = [INT32.pack(len(by_topic))]
        for topic, wanted in by_topic.items():
            pieces += (string(topic), INT32.pack(len(wanted)))
            pieces += [_ASKED.pack(number, offset) for number, offset in wanted]
        return [*pieces, INT32.pack(timeout_ms)]

    return HandWrittenRequest(_DELETE_RECORDS, range(2), encode, _read)


def _read(data: Frame, position: int, _version: int) -> LeaderAnswers[int]:
    answers: LeaderAnswers[int] = []
    topic_count, position = take_int32(data, position + 4)  # After the throttle time.
    for _ in range(topic_count):
        topic, position = take_string(data, position)
        count, position = take_int32(data, position)
        for _ in range(count):
            number, start, code = _ANSWERED.unpack_from(data, position)
            position += _ANSWERED.size
            answers.append((TopicPartition(topic, number), code, start))
    return answers
