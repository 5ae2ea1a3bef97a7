"""Fetch and Produce: the two requests that carry data, cut and put together without copies.

Layouts: Kafka's protocol guide. Both are written in their last version before tagged fields; Produce for
transactions of version 2 (KIP-890) has to be flexible.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from twinlog.batches.visibility import AbortedTransaction
from twinlog.kafka.protocol.encoding import (
    INT16,
    INT32,
    NO_TAGS,
    Frame,
    compact_length,
    compact_nullable_string,
    compact_string,
    nullable_string,
    skip_tags,
    string,
    take_compact_length,
    take_compact_string,
    take_int32,
    take_string,
)
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces
from twinlog.model import TopicPartition

PRODUCE, FETCH = 0, 1
"""API keys."""
_FLEXIBLE_PRODUCE = 9
_ALL_IN_SYNC_REPLICAS = -1
_CONSUMER = -1
_UNKNOWN_EPOCH = -1
_UNKNOWN_OFFSET = -1
_NO_SESSION = 0
_FINAL_SESSION_EPOCH = -1
_NO_REPLICA = -1

LARGEST_BATCH_BYTES = 256 << 20
"""A broker sends the first batch of an answer whole, however little was asked for. Topics with
max.message.bytes above this are not read."""

_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_LOG_START_BYTES = 8
_INT32_PAIR = struct.Struct(">ii")
_INT64_PAIR = struct.Struct(">qq")

T = TypeVar("T")


# ------------------------------------------------------------------------------------------------ produce


class ProducePart(NamedTuple):
    """One batch for one partition: a request may hold one per partition."""

    partition: TopicPartition
    header: bytes
    records: bytes


class ProduceAnswer(NamedTuple):
    partition: TopicPartition
    error_code: int
    base_offset: int
    message: str
    """What the broker says about the refusal; "" if it says nothing."""


class ProduceResponse(NamedTuple):
    answers: list[ProduceAnswer]
    throttle_ms: int
    """The batches are written; nothing more is taken on the connection for so long."""


def produce_request(
    parts: Sequence[ProducePart],
    *,
    transactional_id: str | None,
    timeout_ms: int,
    adds_partitions: bool = False,
) -> HandWrittenRequest[ProduceResponse]:
    """Produce with acks=all. Versions 3 (Kafka 0.11) to 8 have the same layout; zstd needs 7 (Kafka 2.1).

    With `adds_partitions` version 12 (Kafka 4.0): the brokers add the partitions to the transaction.
    """

    def encode(version: int) -> Pieces:
        by_topic = _by_topic((part.partition.topic, part) for part in parts)
        write = _write_flexible_produce if version >= _FLEXIBLE_PRODUCE else _write_produce
        return write(by_topic, transactional_id, timeout_ms)

    versions = range(12, 13) if adds_partitions else range(3, 9)
    return HandWrittenRequest(
        PRODUCE,
        versions,
        encode,
        _read_produce_response,
        flexible_from=_FLEXIBLE_PRODUCE,
        throttle_of=_throttle_of_produce,
    )


def _throttle_of_produce(_frame: Frame, _position: int, response: ProduceResponse) -> int:
    return response.throttle_ms


def _write_produce(
    by_topic: Mapping[str, Sequence[ProducePart]], transactional_id: str | None, timeout_ms: int
) -> Pieces:
    pieces: list[bytes | memoryview] = [nullable_string(transactional_id)]
    pieces.append(_ACKS_AND_TIMEOUT.pack(_ALL_IN_SYNC_REPLICAS, timeout_ms))
    pieces.append(INT32.pack(len(by_topic)))
    for topic, topic_parts in by_topic.items():
        pieces += (string(topic), INT32.pack(len(topic_parts)))
        for part in topic_parts:
            size = len(part.header) + len(part.records)
            pieces += (_INT32_PAIR.pack(part.partition.partition, size), part.header, part.records)
    return pieces


def _write_flexible_produce(
    by_topic: Mapping[str, Sequence[ProducePart]], transactional_id: str | None, timeout_ms: int
) -> Pieces:
    pieces: list[bytes | memoryview] = [compact_nullable_string(transactional_id)]
    pieces.append(_ACKS_AND_TIMEOUT.pack(_ALL_IN_SYNC_REPLICAS, timeout_ms))
    pieces.append(compact_length(len(by_topic)))
    for topic, topic_parts in by_topic.items():
        pieces += (compact_string(topic), compact_length(len(topic_parts)))
        for part in topic_parts:
            size = compact_length(len(part.header) + len(part.records))
            pieces += (INT32.pack(part.partition.partition), size, part.header, part.records, NO_TAGS)
        pieces.append(NO_TAGS)
    pieces.append(NO_TAGS)
    return pieces


_PRODUCED = struct.Struct(">ihqq")
"""partition, error code, base offset, log append time."""


def _read_produce_response(data: Frame, position: int, version: int) -> ProduceResponse:
    if version >= _FLEXIBLE_PRODUCE:
        return _read_flexible_produce_response(data, position)
    answers = []
    topic_count, position = take_int32(data, position)
    for _ in range(topic_count):
        topic, position = take_string(data, position)
        partition_count, position = take_int32(data, position)
        for _ in range(partition_count):
            number, error_code, base_offset, _ = _PRODUCED.unpack_from(data, position)
            position += _PRODUCED.size
            if version >= 5:
                position += _LOG_START_BYTES
            message = ""
            if version >= 8:
                message, position = _take_record_errors(data, position)
            answers.append(ProduceAnswer(TopicPartition(topic, number), error_code, base_offset, message))
    return ProduceResponse(answers, take_int32(data, position)[0])


def _take_record_errors(data: Frame, position: int) -> tuple[str, int]:
    first = ""
    count, position = take_int32(data, position)
    for _ in range(count):
        text, position = take_string(data, position + 4)
        first = first or text
    message, position = take_string(data, position)
    return message or first, position


def _read_flexible_produce_response(data: Frame, position: int) -> ProduceResponse:
    answers = []
    topic_count, position = take_compact_length(data, position)
    for _ in range(topic_count):
        topic, position = take_compact_string(data, position)
        partition_count, position = take_compact_length(data, position)
        for _ in range(partition_count):
            number, error_code, base_offset, _ = _PRODUCED.unpack_from(data, position)
            position += _PRODUCED.size + _LOG_START_BYTES
            message, position = _take_flexible_record_errors(data, position)
            position = skip_tags(data, position)  # who leads now: metadata says it too
            answers.append(ProduceAnswer(TopicPartition(topic, number), error_code, base_offset, message))
        position = skip_tags(data, position)
    return ProduceResponse(answers, take_int32(data, position)[0])


def _take_flexible_record_errors(data: Frame, position: int) -> tuple[str, int]:
    first = ""
    count, position = take_compact_length(data, position)
    for _ in range(count):
        text, position = take_compact_string(data, position + 4)
        position = skip_tags(data, position)
        first = first or text
    message, position = take_compact_string(data, position)
    return message or first, position


# ------------------------------------------------------------------------------------------------ fetch


class FetchPart(NamedTuple):
    partition: TopicPartition
    offset: int
    max_bytes: int | None = None
    """Instead of the request's `max_partition_bytes`."""


class FetchAnswer(NamedTuple):
    """One partition of a fetch response; offsets are -1 where the broker gave none."""

    partition: TopicPartition
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...]
    preferred_replica: int
    """The node to read from instead (KIP-392), or -1."""
    records: memoryview


class FetchResponse(NamedTuple):
    error_code: int
    answers: list[FetchAnswer]
    throttle_ms: int = 0
    """Above 0 when a quota is exceeded: the broker then leaves out what it has read, so that partitions
    without an answer have "nothing yet", and reads nothing more from the connection for so long (KIP-219)."""


def fetch_request(
    parts: Sequence[FetchPart],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    max_partition_bytes: int,
    read_committed: bool,
    rack: str,
) -> HandWrittenRequest[FetchResponse]:
    """A full fetch without a session. Versions 4 (Kafka 0.11) to 11 (Kafka 2.3)."""

    def encode(version: int) -> Pieces:
        pieces = [struct.pack(">iiiib", _CONSUMER, max_wait_ms, min_bytes, max_bytes, read_committed)]
        if version >= 7:
            pieces.append(_INT32_PAIR.pack(_NO_SESSION, _FINAL_SESSION_EPOCH))
        by_topic = _by_topic((part.partition.topic, part) for part in parts)
        pieces.append(INT32.pack(len(by_topic)))
        pack = _partition_packer(version)
        for topic, topic_parts in by_topic.items():
            pieces += (string(topic), INT32.pack(len(topic_parts)))
            pieces += [
                pack(part.partition.partition, part.offset, part.max_bytes or max_partition_bytes)
                for part in topic_parts
            ]
        if version >= 7:
            pieces.append(INT32.pack(0))  # no forgotten topics
        if version >= 11:
            pieces.append(string(rack))
        return pieces

    return HandWrittenRequest(
        FETCH,
        range(4, 12),
        encode,
        _read_fetch_response,
        largest_answer_bytes=max_bytes + LARGEST_BATCH_BYTES,
    )


def _partition_packer(version: int) -> Callable[[int, int, int], bytes]:
    """Number, offset and most bytes of a partition."""
    if version >= 9:
        pack = struct.Struct(">iiqqi").pack
        return lambda number, offset, size: pack(number, _UNKNOWN_EPOCH, offset, _UNKNOWN_OFFSET, size)
    if version >= 5:
        pack = struct.Struct(">iqqi").pack
        return lambda number, offset, size: pack(number, offset, _UNKNOWN_OFFSET, size)
    return struct.Struct(">iqi").pack


_FETCHED = struct.Struct(">ihqqqi")
"""partition, error code, high watermark, last stable offset, log start offset, aborted count (-1 = null)."""
_FETCHED_V4 = struct.Struct(">ihqqi")
"""The same without a log start offset."""


def _read_fetch_response(data: Frame, position: int, version: int) -> FetchResponse:
    throttle_ms, position = take_int32(data, position)
    error_code = 0
    if version >= 7:
        (error_code,) = INT16.unpack_from(data, position)
        position += 6  # with the session id
    view = memoryview(data)
    answers: list[FetchAnswer] = []
    topic_count, position = take_int32(data, position)
    for _ in range(topic_count):
        topic, position = take_string(data, position)
        partition_count, position = take_int32(data, position)
        for _ in range(partition_count):
            if version >= 5:
                number, code, high, stable, start, aborted_count = _FETCHED.unpack_from(data, position)
                position += _FETCHED.size
            else:
                number, code, high, stable, aborted_count = _FETCHED_V4.unpack_from(data, position)
                start = _UNKNOWN_OFFSET
                position += _FETCHED_V4.size
            aborted: tuple[AbortedTransaction, ...] = ()
            if aborted_count > 0:
                after = position + aborted_count * _INT64_PAIR.size
                aborted = tuple(map(AbortedTransaction._make, _INT64_PAIR.iter_unpack(view[position:after])))
                position = after
            preferred = _NO_REPLICA
            if version >= 11:
                preferred, position = take_int32(data, position)
            size, position = take_int32(data, position)
            after = position + max(size, 0)
            answers.append(
                FetchAnswer(
                    TopicPartition(topic, number),
                    code,
                    high,
                    stable,
                    start,
                    aborted,
                    preferred,
                    view[position:after],
                )
            )
            position = after
    return FetchResponse(error_code, answers, throttle_ms)


# ------------------------------------------------------------------------------------------------ primitives


def _by_topic(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    grouped: dict[str, list[T]] = {}
    for topic, part in pairs:
        grouped.setdefault(topic, []).append(part)
    return grouped
