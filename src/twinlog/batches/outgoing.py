"""A batch on its way to the target: complete except for the producer's identity, which is set when it is
sent."""

from typing import NamedTuple

import google_crc32c

from twinlog.batches.codec import Codec
from twinlog.batches.header import (
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    HEADER_BYTES,
    HEADER_STRUCT,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
)
from twinlog.batches.lanes import Lane, LaneReason

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
