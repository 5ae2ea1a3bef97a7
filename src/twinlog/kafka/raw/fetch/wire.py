"""Fetch, built and read in place: the answer's records are never copied.

Layouts: Kafka's protocol guide. Versions 12 (Kafka 2.7) and 13 (3.1), which names a topic by its id
(KIP-516), so that the log of another topic with the same name is never read.
"""

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from twinlog.batches.visibility import AbortedTransaction
from twinlog.kafka.protocol.frames import (
    INT16,
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

FETCH = 1
"""API key."""
_OLDEST = 12
_WITH_TOPIC_IDS = 13
_CONSUMER = -1
_UNKNOWN_EPOCH = -1
_UNKNOWN_OFFSET = -1
_NO_SESSION = 0
_FINAL_SESSION_EPOCH = -1

LARGEST_BATCH_BYTES = 256 << 20
"""A broker sends the first batch of an answer complete, however little was requested. Topics with a larger
max.message.bytes are not read."""

_INT32_PAIR = struct.Struct(">ii")
_INT64_PAIR = struct.Struct(">qq")
_NO_TOPIC_IDS: Mapping[str, str] = MappingProxyType({})


class FetchPart(NamedTuple):
    partition: TopicPartition
    offset: int
    max_bytes: int | None = None
    """Instead of the request's `max_partition_bytes`."""


class FetchedPartition(NamedTuple):
    """The answer for one partition; offsets that the broker does not know are -1."""

    partition: TopicPartition
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...]
    preferred_replica: int
    """The node to read from instead (KIP-392), or -1."""
    records: memoryview
    """Batches, the last one possibly incomplete; for `twinlog.batches.prepare`. May be empty."""
    fetch_offset: int = _UNKNOWN_OFFSET
    """The requested position."""


class FetchResponse(NamedTuple):
    error_code: int
    answers: list[FetchedPartition]
    throttle_ms: int = 0
    """Above 0 when a quota is exceeded: the broker then leaves out what it has read, so that partitions
    without an answer have no data yet, and reads nothing more from the connection for this long (KIP-219)."""


def fetch_request(
    parts: Sequence[FetchPart],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    max_partition_bytes: int,
    read_committed: bool,
    rack: str,
    topic_ids: Mapping[str, str] = _NO_TOPIC_IDS,
) -> HandWrittenRequest[FetchResponse]:
    """A full fetch without a session.

    `topic_ids`: by topic, as brokers print them. If it has the id of each topic, a broker of Kafka 3.1 or
    newer gets these ids, and answers UNKNOWN_TOPIC_ID or INCONSISTENT_TOPIC_ID for a topic that was deleted
    and created again.
    """
    by_topic: dict[str, list[FetchPart]] = {}
    for part in parts:
        by_topic.setdefault(part.partition.topic, []).append(part)
    ids = {topic: raw_topic_id(topic_ids.get(topic, "")) for topic in by_topic}
    has_ids = all(len(raw_id) == TOPIC_ID_BYTES for raw_id in ids.values())
    limits = _Limits(max_wait_ms, min_bytes, max_bytes, max_partition_bytes, read_committed, rack)

    def encode(version: int) -> Pieces:
        names = ids if version >= _WITH_TOPIC_IDS else {topic: compact_string(topic) for topic in by_topic}
        return _write(by_topic, names, limits)

    def decode(data: Frame, position: int, version: int) -> FetchResponse:
        topics = {raw_id: topic for topic, raw_id in ids.items()} if version >= _WITH_TOPIC_IDS else None
        return read_fetch_response(data, position, topics)

    return HandWrittenRequest(
        FETCH,
        range(_OLDEST, (_WITH_TOPIC_IDS if has_ids else _OLDEST) + 1),
        encode,
        decode,
        flexible_from=_OLDEST,
        largest_answer_bytes=max_bytes + LARGEST_BATCH_BYTES,
    )


class _Limits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int
    read_committed: bool
    rack: str

    def head(self) -> bytes:
        return struct.pack(
            ">iiiib", _CONSUMER, self.max_wait_ms, self.min_bytes, self.max_bytes, self.read_committed
        )


_ByTopic = Mapping[str, Sequence[FetchPart]]
_SESSION = _INT32_PAIR.pack(_NO_SESSION, _FINAL_SESSION_EPOCH)


_PARTITION = struct.Struct(">iiqiqib")
"""Partition, leader epoch, offset, last fetched epoch, log start offset, size limit, no tagged fields."""


def _write(by_topic: _ByTopic, names: Mapping[str, bytes], limits: _Limits) -> Pieces:
    pieces = [limits.head(), _SESSION, compact_length(len(by_topic))]
    for topic, parts in by_topic.items():
        pieces += (names[topic], compact_length(len(parts)))
        pieces += [
            _PARTITION.pack(
                part.partition.partition,
                _UNKNOWN_EPOCH,
                part.offset,
                _UNKNOWN_EPOCH,
                _UNKNOWN_OFFSET,
                part.max_bytes or limits.max_partition_bytes,
                0,
            )
            for part in parts
        ]
        pieces.append(NO_TAGS)
    pieces += (compact_length(0), compact_string(limits.rack), NO_TAGS)  # No forgotten topics.
    return pieces


_FETCHED = struct.Struct(">ihqqq")
"""Partition, error code, high watermark, last stable offset, log start offset."""
_SESSION_BYTES = 6
"""Error code and session id."""


def read_fetch_response(data: Frame, position: int, topics: Mapping[bytes, str] | None) -> FetchResponse:
    """`topics`: by id, for an answer that names topics by their ids."""
    throttle_ms, position = take_int32(data, position)
    (error_code,) = INT16.unpack_from(data, position)
    view = memoryview(data)
    answers: list[FetchedPartition] = []
    topic_count, position = take_compact_length(data, position + _SESSION_BYTES)
    for _ in range(topic_count):
        if topics is None:
            topic, position = take_compact_string(data, position)
        else:
            after = position + TOPIC_ID_BYTES
            topic, position = topics.get(bytes(view[position:after]), ""), after
        partition_count, position = take_compact_length(data, position)
        for _ in range(partition_count):
            number, code, high, stable, start = _FETCHED.unpack_from(data, position)
            aborted, position = _take_aborted(data, position + _FETCHED.size)
            preferred, position = take_int32(data, position)
            size, position = take_compact_length(data, position)
            after = position + size
            if topic:  # Otherwise it was not requested.
                answers.append(
                    FetchedPartition(
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
            position = skip_tags(data, after)
        position = skip_tags(data, position)
    return FetchResponse(error_code, answers, throttle_ms)


def _take_aborted(data: Frame, position: int) -> tuple[tuple[AbortedTransaction, ...], int]:
    count, position = take_compact_length(data, position)
    aborted = []
    for _ in range(count):
        aborted.append(AbortedTransaction._make(_INT64_PAIR.unpack_from(data, position)))
        position = skip_tags(data, position + _INT64_PAIR.size)
    return tuple(aborted), position
