"""Small batches that follow each other, sent as one."""

import pytest

from twinlog.batches import Codec, NewRecord, OutgoingBatch, build_batch, merge
from twinlog.batches.codec import decompress
from twinlog.batches.outgoing import OffsetRun
from twinlog.batches.records import walk_records
from twinlog.errors import WireFormatError


def _batch(first: int, values: list[bytes | None], codec: Codec, timestamp_ms: int) -> OutgoingBatch:
    records = [NewRecord(b"k", value, timestamp_ms + at) for at, value in enumerate(values)]
    batch = build_batch(records, codec=codec)
    return batch._replace(runs=(OffsetRun(first, len(values)),), next_source_offset=first + len(values))


def _opened(batch: OutgoingBatch) -> list[tuple[int, int, bytes]]:
    records: list[tuple[int, int, bytes]] = []
    walk_records(
        decompress(batch.codec, batch.records),
        batch.first,
        batch.base_timestamp_ms,
        batch.record_count,
        records.append,
    )
    return records


def test_the_records_stay_in_order_with_their_offsets_and_timestamps() -> None:
    batches = [
        _batch(10, [b"a", None], Codec.ZSTD, 5_000),
        _batch(12, [b"c"], Codec.NONE, 1_000),
        _batch(13, [b"d", b"e"], Codec.GZIP, 9_000),
    ]
    merged = merge(batches, level=None, max_open_bytes=1 << 20)
    assert _opened(merged) == [record for batch in batches for record in _opened(batch)]
    assert (merged.record_count, merged.runs, merged.next_source_offset) == (5, (OffsetRun(10, 5),), 15)
    assert merged.max_timestamp_ms == 9_001
    assert merged.codec is Codec.ZSTD


def test_what_is_damaged_is_refused() -> None:
    whole = _batch(0, [b"a", b"b"], Codec.NONE, 0)
    with pytest.raises(WireFormatError, match="does not hold its records"):
        merge([whole, whole._replace(records=whole.records[:-3])], level=None, max_open_bytes=1 << 20)


def test_what_is_too_large_when_it_is_open_is_refused() -> None:
    large = _batch(0, [bytes(100_000)], Codec.ZSTD, 0)
    with pytest.raises(WireFormatError):
        merge([large, large], level=None, max_open_bytes=150_000)
