"""One epoch as its driver sees it."""

import asyncio

import pytest

from twinlog.model import Flow, TopicPartition
from twinlog_source.driver.epoch import COMMAND_QUEUE_SIZE, Epoch, LastWords, SlotState
from twinlog_source.partitions.planner import SlotLimits

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


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


def test_a_running_task_that_says_nothing_is_silent() -> None:
    epoch = Epoch(flow=Flow("A", "B"), number=1, plan=((P,), (Q,)))
    first, second = epoch.slots
    epoch.move(first, SlotState.RUNNING)
    first.started = True
    first.heard_at, second.heard_at = 10.0, 0.0
    assert epoch.silent_slots(since=10.0, lost_since=0.0) == []
    assert epoch.silent_slots(since=10.1, lost_since=0.0) == [first], "the other one was not started"
    first.waits_for_driver = True
    assert epoch.silent_slots(since=10.1, lost_since=0.0) == [], "its driver owes it an answer"


def test_a_lost_task_that_is_not_replaced_counts_as_silent() -> None:
    """Spark runs no frozen task again: neither one whose stream was closed, nor one that gets ready."""
    epoch = Epoch(flow=Flow("A", "B"), number=1, plan=((P,),))
    (slot,) = epoch.slots
    slot.started, slot.heard_at = True, 10.0
    epoch.cut_off(slot)
    assert epoch.silent_slots(since=10.1, lost_since=10.0) == [], "another one may come"
    assert epoch.silent_slots(since=10.1, lost_since=10.1) == [slot]
    epoch.move(slot, SlotState.WAITING)
    assert epoch.silent_slots(since=10.1, lost_since=10.1) == [slot], "one came, and gets ready for ever"


@pytest.mark.parametrize("count", [1, 3])
def test_the_command_queue_of_a_slot_is_bounded(count: int) -> None:
    epoch = Epoch(flow=Flow("A", "B"), number=1, plan=tuple((P,) for _ in range(count)))
    for _ in range(COMMAND_QUEUE_SIZE + 1):
        epoch.tell(SlotLimits())
    assert all(slot.commands.full() for slot in epoch.slots)
