"""Offsets of groups become checkpoints, as far as they can be translated."""

import asyncio

import pytest

from twinlog.errors import ConfigError, KafkaError
from twinlog.kafka.ports import Introduce, ManagedWriter
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.checkpoint_rig import SYNCS_TOPIC, CheckpointFlowRig, KnownTopics, turns
from unit.checkpoint.groups.checkpointer_rig import (
    checkpoint,
    fill_copy,
    lose_and_grow,
    on_target,
)


async def test_a_groups_offsets_become_checkpoints_of_the_remote_topic(flow: CheckpointFlowRig) -> None:
    await flow.write_sync("orders", 10, 20)
    await flow.write_sync("orders", 7, 3, partition=2)
    flow.source.set_group("g", {TopicPartition("orders", 0): 10, TopicPartition("orders", 2): 9})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
    assert flow.checkpoints() == [checkpoint(10, 20), checkpoint(9, 4, partition=2)]


async def test_nothing_is_emitted_before_the_offset_syncs_are_read(flow: CheckpointFlowRig) -> None:
    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g", {TopicPartition("orders", 0): 10})
    checkpointer = flow.checkpointer()
    await flow.do_pass(checkpointer)
    assert flow.checkpoints() == []
    assert [row.translation.verdict for row in checkpointer.table.rows()] == [Verdict.NOT_READY]


@pytest.mark.parametrize(("partition", "verdict"), [(0, Verdict.TOO_OLD), (1, Verdict.NO_SYNC)])
async def test_no_checkpoint_without_an_offset_sync_at_or_before_the_offset(
    flow: CheckpointFlowRig, partition: int, verdict: Verdict
) -> None:
    await flow.write_sync("orders", 100, 20)
    flow.source.set_group("g", {TopicPartition("orders", partition): 99})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        (row,) = checkpointer.table.rows()
    assert flow.checkpoints() == []
    assert (row.translation.verdict, row.translation.downstream_offset) == (verdict, None)


async def test_a_copy_of_the_targets_own_topic_goes_home(flow: CheckpointFlowRig) -> None:
    """B.shop.topic3 on A is shop.topic3 on B (MM2 says topic3), C.topic7 stays a copy."""
    await flow.write_sync("B.shop.topic3", 5, 5)
    await flow.write_sync("C.topic7", 5, 5)
    flow.source.set_group("g", {TopicPartition("B.shop.topic3", 4): 5, TopicPartition("C.topic7", 8): 5})
    await flow.write_sync("B.shop.topic3", 5, 5, partition=4)
    await flow.write_sync("C.topic7", 5, 5, partition=8)
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
    assert flow.checkpoints() == [
        checkpoint(5, 5, topic="shop.topic3", partition=4),
        checkpoint(5, 5, topic="A.C.topic7", partition=8),
    ]


async def test_checkpoints_never_go_back_unless_the_group_does(flow: CheckpointFlowRig) -> None:
    orders = TopicPartition("orders", 0)
    await flow.write_sync("orders", 100, 100)
    await flow.write_sync("orders", 200, 200)
    flow.source.set_group("g", {orders: 250})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        await flow.do_pass(checkpointer)
        assert flow.checkpoints() == [checkpoint(250, 201)]
        flow.source.set_group("g", {orders: 260})
        await flow.do_pass(checkpointer)
        assert flow.checkpoints() == [checkpoint(250, 201)]
        flow.source.set_group("g", {orders: 150})
        await flow.do_pass(checkpointer)
    assert flow.checkpoints() == [checkpoint(250, 201), checkpoint(150, 101)]


async def test_a_store_that_became_less_precise_takes_no_group_back(flow: CheckpointFlowRig) -> None:
    """MM2's testCheckpointRecordsMonotonicIfStoreRewinds, with its numbers."""
    orders = TopicPartition("orders", 0)
    await fill_copy(flow, 20)
    for upstream, downstream in ((11, 4), (12, 5)):
        await flow.write_sync("orders", upstream, downstream)
    flow.source.set_group("g", {orders: 13})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        for step in range(5):
            await flow.write_sync("orders", 13 + step, 6 + step)
        await turns(lambda: checkpointer.tail.store.translate(orders, 17).downstream_offset == 10)
        assert checkpointer.tail.store.translate(orders, 13).downstream_offset == 5
        await flow.do_pass(checkpointer)
        assert flow.checkpoints() == [checkpoint(13, 6)]
        flow.source.set_group("g", {orders: 12})
        await flow.do_pass(checkpointer)
    assert flow.checkpoints() == [checkpoint(13, 6), checkpoint(12, 5)]


async def test_a_copy_that_was_recreated_gets_new_checkpoints(flow: CheckpointFlowRig) -> None:
    """The last checkpoint points past the new log's end: keeping to it would leave records out."""
    orders = TopicPartition("orders", 0)
    await fill_copy(flow, 300)
    await flow.write_sync("orders", 200, 200)
    flow.source.set_group("g", {orders: 250})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        flow.target.add_topic("A.orders", 3)
        await fill_copy(flow, 20)
        await flow.write_sync("orders", 200, 10)
        await turns(lambda: checkpointer.tail.store.translate(orders, 250).downstream_offset == 11)
        await flow.do_pass(checkpointer)
        await flow.do_pass(checkpointer)
    assert flow.checkpoints() == [checkpoint(250, 201), checkpoint(250, 11)]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_copy_that_grew_past_an_old_checkpoint_gets_the_lower_one(
    flow: CheckpointFlowRig, restarted: bool
) -> None:
    """The copy lost its tail, then more was copied than was lost, before the next pass or while the service
    was down: the offset syncs contradict the old checkpoint."""
    orders, copy = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
    flow.source.set_group("g", {orders: 290})
    flow.source.set_group("own", {orders: 290})
    await fill_copy(flow, 300)
    await flow.write_sync("orders", 280, 280)
    async with flow.running() as parts:
        await flow.do_pass(parts.checkpointer)
        await flow.sync_groups(parts)
        flow.target.set_group("own", {copy: 285})
        if not restarted:
            await lose_and_grow(flow, parts.checkpointer)
            await flow.sync_groups(parts)
    if restarted:
        await lose_and_grow(flow)
        async with flow.running() as parts:
            await flow.do_pass(parts.checkpointer)
            await flow.sync_groups(parts)
    assert [(at.group, at.downstream_offset) for at in flow.checkpoints()] == [
        ("g", 281),
        ("own", 281),
        ("g", 201),
        ("own", 201),
    ]
    assert await on_target(flow, "g") == {copy: 201}
    assert await on_target(flow, "own") == {copy: 285}, "its own consumer committed that"


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("of_both", [False, True])
async def test_an_offset_before_the_start_of_the_copy_is_committed_on_the_target(
    flow: CheckpointFlowRig, of_both: bool, restarted: bool
) -> None:
    """Retention has removed there what the group reads next, or on both sides, and an offset sync tells of a
    later record that it has removed, too: that is no sign of a copy that lost records."""
    orders, copy = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
    flow.translation_max_bytes = 1 << 20
    flow.source.set_group("g", {orders: 10})
    async with flow.source.writer() as source, flow.target.writer() as target:
        for writer, partition in ((source, orders), (target, copy)):
            for number in range(200):
                await writer.append(partition, key=b"k", value=b"%d" % number, timestamp_ms=number)
    for offset in (50, 150) if of_both else (0, 50, 150):
        await flow.write_sync("orders", offset, offset)
    await flow.target.delete_records({copy: 100})
    if of_both:
        await flow.source.delete_records({orders: 100})
    if restarted:
        async with flow.running() as parts:
            await flow.do_pass(parts.checkpointer)
    async with flow.running() as parts:
        await flow.do_pass(parts.checkpointer)
        (row,) = parts.checkpointer.table.rows()
        assert row.translation.verdict is (Verdict.EXACT if of_both else Verdict.BEFORE_START)
        await flow.sync_groups(parts)
    assert flow.checkpoints() == [checkpoint(10, 100)]
    assert await on_target(flow, "g") == {copy: 100}


async def test_an_offset_past_the_end_of_the_source_is_said_to_be(flow: CheckpointFlowRig) -> None:
    """The source lost its tail, or was created again: the group would begin by auto.offset.reset."""
    flow.source.add_topic("orders")
    flow.target.add_topic("A.orders")
    for cluster, topic in ((flow.source, "orders"), (flow.target, "A.orders")):
        async with cluster.writer() as writer:
            await writer.append(TopicPartition(topic, 0), key=None, value=b"x")
    flow.source.set_group("g", {TopicPartition("orders", 0): 7})
    await flow.write_sync("orders", 0, 0)
    async with flow.running() as parts:
        await flow.do_pass(parts.checkpointer)
        (row,) = parts.checkpointer.table.rows("g")
    assert "past the end 1 of its log" in row.translation.message


async def test_topics_that_configsync_does_not_copy_are_said_so(flow: CheckpointFlowRig) -> None:
    flow.known_topics = KnownTopics(names={"orders"})
    await flow.write_sync("orders", 10, 20)
    await flow.write_sync("payments", 10, 20)
    flow.source.set_group("g", {TopicPartition("orders", 0): 10, TopicPartition("payments", 0): 10})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        verdicts = {row.source.topic: row.translation.verdict for row in checkpointer.table.rows()}
    assert flow.checkpoints() == [checkpoint(10, 20)]
    assert verdicts == {"orders": Verdict.FLOOR, "payments": Verdict.NOT_REPLICATED}


async def test_a_topic_that_can_never_be_copied_says_which_rule_keeps_it(flow: CheckpointFlowRig) -> None:
    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g", {TopicPartition("mm2x.internal", 0): 10, TopicPartition("B.x", 0): 1})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        rows = {row.source.topic: row.translation for row in checkpointer.table.rows()}
    assert {row.verdict for row in rows.values()} == {Verdict.NOT_REPLICATED}
    assert "B" in rows["B.x"].message


async def test_a_source_that_goes_away_leaves_its_mark_and_heals(flow: CheckpointFlowRig) -> None:
    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g", {TopicPartition("orders", 0): 10})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        flow.source.take_away()
        with pytest.raises(KafkaError, match="broker") as away:
            await flow.do_pass(checkpointer)
        (before,) = checkpointer.table.rows()
        flow.clock.advance(30)
        checkpointer.table.on_all_unreadable(away.value)
        (row,) = checkpointer.table.rows()
        assert row.translation.verdict is Verdict.SOURCE_UNREADABLE
        assert row.translation.downstream_offset == before.translation.downstream_offset == 20
        assert row.as_of_ms == before.as_of_ms, "its age grows"
        flow.source.bring_back()
        await flow.do_pass(checkpointer)
        (row,) = checkpointer.table.rows()
        assert row.translation.verdict is Verdict.FLOOR


async def test_a_cluster_that_hangs_is_told_while_a_pass_waits_for_it(flow: CheckpointFlowRig) -> None:
    orders = TopicPartition("orders", 0)
    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g", {orders: 10})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        flow.target.hooks.available = False
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(checkpointer.run(stop), name="owner")
            await turns(lambda: checkpointer.table.problem is not None)
            (row,) = checkpointer.table.rows()
            stop.set()
    assert (row.translation.verdict, row.translation.downstream_offset) == (Verdict.TARGET_UNREADABLE, 20)


async def test_a_writer_that_cannot_be_opened_is_told_and_opened_later(flow: CheckpointFlowRig) -> None:
    class RenewedStore(FakeCluster):
        is_renewed = False

        def writer(self, *, introduce: Introduce | None = None) -> ManagedWriter:
            if not self.is_renewed:
                raise ConfigError("ssl.keystore.location: it holds no private key")
            return flow.target.writer()

    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g", {TopicPartition("orders", 0): 10})
    async with flow.ready() as checkpointer:
        store = checkpointer.writer_cluster = RenewedStore("B")
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(checkpointer.run(stop), name="owner")
            await eventually(lambda: isinstance(checkpointer.table.problem, ConfigError))
            store.is_renewed = True
            await eventually(lambda: checkpointer.passes > 0)
            stop.set()
    assert checkpointer.table.problem is None


async def test_a_missing_syncs_topic_is_no_sync(flow: CheckpointFlowRig) -> None:
    del flow.source.topics[SYNCS_TOPIC]
    flow.source.set_group("g", {TopicPartition("orders", 0): 10})
    checkpointer = flow.checkpointer()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(checkpointer.tail.run(stop), name="tail")
        await flow.do_pass(checkpointer)
        await turns(lambda: checkpointer.tail.blocker)
        await flow.do_pass(checkpointer)
        stop.set()
    (row,) = checkpointer.table.rows()
    assert row.translation.verdict is Verdict.NO_SYNC
    assert flow.checkpoints() == []
