"""The topic of checkpoints: read at the start, made, filled again, and never taken back."""

import asyncio

import pytest

from twinlog.errors import FatalKafkaError, KafkaError
from twinlog.model import TopicPartition
from twinlog.offsets import CheckpointHistory
from twinlog.testing.fakes.cluster import Call
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.checkpoint_rig import CHECKPOINTS_TOPIC, SYNCS_TOPIC, CheckpointFlowRig, turns
from unit.checkpoint.groups.checkpointer_rig import (
    GatheringWriter,
    checkpoint,
    fill_copy,
    served_once,
)


async def test_a_restart_goes_on_from_the_checkpoints_in_the_topic(flow: CheckpointFlowRig) -> None:
    """MM2's testCheckpointsTaskRestartUsesExistingCheckpoints, with its numbers."""
    orders = TopicPartition("orders", 0)
    await fill_copy(flow, 500)
    for offset in (100, 200):
        await flow.write_sync("orders", offset, offset)
    flow.source.set_group("g", {orders: 250})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
    assert flow.checkpoints() == [checkpoint(250, 201)]

    flow.source.add_topic(SYNCS_TOPIC)
    for offset in (175, 375, 475):
        await flow.write_sync("orders", offset, offset)
    async with flow.ready() as restarted:
        for committed in (250, 370):
            flow.source.set_group("g", {orders: committed})
            await flow.do_pass(restarted)
        assert flow.checkpoints() == [checkpoint(250, 201)]
        flow.source.set_group("g", {orders: 400})
        await flow.do_pass(restarted)
    assert flow.checkpoints() == [checkpoint(250, 201), checkpoint(400, 376)]


async def test_groups_that_come_and_go_cost_memory_only_up_to_a_bound(flow: CheckpointFlowRig) -> None:
    orders = TopicPartition("orders", 0)
    await flow.write_sync("orders", 100, 100)
    async with flow.ready() as checkpointer:
        flow.source.set_group("stays", {orders: 100})
        checkpointer.history = history = CheckpointHistory(most_old=3)
        for number in range(20):
            flow.source.set_group(f"short-lived-{number}", {orders: 100})
            flow.clock.advance(1)
            await flow.do_pass(checkpointer)
            await flow.source.delete_groups([f"short-lived-{number}"])
        flow.clock.advance(1)
        await flow.do_pass(checkpointer)
        assert history.groups() == {"stays", "short-lived-17", "short-lived-18", "short-lived-19"}
        assert len(flow.checkpoints()) == 21


async def test_old_syncs_are_not_used_when_the_checkpoints_cannot_be_read(flow: CheckpointFlowRig) -> None:
    """mustReadToEnd: without a guard only the latest sync of the first pass counts."""
    for offset in (175, 375, 475):
        await flow.write_sync("orders", offset, offset)
    flow.source.set_group("g", {TopicPartition("orders", 0): 400})

    def refuse(call: Call) -> None:
        if call.arguments["partition"].topic == CHECKPOINTS_TOPIC:
            raise FatalKafkaError("no right to read", reason="TOPIC_UNAUTHORIZED", code=29)

    flow.target.add_topic(CHECKPOINTS_TOPIC)
    async with flow.target.writer() as writer:
        await writer.append(TopicPartition(CHECKPOINTS_TOPIC, 0), key=b"x", value=b"y")
    flow.target.intercept("fetch", refuse)
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        (row,) = checkpointer.table.rows()
    assert row.translation.verdict is Verdict.TOO_OLD


async def test_a_checkpoints_topic_that_could_not_be_made_at_the_start_is_made_later(
    flow: CheckpointFlowRig,
) -> None:
    """A right that is granted while the service runs heals it without a restart."""
    await flow.write_sync("orders", 10, 20)
    granted = False

    def refuse(call: Call) -> None:
        if not granted:
            flow.target.topics.pop(CHECKPOINTS_TOPIC)
            refusal = FatalKafkaError("no right to create", reason="TOPIC_UNAUTHORIZED", code=29)
            call.result[CHECKPOINTS_TOPIC] = refusal

    flow.target.intercept("create_topics", refuse, after=True)
    async with flow.ready() as checkpointer:
        flow.source.set_group("g", {TopicPartition("orders", 0): 10})
        flow.clock.advance(1)
        with pytest.raises(KafkaError) as missing:
            await flow.do_pass(checkpointer)
        assert missing.value.reason == "TOPIC_UNKNOWN"
        granted = True
        await flow.do_pass(checkpointer)
    assert flow.checkpoints() == [checkpoint(10, 20)]


async def test_a_checkpoints_topic_that_somebody_deleted_is_made_and_filled_again(
    flow: CheckpointFlowRig,
) -> None:
    await flow.write_sync("orders", 10, 20)
    await flow.write_sync("orders", 11, 21)
    flow.source.set_group("g", {TopicPartition("orders", 0): 10})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        await flow.target.delete_topics([CHECKPOINTS_TOPIC])
        flow.source.set_group("g", {TopicPartition("orders", 0): 11})
        with pytest.raises(KafkaError):
            await flow.do_pass(checkpointer)
        await flow.do_pass(checkpointer)
    assert flow.checkpoints() == [checkpoint(11, 21)]


async def test_damaged_checkpoints_are_passed_over(flow: CheckpointFlowRig) -> None:
    flow.target.add_topic(CHECKPOINTS_TOPIC)
    async with flow.target.writer() as writer:
        await writer.append(TopicPartition(CHECKPOINTS_TOPIC, 0), key=b"x", value=b"y")
    await flow.write_sync("orders", 10, 20)
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        assert checkpointer.history.groups() == frozenset()
        assert checkpointer.tail.store.read_to_end


async def test_a_process_that_regains_a_flow_goes_by_what_the_other_wrote(flow: CheckpointFlowRig) -> None:
    """Its own checkpoints are old by then: it would let lower ones through, and move groups by them."""
    orders = TopicPartition("orders", 0)
    for offset in (100, 200, 300):
        await flow.write_sync("orders", offset, offset)
    flow.source.set_group("g", {orders: 150})
    async with flow.running() as first:
        await served_once(flow, first.checkpointer)
        async with flow.running() as other:
            flow.source.set_group("g", {orders: 300})
            await flow.do_pass(other.checkpointer)
        flow.source.set_group("g", {orders: 300})
        assert first.checkpointer.history.latest("g")[TopicPartition("A.orders", 0)].downstream_offset == 101
        await served_once(flow, first.checkpointer)
        (latest,) = first.checkpointer.history.latest("g").values()
    assert latest == checkpoint(300, 300)
    assert flow.checkpoints() == [checkpoint(150, 101), checkpoint(300, 300)]


async def test_what_is_known_stays_known_until_it_is_read_again(flow: CheckpointFlowRig) -> None:
    """A plan in an outage has the last known offsets from there."""
    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g", {TopicPartition("orders", 0): 10})
    async with flow.running() as first:
        await served_once(flow, first.checkpointer)
        flow.target.take_away()
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(first.checkpointer.run(stop), name="again")
            await turns(lambda: first.checkpointer.table.problem is not None)
            stop.set()
        assert not first.checkpointer.restored
        assert [*first.checkpointer.history.latest("g").values()] == [checkpoint(10, 20)]


async def test_a_stand_by_reads_the_offset_syncs_before_its_turn(flow: CheckpointFlowRig) -> None:
    await flow.write_sync("orders", 10, 20)
    tail = flow.checkpointer().tail
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(tail.run(stop), name="tail")
        await turns(lambda: tail.store.read_to_end)
        stop.set()
    assert tail.store.translate(TopicPartition("orders", 0), 10).downstream_offset == 20


async def test_no_checkpoint_waits_for_the_acknowledgement_of_another(flow: CheckpointFlowRig) -> None:
    await flow.write_sync("orders", 10, 20)
    for number in range(50):
        flow.source.set_group(f"g{number}", {TopicPartition("orders", 0): 10})
    async with flow.ready() as checkpointer:
        checkpointer.history.become(CheckpointHistory())
        await checkpointer.do_pass(GatheringWriter(50))
        assert len(checkpointer.history.groups()) == 50
