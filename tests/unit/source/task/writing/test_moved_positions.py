"""Positions that are moved while a task copies: stored, withdrawn, or behind the round that is under way."""

from collections.abc import Mapping

from twinlog.batches import OutgoingBatch
from twinlog.batches.header import read_batches
from twinlog.batches.outgoing import Seal, sealed
from twinlog.batches.records import decode_batch
from twinlog.model import TopicPartition
from twinlog.wire.source_offset import encode_source_offset
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import EpochStart, LeaderEpochsFact
from twinlog_source.task.writing.round import Round
from unit.source.task.writing.writer_rig import GOOD, WriterRig, away


async def test_a_position_that_moves_while_it_is_stored_is_stored_again() -> None:
    rig = WriterRig()

    def move(position: int) -> None:
        rig.copies[GOOD].restart_at(position)
        rig.target_writer.store_soon(GOOD)

    def once_more() -> None:
        if not rig.target_writer.committed_rounds:
            move(9)
            assert not rig.target_writer.is_stored(GOOD)

    rig.target.on_commit = once_more
    move(5)
    await rig.run_until(lambda: rig.target_writer.committed_rounds == 2)
    assert rig.target_writer.is_stored(GOOD)


async def test_a_position_set_meanwhile_stands_against_what_the_log_says_of_the_round_before() -> None:
    """The commit took place, its answer was lost, and an operator moved the partition before the log was
    read: the log's position must neither replace the operator's nor count as stored."""
    rig = WriterRig()
    rig.target.commit_failures = [(away(), True)]
    rig.fetched(GOOD, 3)
    reading = rig.target_writer.ask_driver

    async def moved_meanwhile() -> Mapping[TopicPartition, int]:
        if rig.target.committed:
            rig.copies[GOOD].restart_at(1)
            rig.target_writer.store_soon(GOOD)
        return await reading()

    rig.target_writer.ask_driver = moved_meanwhile
    await rig.run_until(lambda: rig.target_writer.committed_rounds == 1)
    assert rig.copies[GOOD].committed == 1
    assert rig.target_writer.is_stored(GOOD)


async def test_a_move_that_could_not_be_stored_is_stored_without_waiting_for_records() -> None:
    rig = WriterRig()
    rig.target.commit_failures = [(away(), False)]
    rig.copies[GOOD].restart_at(7)
    rig.target_writer.store_soon(GOOD)
    await rig.run_until(lambda: rig.target_writer.committed_rounds == 1)
    assert rig.target_writer.is_stored(GOOD)


async def test_a_position_is_stored_with_the_leader_epochs_that_it_has_then() -> None:
    """It went on after it was touched, under another leader. With the epochs of before, the next task would
    take the records of that leader for lost, and copy them again. Once they are on the log they are not
    written again."""
    rig = WriterRig()
    positions, copy = rig.target_writer.positions, rig.copies[GOOD]
    copy.committed, copy.epochs = 6, (EpochStart(0, 0),)
    rig.target_writer.store_soon(GOOD)
    copy.committed, copy.epochs = 7, (EpochStart(0, 0), EpochStart(1, 6))
    told = fact_record("A", LeaderEpochsFact(partition=GOOD, epochs=copy.epochs))
    for commits in (False, True):
        current = Round()
        stored = records_of(positions.batches(current, {}, [], before=None))
        assert told in stored
        assert encode_source_offset(7) in [value for _, value in stored]
        if commits:
            positions.committed(current)
    copy.committed = 8
    rig.target_writer.store_soon(GOOD)
    stored = records_of(positions.batches(Round(), {}, [], before=None))
    assert [value for _, value in stored] == [encode_source_offset(8)]


async def test_leader_epochs_of_a_moved_position_are_stored_also_with_the_next_records() -> None:
    """A new leader began with markers alone, and records of it came before the position was stored."""
    rig = WriterRig()
    positions, copy = rig.target_writer.positions, rig.copies[GOOD]
    copy.committed, copy.epochs = 7, (EpochStart(0, 0), EpochStart(1, 6))
    rig.target_writer.store_soon(GOOD)
    told = fact_record("A", LeaderEpochsFact(partition=GOOD, epochs=copy.epochs))
    current = Round()
    assert told in records_of(positions.batches(current, {GOOD: 9}, [], before=None))
    positions.committed(current)
    current = Round(epochs={GOOD: (*copy.epochs, EpochStart(2, 9))})
    rig.target_writer.store_soon(GOOD)
    stored = records_of(positions.batches(current, {GOOD: 12}, [], before=None))
    assert [value for _, value in stored] == [encode_source_offset(12)], "the writer adds those of the round"


def records_of(stored: Mapping[TopicPartition, OutgoingBatch]) -> list[tuple[bytes | None, bytes | None]]:
    found = []
    for outgoing in stored.values():
        (batch,) = read_batches(sealed(outgoing, Seal(-1, -1, -1, False)))
        found += [(record.key, record.value) for record in decode_batch(batch)]
    return found
