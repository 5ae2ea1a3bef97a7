"""Single decisions of what is written next to a preserved copy; `test_preserved_owners` tries schedules."""

import pytest

from twinlog.batches import Codec
from twinlog_source.preserved.append_log import AppendLog, Phase
from twinlog_source.preserved.append_steps import Hole, ReadEnd, Send, Tail
from unit.source.preserved.broker_model import records


def test_a_hole_that_is_being_filled_does_not_grow() -> None:
    """The log ends behind what was asked for, whatever the source shows meanwhile."""
    log: AppendLog = AppendLog.starting_at(100, max_in_flight_bytes=1000)
    assert log.next() == ReadEnd(100)
    log.end_read(Tail(end=100, next_sequence=7, knows_writer=True))
    log.offer([Hole(100, 1)], next_offset=101)
    assert log.next() == Hole(100, 1)
    log.offer([Hole(101, 1), records(102, 1)], next_offset=103)
    log.filled(for_certain=True)
    assert (log.phase, log.acknowledged) == (Phase.SURE, 101)
    assert log.next() == Hole(101, 1)
    log.offer([Hole(103, 2)], next_offset=105)
    log.filled(for_certain=True)
    sent = log.next()
    assert isinstance(sent, Send)
    assert (sent.first, sent.end, sent.base_sequence) == (102, 103, 7)


def test_the_epoch_of_a_leader_counts_up_to_where_its_log_was_seen_to_end() -> None:
    """What was written since may have been written under a later one."""
    log: AppendLog = AppendLog.starting_at(100, max_in_flight_bytes=1000, leader_epoch=3)
    assert (log.epoch_that_reached(100), log.epoch_that_reached(101)) == (3, None)
    assert log.next() == ReadEnd(100, 3)
    log.end_read(Tail(end=102, next_sequence=7, knows_writer=True, leader_epoch=4))
    assert (log.epoch_that_reached(102), log.is_end_read) == (4, True)
    log.offer([records(102, 1)], next_offset=103)
    sent = log.next()
    assert isinstance(sent, Send)
    log.answered(sent, 102)
    assert (log.epoch_that_reached(103), log.is_end_read) == (None, False)


@pytest.mark.parametrize(("at", "foreign_at", "has_lost_records"), [(103, 102, False), (99, 99, True)])
def test_a_batch_that_is_written_at_another_place_shows_what_somebody_else_wrote(
    at: int, foreign_at: int, *, has_lost_records: bool
) -> None:
    log: AppendLog = AppendLog.starting_at(102, max_in_flight_bytes=1000)
    log.next()
    log.end_read(Tail(end=102, next_sequence=7, knows_writer=True))
    log.offer([records(102, 1)], next_offset=103)
    sent = log.next()
    assert isinstance(sent, Send)
    log.answered(sent, at)
    assert (log.phase, log.foreign_at, log.has_lost_records) == (Phase.FOREIGN, foreign_at, has_lost_records)
    assert log.acknowledged == 102


def test_no_answer_behind_a_refused_batch_moves_the_position() -> None:
    """A leader that forgot the writer takes the batch behind it. A late writer may have written as many
    offsets as the refused one has, behind somebody else's record: no base offset shows that."""
    log: AppendLog = AppendLog.starting_at(100, max_in_flight_bytes=1000)
    log.next()
    log.end_read(Tail(end=100, next_sequence=7, knows_writer=True))
    log.offer([records(100, 4), records(104, 6)], next_offset=110)
    first, second = log.next(), log.next()
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    log.refused(first)
    log.answered(second, 104)
    assert log.acknowledged == 100
    assert log.next() == ReadEnd(100)
    log.end_read(Tail(end=110, next_sequence=17, knows_writer=True, foreign_from=100))
    assert (log.phase, log.foreign_at) == (Phase.FOREIGN, 100)


def ended(*filled: Hole, end: int, begun: int = 100) -> AppendLog:
    """A copy that was found to end there."""
    log: AppendLog = AppendLog.starting_at(begun, max_in_flight_bytes=1000)
    assert log.next() == ReadEnd(begun)
    log.end_read(Tail(end=end, next_sequence=7, knows_writer=True, filled=filled))
    return log


def test_what_is_filled_is_compared_with_the_source_before_the_end_is_the_position() -> None:
    log = ended(Hole(103, 1), Hole(106, 2), end=110)
    assert (log.acknowledged, log.wanted, log.is_proving, log.next()) == (103, 103, True, None)
    log.offer([Hole(103, 1), records(104, 1)], next_offset=105)
    assert (log.acknowledged, log.wanted, log.is_proving) == (105, 105, True)
    log.offer([records(105, 1), Hole(106, 2), records(108, 5)], next_offset=113)
    assert (log.acknowledged, log.wanted, log.is_proving) == (110, 110, False), "the rest is offered again"
    log.offer([records(110, 3)], next_offset=113)
    sent = log.next()
    assert isinstance(sent, Send)
    assert (sent.first, sent.end, sent.base_sequence) == (110, 113, 7)


def test_a_record_of_the_source_where_the_copy_is_filled_ends_the_copy() -> None:
    log = ended(Hole(103, 2), end=110)
    log.offer([Hole(103, 1), records(104, 1)], next_offset=105)
    assert (log.phase, log.foreign_at, log.acknowledged) == (Phase.FOREIGN, 104, 104)


def test_what_is_filled_before_a_strangers_record_is_compared_too() -> None:
    log: AppendLog = AppendLog.starting_at(100, max_in_flight_bytes=1000)
    log.next()
    log.end_read(Tail(120, 7, knows_writer=True, foreign_from=110, filled=(Hole(103, 1),)))
    log.offer([records(103, 1)], next_offset=104)
    assert (log.phase, log.foreign_at) == (Phase.FOREIGN, 103)
    log = AppendLog.starting_at(100, max_in_flight_bytes=1000)
    log.next()
    log.end_read(Tail(120, 7, knows_writer=True, foreign_from=110, filled=(Hole(103, 1),)))
    log.offer([Hole(103, 1)], next_offset=104)
    assert (log.phase, log.foreign_at) == (Phase.FOREIGN, 110)


def test_a_writer_that_knows_what_it_offered_reads_nothing_again() -> None:
    """Also when the answer to a fill was lost."""
    log = ended(end=100)
    log.offer([Hole(100, 1), records(101, 2)], next_offset=103)
    assert log.next() == Hole(100, 1)
    log.filled()
    assert log.next() == ReadEnd(100)
    log.end_read(Tail(101, 7, knows_writer=True, filled=(Hole(100, 1),)))
    assert (log.acknowledged, log.wanted, log.generation) == (101, 103, 0)
    # The same, with the end of the transaction in the log twice.
    log = ended(end=100)
    log.offer([Hole(100, 1), records(101, 2)], next_offset=103)
    log.next()
    log.filled()
    log.next()
    log.end_read(Tail(102, 7, knows_writer=True, filled=(Hole(100, 2),)))
    assert (log.phase, log.foreign_at) == (Phase.FOREIGN, 101)


def test_what_the_source_cannot_prove_any_more_is_believed() -> None:
    log = ended(Hole(103, 1), Hole(106, 2), end=110)
    log.believe()
    assert (log.acknowledged, log.wanted, log.is_proving, log.phase) == (110, 110, False, Phase.SURE)
    log.believe()
    assert log.generation == 2, "offered again once for the proof, once for its end"


def test_only_what_the_source_has_no_more_is_believed() -> None:
    log = ended(Hole(103, 1), Hole(106, 4), Hole(120, 1), end=125)
    log.believe(108)
    assert (log.acknowledged, log.wanted, log.is_proving) == (108, 108, True)
    log.offer([records(108, 1)], next_offset=109)
    assert (log.phase, log.foreign_at) == (Phase.FOREIGN, 108), (
        "the source has a record where the copy is filled"
    )
    log = ended(Hole(103, 1), Hole(106, 4), end=110)
    log.believe(110)
    assert (log.acknowledged, log.is_proving, log.phase) == (110, False, Phase.SURE)


def test_the_end_is_read_again_before_the_first_batch_on_another_connection() -> None:
    """Another leader may lack filled offsets, and takes the batch behind them nevertheless."""
    log = ended(end=100)
    log.meet_connection()
    assert log.next() is None, "nothing is to be sent"
    log.offer([records(100, 2), records(102, 1)], next_offset=103)
    log.meet_connection()
    assert log.next() == ReadEnd(100)
    log.end_read(Tail(98, 7, knows_writer=True))
    assert (log.acknowledged, log.wanted) == (98, 98), "offered again from there"
    log.offer([Hole(98, 2), records(100, 2), records(102, 1)], next_offset=103)
    assert log.next() == Hole(98, 2)
    log.filled(for_certain=True)
    first = log.next()
    assert isinstance(first, Send)
    log.meet_connection()
    second = log.next()
    assert isinstance(second, Send), "what is unanswered tells by itself what became of the log"
    log.refused(second)
    log.refused(first)
    assert log.next() == ReadEnd(100)


def test_only_batches_of_one_codec_are_packed_together() -> None:
    """A few kilobytes of zstd may be megabytes in a batch without compression, which the target refuses."""
    log: AppendLog = AppendLog.starting_at(100, max_in_flight_bytes=1000, pack_below_bytes=500)
    log.next()
    log.end_read(Tail(end=100, next_sequence=7, knows_writer=True))
    none, zstd = Codec.NONE, Codec.ZSTD
    codecs = (none, none, none, zstd, zstd, none)
    log.offer([records(100 + at, 1, codec) for at, codec in enumerate(codecs)], next_offset=106)
    sent = [log.next() for _ in range(4)]
    assert [(each.first, each.end) for each in sent if isinstance(each, Send)] == [
        (100, 101),
        (101, 103),
        (103, 105),
        (105, 106),
    ]


def test_what_was_offered_for_a_comparison_is_not_written_when_the_comparison_has_ended() -> None:
    """Nobody has checked whether its holes may be filled."""
    log = ended(Hole(103, 1), end=104)
    record, later = records(104, 1), records(605, 1)
    log.offer([Hole(103, 1), record, Hole(105, 500), later], next_offset=606)
    assert (log.phase, log.is_proving, log.acknowledged, log.wanted) == (Phase.SURE, False, 104, 104)
    assert log.next() is None
    generation = log.generation
    log.offer([record], next_offset=105)
    assert isinstance(log.next(), Send)
    assert log.generation == generation


def test_a_comparison_that_ends_with_the_offered_items_voids_nothing() -> None:
    log = ended(Hole(103, 1), end=104)
    generation = log.generation
    log.offer([Hole(103, 1)], next_offset=104)
    assert (log.wanted, log.generation) == (104, generation)
