"""The state of a flow in its driver: topics, positions and facts; how it is taken over, updated and given up.

All of it is on the target's log. This copy in memory is used on the driver's event loop only.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.kafka.deadline import deadline
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, copyable_partitions
from twinlog.service.feeds.routes import routes_of
from twinlog_source.driver.calibration import TransformCheck
from twinlog_source.driver.driver_moves import DriverMoves
from twinlog_source.driver.epoch import Slot
from twinlog_source.driver.epoch_rules import Recheck
from twinlog_source.driver.ownership import Ownership
from twinlog_source.driver.parts import FlowParts, assemble_parts
from twinlog_source.log.fact_records import ControlRecord
from twinlog_source.log.facts import PauseFact, ThrottleFact
from twinlog_source.partitions.assignments import TaskOrders, limits_differ
from twinlog_source.partitions.events import (
    EpochEnded,
    LogReread,
    TopicsChosen,
)
from twinlog_source.partitions.orders import TaskAssignment
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.preserved.target_probe import TargetProbe
from twinlog_source.topics.flow_book import FlowBook
from twinlog_source.topics.origins import Origins
from twinlog_source.topics.routes import RouteBook
from twinlog_source.topics.start_positions import StartPositions
from twinlog_source.topics.target_logs import TargetLogs

LOOK_AT_TARGETS_SECONDS = 60.0
"""How often to check, while tasks run, whether the copies still have what was written."""
LOOK_AGAIN_SECONDS = 10.0
"""The same if a copy seems to have lost records: by then its task has reported what it wrote before."""
BACKLOG_LOOK_SECONDS = 2.0
AFTER_SIGNING_SECONDS = 10.0
"""The longest time for what an owner looks at after it has signed: the next signature must not be late."""


@dataclass(slots=True, kw_only=True)
class FlowState(FlowBook):
    ownership: Ownership
    decisions: Decisions
    starts: StartPositions
    probe: TargetProbe
    origins: Origins
    topics_changed: asyncio.Event
    """Set when configsync's topics change."""
    flows: int = 1
    """The number of flows in the process; with many flows, repeated requests are made less often."""
    topics: dict[str, ReplicatedTopic] = field(default_factory=dict)
    """The topics that may be copied now, by source topic."""
    orders: TaskOrders = field(init=False)
    target_logs: TargetLogs = field(init=False)
    transform_check: TransformCheck = field(init=False)
    routes: RouteBook = field(init=False)
    _parts: FlowParts = field(init=False)
    _recheck: Recheck = field(init=False)
    _look_at_targets_at: float = 0.0

    def __post_init__(self) -> None:
        FlowBook.__post_init__(self)
        self._recheck = Recheck(flows=self.flows)
        self.transform_check = TransformCheck(flow=self.flow, decided=self.topics_changed)
        self.routes = RouteBook(
            flow=self.flow, decisions=self.decisions, table=routes_of(self.flow.flow, self.target)
        )
        self._parts = assemble_parts(self)
        self.orders, self.target_logs = self._parts.orders, self._parts.target_logs

    def row(self, partition: TopicPartition) -> PartitionRow | None:
        """What is known of a partition; None if the flow does not copy it."""
        return self.table.rows.get(partition)

    # ------------------------------------------------------------------------------------------ ownership

    async def take_over(self, *, displaced: bool) -> None:
        """Become the flow's owner, then read the positions from the log. Raises as `Ownership.take_over`."""
        await self.ownership.make_topics()
        if self.positions.has_lost:
            # Another owner may have written it again.
            await self.positions.peek()
        # A target that was built again gets everything, as by a process that starts now.
        was_lost = self.positions.has_lost and await self._are_copies_gone()
        self.ownership.is_outdated |= was_lost
        await self.positions.forget_if_stale(was_lost=was_lost)
        await self.ownership.take_over(displaced=displaced, reported=self._reported_positions())
        if self.ownership.is_outdated:
            self.target_logs.forget()
            self.ownership.is_outdated = False
        self._parts.wanted.forget()
        self._parts.modes.forget()
        self._parts.modes.without_writer.clear()
        if self.ownership.former_left_at_rest:
            self._parts.modes.without_writer.update(self.control.copies)
        await self.ledger.tidy(everything=True)
        await self.reread(list(self.table.rows))

    def _reported_positions(self) -> dict[TopicPartition, int]:
        return {
            partition: row.position
            for partition, row in self.table.rows.items()
            if row.position is not None and (row.stored or row.position != row.initial)
        }

    async def _are_copies_gone(self) -> bool:
        """Whether none of the copies that the positions belong to is there any more. A process that has
        planned nothing knows none, and says nothing of them."""
        marks = self.control.topics
        ids = {
            topic.target_topic: marks[name].target_topic_id
            for name, topic in self.topics.items()
            if name in marks
        }
        found = await self.target.describe_topics(ids)
        return bool(ids) and all(
            each.reason == KafkaReason.TOPIC_UNKNOWN
            if isinstance(each, KafkaError)
            else bool(ids[name]) and each.topic_id not in ("", ids[name])
            for name, each in found.items()
        )

    async def confirm(self) -> None:
        """Check the ownership between the initialising of a task's ids and its start. Raises KafkaError, and
        FatalKafkaError (PRODUCER_FENCED) when another process has claimed the flow."""
        await self.ownership.check()

    async def end_hanging(self, epoch: int) -> None:
        """End hanging transactions of the transactional ids that the epoch's tasks will use. Call it before
        those tasks start; the ids must not be in use. Raises KafkaError."""
        copies = {
            TopicPartition(row.target_topic, partition.partition): partition
            for partition, row in self.table.rows.items()
            if row.target_topic
        }
        for route in self.decisions.routes(self.flow.flow).values():
            numbers = range(route.target_partition_count)
            copies |= {
                TopicPartition(route.target_topic, number): TopicPartition(route.routed_from, number)
                for number in numbers
            }
        await self.ownership.end_hanging(epoch, copies)

    async def renew(self) -> bool:
        """Sign again if it is due; return whether it was. Raises KafkaError, and FatalKafkaError
        (PRODUCER_FENCED) when another process has claimed the flow meanwhile."""
        is_due = self.ownership.is_due
        if is_due:
            await self.ownership.check()
            if self.positions.has_lost:
                return True  # Who signs has written all that it knows.
            # First, so that a failure below cannot keep the owner from signing.
            await self.ownership.sign()
            async with deadline(AFTER_SIGNING_SECONDS, "look at the copies and the topic of offset syncs"):
                await self._look_after_signing()
        return is_due

    async def _look_after_signing(self) -> None:
        looks = self.clock.monotonic() >= self._look_at_targets_at
        if looks:
            self._look_at_targets_at = self.clock.monotonic() + LOOK_AT_TARGETS_SECONDS
            await self.target_logs.look_at_starts(self.topics)
            if await self.target_logs.look_at_ends(self.topics, copying=True):
                self._look_at_targets_at = self.clock.monotonic() + LOOK_AGAIN_SECONDS
        await self.target_logs.put_ends_on_log(self.topics)
        await self.ledger.tidy()
        if looks:
            await self.ownership.internal.ensure_syncs()

    async def leave(self) -> None:
        """Store what only this process knows, before another one may copy. For the owner. Raises
        KafkaError."""
        await self.ownership.check()
        if self.positions.has_lost and not await self._are_copies_gone():
            await self.ownership.write_again(self._reported_positions())
        await self.target_logs.look_at_ends(self.topics, copying=False)
        await self.target_logs.put_ends_on_log(self.topics)
        await self.ownership.leave(at_rest=self._leaves_at_rest())

    def _leaves_at_rest(self) -> bool:
        """Whether no write to preserved copies is in flight. This includes copies that no task had, because
        foreign records in them could not be compared."""
        if self.ownership.is_still_at_rest:
            return True
        at_rest = self.table.preserved_at_rest
        kept = map(self.control.copies.get, self._parts.modes.without_writer)
        return any(each is not None and each.preserved for each in kept) if at_rest is None else at_rest

    async def reclaim(self, epoch: int, lost: Sequence[Slot]) -> None:
        """Fence slots that sent no last message, and read their positions from the log. Raises KafkaError,
        and FatalKafkaError (PRODUCER_FENCED) when another process has claimed the flow, because its tasks
        have the same ids."""
        await self.ownership.look_at_claim()
        await self.ownership.fence_slots(epoch, [slot.index for slot in lost])
        await self.reread([partition for slot in lost for partition in slot.partitions])

    async def reread(self, partitions: Collection[TopicPartition]) -> None:
        """Read positions from the log; their former tasks are already fenced. Raises KafkaError."""
        positions = await self.positions.refresh()
        wrote_nothing: Collection[TopicPartition] = self.positions.nothing_written
        if self.positions.has_lost:
            # Its task told more than a log does that was created again.
            told = {each: at for each, at in self._reported_positions().items() if each in partitions}
            positions = {**positions, **{each: max(at, positions.get(each, 0)) for each, at in told.items()}}
            wrote_nothing = ()
        reread = LogReread(
            partitions=partitions,
            positions=positions,
            leader_epochs=self.control.leader_epochs,
            wrote_nothing=wrote_nothing,
        )
        self.note(reread)
        self._parts.changes.take_from_log(partitions)

    def settled(self, partitions: Collection[TopicPartition]) -> None:
        """Their last task ended in order, so its report is on the log."""
        self.note(EpochEnded(partitions=partitions))
        self._parts.changes.take_ended()

    # ------------------------------------------------------------------------------------------ topics

    async def refresh(self, *, owned: Collection[TopicPartition]) -> bool:
        """Update topics and positions. Return whether partitions of `owned` have to be given back first;
        topics that are only no longer selected leave with the next epoch, without a pause for the others.

        Raises KafkaError when required positions cannot be read.
        """
        self.topics = await self._parts.wanted.now()
        partitions = copyable_partitions(self.topics)
        targets = {partition: self.topics[partition.topic].target_topic for partition in partitions}
        self.note(TopicsChosen(targets=targets, owned=owned))
        recreated = self._parts.source_logs.was_recreated(self.topics)
        if owned and (recreated or self.target_logs.was_recreated(self.topics)):
            return True
        if recreated:
            await self._restart_recreated()
        await self.marks.record_new(self.topics)
        await self._parts.finder.find(self.topics)
        self._parts.changes.take_ended()
        self._parts.modes.look_again(self.target_logs.recreated(self.topics))
        await self._decide()
        await self.target_logs.note_recreated(self.topics)
        await self.target_logs.look_at_starts(self.topics)
        if await self.target_logs.look_at_ends(self.topics, copying=bool(owned)):
            self._look_at_targets_at = self.clock.monotonic() + LOOK_AGAIN_SECONDS
        await self.target_logs.note_shortened(self.topics)
        return False

    async def _decide(self) -> None:
        await self.origins.note(
            self.table.rows.values(),
            self.topics,
            journal=self.journal,
            confirm=self.confirm,
        )
        await self._parts.modes.decide(self.topics)

    async def _restart_recreated(self) -> None:
        """Begin recreated source topics at 0, while nothing copies."""
        # This writes positions, and nothing fences the driver's own writer, so check the claim first: the
        # process may have slept.
        await self.confirm()
        await self._parts.changes.translate_recreated(self.topics)
        await self._parts.source_logs.restart_recreated(self.topics)

    async def backlog_records(self, partitions: Collection[TopicPartition]) -> int:
        """Count the offsets between the positions and the ends of the source's logs; 0 if that takes too
        long: planning does not wait for it."""
        try:
            async with asyncio.timeout(BACKLOG_LOOK_SECONDS):
                ends = await self.source.list_offsets(OffsetSpec.LATEST, partitions)
        except (KafkaError, TimeoutError):
            return 0
        return sum(
            max(0, end - (self.table.rows[partition].position or 0))
            for partition, end in ends.items()
            if not isinstance(end, KafkaError)
        )

    async def plan_is_stale(self, planned: frozenset[TopicPartition]) -> bool:
        """Whether the next epoch should begin now, because the partitions to copy are not those of the plan.
        Raises KafkaError."""
        now, is_changed = self.clock.monotonic(), self.topics_changed.is_set()
        is_whole = len(planned) == len(self.table.rows)
        if not self._recheck.is_due(now, news=self.table.news, is_whole=is_whole, is_changed=is_changed):
            return False
        self.topics_changed.clear()
        topics = await self._parts.wanted.now()
        if copyable_partitions(topics) != self.table.rows.keys():
            return True
        if self._parts.source_logs.was_recreated(topics) or self.target_logs.was_recreated(topics):
            return True
        if limits_differ(self.topics, topics):
            return True
        await self._parts.finder.find(self.topics)
        if self._parts.changes.take_ended():
            return True
        await self._decide()
        self._parts.changes.take_skips()
        await self.target_logs.note_shortened(self.topics)
        return self.table.plannable() != planned

    @property
    def moves(self) -> DriverMoves:
        """The operators' moves of positions."""
        return self._parts.moves

    async def carry_out_moves(self) -> None:
        """Call it while no task copies. Raises as `DriverMoves.carry_out`."""
        await self._parts.moves.carry_out(self.topics)

    async def command(
        self, kind: str, topic: str | None, partition: int | None, fact: PauseFact | ThrottleFact | None
    ) -> None:
        """Store an operator's pause or limit, or remove it (None); then it is in force. When this raises
        KafkaError, it is in force once the log shows it."""
        await self.journal.command((kind, topic, partition), fact)
        self.control.apply(ControlRecord(kind=kind, topic=topic, partition=partition, fact=fact))

    def assignment(self, partition: TopicPartition) -> TaskAssignment:
        """The assignment of a partition whose position is known."""
        return self.orders.assignment(partition, self.topics[partition.topic], now=self.clock.monotonic())
