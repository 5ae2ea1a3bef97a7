"""Single decisions of what is written next to a preserved copy; `test_preserved_model` tries schedules."""

from twinlog_source.preserved.append_log import Append, AppendLog, Fill, Hole, Phase, ReadEnd, Send, Tail


def test_a_hole_that_is_being_filled_does_not_grow() -> None:
    """The log ends behind what was asked for, whatever the source shows meanwhile."""
    log: AppendLog[str] = AppendLog.starting_at(100, max_in_flight_bytes=1000)
    assert log.next() == ReadEnd(100)
    log.end_read(Tail(end=100, next_sequence=7, knows_writer=True))
    log.offer([Hole(100, 1)], next_offset=101)
    assert log.next() == Fill(100, 1)
    log.offer([Hole(101, 1), Append(102, 1, 10, "record")], next_offset=103)
    log.filled(for_certain=True)
    assert (log.phase, log.acknowledged) == (Phase.SURE, 101)
    assert log.next() == Fill(101, 1)
    log.offer([Hole(103, 2)], next_offset=105)
    log.filled(for_certain=True)
    sent = log.next()
    assert isinstance(sent, Send)
    assert (sent.first, sent.end, sent.base_sequence) == (102, 103, 7)
