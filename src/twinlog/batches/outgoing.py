"""A batch on its way to the target: complete except for the producer's identity, which is set when it is
sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import google_crc32c

from twinlog.batches.codec import Codec
from twinlog.batches.header import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    HEADER_BYTES,
    HEADER_STRUCT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from twinlog.batches.visibility import Visibility

# How a batch is copied: unopened (raw), opened and packed again (recode), or not at all.


class Lane(StrEnum):
    RAW = "RAW"
    """The records stay compressed; only the header is rewritten."""
    RECODE = "RECODE"
    """The batch is opened, and its records are packed into new batches."""
    DROP = "DROP"
    """The batch is not copied; the position moves past it."""


class LaneReason(StrEnum):
    """Why a batch took its lane."""

    UNOPENED = "UNOPENED"
    """RAW: nothing prevents it."""

    OLD_MAGIC = "OLD_MAGIC"
    """RECODE: format v0 or v1, which brokers no longer accept."""
    LOG_APPEND_TIME = "LOG_APPEND_TIME"
    """RECODE: its timestamps are the source broker's; a producer may only send CreateTime."""
    COMPACTION_HOLES = "COMPACTION_HOLES"
    """RECODE: offsets inside are missing; brokers accept dense batches only."""
    STARTS_BEFORE_POSITION = "STARTS_BEFORE_POSITION"
    """RECODE: its first records are already copied."""
    TOO_LARGE_FOR_TARGET = "TOO_LARGE_FOR_TARGET"
    """RECODE: above the target topic's max.message.bytes; split."""
    OTHER_CODEC = "OTHER_CODEC"
    """RECODE: the target topic's compression.type is another codec; recoding here spares the broker's
    threads."""
    SMALL_BATCHES = "SMALL_BATCHES"
    """RECODE: one of many small batches of a backlog, packed together."""

    TRANSFORMED = "TRANSFORMED"
    """RECODE: the flow's transforms may change the records."""
    OWN_RECORDS = "OWN_RECORDS"
    """RECODE: made here (positions), not copied."""

    CONTROL = "CONTROL"
    """DROP: a transaction marker."""
    ABORTED = "ABORTED"
    """DROP: of an aborted transaction."""
    BEHIND_POSITION = "BEHIND_POSITION"
    """DROP: all of it is already copied."""
    EMPTY = "EMPTY"
    """DROP: compaction kept only the header."""
    ECHO = "ECHO"
    """DROP: a copy of what the target has already, by its producer id."""
    FILTERED = "FILTERED"
    """Of single records: a transform has dropped them."""
    ROUTED = "ROUTED"
    """Of single records: they went to another topic than the copy."""
    SKIPPED = "SKIPPED"
    DEAD_LETTERED = "DEAD_LETTERED"
    """Of single records: Spark could not change them."""


LEFT_OUT = frozenset(
    {
        LaneReason.ECHO,
        LaneReason.FILTERED,
        LaneReason.ROUTED,
        LaneReason.SKIPPED,
        LaneReason.DEAD_LETTERED,
    }
)
"""Reasons for which a record that applications of the source see is not in the copy."""
BATCH_LIMITS = "max.message.bytes", "segment.bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopicLimits:
    """The limits of the target topic. The defaults are the broker's."""

    max_message_bytes: int = 1_048_588
    """The limit of one batch with its header, as it is sent (compressed): `largest_batch_bytes`."""
    codec: Codec | None = None
    """`compression.type`; None = `producer`, any codec."""
    level: int | None = None
    """Compression level for recoded batches; None = `codec.DEFAULT_LEVELS`."""


def largest_batch_bytes(settings: Mapping[str, str | None]) -> int | None:
    """The limit of one batch by the settings of its topic: a batch must also fit into a segment. None = they
    do not say."""
    limits = [settings.get(name) or "" for name in BATCH_LIMITS]
    return min((int(limit) for limit in limits if limit.isdecimal()), default=None)


def choose_lane(
    header: BatchHeader,
    wanted_offset: int,
    target: TargetTopicLimits,
    visibility: Visibility = Visibility.VISIBLE,
) -> tuple[Lane, LaneReason]:
    """Decide by the header alone.

    RAW is possible only for a batch with magic 2 that is neither control nor aborted, has as many records as
    offsets and CreateTime, starts at or after `wanted_offset` (the next offset to copy), has at most
    `max_message_bytes`, and has a codec that the target topic keeps.
    """
    attributes = header.attributes
    if attributes & CONTROL_BIT or visibility is _CONTROL_BATCH:
        return _CONTROL
    if visibility is _ABORTED_BATCH:
        return _ABORTED
    next_offset = header.base_offset + header.last_offset_delta + 1
    if next_offset <= wanted_offset:
        return _BEHIND
    if header.magic != CURRENT_MAGIC:
        return _OLD_MAGIC
    if header.record_count == 0:
        return _EMPTY
    if header.base_offset < wanted_offset:
        return _CUT
    if header.record_count != header.last_offset_delta + 1:
        return _HOLES
    if attributes & LOG_APPEND_TIME_BIT:
        return _LOG_APPEND_TIME
    if target.codec is not None and attributes & CODEC_MASK != target.codec:
        return _OTHER_CODEC
    if header.batch_length + LOG_OVERHEAD_BYTES > target.max_message_bytes:
        return _TOO_LARGE
    return _RAW


# Properties and enum members cost more than the decision, which runs per batch.
_CONTROL_BATCH, _ABORTED_BATCH = Visibility.CONTROL, Visibility.ABORTED
_RAW = (Lane.RAW, LaneReason.UNOPENED)
_OLD_MAGIC = (Lane.RECODE, LaneReason.OLD_MAGIC)
_LOG_APPEND_TIME = (Lane.RECODE, LaneReason.LOG_APPEND_TIME)
_HOLES = (Lane.RECODE, LaneReason.COMPACTION_HOLES)
_CUT = (Lane.RECODE, LaneReason.STARTS_BEFORE_POSITION)
_TOO_LARGE = (Lane.RECODE, LaneReason.TOO_LARGE_FOR_TARGET)
_OTHER_CODEC = (Lane.RECODE, LaneReason.OTHER_CODEC)
_CONTROL = (Lane.DROP, LaneReason.CONTROL)
_ABORTED = (Lane.DROP, LaneReason.ABORTED)
_BEHIND = (Lane.DROP, LaneReason.BEHIND_POSITION)
_EMPTY = (Lane.DROP, LaneReason.EMPTY)


_NO_LEADER_EPOCH = -1


class OffsetRun(NamedTuple):
    """`record_count` records with consecutive source offsets."""

    first_source_offset: int
    record_count: int


class OutgoingBatch(NamedTuple):
    """Dense, with CreateTime, at most as large as the target allows. `records` is compressed with `codec`.

    A NamedTuple, because one is created per batch in the raw lane.
    """

    codec: Codec
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    records: bytes
    runs: tuple[OffsetRun, ...]
    """Where the records came from, in order. Together with the target's base offset, this is the complete
    mapping from source to target offsets."""
    next_source_offset: int
    """The source position once this batch is committed: past its records, and any hole or marker behind
    them."""
    lane: Lane
    reason: LaneReason

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + len(self.records)

    @property
    def first(self) -> int:
        """The source offset of the first record."""
        return self.runs[0].first_source_offset

    @property
    def end(self) -> int:
        """The source offset after the last record."""
        first, count = self.runs[-1]
        return first + count

    @property
    def is_dense(self) -> bool:
        """Whether the source offsets have no gap: record i came from `first + i`."""
        return len(self.runs) == 1

    def target_offset(self, source_offset: int, target_base_offset: int) -> int | None:
        """The target offset of the record of `source_offset` when the batch starts at `target_base_offset`;
        None if the batch does not contain it."""
        before = 0
        for first, count in self.runs:
            if first <= source_offset < first + count:
                return target_base_offset + before + source_offset - first
            before += count
        return None


class Seal(NamedTuple):
    """The producer's identity in a batch header."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    """Brokers refuse negative numbers: mask with 0x7fffffff after 2^31 records."""
    transactional: bool


def sealed_header(batch: OutgoingBatch, seal: Seal) -> bytes:
    """The 61 bytes to send before `batch.records`: base offset 0, leader epoch -1, and the checksum."""
    records = batch.records
    attributes = batch.codec | TRANSACTIONAL_BIT if seal.transactional else int(batch.codec)
    fields = (
        0,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(records),
        _NO_LEADER_EPOCH,
        CURRENT_MAGIC,
        0,
        attributes,
        batch.record_count - 1,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        seal.producer_id,
        seal.producer_epoch,
        seal.base_sequence,
        batch.record_count,
    )
    unchecked = HEADER_STRUCT.pack(*fields)
    crc = google_crc32c.extend(google_crc32c.value(unchecked[CRC_COVERS_FROM:]), records)
    return b"".join((unchecked[: CRC_COVERS_FROM - 4], crc.to_bytes(4, "big"), unchecked[CRC_COVERS_FROM:]))


def sealed(batch: OutgoingBatch, seal: Seal) -> bytes:
    """The whole batch as one value."""
    return sealed_header(batch, seal) + batch.records
