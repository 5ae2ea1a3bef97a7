"""Which groups are translated, and which are written on the target."""

from twinlog.kafka.ports import CommittedOffset
from twinlog.model import TopicPartition
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.checkpoint_rig import CheckpointFlowRig, turns
from unit.checkpoint.groups.checkpointer_rig import checkpoint, fill_copy, on_target


async def test_a_void_checkpoint_is_committed_for_no_group(flow: CheckpointFlowRig) -> None:
    """The offset syncs contradict it, and there is no newer answer: the group lies before every sync."""
    orders, copy = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
    flow.source.set_group("g", {orders: 290})
    await fill_copy(flow, 300)
    await flow.write_sync("orders", 280, 280)
    async with flow.running() as parts:
        await flow.do_pass(parts.checkpointer)
        flow.target.truncate(copy, 200)
        await fill_copy(flow, 300)
        await flow.write_sync("orders", 300, 200)
        await turns(lambda: parts.checkpointer.tail.store.translate(orders, 300).downstream_offset == 200)
        await flow.do_pass(parts.checkpointer)
        await flow.sync_groups(parts)
        known = await flow.served(parts).failover.planner.route.known_places()
    assert flow.checkpoints() == [checkpoint(290, 281)]
    assert await on_target(flow, "g") == {}
    assert list(known) == []


async def test_metadata_goes_along(flow: CheckpointFlowRig) -> None:
    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g")
    await flow.source.alter_group_offsets(
        "g", {TopicPartition("orders", 0): CommittedOffset(next_offset=10, metadata="note")}
    )
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
    assert [emitted.metadata for emitted in flow.checkpoints()] == ["note"]


async def test_the_table_shows_lags_and_what_the_group_has_on_the_target(flow: CheckpointFlowRig) -> None:
    orders, copy = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
    async with flow.source.writer() as source, flow.target.writer() as target:
        for number in range(30):
            await source.append(orders, key=b"k", value=b"%d" % number)
            await target.append(copy, key=b"k", value=b"%d" % number)
    await flow.write_sync("orders", 10, 10)
    flow.source.set_group("g", {orders: 10})
    flow.target.set_group("g", {copy: 10})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        (row,) = checkpointer.table.rows("g")
    assert (row.source_lag, row.target_lag, row.offset_on_target) == (20, 20, 10)
    assert row.committed_on_target


async def test_share_groups_are_listed_apart(flow: CheckpointFlowRig) -> None:
    flow.source.set_group("shared", group_type="share")
    flow.source.set_group("g", {TopicPartition("orders", 0): 1})
    checkpointer = flow.checkpointer()
    await flow.do_pass(checkpointer)
    assert checkpointer.groups.groups == {"g"}
    assert checkpointer.groups.unsupported == {"shared": "share"}


async def test_every_group_that_commits_offsets_is_translated(flow: CheckpointFlowRig) -> None:
    """Streams groups (KIP-1071) commit as others do; Kafka Connect's own groups do not read topics."""
    await flow.write_sync("orders", 10, 20)
    for group_type in ("classic", "consumer", "streams"):
        flow.source.set_group(group_type, {TopicPartition("orders", 0): 10}, group_type=group_type)
    flow.source.set_group("only-committed", {TopicPartition("orders", 0): 10}, protocol_type="")
    flow.source.set_group("connect-cluster", protocol_type="connect")
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
    assert {at.group for at in flow.checkpoints()} == {"classic", "consumer", "streams", "only-committed"}


async def test_offsets_are_committed_for_idle_groups_only(flow: CheckpointFlowRig) -> None:
    orders, copy = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
    async with flow.target.writer() as target:
        for number in range(30):
            await target.append(copy, key=b"k", value=b"%d" % number)
    await flow.write_sync("orders", 10, 10)
    for group in ("idle", "busy"):
        flow.source.set_group(group, {orders: 20})
    flow.target.set_group("busy", {copy: 3}, state="STABLE", member_count=1)
    async with flow.running() as parts:
        checkpointer = parts.checkpointer
        await flow.do_pass(checkpointer)
        await flow.sync_groups(parts)
        verdicts = {row.group: row for row in checkpointer.table.rows()}
    assert await on_target(flow, "idle") == {copy: 11}
    assert await on_target(flow, "busy") == {copy: 3}
    assert verdicts["busy"].translation.verdict is Verdict.ACTIVE_ON_TARGET
    assert verdicts["idle"].committed_on_target
    assert not verdicts["busy"].committed_on_target
