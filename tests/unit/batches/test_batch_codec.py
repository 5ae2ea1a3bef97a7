import gzip
import random
import struct

import aiokafka.codec
import cramjam
import pytest

from twinlog.batches import Codec, compress, decompress
from twinlog.errors import WireFormatError
from unit.cases import about

_TEXT = b"".join(b'{"order":%d,"state":"open"}' % number for number in range(5000))
_PAYLOADS = [b"x", b"\x00" * 40_000, _TEXT]
_COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
_READERS = {
    Codec.GZIP: aiokafka.codec.gzip_decode,
    Codec.SNAPPY: aiokafka.codec.snappy_decode,
    Codec.LZ4: aiokafka.codec.lz4_decode,
    Codec.ZSTD: aiokafka.codec.zstd_decode,
}
_WRITERS = {
    Codec.GZIP: aiokafka.codec.gzip_encode,
    Codec.SNAPPY: aiokafka.codec.snappy_encode,
    Codec.LZ4: aiokafka.codec.lz4_encode,
    Codec.ZSTD: aiokafka.codec.zstd_encode,
}


def test_comes_back_whole() -> None:
    for codec in Codec:
        for payload in _PAYLOADS:
            with about(codec, payload):
                assert decompress(codec, compress(codec, payload)) == payload
                assert decompress(codec, memoryview(compress(codec, payload))) == payload


@pytest.mark.parametrize("codec", _COMPRESSED)
def test_another_library_reads_ours_and_we_read_its(codec: Codec) -> None:
    assert _READERS[codec](compress(codec, _TEXT)) == _TEXT
    assert decompress(codec, _WRITERS[codec](_TEXT)) == _TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_makes_it_smaller(codec: Codec) -> None:
    nouns = [b"order", b"payment", b"pending", b"refund", b"7", b"42", b",,,"]
    text = b" ".join(random.Random(1).choices(nouns, k=20_000))
    assert len(compress(codec, text, 9)) < len(compress(codec, text, 1))


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    flags = compress(Codec.LZ4, _TEXT)[4]
    assert flags & 0x20


def test_snappy_without_framing_is_read() -> None:
    """As librdkafka and the Go clients write it."""
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(_TEXT))) == _TEXT


def test_snappy_streams_in_a_row_are_read() -> None:
    stream = compress(Codec.SNAPPY, _TEXT)
    assert decompress(Codec.SNAPPY, stream + stream) == _TEXT * 2


@pytest.mark.parametrize("sizes", [(4, 3), (0, 0, 5), (3, 70_000, 0, 1_030, 9_000), (200_000, 100)])
def test_gzip_members_in_a_row_are_read(sizes: tuple[int, ...]) -> None:
    parts = [random.Random(size).randbytes(size) for size in sizes]
    stream = b"".join(map(gzip.compress, parts))
    assert decompress(Codec.GZIP, stream) == b"".join(parts)
    assert decompress(Codec.GZIP, stream, sum(sizes)) == b"".join(parts)
    for damaged, limit, reason in (
        (stream[:-1], 1 << 20, "CORRUPT_BATCH"),
        (stream + b"x", 1 << 20, "CORRUPT_BATCH"),
        (stream, sum(sizes) - 1, "BATCH_TOO_LARGE"),
    ):
        with pytest.raises(WireFormatError) as caught:
            decompress(Codec.GZIP, damaged, limit)
        assert caught.value.reason == reason


def test_many_gzip_members_cost_no_copy_of_the_rest_each() -> None:
    """With one, this would take minutes: the rest is 20 MB."""
    rest = gzip.compress(random.Random(1).randbytes(20 << 20), 0)
    nothing = gzip.compress(b"")
    assert len(decompress(Codec.GZIP, nothing * 9_999 + rest)) == 20 << 20
    with pytest.raises(WireFormatError, match="more than 10000 members"):
        decompress(Codec.GZIP, nothing * 10_001)


def test_a_cut_stream_is_damage() -> None:
    for codec in _COMPRESSED:
        for keep in [1, 6, 20, 1000]:
            with about(codec, keep):
                stream = compress(codec, _TEXT)
                with pytest.raises(WireFormatError) as caught:
                    decompress(codec, stream[: min(keep, len(stream) - 1)])
                assert caught.value.reason == "CORRUPT_BATCH"


@pytest.mark.parametrize("block_bytes", [-1, 1 << 20])
def test_a_snappy_block_length_that_cannot_be_is_damage(block_bytes: int) -> None:
    stream = bytearray(compress(Codec.SNAPPY, _TEXT))
    struct.pack_into(">i", stream, 16, block_bytes)
    with pytest.raises(WireFormatError):
        decompress(Codec.SNAPPY, stream)
