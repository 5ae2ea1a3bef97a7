import struct

from twinlog.batches import AbortedTransaction, DecodedRecord, Visibility, classify, read_batches
from twinlog.testing.source_batches import source_batch, transaction_marker

_V, _A, _C = Visibility.VISIBLE, Visibility.ABORTED, Visibility.CONTROL


def _data(offset: int, producer_id: int, *, transactional: bool = True, count: int = 1) -> bytes:
    records = [DecodedRecord(offset + i, 0, None, b"v", ()) for i in range(count)]
    return source_batch(records, producer_id=producer_id, transactional=transactional)


def _see(data: bytes, *aborted: AbortedTransaction, read_committed: bool = True) -> list[Visibility]:
    seen = classify(read_batches(data), aborted, read_committed=read_committed)
    return [visibility for _, visibility in seen]


def test_an_aborted_transaction_is_hidden_up_to_its_marker() -> None:
    data = _data(0, 7) + _data(1, 7) + transaction_marker(2, 7, commit=False) + _data(3, 7)
    assert _see(data, AbortedTransaction(7, 0)) == [_A, _A, _C, _V]


def test_producers_are_told_apart() -> None:
    data = (
        _data(0, 7)
        + _data(1, 8)
        + transaction_marker(2, 8, commit=True)
        + _data(3, 7)
        + transaction_marker(4, 7, commit=False)
    )
    assert _see(data, AbortedTransaction(7, 0)) == [_A, _V, _C, _A, _C]


def test_a_transaction_that_began_before_the_fetch_is_hidden_from_its_first_batch() -> None:
    data = _data(100, 7) + transaction_marker(101, 7, commit=False)
    assert _see(data, AbortedTransaction(7, 3)) == [_A, _C]


def test_a_producer_may_abort_twice_in_one_fetch() -> None:
    data = (
        _data(0, 7)
        + transaction_marker(1, 7, commit=False)
        + _data(2, 7)
        + transaction_marker(3, 7, commit=True)
        + _data(4, 7)
        + transaction_marker(5, 7, commit=False)
    )
    aborted = (AbortedTransaction(7, 4), AbortedTransaction(7, 0))
    assert _see(data, *aborted) == [_A, _C, _V, _C, _A, _C]


def test_without_a_marker_the_producer_stays_hidden() -> None:
    assert _see(_data(0, 7) + _data(1, 7), AbortedTransaction(7, 0)) == [_A, _A]


def test_a_first_offset_inside_a_batch_hides_that_batch() -> None:
    """Java compares with a batch's last offset: compaction may have moved the batch's first record away."""
    assert _see(_data(0, 7, count=5), AbortedTransaction(7, 3)) == [_A]


def test_what_is_not_transactional_is_never_hidden() -> None:
    assert _see(_data(0, 7, transactional=False), AbortedTransaction(7, 0)) == [_V]


def test_read_uncommitted_hides_markers_only() -> None:
    data = _data(0, 7) + transaction_marker(1, 7, commit=False)
    assert _see(data, AbortedTransaction(7, 0), read_committed=False) == [_V, _C]


def test_a_marker_that_compaction_emptied_ends_nothing() -> None:
    emptied = source_batch([], base_offset=1, last_offset=1, producer_id=7, transactional=True, control=True)
    assert _see(_data(0, 7) + emptied + _data(2, 7), AbortedTransaction(7, 0)) == [_A, _C, _A]


def test_a_control_record_of_another_kind_ends_nothing() -> None:
    record = DecodedRecord(1, 0, struct.pack(">hh", 0, 2), b"", ())
    leader_change = source_batch([record], producer_id=7, control=True)
    assert _see(_data(0, 7) + leader_change + _data(2, 7), AbortedTransaction(7, 0)) == [_A, _C, _A]
