"""Positions that are moved while a task copies: stored, withdrawn, or behind the round that is under way."""

from collections.abc import Mapping

from twinlog.model import TopicPartition
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
