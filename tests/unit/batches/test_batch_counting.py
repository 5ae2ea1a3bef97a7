"""Counting by headers agrees with counting record by record."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import (
    AbortedTransaction,
    DecodedRecord,
    VisibleCounter,
    read_batches,
)
from twinlog.testing.source_batches import source_batch, transaction_marker


@dataclass(frozen=True)
class _Log:
    batches: tuple[bytes, ...]
    visible: tuple[int, ...]
    """Offsets of the visible records."""
    aborted: tuple[AbortedTransaction, ...]
    next_offset: int


@st.composite
def _logs(draw: st.DrawFn) -> _Log:
    batches: list[bytes] = []
    visible: list[int] = []
    aborted: list[AbortedTransaction] = []
    offset = start = draw(st.integers(0, 50))
    for producer_id in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(("dense", "holes", "committed", "aborted", "empty")))
        count = draw(st.integers(1, 6))
        offsets = list(range(offset, offset + count))
        if kind == "holes":
            offsets = sorted(draw(st.sets(st.sampled_from(offsets), min_size=1)))
        records = [DecodedRecord(o, 0, None, b"v", ()) for o in offsets if kind != "empty"]
        batches.append(
            source_batch(
                records,
                base_offset=offset,
                last_offset=offset + count - 1,
                producer_id=producer_id,
                transactional=kind in ("committed", "aborted"),
            )
        )
        if kind == "aborted":
            aborted.append(AbortedTransaction(producer_id, offset))
        elif kind != "empty":
            visible += offsets
        offset += count
        if kind in ("committed", "aborted"):
            batches.append(transaction_marker(offset, producer_id, commit=kind == "committed"))
            offset += 1
    assert offset > start
    return _Log(tuple(batches), tuple(visible), tuple(aborted), offset)


@given(log=_logs(), data=st.data())
def test_counts_the_visible_records_between_any_two_offsets(log: _Log, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, log.next_offset))
    stop = data.draw(st.integers(first, log.next_offset))
    counter = VisibleCounter(next_offset=first, stop_offset=stop)
    counter.feed(read_batches(b"".join(log.batches)), log.aborted)
    assert counter.is_done
    assert counter.records == sum(first <= offset < stop for offset in log.visible)


@given(log=_logs(), data=st.data())
def test_fetches_in_a_row_add_up(log: _Log, data: st.DataObject) -> None:
    """As fetched: each response begins with the batch that holds `next_offset`."""
    counter = VisibleCounter(next_offset=0, stop_offset=log.next_offset)
    while not counter.is_done:
        everything = read_batches(b"".join(log.batches))
        fetched = [batch for batch in everything if batch.header.next_offset > counter.next_offset]
        counter.feed(fetched[: data.draw(st.integers(1, 3))], log.aborted)
    assert counter.records == len(log.visible)


def test_dense_batches_stay_closed() -> None:
    data = b"".join(
        source_batch([DecodedRecord(o, 0, None, b"v", ()) for o in range(first, first + 10)])
        for first in range(0, 100, 10)
    )
    counter = VisibleCounter(next_offset=15, stop_offset=87)
    counter.feed(read_batches(data))
    assert (counter.records, counter.batches_opened) == (72, 0)


@pytest.mark.parametrize(("first", "stop", "opened"), [(0, 10, 0), (0, 9, 1), (3, 10, 1)])
def test_a_batch_with_holes_is_opened_only_where_it_is_cut(first: int, stop: int, opened: int) -> None:
    records = [DecodedRecord(o, 0, None, b"v", ()) for o in (1, 4, 9)]
    data = source_batch(records, base_offset=0, last_offset=9)
    counter = VisibleCounter(next_offset=first, stop_offset=stop)
    counter.feed(read_batches(data))
    assert counter.batches_opened == opened
    assert counter.records == sum(first <= record.offset < stop for record in records)
