"""The bytes between a task and the two ends of its pipe through Spark. Pure.

A task sends what it fetched of one partition as a chunk: a column for each part of a record that Spark reads,
laid out as Arrow has it, so that the ends of the pipe hand bytes on. Back comes a batch of Spark's, with
columns for what is changed. Everything else of a record stays in the task.
"""

import struct
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from twinlog.batches.bodies import (
    OpenRecord,
    RawHeaders,
    decode_record,
    encode_field,
    encode_headers,
    field_content,
    field_ends,
)
from twinlog.errors import WireFormatError
from twinlog.model import TopicPartition
from twinlog.transforms.expressions import COLUMNS, TOPIC

FEED, DRAIN = b"F", b"D"
"""With which the two ends of a pipe begin, before the token and the columns that they have."""
TOKEN_BYTES = 32
LENGTH = struct.Struct(">I")
PASSED, DROPPED = -1, -2
"""Instead of the column that failed."""
FILLER = -1
"""A row without a record."""
CHUNK_NUMBERS = 2**30
_NULL = -1
_ALIGNMENT_BYTES = 8
Buffer = bytes | memoryview


class ChunkOut(NamedTuple):
    """What goes into the pipe."""

    number: int
    partition: TopicPartition
    records: Sequence[OpenRecord]
    ends: list[tuple[int, int]]
    """As `field_ends` of each record; empty before Spark gets some of them."""


class Back(NamedTuple):
    """What came out of the pipe. A record that is in neither was dropped."""

    passed: list[OpenRecord]
    """As they are copied, in order."""
    failed: dict[int, int]
    """What could not be computed, as an index into the steps of the plan, by source offset."""
    routes: dict[int, str]
    """To which topics those that passed go, by source offset; without those that go into the copy."""


def end_of(number: int) -> int:
    """The row that ends a chunk."""
    return -2 - number


def encode_columns(names: Collection[str]) -> bytes:
    """Which of `COLUMNS` an end of the pipe has, for its greeting."""
    return bytes([sum(1 << bit for bit, name in enumerate(COLUMNS) if name in names)])


def decode_columns(written: int) -> frozenset[str]:
    return frozenset(name for bit, name in enumerate(COLUMNS) if written >> bit & 1)


def encode_buffers(buffers: Sequence[Buffer]) -> bytes:
    """With its length in front."""
    pieces: list[Buffer] = []
    for buffer in buffers:
        size_bytes = len(buffer)
        pieces += (size_bytes.to_bytes(_ALIGNMENT_BYTES), buffer, bytes(-size_bytes % _ALIGNMENT_BYTES))
    return b"".join((LENGTH.pack(sum(map(len, pieces))), *pieces))


def decode_buffers(content: Buffer) -> list[memoryview]:
    """`content`: without its length."""
    view, at, found = memoryview(content), 0, []
    while at < len(view):
        size_bytes = int.from_bytes(view[at : at + _ALIGNMENT_BYTES])
        at += _ALIGNMENT_BYTES
        found.append(view[at : at + size_bytes])
        at += size_bytes + -size_bytes % _ALIGNMENT_BYTES
    return found


def encode_chunk(chunk: ChunkOut, wanted: Collection[str]) -> bytes:
    """Rows, topic, partition, offsets, timestamps, and the columns that are wanted; all end with the row that
    ends the chunk. Raises WireFormatError for a record that cannot be read."""
    records = chunk.records
    buffers: list[Buffer] = [
        array("i", [*range(len(records)), end_of(chunk.number)]).tobytes(),
        chunk.partition.topic.encode(),
        array("i", [chunk.partition.partition]).tobytes(),
        array("q", [*(record[0] for record in records), 0]).tobytes(),
        array("q", [*(record[1] for record in records), 0]).tobytes(),
    ]
    if wanted:
        chunk.ends[:] = [field_ends(record[2]) for record in records]
    # A large value is copied twice only: out of its record, and into its column.
    parts = [(record[2], *ends) for record, ends in zip(records, chunk.ends, strict=bool(wanted))]
    if "key" in wanted:
        buffers += _column([*(field_content(body, 0, end) for body, end, _ in parts), None])
    if "value" in wanted:
        buffers += _column([*(field_content(*part) for part in parts), None])
    headers = [decode_record(record).headers for record in records] if "headers" in wanted else []
    if "headers" in wanted:
        flat = [header for each in headers for header in each]
        buffers += [
            array("i", [*(len(each) for each in headers), _NULL]).tobytes(),
            *_column([_text(key) for key, _ in flat]),
            *_column([value for _, value in flat]),
        ]
    return encode_buffers(buffers)


def _text(key: bytes) -> bytes:
    return key if key.isascii() else key.decode(errors="replace").encode()


def _column(fields: Sequence[bytes | None]) -> tuple[bytes, bytes]:
    """Their lengths and their bytes."""
    lengths = [_NULL if field is None else len(field) for field in fields]
    return array("i", lengths).tobytes(), b"".join(filter(None, fields))


def _fields(lengths: memoryview, content: memoryview) -> list[bytes | None]:
    found = lengths.cast("i").tolist()
    whole, ends = bytes(content), accumulate((max(length, 0) for length in found), initial=0)
    return [
        None if length < 0 else whole[start:end]
        for length, (start, end) in zip(found, pairwise(ends), strict=True)
    ]


@dataclass(slots=True, kw_only=True)
class Returned:
    """Puts together what comes back of one chunk after the other."""

    changed: frozenset[str]
    """Of `COLUMNS`."""
    _back: Back = field(default_factory=lambda: Back([], {}, {}))
    _last: int = -1

    def take(self, content: Buffer, chunks: Sequence[ChunkOut]) -> list[Back]:
        """What became of those of `chunks` that end with this batch. Raises WireFormatError for rows that are
        not those of the chunks, in their order."""
        rows, outcomes, *columns = decode_buffers(content)
        parts = iter(columns)
        keys, values = (
            [encode_field(each) for each in _fields(next(parts), next(parts))]
            if name in self.changed
            else None
            for name in ("key", "value")
        )
        headers = _headers(*(next(parts) for _ in range(5))) if "headers" in self.changed else None
        timestamps = next(parts).cast("q") if "timestamp" in self.changed else None
        topics = _fields(next(parts), next(parts)) if TOPIC in self.changed else None
        has_new_body = bool(keys or values or headers)
        ended: list[Back] = []
        coming = iter(chunks)
        chunk, last, back = next(coming, None), self._last, self._back
        for at, (row, outcome) in enumerate(zip(rows.cast("i").tolist(), outcomes.cast("b"), strict=True)):
            if row == FILLER:
                continue
            if chunk is None or (
                row != end_of(chunk.number) if row < 0 else not last < row < len(chunk.records)
            ):
                raise WireFormatError("a record came back twice, or out of order")
            if row < 0:
                ended.append(back)
                chunk, last, back = next(coming, None), -1, Back([], {}, {})
                continue
            last = row
            if outcome == PASSED:
                offset, timestamp_ms, body = chunk.records[row]
                if has_new_body:
                    key_end, value_end = chunk.ends[row] if chunk.ends else field_ends(body)
                    key = keys[at] if keys else body[:key_end]
                    value = values[at] if values else body[key_end:value_end]
                    body = b"".join((key, value, headers[at] if headers else body[value_end:]))
                back.passed.append((offset, timestamps[at] if timestamps else timestamp_ms, body))
                topic = topics[at] if topics else None
                if topic is not None and (route := topic.decode(errors="replace")) != chunk.partition.topic:
                    back.routes[offset] = route
            elif outcome != DROPPED:
                back.failed[chunk.records[row][0]] = outcome
        self._last, self._back = last, back
        return ended


def _headers(
    counts: memoryview,
    key_lengths: memoryview,
    keys: memoryview,
    value_lengths: memoryview,
    values: memoryview,
) -> list[bytes]:
    flat: RawHeaders = tuple(
        (key or b"", value)
        for key, value in zip(_fields(key_lengths, keys), _fields(value_lengths, values), strict=True)
    )
    ends = accumulate((max(count, 0) for count in counts.cast("i")), initial=0)
    return [encode_headers(flat[start:end]) for start, end in pairwise(ends)]
