"""Where the records of a leader end: how a log is recognised that was cut off and went on (KIP-320).

An offset alone does not name a record: after an unclean election, or when an old disk came back, the log may
hold other records at offsets that were read before. Together with the leader's epoch it does.
"""

import asyncio
import struct
from collections.abc import Mapping
from typing import NamedTuple

from twinlog.errors import KafkaError
from twinlog.kafka.connection import DataSession
from twinlog.kafka.deadline import deadline
from twinlog.kafka.encoding import INT32, Frame, string, take_int32, take_string
from twinlog.kafka.raw.errors import about, again, partition_error
from twinlog.kafka.raw.leaders import leader_of, no_leader, refresh_metadata
from twinlog.kafka.requests import HandWrittenRequest, Pieces
from twinlog.model import TopicPartition

_OFFSET_FOR_LEADER_EPOCH = 23
_CONSUMER = -1
_ANY_CURRENT_EPOCH = -1
_ASKED = struct.Struct(">iii")
"""partition, current leader epoch, epoch asked for."""
_ANSWERED = struct.Struct(">hiiq")
"""error code, partition, leader epoch, end offset."""


class EpochEnd(NamedTuple):
    """The leader's last epoch at or below the one that was asked for, and where its records end."""

    epoch: int
    """-1: the leader knows none, all its records are of earlier epochs than the one asked for."""
    end_offset: int


class _Answer(NamedTuple):
    partition: TopicPartition
    error_code: int
    end: EpochEnd


async def epoch_ends(
    session: DataSession, epochs: Mapping[TopicPartition, int], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, EpochEnd | KafkaError]:
    """For each partition the end of a leader epoch, or why it is not known. Needs Kafka 2.1.

    Raises KafkaError when no broker can be reached in time.
    """
    doing = "ask for the end of a leader epoch"
    found: dict[TopicPartition, EpochEnd | KafkaError] = {}
    async with deadline(timeout_seconds, doing, alias=session.alias):
        client = await session.client(doing)
        await refresh_metadata(session, client, {partition.topic for partition in epochs})
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for partition, epoch in epochs.items():
            leader = leader_of(client, partition)
            if leader is None:
                found[partition] = no_leader(session, client, partition)
            else:
                by_node.setdefault(leader, {})[partition] = epoch

        async def ask(node: int, wanted: Mapping[TopicPartition, int]) -> None:
            try:
                answers = await session.send(node, _request(wanted), doing)
            except KafkaError as error:
                found.update((partition, about(partition, again(error))) for partition in wanted)
                return
            for partition, code, end in answers:
                refusal = partition_error(code, partition, doing, alias=session.alias) if code else None
                found[partition] = refusal or end

        async with asyncio.TaskGroup() as group:
            for node, wanted in by_node.items():
                group.create_task(ask(node, wanted), name=f"{doing} of broker {node}")
    return found


def _request(epochs: Mapping[TopicPartition, int]) -> HandWrittenRequest[list[_Answer]]:
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

    return HandWrittenRequest(_OFFSET_FOR_LEADER_EPOCH, range(2, 4), encode, _read)


def _read(data: Frame, position: int, _version: int) -> list[_Answer]:
    answers = []
    topic_count, position = take_int32(data, position + 4)  # after the throttle time
    for _ in range(topic_count):
        topic, position = take_string(data, position)
        count, position = take_int32(data, position)
        for _ in range(count):
            code, number, epoch, end_offset = _ANSWERED.unpack_from(data, position)
            position += _ANSWERED.size
            answers.append(_Answer(TopicPartition(topic, number), code, EpochEnd(epoch, end_offset)))
    return answers
