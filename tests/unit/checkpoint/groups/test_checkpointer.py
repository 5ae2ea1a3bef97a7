"""MM2's MirrorCheckpointTask rules (mirrormaker2.md §6.4, §11.2), on two fake clusters."""

import asyncio
from dataclasses import dataclass, field

import pytest

from twinlog.errors import FatalKafkaError, KafkaError
from twinlog.kafka.ports import CommittedOffset
from twinlog.model import Headers, TopicPartition
from twinlog.offsets import CheckpointHistory
from twinlog.testing.fakes.cluster import Call
from twinlog.wire import Checkpoint
from twinlog_checkpoint.groups.checkpointer import Checkpointer
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.checkpoint_rig import CHECKPOINTS_TOPIC, SYNCS_TOPIC, FlowOnFakes, KnownTopics, turns


def checkpoint(
    upstream: int, downstream: int, topic: str = "A.orders", partition: int = 0, group: str = "g"
) -> Checkpoint:
    return Checkpoint(
        group=group,
        partition=TopicPartition(topic, partition),
        upstream_offset=upstream,
        downstream_offset=downstream,
    )


async def on_target(flow: FlowOnFakes, group: str) -> dict[TopicPartition, int]:
    held = (await flow.target.group_offsets([group]))[group]
    assert not isinstance(held, KafkaError)
    return {partition: committed.next_offset for partition, committed in held.items()}


async def fill_copy(flow: FlowOnFakes, count: int) -> None:
    async with flow.target.writer() as target:
        for number in range(count):
            await target.append(TopicPartition("A.orders", 0), key=b"k", value=b"%d" % number)


@pytest.fixture
def flow() -> FlowOnFakes:
    """`orders` with 3 partitions on A and its copy on B; nothing copied yet."""
    fakes = FlowOnFakes()
    fakes.source.add_topic("orders", 3)
    fakes.target.add_topic("A.orders", 3)
    return fakes


async def test_a_groups_offsets_become_checkpoints_of_the_remote_topic(flow: FlowOnFakes) -> None:
    await flow.write_sync("orders", 10, 20)
    await flow.write_sync("orders", 7, 3, partition=2)
    flow.source.set_group("g", {TopicPartition("orders", 0): 10, TopicPartition("orders", 2): 9})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
    assert flow.checkpoints() == [checkpoint(10, 20), checkpoint(9, 4, partition=2)]


async def test_nothing_is_emitted_before_the_offset_syncs_are_read(flow: FlowOnFakes) -> None:
    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g", {TopicPartition("orders", 0): 10})
    checkpointer = flow.checkpointer()
    await flow.do_pass(checkpointer)
    assert flow.checkpoints() == []
    assert [row.translation.verdict for row in checkpointer.table.rows()] == [Verdict.NOT_READY]


async def test_no_checkpoint_without_an_offset_sync(flow: FlowOnFakes) -> None:
    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g", {TopicPartition("orders", 1): 10})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        (row,) = checkpointer.table.rows()
    assert flow.checkpoints() == []
    assert (row.translation.verdict, row.translation.downstream_offset) == (Verdict.NO_SYNC, None)


async def test_an_offset_older_than_every_sync_is_not_translated(flow: FlowOnFakes) -> None:
    await flow.write_sync("orders", 100, 20)
    flow.source.set_group("g", {TopicPartition("orders", 0): 99})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        (row,) = checkpointer.table.rows()
    assert flow.checkpoints() == []
    assert row.translation.verdict is Verdict.TOO_OLD


async def test_a_copy_of_the_targets_own_topic_goes_home(flow: FlowOnFakes) -> None:
    """MM2's testDownstreamTopicRenaming: B.topic3 on A is topic3 on B, C.topic7 stays a copy."""
    await flow.write_sync("B.topic3", 5, 5)
    await flow.write_sync("C.topic7", 5, 5)
    flow.source.set_group("g", {TopicPartition("B.topic3", 4): 5, TopicPartition("C.topic7", 8): 5})
    await flow.write_sync("B.topic3", 5, 5, partition=4)
    await flow.write_sync("C.topic7", 5, 5, partition=8)
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
    assert flow.checkpoints() == [
        checkpoint(5, 5, topic="topic3", partition=4),
        checkpoint(5, 5, topic="A.C.topic7", partition=8),
    ]


async def test_checkpoints_never_go_back_unless_the_group_does(flow: FlowOnFakes) -> None:
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


async def test_a_store_that_became_less_precise_takes_no_group_back(flow: FlowOnFakes) -> None:
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


async def test_a_copy_that_was_made_anew_gets_new_checkpoints(flow: FlowOnFakes) -> None:
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
    flow: FlowOnFakes, restarted: bool
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


async def lose_and_grow(flow: FlowOnFakes, checkpointer: Checkpointer | None = None) -> None:
    """The copy loses what lies behind 200, and gets 300 records more; the group goes on."""
    orders = TopicPartition("orders", 0)
    flow.target.truncate(TopicPartition("A.orders", 0), 200)
    await fill_copy(flow, 300)
    for upstream, downstream in ((300, 200), (500, 400)):
        await flow.write_sync("orders", upstream, downstream)
    for group in ("g", "own"):
        flow.source.set_group(group, {orders: 310})
    if checkpointer is not None:
        await turns(lambda: checkpointer.tail.store.translate(orders, 310).downstream_offset == 201)
        await flow.do_pass(checkpointer)


async def test_a_void_checkpoint_is_committed_for_no_group(flow: FlowOnFakes) -> None:
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
        known = flow.served(parts).failover.planner.route.known_places()
    assert flow.checkpoints() == [checkpoint(290, 281)]
    assert await on_target(flow, "g") == {}
    assert list(known) == []


async def test_a_restart_goes_on_from_the_checkpoints_in_the_topic(flow: FlowOnFakes) -> None:
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


async def test_groups_that_come_and_go_cost_memory_only_up_to_a_bound(flow: FlowOnFakes) -> None:
    orders = TopicPartition("orders", 0)
    await flow.write_sync("orders", 100, 100)
    flow.source.set_group("stays", {orders: 100})
    async with flow.ready() as checkpointer:
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


async def test_old_syncs_are_not_used_when_the_checkpoints_cannot_be_read(flow: FlowOnFakes) -> None:
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
    flow: FlowOnFakes,
) -> None:
    """A right that is granted while the service runs heals it without a restart."""
    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g", {TopicPartition("orders", 0): 10})
    granted = False

    def refuse(call: Call) -> None:
        if not granted:
            flow.target.topics.pop(CHECKPOINTS_TOPIC)
            refusal = FatalKafkaError("no right to create", reason="TOPIC_UNAUTHORIZED", code=29)
            call.result[CHECKPOINTS_TOPIC] = refusal

    flow.target.intercept("create_topics", refuse, after=True)
    async with flow.ready() as checkpointer:
        with pytest.raises(KafkaError) as missing:
            await flow.do_pass(checkpointer)
        assert missing.value.reason == "TOPIC_UNKNOWN"
        granted = True
        await flow.do_pass(checkpointer)
    assert flow.checkpoints() == [checkpoint(10, 20)]


async def test_a_checkpoints_topic_that_somebody_deleted_is_made_and_filled_again(flow: FlowOnFakes) -> None:
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


async def test_damaged_checkpoints_are_passed_over(flow: FlowOnFakes) -> None:
    flow.target.add_topic(CHECKPOINTS_TOPIC)
    async with flow.target.writer() as writer:
        await writer.append(TopicPartition(CHECKPOINTS_TOPIC, 0), key=b"x", value=b"y")
    await flow.write_sync("orders", 10, 20)
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        assert checkpointer.history.groups() == frozenset()
        assert checkpointer.tail.store.read_to_end


async def test_metadata_goes_along(flow: FlowOnFakes) -> None:
    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g")
    await flow.source.alter_group_offsets(
        "g", {TopicPartition("orders", 0): CommittedOffset(next_offset=10, metadata="note")}
    )
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
    assert [emitted.metadata for emitted in flow.checkpoints()] == ["note"]


async def test_topics_that_configsync_does_not_copy_are_said_so(flow: FlowOnFakes) -> None:
    flow.known_topics = KnownTopics(names={"orders"})
    await flow.write_sync("orders", 10, 20)
    await flow.write_sync("payments", 10, 20)
    flow.source.set_group("g", {TopicPartition("orders", 0): 10, TopicPartition("payments", 0): 10})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        verdicts = {row.source.topic: row.translation.verdict for row in checkpointer.table.rows()}
    assert flow.checkpoints() == [checkpoint(10, 20)]
    assert verdicts == {"orders": Verdict.FLOOR, "payments": Verdict.NOT_REPLICATED}


async def test_a_topic_that_can_never_be_copied_says_which_rule_keeps_it(flow: FlowOnFakes) -> None:
    await flow.write_sync("orders", 10, 20)
    flow.source.set_group("g", {TopicPartition("mm2x.internal", 0): 10, TopicPartition("B.x", 0): 1})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        rows = {row.source.topic: row.translation for row in checkpointer.table.rows()}
    assert {row.verdict for row in rows.values()} == {Verdict.NOT_REPLICATED}
    assert "B" in rows["B.x"].message


async def test_the_table_shows_lags_and_what_the_group_has_on_the_target(flow: FlowOnFakes) -> None:
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


async def test_a_source_that_goes_away_leaves_its_mark_and_heals(flow: FlowOnFakes) -> None:
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


@dataclass(slots=True)
class GatheringWriter:
    """A `LogWriter` that acknowledges nothing before so many records are on their way."""

    wanted: int
    under_way: int = 0
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    async def append(
        self,
        partition: TopicPartition,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> int:
        self.under_way += 1
        if self.under_way == self.wanted:
            self.complete.set()
        async with asyncio.timeout(10):
            await self.complete.wait()
        return 0


async def test_a_process_that_regains_a_flow_goes_by_what_the_other_wrote(flow: FlowOnFakes) -> None:
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


async def served_once(flow: FlowOnFakes, checkpointer: Checkpointer) -> None:
    """The flow is this process's for one pass."""
    stop = asyncio.Event()
    flow.clock.advance(1)
    async with asyncio.TaskGroup() as group:
        group.create_task(checkpointer.run(stop), name="owner")
        await turns(lambda: checkpointer.table.confirmed_ms == flow.clock.now_ms())
        stop.set()


async def test_a_stand_by_reads_the_offset_syncs_before_its_turn(flow: FlowOnFakes) -> None:
    await flow.write_sync("orders", 10, 20)
    tail = flow.checkpointer().tail
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(tail.run(stop), name="tail")
        await turns(lambda: tail.store.read_to_end)
        stop.set()
    assert tail.store.translate(TopicPartition("orders", 0), 10).downstream_offset == 20


async def test_a_cluster_that_hangs_is_told_while_a_pass_waits_for_it(flow: FlowOnFakes) -> None:
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


async def test_no_checkpoint_waits_for_the_acknowledgement_of_another(flow: FlowOnFakes) -> None:
    await flow.write_sync("orders", 10, 20)
    for number in range(50):
        flow.source.set_group(f"g{number}", {TopicPartition("orders", 0): 10})
    async with flow.ready() as checkpointer:
        checkpointer.history.clear()
        await checkpointer.do_pass(GatheringWriter(50))
        assert len(checkpointer.history.groups()) == 50


async def test_what_happens_to_one_group_changes_no_other_rows(flow: FlowOnFakes) -> None:
    orders, copy = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
    await flow.write_sync("orders", 10, 20)
    for number in range(10):
        flow.source.set_group(f"g{number}", {orders: 10, TopicPartition("orders", 1): 3})
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
        table = checkpointer.table
        assert len(table.take_changes()) == 20
        table.on_committed("g3", {copy: 20})
        assert [(key, row.offset_on_target) for key, row in table.take_changes().items() if row] == [
            (("g3", orders), 20)
        ]
        table.on_committed("g3", {copy: 20})
        assert table.take_changes() == {}
        del flow.source.groups["g4"]
        flow.clock.advance(10)
        await flow.do_pass(checkpointer)
        gone = [key for key, row in table.take_changes().items() if row is None]
        assert gone == [("g4", orders), ("g4", TopicPartition("orders", 1))]


async def test_a_missing_syncs_topic_is_no_sync(flow: FlowOnFakes) -> None:
    del flow.source.topics[SYNCS_TOPIC]
    flow.source.set_group("g", {TopicPartition("orders", 0): 10})
    checkpointer = flow.checkpointer()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(checkpointer.tail.run(stop), name="tail")
        await flow.do_pass(checkpointer)
        await turns(lambda: checkpointer.tail.obstacle)
        await flow.do_pass(checkpointer)
        stop.set()
    (row,) = checkpointer.table.rows()
    assert row.translation.verdict is Verdict.NO_SYNC
    assert flow.checkpoints() == []


async def test_share_groups_are_listed_apart(flow: FlowOnFakes) -> None:
    flow.source.set_group("shared", group_type="share")
    flow.source.set_group("g", {TopicPartition("orders", 0): 1})
    checkpointer = flow.checkpointer()
    await flow.do_pass(checkpointer)
    assert checkpointer.groups.groups == {"g"}
    assert checkpointer.groups.unsupported == {"shared": "share"}


async def test_every_group_that_commits_offsets_is_translated(flow: FlowOnFakes) -> None:
    """Streams groups (KIP-1071) commit as others do; Kafka Connect's own groups do not read topics."""
    await flow.write_sync("orders", 10, 20)
    for group_type in ("classic", "consumer", "streams"):
        flow.source.set_group(group_type, {TopicPartition("orders", 0): 10}, group_type=group_type)
    flow.source.set_group("only-committed", {TopicPartition("orders", 0): 10}, protocol_type="")
    flow.source.set_group("connect-cluster", protocol_type="connect")
    async with flow.ready() as checkpointer:
        await flow.do_pass(checkpointer)
    assert {at.group for at in flow.checkpoints()} == {"classic", "consumer", "streams", "only-committed"}


async def test_offsets_are_committed_for_idle_groups_only(flow: FlowOnFakes) -> None:
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


async def test_a_group_is_never_moved_back_on_the_target(flow: FlowOnFakes) -> None:
    orders, copy = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
    async with flow.target.writer() as target:
        for number in range(300):
            await target.append(copy, key=b"k", value=b"%d" % number)
    await flow.write_sync("orders", 100, 100)
    await flow.write_sync("orders", 200, 200)
    flow.source.set_group("g", {orders: 250})
    async with flow.running() as parts:
        await flow.do_pass(parts.checkpointer)
        await flow.sync_groups(parts)
        flow.source.set_group("g", {orders: 150})
        await flow.do_pass(parts.checkpointer)
        await flow.sync_groups(parts)
    assert await on_target(flow, "g") == {copy: 201}
    assert flow.checkpoints()[-1] == checkpoint(150, 101)
