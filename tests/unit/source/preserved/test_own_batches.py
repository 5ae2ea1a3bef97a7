"""Whose batches lie in a copy, and whether ours lie where they belong."""

from collections.abc import Sequence

from twinlog.batches.header import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from twinlog_source.preserved.append_steps import Hole
from twinlog_source.preserved.own_batches import (
    FilledRanges,
    FirstForeign,
    ForeignLook,
    OwnBatches,
    is_filler,
)

OURS, FILLER, STRANGER = 1, 2, 3


def header(
    base: int,
    count: int,
    producer: int = OURS,
    *,
    sequence: int = -1,
    attributes: int = 0,
    times: tuple[int, int] = (5, 5),
    size_bytes: int = 1_000,
) -> BatchHeader:
    return BatchHeader(
        base_offset=base,
        batch_length=size_bytes - LOG_OVERHEAD_BYTES,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp_ms=times[0],
        max_timestamp_ms=times[1],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        record_count=count,
    )


def marker(base: int, producer: int) -> BatchHeader:
    return header(base, 1, producer, attributes=CONTROL_BIT | TRANSACTIONAL_BIT)


def empties(base: int, count: int, producer: int, *, attributes: int = 0, stamped_ms: int = 0) -> BatchHeader:
    return header(
        base,
        count,
        producer,
        attributes=TRANSACTIONAL_BIT | attributes,
        times=(0, stamped_ms),
        size_bytes=61 + 9 * count,
    )


def judge(log: Sequence[BatchHeader], foreign_at: int, *, next_sequence: int | None = 10) -> FirstForeign:
    look = ForeignLook(foreign_at, OwnBatches(OURS, next_sequence))
    for each in log:
        look.see(each)
    return look.found


def owns(own: OwnBatches, *headers: BatchHeader) -> list[bool]:
    return [own.owns(each) for each in headers]


def test_a_filler_is_told_by_what_it_holds() -> None:
    assert is_filler(marker(3, FILLER))
    assert is_filler(empties(3, 1_000, FILLER))
    assert not is_filler(header(3, 1_000, STRANGER, attributes=TRANSACTIONAL_BIT))
    assert not is_filler(header(3, 1, STRANGER))


def test_a_filler_on_a_target_that_stamps_times_is_a_filler() -> None:
    assert is_filler(empties(3, 9, FILLER, attributes=LOG_APPEND_TIME_BIT, stamped_ms=1_700_000_000_000))
    assert not is_filler(empties(3, 9, STRANGER, stamped_ms=1_700_000_000_000)), "the leader did not stamp it"


def test_ours_continue_one_another_and_begin_at_their_offset() -> None:
    own = OwnBatches(OURS, is_first=True)
    batches = header(700, 5, sequence=700), marker(705, FILLER), header(706, 4, sequence=705)
    assert owns(own, *batches) == [True, True, True]
    # Forgotten, with nothing of it at the end of the log.
    assert owns(own, header(5_000, 1, sequence=5_000), header(5_001, 1, sequence=5_001)) == [True, True]


def test_a_batch_that_was_on_its_way_to_an_earlier_topic_is_not_where_it_belongs() -> None:
    assert owns(OwnBatches(OURS, is_first=True), header(0, 3, sequence=30)) == [False]
    assert owns(OwnBatches(OURS, next_sequence=12), header(20, 3, sequence=30)) == [False]
    assert owns(OwnBatches(OURS), header(20, 3, sequence=12)) == [True], "what lies before it is deleted"


def test_ours_behind_a_strangers_record_are_counted() -> None:
    log = [header(10, 1, STRANGER), header(11, 5, sequence=10), header(16, 2, sequence=15)]
    found = judge(log, 10)
    assert found == FirstForeign(STRANGER, 10, 7)
    assert [(each.from_offset, each.to_offset, each.producer_id) for each in found.writes] == [
        (10, 11, STRANGER)
    ]
    assert found.end == 18


def test_what_only_looks_like_a_filled_hole_is_somebody_elses() -> None:
    """The look begins where the copy is known not to be ours. The end of a transaction may lie there that was
    written twice, and another one behind what was on its way."""
    log = [marker(10, FILLER), header(11, 5, sequence=10), marker(16, FILLER)]
    assert judge(log, 10) == FirstForeign(FILLER, 10, 5, is_filler=True)


def test_neighbours_of_what_is_filled_are_one_range() -> None:
    filled = FilledRanges(12)
    for each in (empties(10, 4, FILLER), marker(14, FILLER), marker(15, FILLER), marker(20, FILLER)):
        filled.add(each)
    assert filled.found == (Hole(12, 4), Hole(20, 1))


def test_the_end_of_a_strangers_transaction_is_not_counted_as_ours() -> None:
    """It would be taken for a hole of the source that is filled, and leave out a record."""
    log = [
        header(10, 1, STRANGER, attributes=TRANSACTIONAL_BIT),
        marker(11, STRANGER),
        header(12, 5, sequence=10),
    ]
    assert judge(log, 10) == FirstForeign(STRANGER, 10, 5)
    # Nor that of one who wrote no records: nobody can tell it from the filler of an owner before.
    log = [header(10, 1, STRANGER), marker(11, 99), header(12, 5, sequence=10)]
    assert judge(log, 10) == FirstForeign(STRANGER, 10, 5)


def test_nothing_behind_a_batch_of_ours_in_the_wrong_place_is_counted() -> None:
    """They follow each other there, and are not what follows on the source from where the copy ends."""
    log = [header(20, 3, sequence=30), header(23, 3, sequence=33)]
    own = OwnBatches(OURS, next_sequence=12)
    assert owns(own, *log) == [False, True]
    assert judge(log, 20, next_sequence=12) == FirstForeign(OURS, 20, 0)


def test_the_first_own_batch_counts_at_the_offset_of_the_next_source_record() -> None:
    """A marker that the coordinator wrote twice pushed it one offset too far."""

    def judge_first(sequence: int) -> FirstForeign:
        look = ForeignLook(2, OwnBatches(OURS, is_first=True))
        for each in (marker(2, FILLER), header(3, 3, sequence=sequence), header(6, 2, sequence=sequence + 3)):
            look.see(each)
        return look.found

    assert judge_first(2) == FirstForeign(FILLER, 2, 5, is_filler=True)
    assert judge_first(4) == FirstForeign(FILLER, 2, 0, is_filler=True), "it was sent for another one"


def test_what_does_not_continue_ours_is_not_counted() -> None:
    log = [header(10, 1, STRANGER), header(11, 5, sequence=10), header(16, 5, sequence=40)]
    assert judge(log, 10) == FirstForeign(STRANGER, 10, 5)


def test_what_only_begins_at_its_offset_behind_a_strangers_record_is_not_counted() -> None:
    """A leader that forgot the writer took a batch that followed a refused one: its records are nowhere."""
    log = [header(28, 1, STRANGER), header(29, 3, sequence=28), header(32, 6, sequence=32)]
    assert judge(log, 28, next_sequence=28) == FirstForeign(STRANGER, 28, 3)
