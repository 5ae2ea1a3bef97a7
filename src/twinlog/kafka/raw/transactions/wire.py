"""AddPartitionsToTxn and EndTxn, hand-written: each round of a copy needs one of each.

Layouts: AddPartitionsToTxnRequest.json, EndTxnRequest.json and their responses in Kafka's source.
"""

import struct
from collections.abc import Collection
from typing import NamedTuple

from twinlog.kafka.protocol.encoding import (
    INT32,
    NO_TAGS,
    Frame,
    compact_string,
    string,
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
