"""Rounds of data and positions: what counts after a failure, and after an answer that was lost."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from twinlog.batches import NewRecord
from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.raw import COMMITTED, OUTCOME, RawFetcher
from twinlog.model import TopicPartition
from twinlog.wire.source_offset import source_offset_key
from twinlog_source.partitions.orders import PartitionState, PriorFailure
from twinlog_source.task.partition import PartitionCopy
from unit.source.task.writing.writer_rig import BAD, GOOD, OneOutOfRange, WriterRig, away


def failed_before(state: PartitionState, reason: str) -> PriorFailure:
    return PriorFailure(state=state, reason=reason, message="", failures=3, retry_in_seconds=0.0)


async def test_positions_move_when_the_round_is_committed() -> None:
    rig = WriterRig()
    rig.fetched(GOOD, 3)
    rig.fetched(BAD, 2)
    await rig.run_until(lambda: rig.copies[BAD].committed == 2)
    assert rig.copies[GOOD].committed == 3
    assert rig.target_writer.committed_rounds == 1


async def test_positions_say_that_nothing_was_written_until_something_is_sent() -> None:
    """Also if nobody knows whether it was committed."""
    rig = WriterRig()
    for copy in rig.copies.values():
        copy.wrote_nothing = True
    rig.target.commit_failures = [(away(), False)]
    rig.fetched(GOOD, 3)
    rig.target_writer.store_soon(BAD)
    await rig.run_until(lambda: rig.target_writer.aborted_rounds and rig.copied_again(GOOD, 3))
    assert [copy.wrote_nothing for copy in rig.copies.values()] == [False, True]
    said = {(record.key, bool(record.headers)) for record in rig.target.stored}
    assert said == {(source_offset_key("A", p, connector="C"), p == BAD) for p in (GOOD, BAD)}


async def test_a_refused_partition_is_set_aside_and_the_others_are_sent_again() -> None:
    rig = WriterRig()
    refusal = FatalKafkaError("no right", reason="TOPIC_UNAUTHORIZED")
    rig.target.refused[TopicPartition("A.bad", 0)] = refusal
    rig.fetched(GOOD, 3)
    rig.fetched(BAD, 2)

    await rig.run_until(lambda: rig.copied_again(GOOD, 3))
    bad = rig.copies[BAD]
    assert (bad.state, bad.reason, bad.committed) == (PartitionState.FAULTED, "TOPIC_UNAUTHORIZED", 0)
    assert rig.copies[GOOD].state is PartitionState.RUNNING
    assert rig.target.committed == [TopicPartition("A.good", 0)]


async def test_records_that_may_be_refused_again_are_in_no_transaction_with_those_of_others() -> None:
    """Consumers that read uncommitted records would see those of the others once more for each attempt."""
    rig = WriterRig()
    bad, good = TopicPartition("A.bad", 0), TopicPartition("A.good", 0)
    rig.target.refused[bad] = FatalKafkaError("no key", reason="RECORD_INVALID")
    rig.copies[BAD].restore_failure(failed_before(PartitionState.FAULTED, "RECORD_INVALID"), now=0.0)
    assert rig.copies[BAD].fetchable(0.0)
    for end in range(1, 4):
        rig.fetched(GOOD, end)
        rig.fetched(BAD, end)
    await rig.run_until(lambda: rig.copies[BAD].failures == 4 and rig.copied_again(GOOD, 3))
    assert rig.target.refused_with == [{bad}]
    assert rig.target.committed == [good]


async def test_a_partition_is_on_trial_until_something_of_it_is_committed() -> None:
    rig = WriterRig()
    rig.copies[BAD].restore_failure(failed_before(PartitionState.FAULTED, "RECORD_INVALID"), now=0.0)
    assert rig.copies[BAD].fetchable(0.0)
    assert rig.copies[BAD].on_trial
    rig.fetched(BAD, 2)
    await rig.run_until(lambda: rig.copies[BAD].committed == 2)
    assert (rig.copies[BAD].on_trial, rig.copies[BAD].failures) == (False, 0)


async def test_a_partition_that_failed_before_does_not_hold_up_the_others() -> None:
    """The target neither takes nor refuses it; without the others it would be awaited."""
    rig = WriterRig()
    rig.target.silent.add(TopicPartition("A.bad", 0))
    rig.copies[BAD].restore_failure(failed_before(PartitionState.BACKOFF, "LEADER_UNAVAILABLE"), now=0.0)
    assert rig.copies[BAD].fetchable(0.0)
    rig.fetched(GOOD, 3)
    rig.fetched(BAD, 2)

    await rig.run_until(lambda: rig.copied_again(GOOD, 3))
    bad = rig.copies[BAD]
    assert (bad.state, bad.reason, bad.failures) == (PartitionState.BACKOFF, "LEADER_UNAVAILABLE", 4)


async def test_a_commit_whose_answer_was_lost_is_found_in_the_log_and_not_sent_twice() -> None:
    rig = WriterRig()
    rig.target.commit_failures = [(away(), True)]
    rig.fetched(GOOD, 3)
    await rig.run_until(lambda: rig.copies[GOOD].committed == 3)
    assert rig.target.committed == [TopicPartition("A.good", 0)]
    assert rig.target.opened == 2


async def test_an_aborted_round_begins_again_at_the_committed_position() -> None:
    rig = WriterRig()
    rig.target.commit_failures = [(away(), False)]
    rig.fetched(GOOD, 3)
    await rig.run_until(lambda: rig.target.opened == 2 and rig.copies[GOOD].fetched == 0)
    assert rig.copies[GOOD].committed == 0
    assert not rig.target.committed


async def test_an_uncertain_position_at_the_end_is_an_error_not_a_guess() -> None:
    rig = WriterRig()
    rig.target.commit_failures = [(away(), True)]
    rig.fetched(GOOD, 3)
    rig.target.on_commit = rig.stop.set
    with pytest.raises(KafkaError, match="away"):
        await rig.target_writer.run(rig.stop)


async def test_what_is_found_while_the_last_positions_are_stored_is_on_the_log_or_is_not_found() -> None:
    """A gap that was reported and is in no log would be gone after the next restart."""
    rig = WriterRig()
    gap_found, asked = asyncio.Event(), asyncio.Event()

    async def gap(copies: Sequence[PartitionCopy]) -> None:
        asked.set()
        await gap_found.wait()
        for copy in copies:
            copy.restart_at(9)
            rig.target_writer.store_soon(copy.partition, [NewRecord(b"gap", b"", 0)])

    copier = rig.copier()
    rig.source_reader.on_out_of_range = gap
    rig.source_reader.fetcher = cast("RawFetcher", OneOutOfRange(GOOD))
    rig.copies[BAD].pause(paused=True)

    def commits() -> None:
        """The order to stop comes in the first commit, the answer about the gap in the last one."""
        if rig.stop.is_set():
            gap_found.set()
        rig.stop.set()
        move_bad(6)

    def move_bad(position: int) -> None:
        if rig.copies[BAD].committed != position:
            rig.copies[BAD].restart_at(position)
            rig.target_writer.store_soon(BAD)

    rig.target.on_commit = commits
    async with asyncio.TaskGroup() as group:
        group.create_task(copier.run(rig.stop), name="copier")
        await asked.wait()
        move_bad(5)
    assert rig.copies[BAD].committed == 6
    assert all(rig.target_writer.is_stored(partition) for partition in rig.copies)
    assert not rig.target_writer.positions.is_behind


async def test_a_fenced_task_ends_at_once() -> None:
    rig = WriterRig()
    rig.target.commit_failures = [(FatalKafkaError("fenced", reason="PRODUCER_FENCED"), False)]
    rig.fetched(GOOD, 3)
    with pytest.raises(KafkaError, match="fenced"):
        await rig.target_writer.run(rig.stop)


async def test_no_part_of_a_fenced_task_outlives_its_writing_half() -> None:
    """Its driver learns of it from its last words, not when it asks the task to end."""
    rig = WriterRig()
    rig.source_reader.fetcher = cast("RawFetcher", OneOutOfRange(None))
    rig.target.commit_failures = [(FatalKafkaError("fenced", reason="PRODUCER_FENCED"), False)]
    rig.fetched(GOOD, 3)
    async with asyncio.timeout(60):
        with pytest.raises(KafkaError, match="fenced"):
            await rig.copier().run(rig.stop)
    assert not rig.stop.is_set()


async def test_what_hangs_of_the_ids_is_ended_before_they_write_again() -> None:
    rig = WriterRig()
    bad = TopicPartition("A.bad", 0)
    rig.target.refused[bad] = TransientKafkaError(
        "hangs", reason="HANGING_TRANSACTION", metadata={OUTCOME: COMMITTED}
    )
    rig.fetched(BAD, 2)
    await rig.run_until(lambda: rig.target.opened == 2)
    assert rig.taken_over == [(0, set()), (1, {bad})]


async def test_ids_that_were_taken_over_for_another_reason_are_not_taken_over_again() -> None:
    rig = WriterRig()
    rig.target.commit_failures = [(away(), False)]
    rig.target.on_commit = lambda: rig.target_writer.take_ids_over(TopicPartition("A.good", 0))
    rig.fetched(GOOD, 3)

    def commits() -> bool:
        if rig.target.opened == 2 and not rig.target.committed:
            rig.target.on_commit = lambda: None
            rig.fetched(GOOD, 3)
        return bool(rig.target.committed)

    await rig.run_until(commits)
    assert rig.target.opened == 2


async def test_after_new_ids_nothing_is_sent_before_the_driver_allowed_it() -> None:
    """It was replaced while it was silent: with its new ids it fenced the present owner, but it must not go
    on beside it."""
    rig = WriterRig()
    rig.target.commit_failures = [(away(), False)]
    replaced = FatalKafkaError("another process has taken the flow over", reason="PRODUCER_FENCED")
    rig.refusals = [away(), replaced]
    rig.fetched(GOOD, 3)
    rig.target.on_commit = lambda: rig.fetched(GOOD, 3)
    await rig.target_writer.open()
    with pytest.raises(FatalKafkaError, match="taken the flow over"):
        await rig.target_writer.run(rig.stop)
    assert (rig.asked, rig.target.opened, rig.target.committed) == (2, 3, [])


async def test_a_copy_that_waits_for_another_one_of_its_round_says_so() -> None:
    """It has a leader: the reason of the other one seemed to be its own."""
    rig = WriterRig()
    good, bad = (rig.copies[each].target for each in (GOOD, BAD))
    rig.target.without_leader[bad] = no_leader = TransientKafkaError("none", reason="LEADER_UNAVAILABLE")
    assert rig.target_writer.leaderless(good) is None, "nothing is open"
    await rig.target_writer.open()
    assert rig.target_writer.leaderless(bad) is no_leader
    waits = rig.target_writer.leaderless(good)
    assert waits is not None
    assert (str(waits), waits.reason) == (
        "it waits for others of its transaction: none",
        "LEADER_UNAVAILABLE",
    )
