"""Pieces of the driver: epochs, the table of partitions, where partitions begin, transactional ids."""

import asyncio
from dataclasses import replace

import pytest

from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.config import AutoOffsetReset
from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.topics import ReplicatedTopic, TopicState
from twinlog_source.driver.epoch import Epoch, LastWords, SlotState
from twinlog_source.driver.epoch_jobs import number_after
from twinlog_source.log.facts import CopyFact, TopicFact
from twinlog_source.partitions.events import (
    Assigned,
    Begun,
    Copied,
    CopyDecided,
    LogReread,
    LossRecorded,
    Reported,
    TargetEndSeen,
    TopicsChosen,
)
from twinlog_source.partitions.reports import PartitionReport, TaskReport
from twinlog_source.partitions.rows import Shortened
from twinlog_source.partitions.states import PartitionState
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.topics.start_positions import begins_at

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def report(partition: TopicPartition, position: int, end: int, records: int, size: int) -> TaskReport:
    said = PartitionReport(
        partition=partition,
        position=position,
        source_end=end,
        records=records,
        bytes=size,
        raw_records=records,
        state=PartitionState.RUNNING,
    )
    return TaskReport(partitions=(said,))


def topic(*, created_after_start: bool = False) -> ReplicatedTopic:
    return ReplicatedTopic(
        flow=Flow("A", "B"),
        source_topic="t",
        target_topic="A.t",
        partition_count=2,
        target_partition_count=2,
        source_topic_id="id",
        target_topic_id="",
        generation=1,
        created_after_start=created_after_start,
        state=TopicState.READY,
        reason="",
        message="",
        target_max_message_bytes=0,
        target_compression_type="",
        target_timestamp_type="",
        source_cleanup_policy="",
    )


def test_what_came_after_the_flow_began_is_copied_from_its_beginning() -> None:
    latest, mark = AutoOffsetReset.LATEST, TopicFact(topic="t", topic_id="id", known_partitions=1)
    assert begins_at(P, topic(), mark, latest) is latest
    assert begins_at(P, topic(), None, latest) is latest
    assert begins_at(Q, topic(), mark, latest) is AutoOffsetReset.EARLIEST
    assert begins_at(P, topic(created_after_start=True), mark, latest) is AutoOffsetReset.EARLIEST


def test_the_log_is_the_truth_after_fencing_and_the_beginning_where_it_says_nothing() -> None:
    table = PartitionTable()
    table.apply(TopicsChosen(targets={P: "A.t", Q: "A.t"}), 0.0)
    table.apply(Begun(partition=P, position=100), 0.0)
    table.apply(Begun(partition=Q, position=200), 0.0)
    for partition in (P, Q):
        table.apply(Reported(slot=0, report=report(partition, 500, 600, 10, 10), now_ms=1), 1.0)
    table.apply(LogReread(partitions=[P, Q], positions={P: 450}, epochs={}), 2.0)
    assert (table.rows[P].position, table.rows[P].stored) == (450, True)
    assert (table.rows[Q].position, table.rows[Q].stored) == (200, False)


def said(*, position: int, target_end: int, shortened_to: int | None = None) -> TaskReport:
    (one,) = report(P, position, position, 0, 0).partitions
    return TaskReport(partitions=(replace(one, target_end=target_end, target_shortened_to=shortened_to),))


def test_a_target_that_a_task_found_shortened_is_told_once() -> None:
    table = PartitionTable()
    table.apply(TopicsChosen(targets={P: "A.t"}), 0.0)
    table.apply(Begun(partition=P, position=0), 0.0)
    row = table.rows[P]
    table.apply(Reported(slot=0, report=said(position=100, target_end=120), now_ms=1), 1.0)
    assert row.shortened is None
    for position, target_end in ((110, 100), (130, 140)):
        table.apply(
            Reported(
                slot=0, report=said(position=position, target_end=target_end, shortened_to=90), now_ms=2
            ),
            2.0,
        )
    assert row.shortened == Shortened(end_offset=90, first_lost=70, position=100)
    assert row.target_end == 140


def test_a_target_that_the_driver_found_shortened_is_not_told_again_by_the_task() -> None:
    table = PartitionTable()
    table.apply(TopicsChosen(targets={P: "A.t"}), 0.0)
    table.apply(Begun(partition=P, position=0), 0.0)
    row = table.rows[P]
    table.apply(Reported(slot=0, report=said(position=100, target_end=120), now_ms=1), 1.0)
    table.apply(TargetEndSeen(partition=P, end_offset=90), 1.5)
    assert row.shortened is not None
    table.apply(LossRecorded(partition=P, loss=row.shortened), 1.5)
    table.apply(Reported(slot=0, report=said(position=100, target_end=120), now_ms=2), 2.0)
    table.apply(TargetEndSeen(partition=P, end_offset=90), 1.5)
    table.apply(Reported(slot=0, report=said(position=105, target_end=96, shortened_to=90), now_ms=3), 3.0)
    assert row.shortened is None
    assert row.target_end == 96


def test_counters_of_a_new_task_begin_at_zero_and_nothing_is_counted_twice() -> None:
    table = PartitionTable()
    table.apply(TopicsChosen(targets={P: "A.t"}), 0.0)
    table.apply(Begun(partition=P, position=0), 0.0)
    for now, records in ((1.0, 100), (2.0, 300)):
        table.apply(Reported(slot=0, report=report(P, records, 1000, records, records * 10), now_ms=1), now)
    table.apply(Assigned(partition=P, slot=1), 3.0)
    (copied,) = table.apply(Reported(slot=1, report=report(P, 350, 1000, 50, 500), now_ms=1), 4.0)
    assert isinstance(copied, Copied)
    assert (copied.records, copied.lanes) == (50, {"UNOPENED": 50})
    assert (table.records, table.bytes) == (350, 3500)
    assert table.rows[P].slot == 1


def test_a_slot_with_a_backlog_wants_all_it_can_get() -> None:
    table = PartitionTable()
    table.apply(TopicsChosen(targets={P: "A.t"}), 0.0)
    table.apply(Begun(partition=P, position=0), 0.0)
    table.apply(Reported(slot=0, report=report(P, 0, 5000, 0, 0), now_ms=1), 1.0)
    assert table.load([P], now=1.0).most_bytes_per_second is None
    table.apply(Reported(slot=0, report=report(P, 5000, 5000, 5000, 5000), now_ms=1), 2.0)
    demand = table.load([P], now=2.0).most_bytes_per_second
    assert demand is not None
    assert demand > 0


async def test_waiting_for_an_epoch_ends_with_its_last_slot_or_in_time() -> None:
    epoch = Epoch(flow=Flow("A", "B"), number=1, plan=((P,), (Q,)))
    first, second = epoch.slots

    async def ready() -> bool:
        return await epoch.wait_until(lambda: epoch.are(SlotState.PREPARED), 1.0)

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(ready(), name="waiting")
        for slot in (first, second):
            assert not waiting.done()
            epoch.move(slot, SlotState.PREPARED)
    assert waiting.result()
    assert not await epoch.wait_until(lambda: epoch.are(SlotState.RUNNING), 0.0)


def test_a_task_that_ends_with_a_reason_is_the_failure_of_its_epoch() -> None:
    epoch = Epoch(flow=Flow("A", "B"), number=1, plan=((P,),))
    (slot,) = epoch.slots
    slot.final = LastWords(reason="PRODUCER_FENCED", message="taken over")
    assert epoch.failure is not None
    assert epoch.failure.reason == "PRODUCER_FENCED"
    slot.final = LastWords(reason="END_OF_EPOCH")
    assert epoch.failure is None


def test_only_the_token_of_the_epoch_is_accepted() -> None:
    epoch = Epoch(flow=Flow("A", "B"), number=1, plan=((P,),))
    assert epoch.accepts(epoch.token)
    assert not epoch.accepts("")
    assert not epoch.accepts(Epoch(flow=epoch.flow, number=1, plan=()).token)
    assert epoch.token not in repr(epoch)


@pytest.mark.parametrize("count", [1, 3])
def test_a_slot_that_does_not_listen_is_not_told_for_ever(count: int) -> None:
    epoch = Epoch(flow=Flow("A", "B"), number=1, plan=tuple((P,) for _ in range(count)))
    for _ in range(1000):
        epoch.tell(pb.WorkerCommand(alive=pb.Alive()))
    assert all(slot.commands.full() for slot in epoch.slots)


def test_a_partition_that_leaves_and_comes_back_within_an_epoch_goes_on_from_its_last_report() -> None:
    table, stays, leaves = PartitionTable(), TopicPartition("stays", 0), TopicPartition("leaves", 0)
    both = {stays: "A.stays", leaves: "A.leaves"}
    table.apply(TopicsChosen(targets=both), 0.0)
    table.apply(Begun(partition=stays, position=0), 0.0)
    table.apply(Begun(partition=leaves, position=0), 0.0)
    table.apply(TopicsChosen(targets={stays: "A.stays"}, owned=both), 0.0)
    assert table.plannable() == frozenset(), "how it is copied is not decided"
    copy = CopyFact(partition=stays, preserved=False, since=0, reason="COMPACTED", target_topic_id="id")
    table.apply(CopyDecided(partition=stays, copy=copy), 0.0)
    assert table.plannable() == {stays}
    table.apply(Reported(slot=0, report=report(leaves, 7, 9, 7, 70), now_ms=1), 1.0)
    table.apply(TopicsChosen(targets=both, owned=both), 0.0)
    assert table.known_positions() == {stays: 0, leaves: 7}

    table.apply(TopicsChosen(targets={stays: "A.stays"}, owned=both), 0.0)
    table.apply(TopicsChosen(targets=both, owned=[stays]), 0.0)
    assert table.known_positions() == {stays: 0}, "the log says where it stands once its owner has ended"


def test_an_epoch_that_is_made_ready_never_has_the_ids_of_the_one_that_copies() -> None:
    assert number_after(0, beside=None) == 1
    assert number_after(1, beside=1) == 2
    assert number_after(2, beside=1) == 4  # 2 never began
    assert number_after(4, beside=1) == 6
    assert number_after(4, beside=4) == 5
    assert number_after(2, beside=None) == 3
