"""What a flow's driver owns, taken over from the log after nobody copied: positions, losses on the target,
limits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync_pb
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.config import load
from twinlog.errors import FatalKafkaError, KafkaError, NotFoundError, StateError
from twinlog.kafka.errors import TIMEOUT, UNAVAILABLE, from_reason
from twinlog.kafka.ports import ConfigChange
from twinlog.model import Record, TopicPartition
from twinlog.service.feeds.client import Received, Restarted
from twinlog.service.feeds.topics import TopicsWatch
from twinlog.service.peers import open_channel
from twinlog.service.runtime import Backoff
from twinlog.testing.fakes.clock import FakeClock
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.fakes.cluster_hooks import Call
from twinlog.testing.fakes.cluster_state import Transaction
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.config import source_flows
from twinlog_source.driver.epoch import Epoch
from twinlog_source.driver.epoch_jobs import EpochJobs
from twinlog_source.driver.ownership import RENEW_SECONDS, Ownership
from twinlog_source.driver.state import FlowState
from twinlog_source.driver.task_host import TaskHost
from twinlog_source.driver.task_settings import TaskSettings
from twinlog_source.driver.withdrawals import Withdrawal
from twinlog_source.driver.worker_messages import task_report
from twinlog_source.log.fact_records import control_key
from twinlog_source.log.facts import EpochStart, LeaderEpochsFact, PauseFact
from twinlog_source.log.gaps import MOST_RANGES, Gap, LogBounds
from twinlog_source.log.internal_topics import InternalTopics
from twinlog_source.log.journal import Journal
from twinlog_source.log.positions import PositionsLog
from twinlog_source.partitions.events import Reported
from twinlog_source.partitions.reports import PartitionReport, TaskReport
from twinlog_source.partitions.states import PartitionState
from twinlog_source.topics.known import KnownTopics
from twinlog_source.topics.start_positions import StartPositions
from unit.source.target_probe import FakeTargetProbe

FILE = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
replication.factor = 1
offset.storage.replication.factor = 1
offset-syncs.topic.replication.factor = 1
"""
POSITIONS = "mm2-offsets.A.internal"
P = TopicPartition("t", 0)


@dataclass(frozen=True, slots=True)
class OneFile:
    text: str

    def read_bytes(self, path: str) -> bytes:
        return self.text.encode()

    def is_file(self, path: str) -> bool:
        return True


@dataclass(slots=True, kw_only=True)
class Site:
    """Two clusters with a topic and its copy, and one process after the other that owns the flow."""

    stack: AsyncExitStack
    clock: FakeClock = field(default_factory=FakeClock)
    source: FakeCluster = field(init=False)
    target: FakeCluster = field(init=False)
    owners: int = 0
    open: dict[int, tuple[TopicPartition, int]] = field(default_factory=dict)
    """What dead tasks left open on the target: slot -> partition and number of the transaction."""
    while_fencing: Callable[[], Awaitable[object]] | None = None
    """What others do while the next owner fences; once."""

    def __post_init__(self) -> None:
        self.source, self.target = FakeCluster("A", clock=self.clock), FakeCluster("B", clock=self.clock)
        self.source.add_topic("t")
        self.target.add_topic("A.t")

    async def write(self, cluster: FakeCluster, topic: str, count: int) -> None:
        async with cluster.writer() as writer:
            for _ in range(count):
                await writer.append(TopicPartition(topic, 0), key=None, value=b"x")

    async def owner(self, *more: str) -> FlowState:
        """A new process: it has taken the flow over and knows its topics."""
        estate = await self.process(*more)
        await estate.take_over(displaced=False)
        assert not await estate.refresh(owned=frozenset())
        return estate

    async def process(self, *more: str) -> FlowState:
        """A new process that has done nothing yet."""
        self.owners += 1
        (flow,) = source_flows(
            load(Path("mm2.properties"), environ={}, files=OneFile(FILE + "\n".join(more)))
        )
        channel = await self.stack.enter_async_context(open_channel("127.0.0.1:1"))
        backoff = Backoff(initial_seconds=1, max_seconds=1, random=lambda: 1.0)
        watch = TopicsWatch(channel, clock=self.clock, backoff=backoff)
        self.say(watch)
        writer = await self.stack.enter_async_context(self.target.writer())
        positions = PositionsLog(
            list_offsets=self.target.list_offsets,
            reader=await self.stack.enter_async_context(self.target.reader()),
            topic=POSITIONS,
            partition_count=0,
            source_alias="A",
        )

        async def fence(
            transactional_ids: Sequence[str], _copies: Mapping[TopicPartition, TopicPartition]
        ) -> None:
            """The coordinator aborts what holders of these ids left open."""
            others, self.while_fencing = self.while_fencing, None
            if others is not None:
                await others()
            for transactional_id in transactional_ids:
                slot = int(transactional_id.split("-")[-2])
                if slot in self.open:
                    self.target.finish_transaction(*self.open.pop(slot), Transaction.ABORTED)

        journal = Journal(
            flow=flow.flow,
            connector_name=flow.settings.connector_name,
            topic=POSITIONS,
            writer=writer,
            clock=self.clock,
            retractions=positions.retractions,
        )
        ownership = Ownership(
            flow=flow,
            instance_id=f"owner {self.owners}",
            internal=InternalTopics(flow=flow, source=self.source, target=self.target),
            positions=positions,
            journal=journal,
            fence=fence,
            clock=self.clock,
        )
        return FlowState(
            flow=flow,
            ownership=ownership,
            watch=watch,
            known=KnownTopics(flow=flow, source=self.source, target=self.target),
            positions=positions,
            starts=StartPositions(source=self.source, read_committed=True),
            journal=journal,
            probe=FakeTargetProbe(self.target),
            clock=self.clock,
            on_gap=lambda _: None,
            topics_changed=watch.subscribe(),
        )

    def say(self, watch: TopicsWatch) -> None:
        """As configsync does."""
        flow = types_pb2.Flow(source="A", target="B")
        topic = configsync_pb.ReplicatedTopic(
            flow=flow,
            source_topic="t",
            target_topic="A.t",
            partition_count=1,
            target_partition_count=1,
            source_topic_id=self.source.topics["t"].topic_id,
            target_topic_id=self.target.topics["A.t"].topic_id,
            state=configsync_pb.TOPIC_STATE_READY,
            target_max_message_bytes=1000,
        )
        watch.handle(Restarted())
        for response in (
            configsync_pb.WatchTopicsResponse(snapshot_item=topic),
            configsync_pb.WatchTopicsResponse(snapshot_end=configsync_pb.SnapshotEnd(settled_flows=[flow])),
        ):
            watch.handle(Received(response))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(stack=stack)


def reported(estate: FlowState, **fields: object) -> None:
    """As the partition's task says it."""
    report = pb.PartitionReport(
        partition=types_pb2.TopicPartition(topic="t", partition=0),
        target_end_offset=-1,
        target_shortened_to=-1,
    )
    for name, value in fields.items():
        setattr(report, name, value)
    said = task_report(pb.PartitionReports(partitions=[report]))
    estate.table.apply(Reported(slot=0, report=said, now_ms=1), 1.0)


def ledger(estate: FlowState) -> list[tuple[int, int, str]]:
    gaps: list[Gap] = list(estate.positions.gaps.values())
    return [(gap.from_offset, gap.to_offset, gap.reason) for gap in gaps]


def only_positions(call: Call) -> None:
    """The record of a position gets onto the log, and its answer is lost."""
    if b"TwinlogGap" not in (call.arguments.get("key") or b""):
        raise from_reason(UNAVAILABLE, "append", alias="B")


async def test_a_position_of_0_wins_over_the_reset(site: Site) -> None:
    latest = "A.consumer.auto.offset.reset = latest"
    await site.write(site.source, "t", 7)
    first = await site.owner(latest)
    assert first.table.rows[P].position == 7
    await first.journal.position(P, 0)
    second = await site.owner(latest)
    assert (second.table.rows[P].position, second.table.rows[P].stored) == (0, True)
    await second.journal.position(P, 5)
    assert (await site.owner(latest)).table.rows[P].position == 5
    # MM2's own tools take a position away: then the reset holds, and no old mark of ours.
    await second.journal._append(source_offset_key("A", P), None)
    assert (await site.owner(latest)).table.rows[P].position == 7


async def test_what_lies_before_a_flow_that_begins_is_counted_from_its_positions(site: Site) -> None:
    await site.write(site.source, "t", 5)
    estate = await site.owner()
    assert await estate.backlog_records([P]) == 5
    await estate.set_position(P, 3)
    assert await estate.backlog_records([P]) == 2
    await estate.set_position(P, 9)
    assert await estate.backlog_records([P]) == 0


async def test_a_partition_without_a_position_waits_for_one_when_the_reset_is_none(site: Site) -> None:
    estate = await site.owner("A.consumer.auto.offset.reset = none")
    assert estate.table.rows[P].task_reason == "NO_POSITION"
    assert estate.table.plannable() == frozenset()
    await estate.set_position(P, 3)
    assert estate.table.plannable() == {P}
    assert (await site.owner("A.consumer.auto.offset.reset = none")).table.rows[P].position == 3


async def test_a_copy_that_was_made_anew_while_nobody_copied_is_a_gap(site: Site) -> None:
    first = await site.owner()
    await first.journal.position(P, 5)
    site.target.add_topic("A.t")
    assert ledger(await site.owner()) == [(0, 5, "TARGET_RECREATED")]
    assert ledger(await site.owner()) == [(0, 5, "TARGET_RECREATED")], "only once"


async def test_a_copy_that_was_made_anew_is_not_one_that_lost_its_tail_as_well(site: Site) -> None:
    """Its new, shorter log is seen before it is known to be another one."""
    await site.write(site.target, "A.t", 5)
    await (await site.owner()).journal.position(P, 5)
    estate = await site.owner()
    reported(estate, position=5, source_end_offset=5, target_end_offset=5)
    site.target.add_topic("A.t")
    await estate.target_logs.look_at_ends(estate.topics)
    site.say(estate.watch)
    await estate.refresh(owned=frozenset())
    assert ledger(estate) == [(0, 5, "TARGET_RECREATED")]


async def test_what_only_a_copy_held_that_was_made_anew_is_in_the_gap_as_well(site: Site) -> None:
    """Retention took it from the source after it was copied. What it took from both before is no gap."""
    await site.write(site.source, "t", 20)
    await site.write(site.target, "A.t", 20)
    await (await site.owner()).journal.position(P, 20)
    estate = await site.owner()
    reported(estate, position=20, source_end_offset=20, target_end_offset=20)
    await site.target.delete_records({TopicPartition("A.t", 0): 3})
    await site.source.delete_records({P: 12})
    await estate.leave()
    site.target.add_topic("A.t")
    later = await site.owner()
    assert ledger(later) == [(3, 20, "TARGET_RECREATED")]


async def test_a_gap_of_no_offsets_is_not_written(site: Site) -> None:
    """A copy that held nothing was made anew: the source had nothing left when it was copied."""
    await site.write(site.source, "t", 5)
    await (await site.owner()).journal.position(P, 5)
    await site.source.delete_records({P: 5})
    site.target.add_topic("A.t")
    assert ledger(await site.owner()) == []


async def test_what_was_copied_into_the_new_topic_already_is_no_gap_of_a_copy_that_was_made_anew(
    site: Site,
) -> None:
    """Its coming is noticed after the first records are in it."""
    await site.write(site.source, "t", 20)
    await site.write(site.target, "A.t", 5)
    await (await site.owner()).journal.position(P, 5)
    estate = await site.owner()
    reported(estate, position=5, source_end_offset=20, target_end_offset=5)
    site.target.add_topic("A.t")
    await site.write(site.target, "A.t", 3)
    reported(
        estate,
        position=9,
        source_end_offset=20,
        target_end_offset=3,
        target_shortened_to=0,
        target_shortened_at=6,
    )
    await estate.target_logs.note_shortened(estate.topics)
    reported(estate, position=12, source_end_offset=20, target_end_offset=6)
    site.say(estate.watch)
    await estate.refresh(owned=frozenset())
    assert ledger(estate) == [(0, 6, "TARGET_RECREATED")]


async def test_a_position_that_is_set_forward_without_a_task_leaves_a_gap(site: Site) -> None:
    await site.write(site.source, "t", 5)
    estate = await site.owner()
    await estate.set_position(P, 3, bounds=LogBounds(start=0, end=5))
    assert ledger(await site.owner()) == [(0, 3, "SKIPPED_BY_OPERATOR")]
    await estate.set_position(P, 1, bounds=LogBounds(start=0, end=5))
    assert ledger(await site.owner()) == [(0, 3, "SKIPPED_BY_OPERATOR")], "the ledger keeps what was"


async def test_a_position_that_could_not_be_set_has_no_effect_when_its_record_arrives_later(
    site: Site,
) -> None:
    """The broker hangs, and takes the record after the command has failed."""
    reset = "A.consumer.auto.offset.reset = none"
    estate = await site.owner(reset)

    def fail(call: Call) -> None:
        raise from_reason(UNAVAILABLE, "append", alias="B")

    undo = site.target.intercept("append", fail, after=True)
    with pytest.raises(KafkaError):
        await estate.set_position(P, 3)
    await estate.positions.refresh()
    assert estate.table.plannable() == frozenset()
    undo()
    await estate.refresh(owned=frozenset())
    assert estate.table.plannable() == frozenset()
    assert estate.table.rows[P].task_reason == "NO_POSITION"
    assert (await site.owner(reset)).table.rows[P].position is None


async def test_a_position_that_is_set_after_one_that_failed_is_not_undone_with_it(site: Site) -> None:
    await site.write(site.source, "t", 9)
    estate = await site.owner()
    undo = site.target.intercept("append", only_positions, after=True)
    with pytest.raises(KafkaError):
        await estate.set_position(P, 3, bounds=LogBounds(start=0, end=9))
    undo()
    await estate.set_position(P, 6, bounds=LogBounds(start=0, end=9))
    await estate.refresh(owned=frozenset())
    for each in (estate, await site.owner()):
        assert (each.table.rows[P].position, ledger(each)) == (6, [(0, 6, "SKIPPED_BY_OPERATOR")])


async def test_what_a_move_that_failed_would_have_left_out_is_no_gap(site: Site) -> None:
    await site.write(site.source, "t", 5)
    estate = await site.owner()
    undo = site.target.intercept("append", only_positions, after=True)
    with pytest.raises(KafkaError):
        await estate.set_position(P, 3, bounds=LogBounds(start=0, end=5))
    undo()
    await estate.refresh(owned=frozenset())
    assert ledger(estate) == []
    after = await site.owner()
    assert (ledger(after), after.table.rows[P].position) == ([], 0)


async def test_a_partition_is_in_no_plan_while_its_position_is_set(site: Site) -> None:
    """Its task would continue from the position before, and overwrite the new one."""
    await site.write(site.source, "t", 5)
    estate = await site.owner()
    planned: list[frozenset[TopicPartition]] = []

    def look(call: Call) -> None:
        planned.append(estate.table.plannable())

    undo = site.target.intercept("append", look)
    await estate.set_position(P, 3)
    undo()
    assert planned
    assert not any(planned)
    assert estate.table.plannable() == {P}


async def test_a_partition_that_is_not_copied_any_more_is_not_moved(site: Site) -> None:
    estate = await site.owner()
    with pytest.raises(NotFoundError, match="does not copy"):
        await estate.set_position(TopicPartition("left", 0), 3)


async def test_a_withdrawn_move_is_undone_when_the_log_says_that_it_took_place(site: Site) -> None:
    """The task withdrew it and died before the old position was behind it."""
    await site.write(site.source, "t", 9)
    estate = await site.owner()
    await estate.set_position(P, 4)
    estate.withdrawals.by_task(P, Withdrawal(to_offset=8, before=None, number=7))
    reported(estate, position=4, source_end_offset=9, withdrawn=7)
    estate.withdrawals.take([PartitionReport(partition=P, position=4, withdrawn=7)])
    await estate.journal.gap(
        Gap(partition=P, from_offset=4, to_offset=8, reason="SKIPPED_BY_OPERATOR", found_at_ms=1)
    )
    await estate.journal.position(P, 8)
    await estate.reread([P])
    left_out = [(0, 4, "SKIPPED_BY_OPERATOR")]
    assert (estate.table.rows[P].position, ledger(estate)) == (4, left_out)
    after = await site.owner()
    assert (after.table.rows[P].position, ledger(after)) == (4, left_out)


async def test_a_copy_that_reached_the_place_of_a_withdrawn_move_is_not_put_back(site: Site) -> None:
    """Everything up to there is copied: to begin again would copy it twice."""
    await site.write(site.source, "t", 9)
    estate = await site.owner()
    await estate.set_position(P, 4)
    estate.withdrawals.by_task(P, Withdrawal(to_offset=8, before=None, number=7))
    estate.withdrawals.take([PartitionReport(partition=P, position=4, withdrawn=7)])
    lost = Gap(partition=P, from_offset=5, to_offset=8, reason="RETENTION", found_at_ms=1)
    await estate.journal.gap(lost)
    await estate.journal.position(P, 8)
    await estate.reread([P])
    assert estate.table.rows[P].position == 8
    assert lost.identity in estate.positions.gaps
    assert not estate.withdrawals.due


async def test_an_acknowledged_gap_stays_so_and_one_that_is_found_again_does_not(site: Site) -> None:
    estate = await site.owner()
    gap = Gap(partition=P, from_offset=0, to_offset=3, reason="RETENTION", found_at_ms=1)
    await estate.ledger.write(gap)
    await estate.ledger.acknowledge(lambda _: True, by="root", now_ms=7)
    for each in (estate, await site.owner()):
        (held,) = each.positions.gaps.values()
        assert (held.acknowledged_by, held.acknowledged_at_ms) == ("root", 7)
    await estate.ledger.write(gap)
    (held,) = (await site.owner()).positions.gaps.values()
    assert not held.acknowledged_by


async def test_a_gap_that_is_joined_while_it_is_acknowledged_is_acknowledged_or_stays_as_it_was(
    site: Site,
) -> None:
    """The two take turns: what is said to be acknowledged is so in the ledger that the next owner reads."""
    estate = await site.owner()
    for begin, end in ((0, 3), (3, 6)):
        await estate.ledger.write(
            Gap(partition=P, from_offset=begin, to_offset=end, reason="RETENTION", found_at_ms=1)
        )

    async def acknowledge() -> None:
        new = await estate.ledger.acknowledge(lambda gap: True, by="root", now_ms=7)
        assert new is not None
        assert [(gap.from_offset, gap.to_offset) for gap in new] == [(0, 6)]

    async with asyncio.TaskGroup() as group:
        group.create_task(estate.ledger.tidy(), name="tidy")
        group.create_task(acknowledge(), name="acknowledge")
    for each in (estate, await site.owner()):
        (held,) = each.positions.gaps.values()
        assert (held.from_offset, held.to_offset, held.acknowledged_by) == (0, 6, "root")
    assert await estate.ledger.acknowledge(lambda gap: True, by="joe", now_ms=8) == (), "it was new to nobody"
    assert await estate.ledger.acknowledge(lambda gap: False, by="joe", now_ms=8) is None


async def test_a_command_that_failed_is_retracted_at_the_latest_when_the_flow_is_given_back(
    site: Site,
) -> None:
    estate = await site.owner()

    def fail(_call: Call) -> None:
        undo()
        raise from_reason(TIMEOUT, "append", alias="B")

    undo = site.target.intercept("append", fail, after=True)
    paused = PauseFact(topic=None, partition=None, by="root", at_ms=1)
    with pytest.raises(KafkaError):
        await estate.journal.command(("pause", None, None), paused)
    await estate.leave()
    assert (await site.owner()).positions.control.pauses == {}


async def test_who_was_fenced_retracts_nothing(site: Site) -> None:
    first = await site.owner()
    paused = PauseFact(topic=None, partition=None, by="root", at_ms=1)
    first.journal.retractions.give_up(("pause", None, None), b"key", b"value")
    second = await site.owner()
    await second.journal.command(("pause", None, None), paused)
    with pytest.raises(FatalKafkaError) as displaced:
        await first.leave()
    assert displaced.value.reason == "PRODUCER_FENCED"
    assert (await site.owner()).positions.control.pauses == {(None, None): paused}


async def test_a_ledger_that_was_not_read_is_known_as_such(site: Site) -> None:
    estate = await site.process()
    assert not estate.positions.is_read
    site.target.take_away()
    with pytest.raises(KafkaError):
        await estate.take_over(displaced=False)
    assert not estate.positions.is_read
    site.target.bring_back()
    await estate.take_over(displaced=False)
    assert estate.positions.is_read


async def test_a_source_topic_that_was_made_anew_while_nobody_copied_begins_at_0(site: Site) -> None:
    first = await site.owner()
    await first.journal.position(P, 5)
    site.source.add_topic("t")
    await site.write(site.source, "t", 9)
    second = await site.owner()
    assert ledger(second) == [], "nothing is known to be missing"
    assert second.table.rows[P].position == 0


async def test_who_was_frozen_writes_no_position_of_a_flow_that_is_anothers_by_now(site: Site) -> None:
    first = await site.owner()
    await first.journal.position(P, 5)
    site.source.add_topic("t")
    site.clock.advance(3)
    site.say(first.watch)
    second = await site.process()
    await second.take_over(displaced=False)
    await second.journal.position(P, 3)
    with pytest.raises(FatalKafkaError) as displaced:
        await first.refresh(owned=frozenset())
    assert displaced.value.reason == "PRODUCER_FENCED"
    assert await second.positions.refresh() == {P: 3}


async def test_a_copy_that_lost_its_tail_while_nobody_copied_is_a_gap(site: Site) -> None:
    await site.write(site.target, "A.t", 12)
    first = await site.owner()
    await first.journal.position(P, 10)
    reported(first, position=10, source_end_offset=10, target_end_offset=12)
    await first.target_logs.put_ends_on_log(first.topics)
    await site.target.delete_records({TopicPartition("A.t", 0): 6})
    assert ledger(await site.owner()) == [], "what retention took is no loss of the copy"
    site.target.truncate(TopicPartition("A.t", 0), 8)
    second = await site.owner()
    assert ledger(second) == [(6, 10, "TARGET_TRUNCATED")]
    assert second.table.rows[P].position == 10
    await site.write(site.target, "A.t", 1)
    assert ledger(await site.owner()) == [(6, 10, "TARGET_TRUNCATED")], "only once"


@pytest.mark.parametrize("operation", ["describe_topics", "append"])
async def test_a_loss_of_the_copy_is_on_record_once_the_target_answers_again(
    site: Site, operation: str
) -> None:
    """Brokers that lose records are those that do not answer just then."""
    await site.write(site.target, "A.t", 12)
    estate = await site.owner()
    await estate.journal.position(P, 10)
    reported(estate, position=10, source_end_offset=10, target_end_offset=12)
    await estate.target_logs.put_ends_on_log(estate.topics)
    site.target.truncate(TopicPartition("A.t", 0), 8)
    await estate.target_logs.look_at_ends(estate.topics)

    def fails(_: Call) -> None:
        raise from_reason(UNAVAILABLE, operation, alias="B")

    mend = site.target.intercept(operation, fails)
    with pytest.raises(KafkaError):
        await estate.target_logs.put_ends_on_log(estate.topics)
    mend()
    await estate.target_logs.put_ends_on_log(estate.topics)
    assert ledger(estate) == [(6, 10, "TARGET_TRUNCATED")]
    assert ledger(await site.owner()) == [(6, 10, "TARGET_TRUNCATED")]


async def test_a_loss_of_the_copy_is_on_record_before_the_end_it_left(site: Site) -> None:
    """A task says with its last words that the log had lost its tail: nobody would find that later."""
    await site.write(site.target, "A.t", 12)
    estate = await site.owner()
    await estate.journal.position(P, 10)
    reported(estate, position=10, source_end_offset=20, target_end_offset=12)
    site.target.truncate(TopicPartition("A.t", 0), 8)
    await site.write(site.target, "A.t", 6)
    reported(
        estate,
        position=16,
        source_end_offset=20,
        target_end_offset=14,
        target_shortened_to=8,
        target_shortened_at=10,
    )
    await estate.target_logs.put_ends_on_log(estate.topics)
    assert ledger(await site.owner()) == [(6, 10, "TARGET_TRUNCATED")]


async def test_a_copy_whose_topic_cannot_be_described_keeps_its_loss_for_later(site: Site) -> None:
    await site.write(site.target, "A.t", 12)
    estate = await site.owner()
    await estate.journal.position(P, 10)
    reported(estate, position=10, source_end_offset=10, target_end_offset=12)
    site.target.truncate(TopicPartition("A.t", 0), 8)
    await estate.target_logs.look_at_ends(estate.topics)
    topic = site.target.topics.pop("A.t")
    await estate.target_logs.note_shortened(estate.topics)
    site.target.topics["A.t"] = topic
    await estate.target_logs.note_shortened(estate.topics)
    assert ledger(estate) == [(6, 10, "TARGET_TRUNCATED")]


async def test_what_is_copied_while_the_targets_end_is_asked_for_is_no_loss_of_the_copy(site: Site) -> None:
    """A broker that hangs delays the answer about all copies: it is old when it comes."""
    await site.write(site.target, "A.t", 12)
    estate = await site.owner()
    await estate.journal.position(P, 10)
    reported(estate, position=10, source_end_offset=30, target_end_offset=12)

    def goes_on(_: Call) -> None:
        reported(estate, position=20, source_end_offset=30, target_end_offset=22)

    site.target.intercept("list_offsets", goes_on, after=True)
    await estate.target_logs.look_at_ends(estate.topics)
    await estate.target_logs.note_shortened(estate.topics)
    assert ledger(estate) == []
    assert estate.table.rows[P].target_end == 22


async def test_a_copy_that_stays_behind_retention_leaves_a_bounded_ledger(site: Site) -> None:
    estate = await site.owner()
    for at in range(0, 10 * (MOST_RANGES + 5), 10):
        await estate.ledger.write(
            Gap(partition=P, from_offset=at, to_offset=at + 3, reason="RETENTION", found_at_ms=at)
        )
    site.clock.advance(RENEW_SECONDS)
    await estate.renew()
    assert len(ledger(estate)) == MOST_RANGES
    reread = await site.owner()
    assert sorted(ledger(reread)) == sorted(ledger(estate)), "the log holds no more than memory does"
    assert sum(gap.lost_offsets for gap in reread.positions.gaps.values()) == 3 * (MOST_RANGES + 5)


async def test_what_a_dead_owner_left_open_ends_by_fencing_before_it_is_waited_for(site: Site) -> None:
    first = await site.owner()
    await first.ownership.note_slots(1)
    await first.journal.position(P, 5)
    count = len(site.target.topics[POSITIONS].logs)
    marks_at = TopicPartition(POSITIONS, partition_for_key(control_key("A", "owner"), count))
    lost = Record(offset=0, timestamp_ms=0, key=source_offset_key("A", P), value=encode_source_offset(9))

    def dies_in_a_transaction(slot: int) -> None:
        site.open[slot] = (
            marks_at,
            site.target.append_transaction(marks_at, [lost], outcome=Transaction.OPEN),
        )

    dies_in_a_transaction(0)
    await first.ownership.note_slots(2)  # hidden behind the transaction of slot 0
    dies_in_a_transaction(1)
    async with asyncio.timeout(10):
        second = await site.owner()
    assert site.open == {}
    assert second.table.rows[P].position == 5


async def test_of_two_owners_at_most_one_can_commit_from_its_start_positions_on(site: Site) -> None:
    """Each of the three looks at its claim after its tasks are ready, and before it starts them."""
    first = await site.owner()
    await first.ownership.note_slots(1)
    await first.confirm()
    second, third = await site.process(), await site.process()

    async def first_and_third_come_between() -> None:
        # It is fenced before the second has signed: it must not take the flow back.
        with pytest.raises(StateError) as waits:
            await first.take_over(displaced=True)
        assert waits.value.reason == "OWNED_ELSEWHERE"
        with pytest.raises(FatalKafkaError) as fenced:
            await first.confirm()
        assert fenced.value.reason == "PRODUCER_FENCED"
        await third.take_over(displaced=False)

    site.while_fencing = first_and_third_come_between
    with pytest.raises(FatalKafkaError) as late:
        await second.take_over(displaced=False)
    assert late.value.reason == "PRODUCER_FENCED"
    await third.confirm()
    site.clock.advance(61)
    await first.take_over(displaced=True)
    await first.confirm()
    with pytest.raises(FatalKafkaError):
        await third.confirm()


@pytest.mark.parametrize(("topics", "reason"), [("t", "OWNED_ELSEWHERE"), ("t, u", "TWIN_DEPLOYMENT")])
async def test_who_is_displaced_by_a_deployment_with_other_topics_says_so(
    site: Site, topics: str, reason: str
) -> None:
    """Also where no election tells: the groups' rights are missing, or the coordinator is away."""
    first, second = await site.owner("topics = t"), await site.owner(f"topics = {topics}")
    assert second.ownership.instance_id != first.ownership.instance_id
    with pytest.raises(StateError) as waits:
        await first.take_over(displaced=True)
    assert waits.value.reason == reason


async def test_a_task_with_new_ids_goes_on_only_while_its_epoch_lives_and_the_flow_is_ours(
    site: Site,
) -> None:
    first = await site.owner()
    unasked: Any = None
    host = TaskHost(
        estate=first,
        tasks=TaskSettings(flow=first.flow),
        jobs=EpochJobs(flow=first.flow.flow, runner=unasked, instruments=unasked, clock=site.clock),
        instruments=unasked,
        clock=site.clock,
    )
    living, over = (Epoch(flow=first.flow.flow, number=number, plan=((P,),)) for number in (2, 1))
    over.end("EPOCH_OVER")
    await host.reopened(living)
    with pytest.raises(StateError) as late:
        await host.reopened(over)
    assert late.value.reason == "EPOCH_OVER"
    await site.owner()
    for admission in (host.reopened(living), host.rejoin(living, living.slots[0])):
        with pytest.raises(FatalKafkaError) as displaced:
            await admission
        assert displaced.value.reason == "PRODUCER_FENCED"


async def test_leader_epochs_are_not_about_positions_that_somebody_else_wrote(site: Site) -> None:
    first = await site.owner()
    await first.journal.position(P, 5)
    await first.journal.state(LeaderEpochsFact(partition=P, epochs=(EpochStart(3, 0),)))
    assert (await site.owner()).table.rows[P].epochs == (EpochStart(3, 0),)
    site.clock.advance(600)
    key = source_offset_key("A", P)
    count = len(site.target.topics[POSITIONS].logs)
    async with site.target.writer() as mirror_maker:
        at = TopicPartition(POSITIONS, partition_for_key(key, count))
        await mirror_maker.append(
            at, key=key, value=encode_source_offset(50), timestamp_ms=site.clock.now_ms()
        )
    for _ in range(2):
        estate = await site.owner()
        assert (estate.table.rows[P].position, estate.table.rows[P].epochs) == (50, ())


async def test_a_limit_that_somebody_changed_is_seen_while_batches_are_refused(site: Site) -> None:
    estate = await site.owner()
    planned = estate.table.plannable()
    for limit in ("500", "2000"):
        changes = {"A.t": [ConfigChange(name="max.message.bytes", value=limit)]}
        assert not any((await site.target.alter_topic_configs(changes)).values())
        site.clock.advance(3)
        reported(estate, state=source_pb.PARTITION_STATE_FAULTED, reason="RECORD_TOO_LARGE")
        assert await estate.plan_is_stale(planned)
        await estate.refresh(owned=planned)
        assignment = estate.assignment(P)
        assert assignment.topic.target_max_message_bytes == int(limit)
    reported(estate, state=source_pb.PARTITION_STATE_RUNNING)
    site.clock.advance(3)
    assert not await estate.plan_is_stale(planned)


async def test_a_setback_goes_to_the_next_task_unless_its_cause_may_be_gone(site: Site) -> None:
    estate = await site.owner()
    estate.assignment(P)
    report = PartitionReport(
        partition=P,
        position=0,
        state=PartitionState.BACKOFF,
        reason="LEADER_UNAVAILABLE",
        failures=3,
        retry_at_ms=site.clock.now_ms() + 4000,
    )
    estate.table.apply(Reported(slot=0, report=TaskReport(partitions=(report,)), now_ms=1), 1.0)
    setback = estate.assignment(P).setback
    assert setback is not None
    assert (setback.reason, setback.failures, setback.retry_in_ms) == ("LEADER_UNAVAILABLE", 3, 4000)
    site.target.add_topic("A.t")
    site.say(estate.watch)
    await estate.refresh(owned=estate.table.plannable())
    assert estate.assignment(P).setback is None
