"""Old message formats, beyond what the golden bytes show: other writers, and damage."""

import struct

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from twinlog.batches import (
    Codec,
    CopyPolicy,
    LaneReason,
    decode_batch,
    prepare,
    read_batches,
)
from twinlog.errors import WireFormatError
from twinlog.testing.source_batches import old_message, old_wrapper


def _message(offset: int, value: bytes | None, *, magic: int = 1, attributes: int = 0) -> bytes:
    return old_message(offset, None, value, magic=magic, attributes=attributes)


_wrapper = old_wrapper


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
def test_reads_what_another_library_wrote(magic: int, codec: Codec) -> None:
    builder = LegacyRecordBatchBuilder(magic, int(codec), 1 << 20)
    for index in range(3):
        builder.append(index, 1_500_000_000_000 + index, b"k%d" % index, None if index == 1 else b"")
    records = [record for batch in read_batches(bytes(builder.build())) for record in decode_batch(batch)]
    assert [(record.offset, record.key, record.value, record.headers) for record in records] == [
        (0, b"k0", b"", ()),
        (1, b"k1", None, ()),
        (2, b"k2", b"", ()),
    ]
    expected = [-1] * 3 if magic == 0 else [1_500_000_000_000 + index for index in range(3)]
    assert [record.timestamp_ms for record in records] == expected


def test_inner_offsets_count_up_to_the_wrappers() -> None:
    (batch,) = read_batches(_wrapper(1005, _message(0, b"a") + _message(3, b"b") + _message(5, b"c")))
    assert [record.offset for record in decode_batch(batch)] == [1000, 1003, 1005]


def test_inner_offsets_of_v0_are_absolute() -> None:
    inner = _message(1000, b"a", magic=0) + _message(1003, b"b", magic=0)
    (batch,) = read_batches(_wrapper(1003, inner, magic=0))
    assert [record.offset for record in decode_batch(batch)] == [1000, 1003]


def test_a_wrapper_with_offset_zero_has_absolute_inner_offsets() -> None:
    """Certain versions of librdkafka wrote them."""
    (batch,) = read_batches(_wrapper(0, _message(0, b"a") + _message(1, b"b")))
    assert [record.offset for record in decode_batch(batch)] == [0, 1]


@pytest.mark.parametrize(
    ("inner", "complaint"),
    [
        (b"", "holds nothing"),
        (_message(0, b"a")[:-1], "past the end"),
        (_message(0, b"a", magic=0), "format v0 lies inside"),
        (_wrapper(0, _message(0, b"a")), "inside another"),
        (_message(0, b"a")[:20], "past the end"),
    ],
    ids=["empty", "cut", "other magic", "nested", "cut early"],
)
def test_damaged_wrappers_are_refused(inner: bytes, complaint: str) -> None:
    (batch,) = read_batches(_wrapper(7, inner))
    with pytest.raises(WireFormatError, match=complaint) as caught:
        decode_batch(batch)
    assert caught.value.reason == "CORRUPT_BATCH"
    assert caught.value.metadata["offset"] == "7"


@pytest.mark.parametrize("position", [26, 33], ids=["key", "value"])
def test_lengths_that_cannot_be_are_refused(position: int) -> None:
    data = bytearray(old_message(7, b"key", b"value"))
    struct.pack_into(">i", data, position, 1 << 30)
    with pytest.raises(WireFormatError):
        decode_batch(read_batches(data)[0])


def test_uncompressed_messages_are_packed_together_with_no_backlog() -> None:
    """Each is a "batch" of its own; hundreds of produce requests would carry one record each."""
    data = b"".join(_message(offset, b"v", magic=1) for offset in range(10, 300))
    prepared = prepare(data, wanted_offset=12, policy=CopyPolicy())
    (outgoing,) = prepared.batches
    assert outgoing.record_count == 288
    assert outgoing.reason is LaneReason.OLD_MAGIC
    assert prepared.next_offset == 300
