"""No batch of empty records is larger than its target takes, in whatever codec its leader stores it."""

import pytest

from twinlog.batches import Codec, NewRecord, build_batch
from twinlog_source.preserved.fill_limits import FILLER_RECORDS, FillLimit, next_batch

DEFAULT_BYTES = 1_048_588


def size_of(records: int, codec: Codec) -> int:
    return build_batch([NewRecord(None, None, 0)] * records, codec=codec).size_bytes


@pytest.mark.parametrize("limit_bytes", [400, 1_000, 10_000, 90_000, DEFAULT_BYTES])
def test_a_batch_is_within_the_limit_of_its_topic(limit_bytes: int) -> None:
    # A batch of a million takes a second to build: the shape is that of a hundred thousand.
    kept = min(FillLimit(limit_bytes).most_records, 100_000)
    assert size_of(kept, Codec.ZSTD) <= limit_bytes
    written_anew = FillLimit(limit_bytes, keeps_codec=False).most_records
    assert size_of(min(written_anew, 100_000), Codec.NONE) <= limit_bytes


def test_the_default_limit_takes_a_million_at_once_where_the_codec_is_kept() -> None:
    assert FillLimit(DEFAULT_BYTES).most_records >= FILLER_RECORDS[0]
    assert FILLER_RECORDS[1] <= FillLimit(DEFAULT_BYTES, keeps_codec=False).most_records < FILLER_RECORDS[0]


def test_batches_that_are_made_once_are_preferred() -> None:
    assert next_batch(2_345_678, 1_048_460) == 1_000_000
    assert next_batch(345_678, 1_048_460) == 100_000
    assert next_batch(5_678, 1_048_460) == 5_678
    assert next_batch(345_678, 900) == 900
    assert next_batch(345_678, 1) == 1
