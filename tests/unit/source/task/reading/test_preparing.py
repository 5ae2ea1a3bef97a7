"""A mistake of ours that some bytes bring out stops their partition at the batch that holds them."""

from typing import Any

import pytest
import structlog

from twinlog.batches import Codec, CopyPolicy, DecodedRecord, Prepared, TargetTopicLimits
from twinlog.kafka.raw import FetchedPartition
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import source_batch
from twinlog_source.task.reading.bounds import Cut
from twinlog_source.task.reading.preparing import end_of_first_batch, prepare_answer

P = TopicPartition("t", 0)


class NoZstd(int):
    """A codec that does not bear to be compared with zstd: no exception that anybody expects."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        if other == Codec.ZSTD.value:
            raise ZeroDivisionError("a mistake of ours")
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other


def batch(offset: int, codec: Codec) -> bytes:
    return source_batch([DecodedRecord(offset, 0, None, b"x", ())], codec=codec)


def mistaken_policy() -> CopyPolicy:
    codec: Any = NoZstd(Codec.NONE)
    return CopyPolicy(target=TargetTopicLimits(codec=codec))


def prepared(*batches: bytes, at: int = 0, ends_at: int | None = None) -> Prepared:
    records = memoryview(b"".join(batches))
    answer = FetchedPartition(P, 0, 9, 9, 0, (), -1, records, at)
    return prepare_answer(answer, Cut(records, ends_at=ends_at), mistaken_policy())


def test_what_comes_before_the_batch_is_copied() -> None:
    fetched = [batch(0, Codec.NONE), batch(1, Codec.ZSTD), batch(2, Codec.NONE)]
    first = prepared(*fetched)
    assert (first.next_offset, first.record_count, first.fault) == (1, 1, None)


def test_the_batch_is_a_fault_that_names_it_and_the_log_has_the_traceback() -> None:
    with structlog.testing.capture_logs() as lines:
        at_it = prepared(batch(1, Codec.ZSTD), batch(2, Codec.NONE), at=1)
    assert at_it.fault is not None
    assert (at_it.fault.reason, at_it.fault.offset, at_it.next_offset) == ("CORRUPT_BATCH", 1, 1)
    assert "ZeroDivisionError" in at_it.fault.message
    assert [line["exc_info"] for line in lines if line["event"] == "batch_not_understood"]


def _damaged(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


@pytest.mark.parametrize(
    ("fetched", "end"),
    [
        ((_damaged(batch(1, Codec.NONE)), batch(4, Codec.NONE)), 4),
        ((_damaged(batch(8, Codec.NONE)),), 9),
        ((_damaged(batch(1, Codec.NONE)),), None),
        ((_damaged(batch(1, Codec.NONE)), batch(4, Codec.NONE)[:60]), None),
        ((_damaged(batch(1, Codec.NONE)), _damaged(batch(4, Codec.NONE))), None),
        ((batch(1, Codec.NONE), batch(4, Codec.NONE)), None),
        ((b"",), None),
    ],
    ids=["the next one", "the end of the log", "nobody", "cut", "two damaged ones", "a sound one", "nothing"],
)
def test_where_a_damaged_batch_ends_tells_only_what_its_checksum_does_not_cover(
    fetched: tuple[bytes, ...], end: int | None
) -> None:
    records = b"".join(fetched)
    answer = FetchedPartition(P, 0, 9, 9, 0, (), -1, memoryview(records), 1)
    assert end_of_first_batch(answer) == end


@pytest.mark.parametrize("cut", [1, 11, 12, 40])
def test_a_cut_batch_is_nothing_yet(cut: int) -> None:
    nothing = prepared(batch(0, Codec.NONE)[:cut])
    assert (nothing.next_offset, nothing.fault) == (0, None)


def test_the_end_of_a_finite_copy_counts_only_when_everything_before_it_is_prepared() -> None:
    good, bad = batch(0, Codec.NONE), batch(1, Codec.ZSTD)
    assert prepared(good, ends_at=9).next_offset == 9
    assert prepared(b"", ends_at=9).next_offset == 9
    assert prepared(good, bad, ends_at=9).next_offset == 1
    assert prepared(bad, at=1, ends_at=9).next_offset == 1
