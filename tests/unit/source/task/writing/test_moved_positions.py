"""Positions that are moved while a task copies: stored, withdrawn, or behind the round that is under way."""

import asyncio
from collections.abc import Mapping
from typing import cast

from twinlog.kafka.raw import RawFetcher
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually
from twinlog_source.partitions.orders import Reposition, WithdrawReposition
from unit.source.task.writing.writer_rig import BAD, GOOD, OneOutOfRange, WriterRig, away


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


async def test_a_partition_whose_fault_is_in_a_round_is_moved_after_the_round() -> None:
    """`positions set` over a record that is too large, as the partition is tried again."""
    rig = WriterRig()
    rig.fetched(BAD, 2)
    rig.found_a_fault(GOOD)
    copier, good = rig.copier(), rig.copies[GOOD]
    rig.source_reader.fetcher = cast("RawFetcher", OneOutOfRange(None))
    rig.source_reader.throttle.set_limits(0, {}, 0.0)
    told_in_round: list[int] = []

    def tell() -> None:
        if not told_in_round:
            copier.moves.order(Reposition(partition=GOOD, position=50, number=7))
            told_in_round.append(good.committed)

    rig.target.on_commit = tell
    async with asyncio.TaskGroup() as group:
        group.create_task(copier.run(rig.stop), name="copier")
        await eventually(lambda: good.repositioned == 7)
        rig.stop.set()
    assert told_in_round == [0]
    assert (good.committed, good.fetched) == (50, 50)
    left_out = copier.reporter.report().gaps
    assert [(gap.from_offset, gap.to_offset, gap.reason) for gap in left_out] == [
        (0, 50, "SKIPPED_BY_OPERATOR")
    ]


async def test_a_move_that_was_withdrawn_before_the_partition_came_to_rest_never_takes_place() -> None:
    """The target hangs, and what was fetched is in a round that nobody acknowledges."""
    rig = WriterRig()
    copier, good = rig.copier(), rig.copies[GOOD]
    rig.target.silent.add(TopicPartition("A.bad", 0))
    rig.fetched(GOOD, 3)
    good.rounds = 1
    async with asyncio.TaskGroup() as group:
        moving = group.create_task(copier.moves.run(rig.stop), name="moves")
        copier.moves.order(Reposition(partition=GOOD, position=50, number=7))
        copier.moves.withdraw(WithdrawReposition(partition=GOOD, number=7))
        assert good.withdrawn == 7
        good.rewind()
        rig.stop.set()
        await moving
    assert (good.committed, good.repositioned) == (0, 0)


async def test_a_move_that_was_withdrawn_while_it_was_stored_is_taken_back_behind_it() -> None:
    """The commit takes place after the command failed, and its answer is lost."""
    rig = WriterRig()
    rig.source_reader.fetcher = cast("RawFetcher", OneOutOfRange(None))
    copier, good = rig.copier(), rig.copies[GOOD]
    rig.target.commit_failures = [(away(), True)]

    def give_up() -> None:
        if rig.target.opened == 1 and good.withdrawn == 0:
            assert not good.fetchable(0.0), "nothing is fetched from a position that is not on the log"
            rig.target.positions[GOOD] = 50
            copier.moves.withdraw(WithdrawReposition(partition=GOOD, number=7))

    rig.target.on_commit = give_up
    copier.moves.order(Reposition(partition=GOOD, position=50, number=7))
    async with asyncio.TaskGroup() as group:
        group.create_task(copier.run(rig.stop), name="copier")
        await eventually(lambda: rig.target_writer.committed_rounds == 1)
        rig.stop.set()
    assert (good.committed, good.withdrawn, good.repositioned) == (0, 7, 0)
    assert rig.target_writer.is_stored(GOOD)
    assert good.fetchable(0.0)
    assert not copier.reporter.report().gaps


async def test_a_move_that_is_on_the_log_stands_although_it_is_withdrawn() -> None:
    rig = WriterRig()
    rig.source_reader.fetcher = cast("RawFetcher", OneOutOfRange(None))
    copier, good = rig.copier(), rig.copies[GOOD]
    copier.moves.order(Reposition(partition=GOOD, position=50, number=7))
    async with asyncio.TaskGroup() as group:
        group.create_task(copier.run(rig.stop), name="copier")
        await eventually(lambda: good.repositioned == 7)
        copier.moves.withdraw(WithdrawReposition(partition=GOOD, number=7))
        rig.stop.set()
    assert (good.committed, good.withdrawn) == (50, 0)
