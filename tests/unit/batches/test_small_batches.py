"""Small batches taken apart in one loop give the records that the general way gives."""

from collections.abc import Sequence

import pytest

from twinlog.batches import DecodedRecord, read_batches
from twinlog.batches.bodies import OpenRecord
from twinlog.batches.codec import Codec
from twinlog.batches.header import HEADER_BYTES
from twinlog.batches.records import open_records
from twinlog.batches.small_batches import Gathered, gather, worth_packing
from twinlog.batches.varint import wrap_int64
from twinlog.testing.source_batches import source_batch
from unit.cases import about

_NOW_MS = 1_700_000_000_000
_LATEST_MS = (1 << 63) - 1


def _gathered(data: bytes, *, check_crc: bool = True) -> tuple[list[OpenRecord], Gathered]:
    records: list[OpenRecord] = []
    taken = gather(
        data,
        0,
        records,
        next_offset=0,
        below_bytes=1 << 24,
        room_bytes=1 << 30,
        check_crc=check_crc,
        skipped_bits=0,
        leader_epoch=read_batches(data)[0].header.partition_leader_epoch,
        log_end_offset=1 << 40,
    )
    return records, taken


def _batches(*timestamps_ms: Sequence[int], value_bytes: Sequence[int], codec: Codec) -> bytes:
    """A batch for each, with a record for each timestamp."""
    data, offset = b"", 0
    for batch_timestamps in timestamps_ms:
        records = [
            DecodedRecord(offset + i, at, None, bytes(value_bytes[i % len(value_bytes)]), ())
            for i, at in enumerate(batch_timestamps)
        ]
        data += source_batch(records, codec=codec)
        offset += len(records)
    return data


def test_every_length_and_every_timestamp() -> None:
    for codec in [Codec.NONE, Codec.ZSTD]:
        for value_bytes in [[0, 1], [52, 53, 54, 55, 56, 57, 58, 59, 60], range(8174, 8194), [70_000]]:
            for later_ms in [0, 63, 64, -1, 10_000]:
                with about(codec, value_bytes, later_ms):
                    pairs = [
                        (_NOW_MS, _NOW_MS + later_ms),
                        (_NOW_MS,),
                        (_LATEST_MS, wrap_int64(_LATEST_MS + later_ms)),
                    ]
                    data = _batches(
                        *pairs, range(_NOW_MS, _NOW_MS + 80), value_bytes=value_bytes, codec=codec
                    )
                    records, taken = _gathered(data)
                    assert records == [
                        record for batch in read_batches(data) for record in open_records(batch)
                    ]
                    assert taken.position == len(data)
                    assert (taken.batch_count, taken.next_offset, taken.codec) == (4, len(records), codec)


@pytest.mark.parametrize(
    "length", [b"\xfe\x7e", b"\x80\x00", b"\x81\x10"], ids=["too long", "none", "negative"]
)
def test_what_does_not_fit_its_batch_is_not_taken(length: bytes) -> None:
    whole = source_batch([DecodedRecord(0, _NOW_MS, None, bytes(200), ())])
    damaged = bytearray(source_batch([DecodedRecord(1, _NOW_MS, None, bytes(200), ())]))
    damaged[HEADER_BYTES : HEADER_BYTES + 2] = length
    records, taken = _gathered(whole + damaged + whole, check_crc=False)
    assert [offset for offset, _, _ in records] == [0]
    assert (taken.position, taken.next_offset) == (len(whole), 1)


def test_the_first_hundred_batches_speak_for_all() -> None:
    small, large = (source_batch([DecodedRecord(0, _NOW_MS, None, bytes(n), ())]) for n in (10, 100_000))
    assert worth_packing(small * 100 + large * 1000, 64 << 10)
    assert not worth_packing(large * 100 + small * 100_000, 64 << 10)
