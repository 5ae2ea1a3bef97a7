"""The recode lane: takes records out of their batches and packs them into new ones that the target
accepts."""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from twinlog.batches.bodies import OpenRecord, RawHeaders, encode_body
from twinlog.batches.codec import Codec, compress
from twinlog.batches.outgoing import Lane, LaneReason, OffsetRun, OutgoingBatch, TargetTopicLimits
from twinlog.batches.records import write_records

_TIMESTAMP_MS = itemgetter(1)


class RecordTooLarge(NamedTuple):
    """One record, alone in its batch and compressed, is above the target's limit."""

    offset: int
    size_bytes: int
    limit_bytes: int


class Packed(NamedTuple):
    batches: tuple[OutgoingBatch, ...]
    too_large: RecordTooLarge | None
    """The first record that fits into no batch; `batches` end before it."""


def pack(
    records: Sequence[OpenRecord],
    *,
    codec: Codec,
    target: TargetTopicLimits,
    reason: LaneReason,
    next_source_offset: int,
) -> Packed:
    """Pack records, in order, into as few batches as the target's limit allows.

    First one batch is tried; if it is too large (its compressed size is only known afterwards) it is halved.
    The source continues at `next_source_offset` after the last of them.
    """
    done: list[OutgoingBatch] = []
    waiting = [(records, next_source_offset)]
    while waiting:
        chunk, goes_on_at = waiting.pop()
        if not chunk:
            continue
        batch = encode(chunk, codec, target.level, reason, goes_on_at)
        if batch.size_bytes <= target.max_message_bytes:
            done.append(batch)
        elif len(chunk) == 1:
            too_large = RecordTooLarge(chunk[0][0], batch.size_bytes, target.max_message_bytes)
            return Packed(tuple(done), too_large)
        else:
            middle = len(chunk) // 2
            waiting.append((chunk[middle:], goes_on_at))
            waiting.append((chunk[:middle], chunk[middle][0]))
    return Packed(tuple(done), None)


def encode(
    records: Sequence[OpenRecord],
    codec: Codec,
    level: int | None,
    reason: LaneReason,
    next_source_offset: int,
) -> OutgoingBatch:
    """One batch of these records, whatever its size."""
    base_timestamp_ms = records[0][1]
    return OutgoingBatch(
        codec=codec,
        record_count=len(records),
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max(map(_TIMESTAMP_MS, records)),
        records=compress(codec, write_records(records, base_timestamp_ms), level),
        runs=_runs(records),
        next_source_offset=next_source_offset,
        lane=Lane.RECODE,
        reason=reason,
    )


def dense_pieces(records: Sequence[OpenRecord]) -> tuple[Sequence[OpenRecord], ...]:
    """The records, split where offsets are missing."""
    pieces = []
    begin = 0
    for at in range(1, len(records)):
        if records[at][0] != records[at - 1][0] + 1:
            pieces.append(records[begin:at])
            begin = at
    return (*pieces, records[begin:])


def _runs(records: Sequence[OpenRecord]) -> tuple[OffsetRun, ...]:
    first, last = records[0][0], records[-1][0]
    if last - first == len(records) - 1:
        return (OffsetRun(first, len(records)),)
    runs = []
    expected = first
    for offset, _, _ in records:
        if offset != expected:
            runs.append(OffsetRun(first, expected - first))
            first = offset
        expected = offset + 1
    runs.append(OffsetRun(first, expected - first))
    return tuple(runs)


# Builds batches of Twinlog's own records: positions, gaps, control records.


class NewRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: RawHeaders = ()


def build_batch(records: Sequence[NewRecord], *, codec: Codec = Codec.NONE) -> OutgoingBatch:
    """One batch of at least one record; its source offsets are 0, 1, 2, …."""
    opened = [
        (index, record.timestamp_ms, encode_body(record.key, record.value, record.headers))
        for index, record in enumerate(records)
    ]
    return encode(opened, codec, None, LaneReason.OWN_RECORDS, len(opened))
