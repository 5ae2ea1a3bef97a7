"""What a flow's driver owns: its topics, its positions, the facts beside them; taken over, kept up, given up.

All of it is on the target's log; this is the copy in memory, on the driver's event loop only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import structlog
from google.protobuf.duration_pb2 import Duration

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.clock import Clock
from twinlog.config import AutoOffsetReset
from twinlog.errors import FatalKafkaError, KafkaError, StateError
from twinlog.model import TopicPartition
from twinlog.service.topics_client import ReplicatedTopic, TopicsWatch
from twinlog_source.config import SourceFlow
from twinlog_source.control import OwnerMark
from twinlog_source.epoch import Slot
from twinlog_source.gaps import Gap
from twinlog_source.internal_topics import InternalTopics
from twinlog_source.journal import Journal
from twinlog_source.ledger import Ledger
from twinlog_source.partition_table import Obstacle, PartitionRow, PartitionTable
from twinlog_source.planner import Plan
from twinlog_source.positions import PositionsLog
from twinlog_source.shares import share_limit
from twinlog_source.start_positions import StartPositions, begins_at
from twinlog_source.target_limits import TargetLimits
from twinlog_source.target_logs import TargetLogs
from twinlog_source.task_settings import every_transactional_id, transactional_ids
from twinlog_source.topics import KnownTopics, copyable_partitions
from twinlog_source.wanted_topics import WantedTopics

OBSTACLE_RETRY_SECONDS = 5.0
RECHECK_SECONDS = 1.0
RENEW_SECONDS = 15.0
FOREIGN_AFTER_MS = 60_000
"""A position that was written this long after its owner last signed is not the owner's."""
STALE_OWNER_SECONDS = 60.0
"""An owner that has not signed for this long is gone."""

log = structlog.get_logger(__name__)

Fence = Callable[[Sequence[str]], Awaitable[None]]
"""Initialises ids so that no earlier owner can commit any more. Raises KafkaError."""


@dataclass(slots=True, kw_only=True)
class FlowEstate:
    flow: SourceFlow
    instance_id: str
    watch: TopicsWatch
    known: KnownTopics
    internal: InternalTopics
    positions: PositionsLog
    starts: StartPositions
    journal: Journal
    fence: Fence
    clock: Clock
    on_gap: Callable[[Gap], None]
    topics_changed: asyncio.Event
    """Set by the watch of configsync's topics."""
    table: PartitionTable = field(default_factory=PartitionTable)
    topics: dict[str, ReplicatedTopic] = field(default_factory=dict)
    """By source topic: those that may be copied now."""
    ledger: Ledger = field(init=False)
    target_logs: TargetLogs = field(init=False)
    _wanted: WantedTopics = field(init=False)
    _limits_before: dict[TopicPartition, tuple[str, int, str, str]] = field(default_factory=dict)
    """What the target took when a partition was handed out last."""
    _slots: int = 0
    _signed_at: float = 0.0
    _recheck_at: float = 0.0

    def __post_init__(self) -> None:
        self.ledger = Ledger(
            flow=self.flow.flow, journal=self.journal, positions=self.positions, on_gap=self.on_gap
        )
        self._wanted = WantedTopics(
            flow=self.flow.flow,
            watch=self.watch,
            known=self.known,
            positions=self.positions,
            table=self.table,
            limits=TargetLimits(target=self.known.target, table=self.table),
            clock=self.clock,
        )
        self.target_logs = TargetLogs(
            target=self.known.target,
            table=self.table,
            control=self.positions.control,
            journal=self.journal,
            ledger=self.ledger,
            starts=self.starts,
            clock=self.clock,
        )

    # ------------------------------------------------------------------------------------------ ownership

    async def take_over(self, *, displaced: bool) -> None:
        """Become the flow's owner: nobody before us can commit any more, then the positions are read.

        `displaced`: we were the owner and were fenced. If another process signed since, it is the owner
        now, and we wait until it is gone: the newest start wins, and two never fight. Raises KafkaError, or
        StateError (OWNED_ELSEWHERE).
        """
        count = await self.internal.ensure()
        self.positions.partition_count = self.journal.partition_count = count
        await self.positions.refresh()
        owner = self.positions.control.owner
        if displaced and owner is not None and owner.instance != self.instance_id:
            silent_seconds = (self.clock.now_ms() - owner.renewed_at_ms) / 1000
            if silent_seconds < STALE_OWNER_SECONDS:
                raise StateError(
                    f"another process copies {self.flow.flow} now (it signed {silent_seconds:.0f} s ago);"
                    f" this one takes over when it has been silent for {STALE_OWNER_SECONDS:g} s",
                    reason="OWNED_ELSEWHERE",
                    metadata={"flow": str(self.flow.flow), "owner": owner.instance},
                )
        self._slots = max(self._slots, owner.slots if owner is not None else 0)
        await self.fence(every_transactional_id(self.flow, self._slots))
        await self.positions.refresh()
        await self._doubt_foreign_positions(owner)
        await self._sign()
        await self.reread(list(self.table.rows))
        positions = await self.positions.refresh()
        log.info(
            "flow_taken_over",
            flow=str(self.flow.flow),
            positions=len(positions),
            fenced_slots=self._slots,
        )

    async def _doubt_foreign_positions(self, owner: OwnerMark | None) -> None:
        """MirrorMaker 2 copied meanwhile, or somebody set positions: what we noted beside ours is not about
        those."""
        last_ours_ms = 0 if owner is None else owner.renewed_at_ms + FOREIGN_AFTER_MS
        marked = self.positions.control.epochs
        for partition in list(marked):
            if self.positions.written_at_ms.get(partition, 0) > last_ours_ms:
                await self.journal.take_back("epochs", partition.topic, partition.partition)
                del marked[partition]

    async def note_slots(self, slots: int) -> None:
        """Before more slots than ever are used: whoever comes after us must fence them all. Raises
        KafkaError."""
        if slots > self._slots:
            self._slots = slots
            await self._sign()

    async def reclaim(self, epoch: int, lost: Sequence[Slot]) -> None:
        """Fence slots that gave no last words, and take their positions from the log. Raises KafkaError."""
        await self.fence([name for slot in lost for name in transactional_ids(self.flow, epoch, slot.index)])
        await self.reread([partition for slot in lost for partition in slot.partitions])

    async def reread(self, partitions: Collection[TopicPartition]) -> None:
        """Take positions from the log; their owners are fenced already. Raises KafkaError."""
        self.table.set_from_log(await self.positions.refresh(), partitions)
        for partition in partitions:
            if partition in self.table.rows:
                self.table.rows[partition].epochs = self.positions.control.epochs.get(partition, ())

    def settled(self, partitions: Collection[TopicPartition]) -> None:
        """Their last owner ended in order: what it reported is in the log."""
        for partition in partitions:
            row = self.table.rows.get(partition)
            if row is not None:
                row.stored = True

    async def renew(self) -> None:
        """Sign again when it is time, so that others see that the owner lives.

        Raises KafkaError, and FatalKafkaError (PRODUCER_FENCED) when another process has signed meanwhile:
        a task without work would not find out.
        """
        if self.clock.monotonic() - self._signed_at < RENEW_SECONDS:
            return
        await self.positions.refresh()
        owner = self.positions.control.owner
        if owner is not None and owner.instance != self.instance_id:
            raise FatalKafkaError(
                f"another process has taken {self.flow.flow} over",
                reason="PRODUCER_FENCED",
                metadata={"flow": str(self.flow.flow), "owner": owner.instance},
            )
        await self.target_logs.put_ends_on_log(self.topics)
        await self._sign()

    async def _sign(self) -> None:
        self._signed_at = self.clock.monotonic()
        mark = OwnerMark(instance=self.instance_id, slots=self._slots, renewed_at_ms=self.clock.now_ms())
        await self.journal.state(mark)

    # ------------------------------------------------------------------------------------------ topics

    async def refresh(self, *, owned: Collection[TopicPartition]) -> bool:
        """Bring topics and positions up to date. True when partitions of `owned` must be given back first:
        topics that are not wanted any more leave with the next epoch, without a pause of the others.

        Raises KafkaError when positions that are needed cannot be found out.
        """
        self.topics = await self._wanted.now()
        partitions = copyable_partitions(self.topics)
        targets = {partition: self.topics[partition.topic].target_topic for partition in partitions}
        self.table.keep(targets, owned=owned)
        recreated = any(self._was_recreated(topic) for topic in self.topics.values())
        if owned and (recreated or any(map(self.target_logs.was_recreated, self.topics.values()))):
            return True
        if recreated:
            await self._restart_recreated()
        await self._mark_new_topics()
        await self._mark_left_topics()
        await self._find_positions()
        await self.target_logs.note_recreated(self.topics)
        await self.target_logs.look_at_ends(self.topics)
        await self.target_logs.note_shortened(self.topics)
        return False

    async def plan_is_stale(self, planned: frozenset[TopicPartition]) -> bool:
        """Whether the next epoch should begin now: what is to be copied is not what is planned. Raises
        KafkaError."""
        now = self.clock.monotonic()
        if now < self._recheck_at and not self.topics_changed.is_set():
            return False
        self._recheck_at = now + RECHECK_SECONDS
        self.topics_changed.clear()
        topics = await self._wanted.now()
        if copyable_partitions(topics) != self.table.rows.keys():
            return True
        if any(self._was_recreated(topic) for topic in topics.values()):
            return True
        if any(_limits(topic) != _limits(self.topics.get(name, topic)) for name, topic in topics.items()):
            return True
        await self._find_positions()
        await self.target_logs.note_shortened(self.topics)
        return self.table.plannable() != planned

    def assignment(self, partition: TopicPartition, *, now_ms: int) -> pb.Assignment:
        """What a task is told of a partition whose position is known."""
        row, topic = self.table.rows[partition], self.topics[partition.topic]
        assert row.position is not None
        limits, before = _limits(topic), self._limits_before.get(partition)
        self._limits_before[partition] = limits
        if before is not None and before[0] != limits[0]:
            row.target_end = -1
        return pb.Assignment(
            partition=types_pb2.TopicPartition(topic=partition.topic, partition=partition.partition),
            target_topic=topic.target_topic,
            position=row.position,
            max_message_bytes=topic.target_max_message_bytes,
            compression_type=topic.target_compression_type,
            timestamp_type=topic.target_timestamp_type,
            paused=self.is_paused(partition),
            position_stored=row.stored,
            # Another limit, or another topic: what failed before may succeed now.
            setback=_setback(row, now_ms=now_ms) if limits == before else None,
            epochs=[pb.EpochStart(leader_epoch=each.leader_epoch, offset=each.offset) for each in row.epochs],
            target_end_offset=row.target_end,
        )

    def _was_recreated(self, topic: ReplicatedTopic) -> bool:
        mark = self.positions.control.topics.get(topic.source_topic)
        return mark is not None and bool(topic.source_topic_id) and mark.topic_id != topic.source_topic_id

    async def _restart_recreated(self) -> None:
        """Topics that were deleted and created again begin at 0; what the old one held beyond the copy is a
        gap."""
        for topic in self.topics.values():
            if not self._was_recreated(topic):
                continue
            log.warning("topic_recreated", flow=str(self.flow.flow), topic=topic.source_topic)
            for partition, position in list((await self.positions.refresh()).items()):
                if partition.topic == topic.source_topic:
                    await self._restart(partition, position)
            # From now on every partition is one that came after the flow began.
            await self.target_logs.state_topic(topic, known_partitions=0)

    async def _restart(self, partition: TopicPartition, position: int) -> None:
        row = self.table.rows.get(partition)
        end = max(position, -1 if row is None else row.source_end_offset)
        gap = Gap(
            partition=partition,
            from_offset=position,
            to_offset=end,
            reason="TOPIC_RECREATED",
            found_at_ms=self.clock.now_ms(),
        )
        await self.ledger.write(gap)
        await self.journal.position(partition, 0)
        if row is not None:
            row.position, row.stored, row.report = None, False, None

    async def _mark_new_topics(self) -> None:
        for topic in self.topics.values():
            if topic.source_topic_id and topic.source_topic not in self.positions.control.topics:
                await self.target_logs.state_topic(topic, known_partitions=topic.partition_count)

    # ------------------------------------------------------------------------------------------ positions

    async def _mark_left_topics(self) -> None:
        """Remember which topics configsync took out of the flow, and which it took in again."""
        marks = self.positions.control.topics
        changed = {
            mark.topic: replace(mark, left=not mark.left)
            for mark in marks.values()
            if mark.left == (mark.topic in self.topics) and (mark.left or self._was_taken_out(mark.topic))
        }
        await self.journal.states(list(changed.values()))
        marks.update(changed)

    def _was_taken_out(self, topic: str) -> bool:
        flow = self.flow.flow
        return self.watch.settled(flow) and topic not in self.watch.topics(flow)

    async def _find_positions(self) -> None:
        """Give every partition its position: the stored one, else what its reset means."""
        now = self.clock.monotonic()
        missing = [
            partition
            for partition, row in self.table.rows.items()
            if row.position is None and (row.obstacle is None or row.obstacle.retry_at <= now)
        ]
        if not missing:
            return
        stored = await self.positions.refresh()
        resets: dict[TopicPartition, AutoOffsetReset] = {}
        for partition in missing:
            row = self.table.rows[partition]
            unreadable = self.positions.unreadable.get(partition)
            if unreadable is not None:
                self._set_aside(
                    partition, "POSITION_UNREADABLE", f"the stored position is damaged: {unreadable}"
                )
            elif partition in stored:
                row.position, row.stored, row.obstacle = stored[partition], True, None
                row.epochs = self.positions.control.epochs.get(partition, ())
            else:
                resets[partition] = begins_at(
                    partition,
                    self.topics[partition.topic],
                    self.positions.control.topics.get(partition.topic),
                    self.flow.settings.auto_offset_reset,
                )
        for partition, offset in (await self.starts.resolve(resets)).items():
            if isinstance(offset, KafkaError):
                self._set_aside(partition, offset.reason, f"source: {offset}")
            else:
                self.table.begin(partition, offset)
        for partition, reset in resets.items():
            if reset is AutoOffsetReset.NONE:
                self._set_aside(
                    partition, "NO_POSITION", "there is no stored position and auto.offset.reset is none"
                )

    async def set_position(self, partition: TopicPartition, position: int) -> None:
        """Give a position to a partition that has none and so no task. Raises KafkaError."""
        await self.journal.position(partition, position)
        row = self.table.rows[partition]
        row.position, row.stored, row.obstacle, row.epochs = position, True, None, ()

    def _set_aside(self, partition: TopicPartition, reason: str, message: str) -> None:
        retry_at = self.clock.monotonic() + OBSTACLE_RETRY_SECONDS
        self.table.rows[partition].obstacle = Obstacle(reason=reason, message=message, retry_at=retry_at)

    # ------------------------------------------------------------------------------------------ facts

    def note_gaps(self, reports: pb.PartitionReports) -> None:
        """Take the gaps that a task found (and wrote) into the ledger."""
        for report in reports.partitions:
            partition = TopicPartition(report.partition.topic, report.partition.partition)
            for found in report.gaps:
                self.ledger.enter(
                    Gap(
                        partition=partition,
                        from_offset=found.from_offset,
                        to_offset=found.to_offset,
                        reason=found.reason,
                        found_at_ms=found.found_at.ToMilliseconds(),
                    )
                )

    def throttles(self, plan: Plan, *, now: float) -> list[pb.SetThrottle]:
        """The limits of each slot; together they are the limits in force."""
        commands = [pb.SetThrottle() for _ in plan]
        for topic, limit in self.positions.control.throttles.items():
            scoped = [[p for p in slot if topic in (None, p.topic)] for slot in plan]
            demands = [self.table.load(partitions, now=now).most_bytes_per_second for partitions in scoped]
            for command, share in zip(commands, share_limit(limit, demands), strict=True):
                if topic is None:
                    command.bytes_per_second = max(1, int(share))
                else:
                    command.topic_bytes_per_second[topic] = max(1, int(share))
        return commands

    def is_paused(self, partition: TopicPartition) -> bool:
        """By an operator: the partition itself, its topic, or the whole flow."""
        pauses = self.positions.control.pauses
        scopes = ((None, None), (partition.topic, None), (partition.topic, partition.partition))
        return any(scope in pauses for scope in scopes)


def _limits(topic: ReplicatedTopic) -> tuple[str, int, str, str]:
    """Which topic the copies go to, and what it takes."""
    return (
        topic.target_topic_id,
        topic.target_max_message_bytes,
        topic.target_compression_type,
        topic.target_timestamp_type,
    )


def _setback(row: PartitionRow, *, now_ms: int) -> pb.Setback | None:
    """Why the partition stands aside, by its last task's word."""
    report = row.report
    if report is None or not report.HasField("retry_at") or report.position != row.position:
        return None
    retry_in = Duration()
    retry_in.FromMilliseconds(max(0, report.retry_at.ToMilliseconds() - now_ms))
    return pb.Setback(
        state=report.state,
        reason=report.reason,
        message=report.message,
        retry_in=retry_in,
        failures=report.failures,
    )
