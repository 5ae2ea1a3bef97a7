"""A batch as a log stores it, and its bytes with what a broker writes into them."""

import struct
from typing import NamedTuple

import google_crc32c

from twinlog.batches import HEADER_BYTES, BatchHeader, Codec, EndMarker, compress, decompress, end_marker
from twinlog.batches.header import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    HEADER_STRUCT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    Batch,
    read_batch,
)
from twinlog.batches.varint import encode_varint

_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_EPOCH_POSITION = 12
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class StoredBatch(NamedTuple):
    header: BatchHeader
    data: bytes

    @property
    def batch(self) -> Batch:
        return Batch(self.header, memoryview(self.data))

    @property
    def marker(self) -> EndMarker | None:
        return end_marker(self.batch)


def stored(batch: Batch, *, base_offset: int, leader_epoch: int, append_time_ms: int | None) -> StoredBatch:
    """The batch with its place in the log, and the time of the log where the topic wants it."""
    data = bytearray(batch.data)
    _OFFSET.pack_into(data, 0, base_offset)
    header = batch.header._replace(base_offset=base_offset)
    if header.magic == CURRENT_MAGIC:
        _EPOCH.pack_into(data, _EPOCH_POSITION, leader_epoch)
        header = header._replace(partition_leader_epoch=leader_epoch)
        if append_time_ms is not None:
            return rewritten(
                header._replace(
                    attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp_ms=append_time_ms
                ),
                bytes(data[HEADER_BYTES:]),
            )
    return StoredBatch(header, bytes(data))


def recompressed(batch: Batch, codec: Codec | None) -> Batch:
    """The batch with its records in another codec; None leaves it as it is."""
    header = batch.header
    if codec is None or codec is header.codec:
        return batch
    records = decompress(header.codec, batch.data[HEADER_BYTES:])
    header = header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
    return rewritten(header, compress(codec, records)).batch


def rewritten(header: BatchHeader, payload: bytes) -> StoredBatch:
    """A batch of these records, with the length and checksum of what it is now."""
    header = header._replace(batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload), crc=0)
    data = HEADER_STRUCT.pack(*header) + payload
    crc = int(google_crc32c.value(data[CRC_COVERS_FROM:]))
    header = header._replace(crc=crc)
    return StoredBatch(header, HEADER_STRUCT.pack(*header) + payload)


def marker_batch(
    marker: EndMarker, producer_id: int, epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> Batch:
    """The control batch with which a transaction ends; its place is still open."""
    key, value = _MARKER_KEY.pack(0, marker), _MARKER_VALUE.pack(0, coordinator_epoch)
    body = b"".join(
        (b"\0", encode_varint(0), encode_varint(0), encode_varint(len(key)), key,
         encode_varint(len(value)), value, encode_varint(0))
    )  # fmt: skip
    header = BatchHeader(
        0, 0, -1, CURRENT_MAGIC, 0, TRANSACTIONAL_BIT | CONTROL_BIT, 0, timestamp_ms, timestamp_ms,
        producer_id, epoch, -1, 1,
    )  # fmt: skip
    return rewritten(header, encode_varint(len(body)) + body).batch


def whole_batch(data: bytes) -> Batch:
    """Raises ValueError for anything but exactly one batch."""
    batch = read_batch(memoryview(data), 0)
    if batch is None or len(batch.data) != len(data):
        raise ValueError("not exactly one batch")
    return batch
