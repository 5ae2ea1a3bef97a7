"""Produce, built and read without copies.

Layout: Kafka's protocol guide. It uses the first version with tagged fields (KIP-482); transactions of
version 2 (KIP-890) and ids of topics (KIP-516) need a later one.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from twinlog.batches.outgoing import OutgoingBatch
from twinlog.kafka.protocol.frames import (
    INT32,
    NO_TAGS,
    TOPIC_ID_BYTES,
    Frame,
    compact_length,
    compact_string,
    raw_topic_id,
    skip_tags,
    take_compact_length,
    take_compact_string,
    take_int32,
)
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces
from twinlog.model import TopicPartition

PRODUCE = 0
"""API key."""
_OLDEST = 9
_ADDS_PARTITIONS = 12
_WITH_TOPIC_IDS = 13
_NO_TOPIC_IDS: Mapping[str, str] = MappingProxyType({})
_ALL_IN_SYNC_REPLICAS = -1

_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_LOG_START_BYTES = 8

T = TypeVar("T")


@dataclass(slots=True, eq=False, kw_only=True)
class SealedBatch:
    """One batch for one partition as it is sent: a request may hold one per partition."""

    partition: TopicPartition
    batch: OutgoingBatch
    header: bytes = b""


class ProduceAnswer(NamedTuple):
    partition: TopicPartition
    error_code: int
    base_offset: int
    message: str
    """The broker's message about the refusal; "" if there is none."""
    record: int | None = None
    """The index in the batch of the first refused record; None = the broker does not say."""


class ProduceResponse(NamedTuple):
    answers: list[ProduceAnswer]
    throttle_ms: int
    """The batches are written; for this long the broker accepts nothing more on the connection."""


def produce_request(
    parts: Sequence[SealedBatch],
    *,
    transactional_id: str | None,
    timeout_ms: int,
    adds_partitions: bool = False,
    topic_ids: Mapping[str, str] = _NO_TOPIC_IDS,
) -> HandWrittenRequest[ProduceResponse]:
    """Produce with acks=all, by version 9 (Kafka 2.8).

    With `adds_partitions` version 12 (Kafka 4.0): the brokers add the partitions to the transaction.
    `topic_ids`: by topic, as brokers print them. If it has the id of each topic, a broker of Kafka 4.1 or
    newer gets these ids, and answers UNKNOWN_TOPIC_ID for a topic that was deleted and created again. Not in
    a transaction whose partitions the brokers do not add: they would.
    """
    by_topic = _by_topic((part.partition.topic, part) for part in parts)
    ids = {topic: raw_topic_id(topic_ids.get(topic, "")) for topic in by_topic}
    has_ids = all(len(raw_id) == TOPIC_ID_BYTES for raw_id in ids.values())

    def encode(version: int) -> Pieces:
        names = ids if version >= _WITH_TOPIC_IDS else {topic: compact_string(topic) for topic in by_topic}
        return _write_produce(by_topic, names, transactional_id, timeout_ms)

    def decode(data: Frame, position: int, version: int) -> ProduceResponse:
        topics = {raw_id: name for name, raw_id in ids.items()} if version >= _WITH_TOPIC_IDS else None
        return read_produce_response(data, position, topics)

    oldest = newest = _ADDS_PARTITIONS if adds_partitions else _OLDEST
    if has_ids and (adds_partitions or transactional_id is None):
        newest = _WITH_TOPIC_IDS
    return HandWrittenRequest(
        PRODUCE,
        range(oldest, newest + 1),
        encode,
        decode,
        flexible_from=_OLDEST,
        throttle_of=lambda _frame, _position, response: response.throttle_ms,
    )


def _write_produce(
    by_topic: Mapping[str, Sequence[SealedBatch]],
    names: Mapping[str, bytes],
    transactional_id: str | None,
    timeout_ms: int,
) -> Pieces:
    """`names`: of the topics as they are written, or their ids."""
    pieces: list[bytes | memoryview] = [
        b"\0" if transactional_id is None else compact_string(transactional_id)
    ]
    pieces.append(_ACKS_AND_TIMEOUT.pack(_ALL_IN_SYNC_REPLICAS, timeout_ms))
    pieces.append(compact_length(len(by_topic)))
    for topic, topic_parts in by_topic.items():
        pieces += (names[topic], compact_length(len(topic_parts)))
        for part in topic_parts:
            size = compact_length(len(part.header) + len(part.batch.records))
            pieces += (INT32.pack(part.partition.partition), size, part.header, part.batch.records, NO_TAGS)
        pieces.append(NO_TAGS)
    pieces.append(NO_TAGS)
    return pieces


_PRODUCED = struct.Struct(">ihqq")
"""partition, error code, base offset, log append time."""


class _Why(NamedTuple):
    """Of an answer: `message` and `record`."""

    message: str
    record: int | None


_NOT_TOLD = _Why("", None)


def _why(errors: Sequence[_Why], message: str) -> _Why:
    """What is said of the first refused record, else of the batch."""
    first = min(errors, key=lambda each: each.record or 0, default=_NOT_TOLD)
    return first._replace(message=first.message or message)


def read_produce_response(
    data: Frame, position: int, topics: Mapping[bytes, str] | None = None
) -> ProduceResponse:
    """`topics`: by id, for an answer that names topics by their ids."""
    answers = []
    topic_count, position = take_compact_length(data, position)
    for _ in range(topic_count):
        if topics is None:
            topic, position = take_compact_string(data, position)
        else:
            after = position + TOPIC_ID_BYTES
            topic, position = topics.get(bytes(data[position:after]), ""), after
        partition_count, position = take_compact_length(data, position)
        for _ in range(partition_count):
            number, error_code, base_offset, _ = _PRODUCED.unpack_from(data, position)
            position += _PRODUCED.size + _LOG_START_BYTES
            why, position = _take_record_errors(data, position)
            position = skip_tags(data, position)  # The present leader; the metadata have it too.
            answers.append(ProduceAnswer(TopicPartition(topic, number), error_code, base_offset, *why))
        position = skip_tags(data, position)
    return ProduceResponse(answers, take_int32(data, position)[0])


def _take_record_errors(data: Frame, position: int) -> tuple[_Why, int]:
    errors: list[_Why] = []
    count, position = take_compact_length(data, position)
    for _ in range(count):
        record, position = take_int32(data, position)
        text, position = take_compact_string(data, position)
        position = skip_tags(data, position)
        errors.append(_Why(text, record))
    message, position = take_compact_string(data, position)
    return _why(errors, message), position


def _by_topic(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    grouped: dict[str, list[T]] = {}
    for topic, part in pairs:
        grouped.setdefault(topic, []).append(part)
    return grouped
