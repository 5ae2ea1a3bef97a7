import struct
from collections.abc import Callable

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from twinlog.batches import Codec, DecodedRecord, decode_batch, read_batches
from twinlog.batches.header import UNKNOWN_COUNT, whole_batches_bytes
from twinlog.errors import WireFormatError
from twinlog.testing.source_batches import source_batch

_RECORDS = [DecodedRecord(10 + i, 1_700_000_000_000 + i, b"k", b"v%d" % i, ()) for i in range(3)]


def test_reads_what_another_library_wrote() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 1, 4711, 3, 77, 1 << 20)
    for index in range(5):
        builder.append(index, 1_700_000_000_000 + index, b"key", b"value", [("h", b"x"), ("n", None)])
    (batch,) = read_batches(bytes(builder.build()))
    header = batch.header
    assert (header.base_offset, header.last_offset, header.next_offset) == (0, 4, 5)
    assert (header.record_count, header.is_dense, header.codec) == (5, True, Codec.NONE)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, 77)
    assert header.is_transactional
    assert not header.is_control
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (1_700_000_000_000, 1_700_000_000_004)
    assert header.size_bytes == len(batch.data)
    assert decode_batch(batch)[2] == DecodedRecord(
        2, 1_700_000_000_002, b"key", b"value", ((b"h", b"x"), (b"n", None))
    )


def test_bytes_of_whole_batches_are_those_of_the_batches_that_are_read() -> None:
    data = source_batch(_RECORDS) * 3
    for cut in range(len(data) + 1):
        assert whole_batches_bytes(data[:cut]) == sum(len(batch.data) for batch in read_batches(data[:cut]))
    nonsense = data + bytes(20)
    assert whole_batches_bytes(nonsense) == len(nonsense)


def test_cut_anywhere_gives_the_whole_batches_before_the_cut() -> None:
    first, second = source_batch(_RECORDS), source_batch(_RECORDS, base_offset=10)
    data = first + second
    for cut in range(len(data) + 1):
        expected = (cut >= len(first)) + (cut >= len(data))
        assert len(read_batches(data[:cut])) == expected


def test_batches_lie_in_the_held_bytes_and_are_not_copied() -> None:
    data = bytearray(source_batch(_RECORDS))
    (batch,) = read_batches(data)
    data[-1] = 0xAA
    assert batch.data[-1] == 0xAA


def test_nothing_is_no_batch() -> None:
    assert read_batches(b"") == []


@pytest.mark.parametrize("length", [-1, 0, 48, -(1 << 31)])
def test_a_length_that_cannot_be_is_named(length: int) -> None:
    data = bytearray(source_batch(_RECORDS))
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(WireFormatError, match=f"length of {length}") as caught:
        read_batches(data)
    assert caught.value.reason == "CORRUPT_BATCH"
    assert caught.value.metadata == {"offset": "10", "byte": "0"}


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_an_unknown_magic_is_named(magic: int) -> None:
    data = bytearray(source_batch(_RECORDS))
    data[16] = magic
    with pytest.raises(WireFormatError, match=f"magic {magic} is unknown"):
        read_batches(data)


def test_a_codec_kafka_does_not_have_is_named() -> None:
    (batch,) = read_batches(source_batch(_RECORDS, more_attributes=6))
    with pytest.raises(WireFormatError, match="names codec 6"):
        _ = batch.header.codec


def test_a_compressed_old_message_knows_its_last_offset_only() -> None:
    message = struct.pack(">qiIbbqii", 41, 22, 0, 1, Codec.GZIP, 5, -1, 0)
    (batch,) = read_batches(message)
    assert batch.header.record_count == UNKNOWN_COUNT
    assert batch.header.next_offset == 42


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda data: struct.pack_into(">i", data, 57, 4), "promises 4 records, 3 are there"),
        (lambda data: struct.pack_into(">i", data, 57, 2), "promises 2 records, more are there"),
        (lambda data: struct.pack_into(">B", data, 61, 0x7E), "past the end"),
        (lambda data: struct.pack_into(">B", data, 61, 0x01), "past the end"),
        (lambda data: struct.pack_into(">B", data, 61, 0xFF), "past the end"),
        (lambda data: struct.pack_into(">B", data, 61, 0x00), "past the end"),
    ],
    ids=["more", "fewer", "too long", "negative", "no end", "empty"],
)
def test_records_that_do_not_fit_their_batch_are_refused(
    change: Callable[[bytearray], None], complaint: str
) -> None:
    data = bytearray(source_batch(_RECORDS))
    change(data)
    (batch,) = read_batches(data)
    with pytest.raises(WireFormatError, match=complaint):
        decode_batch(batch)


@pytest.mark.parametrize("damage", [0, 1, 2, 4, 5, 7, 12, 13])
def test_a_body_that_does_not_end_with_its_record_is_refused(damage: int) -> None:
    data = bytearray(source_batch([DecodedRecord(0, 0, b"key", b"value", ((b"h", b"x"),))]))
    position = 61 + 4
    assert data[position] == 6  # the key's length, zigzag
    data[position] = damage * 2
    (batch,) = read_batches(data)
    with pytest.raises(WireFormatError):
        decode_batch(batch)
