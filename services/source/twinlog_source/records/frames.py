"""The bytes between a task and the two ends of its pipe through Spark. Pure.

A task sends what it fetched of one partition as a chunk, and gets the chunk back with what is left of it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twinlog.batches.bodies import OpenRecord
from twinlog.model import TopicPartition

LOOPBACK = "127.0.0.1"
FEED, DRAIN = b"F", b"D"
"""With which the two ends of a pipe begin, before the token."""
TOKEN_BYTES = 32
LENGTH = struct.Struct(">I")
_CHUNK = struct.Struct(">IIiH")
_RECORD = struct.Struct(">qqI")
_BACK = struct.Struct(">II")
_ROW = struct.Struct(">IqiI")
PASSED = -1
"""Instead of the column that failed."""


class ChunkOut(NamedTuple):
    """What goes into the pipe."""

    number: int
    partition: TopicPartition
    records: Sequence[OpenRecord]


class Row(NamedTuple):
    """What came out for one record. A record without a row was dropped."""

    place: int
    """Of the record in its chunk."""
    timestamp_ms: int
    body: bytes
    failed: int = PASSED
    """What could not be computed of it, as an index into the steps of the plan; PASSED = all could."""


@dataclass(frozen=True, slots=True)
class ChunkBack:
    """What came out of the pipe."""

    number: int
    rows: Sequence[Row]


def encode_chunk(chunk: ChunkOut) -> bytes:
    """With its length in front."""
    topic = chunk.partition.topic.encode()
    pieces = [
        _CHUNK.pack(chunk.number, len(chunk.records), chunk.partition.partition, len(topic)) + topic,
        *(_RECORD.pack(offset, ms, len(body)) + body for offset, ms, body in chunk.records),
    ]
    content = b"".join(pieces)
    return LENGTH.pack(len(content)) + content


def decode_chunk(content: bytes) -> ChunkOut:
    """`content`: without its length."""
    number, count, partition, topic_length = _CHUNK.unpack_from(content)
    at = _CHUNK.size + topic_length
    topic = content[_CHUNK.size : at].decode()
    records = []
    for _ in range(count):
        offset, timestamp_ms, length = _RECORD.unpack_from(content, at)
        at += _RECORD.size + length
        records.append((offset, timestamp_ms, content[at - length : at]))
    return ChunkOut(number, TopicPartition(topic, partition), records)


def encode_back(number: int, rows: Sequence[Row]) -> bytes:
    """With its length in front."""
    pieces = [_BACK.pack(number, len(rows))]
    pieces += [_ROW.pack(row.place, row.timestamp_ms, row.failed, len(row.body)) + row.body for row in rows]
    content = b"".join(pieces)
    return LENGTH.pack(len(content)) + content


def decode_back(content: bytes) -> ChunkBack:
    """`content`: without its length."""
    number, count = _BACK.unpack_from(content)
    at = _BACK.size
    rows = []
    for _ in range(count):
        index, timestamp_ms, failed, length = _ROW.unpack_from(content, at)
        at += _ROW.size + length
        rows.append(Row(index, timestamp_ms, content[at - length : at], failed))
    return ChunkBack(number, rows)
