"""AddPartitionsToTxn and EndTxn, hand-written: each round of a copy needs one of each.

Layouts: AddPartitionsToTxnRequest.json, EndTxnRequest.json and their responses in Kafka's source.
"""

import struct
from collections.abc import Collection, Sequence
from typing import NamedTuple

from twinlog.kafka.protocol.frames import (
    INT16,
    INT32,
    NO_TAGS,
    Frame,
    compact_length,
    compact_string,
    skip_tags,
    string,
    take_compact_length,
    take_compact_string,
    take_int32,
    take_string,
)
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces
from twinlog.kafka.raw.leaders import by_topic
from twinlog.model import TopicPartition

_ADD_PARTITIONS, _END = 24, 26
_FLEXIBLE_END = 3
_BUMPING_END = 5
_PRODUCER = struct.Struct(">qh")
"""Producer id and epoch."""
_PRODUCER_AND_VERDICT = struct.Struct(">qh?")
_ADDED = struct.Struct(">ih")
"""Partition, error code."""
_THROTTLE_BYTES = 4
_ENDED = struct.Struct(">ih")
"""Throttle time, error code."""


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)
LAST_EPOCH = 32_767
"""Of a producer id; then it is used up."""


class EndAnswer(NamedTuple):
    error_code: int
    identity: ProducerIdentity | None
    """The identity for the next transaction; None: unchanged."""


def add_partitions_request(
    transactional_id: str, identity: ProducerIdentity, partitions: Collection[TopicPartition]
) -> HandWrittenRequest[dict[TopicPartition, int]]:
    """AddPartitionsToTxn, versions 0 (Kafka 0.11) to 2. Returns an error code for each partition."""

    def encode(_version: int) -> Pieces:
        topics = by_topic(partitions, lambda one: one.partition)
        pieces = [string(transactional_id), _PRODUCER.pack(*identity), INT32.pack(len(topics))]
        for topic, numbers in topics.items():
            pieces += (string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
        return pieces

    return HandWrittenRequest(_ADD_PARTITIONS, range(3), encode, read_added_partitions)


def read_added_partitions(data: Frame, position: int, _version: int) -> dict[TopicPartition, int]:
    codes: dict[TopicPartition, int] = {}
    topic_count, position = take_int32(data, position + _THROTTLE_BYTES)
    for _ in range(topic_count):
        topic, position = take_string(data, position)
        count, position = take_int32(data, position)
        for _ in range(count):
            number, code = _ADDED.unpack_from(data, position)
            codes[TopicPartition(topic, number)] = code
            position += _ADDED.size
    return codes


def end_request(
    transactional_id: str, identity: ProducerIdentity, *, commit: bool, gives_identity: bool
) -> HandWrittenRequest[EndAnswer]:
    """EndTxn, versions 0 (Kafka 0.11) to 2; with `gives_identity` 5 (Kafka 4.0)."""

    def encode(version: int) -> Pieces:
        body = _PRODUCER_AND_VERDICT.pack(*identity, commit)
        if version >= _FLEXIBLE_END:
            return [compact_string(transactional_id), body, NO_TAGS]
        return [string(transactional_id), body]

    versions = range(_BUMPING_END, _BUMPING_END + 1) if gives_identity else range(3)
    return HandWrittenRequest(_END, versions, encode, read_end, flexible_from=_FLEXIBLE_END)


def read_end(data: Frame, position: int, version: int) -> EndAnswer:
    _, error_code = _ENDED.unpack_from(data, position)
    if version < _BUMPING_END or error_code:
        return EndAnswer(error_code, None)
    identity = ProducerIdentity(*_PRODUCER.unpack_from(data, position + _ENDED.size))
    return EndAnswer(error_code, identity if identity.producer_id >= 0 else None)


_DESCRIBE = 65
_TIMES_AND_PRODUCER = struct.Struct(">iqqh")
"""Timeout, start, producer id and epoch."""


def describe_request(transactional_id: str) -> HandWrittenRequest[tuple[int, int]]:
    """DescribeTransactions, version 0 (Kafka 3.0, KIP-664). Returns an error code and the producer id. kio
    cannot read it while no transaction has begun."""

    def encode(_version: int) -> Pieces:
        return [compact_length(1), compact_string(transactional_id), NO_TAGS]

    def read(data: Frame, position: int, _version: int) -> tuple[int, int]:
        _, position = take_compact_length(data, position + _THROTTLE_BYTES)
        (error_code,) = INT16.unpack_from(data, position)
        position += INT16.size
        for _ in ("id", "state"):
            _, position = take_compact_string(data, position)
        _, _, producer_id, _ = _TIMES_AND_PRODUCER.unpack_from(data, position)
        return error_code, producer_id

    return HandWrittenRequest(_DESCRIBE, range(1), encode, read, flexible_from=0)


# Ends of transactions written at the leader of their partition, without a coordinator (WriteTxnMarkers,
# KIP-98 and KIP-664).
#
# Layouts: WriteTxnMarkersRequest.json and WriteTxnMarkersResponse.json in Kafka's source. Needs ALTER (Kafka
# 3.8) or CLUSTER_ACTION on the cluster.

WRITE_TXN_MARKERS = 27
_MARKER = struct.Struct(">qh?")
"""Producer id and epoch, whether it commits."""
_ANSWERED = struct.Struct(">ih")
"""Number of the partition, error code."""
_PRODUCER_ID_BYTES = 8


class AbortMarker(NamedTuple):
    """The end of one transaction in one partition. A leader accepts it when both epochs are at least those of
    its producer's last marker there."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    """0 to 32767."""
    coordinator_epoch: int
    """0 to 2**31 - 1."""


MarkerAnswers = dict[tuple[TopicPartition, int], int]
"""The error code by partition and producer id. For several markers it belongs to any of them: a broker
returns one code for each producer and partition, so the log has to show what was written."""


def write_markers(markers: Sequence[AbortMarker]) -> HandWrittenRequest[MarkerAnswers]:
    """The broker appends the markers one after the other. It answers when all of them are on every replica in
    sync, or are refused. Version 1 (Kafka 2.6)."""

    def encode(_version: int) -> Pieces:
        pieces = [compact_length(len(markers))]
        for marker in markers:
            pieces += (
                _MARKER.pack(marker.producer_id, marker.producer_epoch, False),
                compact_length(1),
                compact_string(marker.partition.topic),
                compact_length(1),
                INT32.pack(marker.partition.partition),
                NO_TAGS,
                INT32.pack(marker.coordinator_epoch),
                NO_TAGS,
            )
        return [*pieces, NO_TAGS]

    return HandWrittenRequest(
        WRITE_TXN_MARKERS, range(1, 2), encode, _read, flexible_from=1, throttle_of=lambda *_: 0
    )


def _read(data: Frame, position: int, _version: int) -> MarkerAnswers:
    answers: MarkerAnswers = {}
    producers, position = take_compact_length(data, position)
    for _ in range(producers):
        (producer_id,) = struct.unpack_from(">q", data, position)
        topics, position = take_compact_length(data, position + _PRODUCER_ID_BYTES)
        for _ in range(topics):
            topic, position = take_compact_string(data, position)
            count, position = take_compact_length(data, position)
            for _ in range(count):
                number, code = _ANSWERED.unpack_from(data, position)
                position = skip_tags(data, position + _ANSWERED.size)
                answers[TopicPartition(topic, number), producer_id] = code
            position = skip_tags(data, position)
        position = skip_tags(data, position)
    return answers
