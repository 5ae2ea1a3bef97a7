"""What a hostile producer or a broken source can put into a batch costs a bounded amount, and a fault of its
partition."""

import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable

import cramjam
import google_crc32c
import pytest

from twinlog.batches import Codec, CopyPolicy, DecodedRecord, TargetTopicLimits, prepare, read_batches
from twinlog.batches.codec import compress, decompress
from twinlog.batches.header import CRC_COVERS_FROM, HEADER_BYTES, HEADER_STRUCT
from twinlog.batches.prepared import Prepared
from twinlog.batches.records import open_records
from twinlog.batches.visibility import VisibleCounter
from twinlog.errors import WireFormatError
from twinlog.kafka.raw.fetch.wire import FetchedPartition
from twinlog.kafka.reader import read_records
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import source_batch
from unit.cases import about

LIMIT = 1 << 20
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def record(offset: int, value: bytes = b"v") -> DecodedRecord:
    return DecodedRecord(offset, 1_700_000_000_000, b"k", value, ())


def bomb(codec: Codec, size_bytes: int, *, last_offset: int = 0) -> bytes:
    """A small batch of one record of so many zeros."""
    return source_batch([record(0, bytes(size_bytes))], codec=codec, last_offset=last_offset)


def batch_of(payload: bytes, *, count: int = 1, base_offset: int = 0, codec: Codec = Codec.NONE) -> bytes:
    """A batch with a true checksum around any payload."""
    length = HEADER_BYTES - 12 + len(payload)
    header = bytearray(
        HEADER_STRUCT.pack(base_offset, length, 5, 2, 0, codec, count - 1, 0, 0, -1, -1, -1, count)
    )
    header[17:21] = struct.pack(">I", google_crc32c.value(bytes(header[CRC_COVERS_FROM:]) + payload))
    return bytes(header) + payload


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def answer_of(data: bytes) -> FetchedPartition:
    """The answer of a log from 0 to 10."""
    return FetchedPartition(TopicPartition("t", 0), 0, 10, 10, 0, (), -1, memoryview(data))


def test_what_stays_within_the_limit_is_decompressed() -> None:
    for codec in COMPRESSED:
        for size_bytes in [0, 1, LIMIT - 1, LIMIT]:
            with about(codec, size_bytes):
                data = bytes(size_bytes)
                assert decompress(codec, compress(codec, data), LIMIT) == data


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size_bytes", [LIMIT + 1, 64 * LIMIT])
def test_what_stands_for_more_is_refused_within_the_memory_of_the_limit(
    codec: Codec, size_bytes: int
) -> None:
    compressed = compress(codec, bytes(size_bytes))

    def refused() -> None:
        with pytest.raises(WireFormatError) as error:
            decompress(codec, compressed, LIMIT)
        assert error.value.reason == "BATCH_TOO_LARGE"

    assert peak_bytes(refused) < 4 * LIMIT + len(compressed)


def test_streams_of_several_members_count_together() -> None:
    half = bytes(LIMIT * 3 // 4)
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        with pytest.raises(WireFormatError, match="takes more than"):
            decompress(codec, compress(codec, half) * 2, LIMIT)
    raw = bytes(cramjam.snappy.compress_raw(half))
    blocks = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(raw)) + raw) * 2
    with pytest.raises(WireFormatError, match="takes more than"):
        decompress(Codec.SNAPPY, blocks, LIMIT)


def test_a_snappy_block_that_only_claims_to_be_large_takes_no_memory() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"\x00a"

    def refused() -> None:
        with pytest.raises(WireFormatError):
            decompress(Codec.SNAPPY, claim, LIMIT)

    assert peak_bytes(refused) < LIMIT


def recoded(data: bytes, *, max_open_bytes: int = LIMIT) -> Prepared:
    """Compaction left a hole: every record is packed again."""
    return prepare(data, wanted_offset=0, policy=CopyPolicy(max_open_bytes=max_open_bytes))


def transcoded(data: bytes) -> Prepared:
    target = TargetTopicLimits(codec=Codec.NONE)
    return prepare(data, wanted_offset=0, policy=CopyPolicy(max_open_bytes=LIMIT, target=target))


def packed(data: bytes) -> Prepared:
    policy = CopyPolicy(max_open_bytes=LIMIT, coalesce_below_bytes=LIMIT)
    return prepare(data, wanted_offset=0, policy=policy, backlog=True)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_stands_for_too_much_is_a_fault_where_it_begins(codec: Codec) -> None:
    before = source_batch([record(0)], codec=codec)

    def after(size_bytes: int, last_offset: int) -> bytes:
        return source_batch([record(1, bytes(size_bytes))], codec=codec, last_offset=last_offset)

    for prepared in (
        recoded(before + after(32 * LIMIT, last_offset=4)),
        transcoded(before + after(32 * LIMIT, last_offset=1)),
        packed(before + after(32 * LIMIT, last_offset=1)),
    ):
        assert prepared.fault is not None
        assert (prepared.fault.reason, prepared.fault.offset) == ("BATCH_TOO_LARGE", 1)
        assert (prepared.next_offset, prepared.record_count) == (1, 1)


def test_a_batch_that_is_not_opened_may_stand_for_anything() -> None:
    prepared = recoded(bomb(Codec.ZSTD, 64 * LIMIT))
    assert (prepared.fault, prepared.next_offset) == (None, 1)


def test_readers_and_counters_refuse_it_too() -> None:
    data = bomb(Codec.ZSTD, 130 << 20, last_offset=9)
    with pytest.raises(WireFormatError, match="takes more than"):
        VisibleCounter(next_offset=0, stop_offset=5).feed(read_batches(data))
    fetched = answer_of(data)
    with pytest.raises(WireFormatError, match="takes more than"):
        read_records(fetched, 0, read_committed=True, check_crcs=True)


def test_many_tiny_records_take_no_more_memory_than_a_large_one() -> None:
    count = LIMIT // 2
    payload = compress(Codec.ZSTD, b"\x0c\0\0\0\x01\x01\0" * count)
    honest = read_batches(batch_of(payload, count=count, codec=Codec.ZSTD))[0]
    lying = read_batches(batch_of(payload, count=1, codec=Codec.ZSTD))[0]

    def refused() -> None:
        for batch in (honest, lying):
            with pytest.raises(WireFormatError):
                open_records(batch, max_bytes=LIMIT * 4)

    assert peak_bytes(refused) < 40 * LIMIT


@pytest.mark.parametrize("ahead", [b"", b"\x10\0", b"\x10\0\x02"])
def test_a_number_without_an_end_is_found_out_at_once(ahead: bytes) -> None:
    """A million bytes: to add each one to a number that has grown with all before would take minutes."""
    prepared = recoded(batch_of(ahead + b"\xff" * 1_000_000, count=2))
    assert prepared.fault is None, "not opened"
    with pytest.raises(WireFormatError) as error:
        open_records(read_batches(batch_of(ahead + b"\xff" * 1_000_000))[0])
    assert error.value.reason == "CORRUPT_BATCH"


def test_records_with_offsets_outside_of_their_batch_are_damage() -> None:
    for delta in (b"\x06", b"\x01", b"\xfe\xff\xff\xff\x0f"):
        payload = bytes([(5 + len(delta)) << 1]) + b"\0\0" + delta + b"\x01\x01\0"
        with pytest.raises(WireFormatError, match="its records have the offsets"):
            open_records(read_batches(batch_of(payload))[0])


def at_offset(data: bytes, offset: int) -> bytes:
    """The base offset is outside the checksum."""
    return struct.pack(">q", offset) + data[8:]


@pytest.mark.parametrize("backlog", [False, True])
@pytest.mark.parametrize("flipped", [1 << bit for bit in (3, 20, 44, 62)])
def test_an_offset_past_the_end_of_the_log_is_a_fault_and_no_position(flipped: int, backlog: bool) -> None:
    data = [source_batch([record(offset)]) for offset in range(100, 104)]
    data[2] = at_offset(data[2], 102 + flipped)
    prepared = prepare(
        b"".join(data), wanted_offset=100, policy=CopyPolicy(), backlog=backlog, log_end_offset=104
    )
    assert prepared.fault is not None
    assert (prepared.fault.reason, prepared.fault.offset) == ("CORRUPT_BATCH", 102)
    assert (prepared.next_offset, prepared.record_count) == (102, 2)


@pytest.mark.parametrize("backlog", [False, True])
def test_holes_below_the_end_and_batches_that_came_meanwhile_are_taken(backlog: bool) -> None:
    data = b"".join(source_batch([record(offset)]) for offset in (7, 50, 51, 52))
    prepared = prepare(data, wanted_offset=5, policy=CopyPolicy(), backlog=backlog, log_end_offset=51)
    assert (prepared.fault, prepared.next_offset, prepared.record_count) == (None, 53, 4)


def test_no_offset_is_beyond_64_bits() -> None:
    prepared = recoded(at_offset(source_batch([record(0), record(1)]), (1 << 63) - 2))
    assert prepared.fault is not None
    assert (prepared.next_offset, prepared.fault.reason) == (0, "CORRUPT_BATCH")


def test_a_reader_does_not_follow_a_leap_either() -> None:
    data = at_offset(source_batch([record(0)]), 1 << 44)
    fetched = answer_of(data)
    with pytest.raises(WireFormatError, match="in a log that ends at 10"):
        read_records(fetched, 3, read_committed=True, check_crcs=True)


_SHORT_OF_MEMORY = """
import resource
from twinlog.batches import Codec, CopyPolicy, DecodedRecord, prepare
from twinlog.testing.source_batches import source_batch

def batch(offset, size, last):
    record = DecodedRecord(offset, 0, None, bytes(size), ())
    return source_batch([record], codec=Codec.ZSTD, last_offset=last)

data = batch(0, 10, 0) + batch(1, 300 << 20, 4) + batch(5, 10, 5)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), -1))
prepared = prepare(data, wanted_offset=0, policy=CopyPolicy(max_open_bytes=1 << 30))
print(prepared.fault.reason, prepared.fault.offset, prepared.next_offset, len(prepared.batches))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
def test_memory_that_is_not_there_is_a_fault_of_one_partition() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SHORT_OF_MEMORY], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "BATCH_TOO_LARGE 1 1 1\n", done.stderr
