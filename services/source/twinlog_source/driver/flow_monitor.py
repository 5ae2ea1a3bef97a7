"""Measures the lag and the progress of a flow, whether or not this process copies it, and logs what stands.

Runs next to the driver's loop and depends on no task, no Spark and no target.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from twinlog.backoff import Pace
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.replicated_topics import copyable_partitions
from twinlog.service.waiting import finish_or_cancel, wait_or_stop
from twinlog.telemetry.logging import RepeatLimiter
from twinlog_source.partitions.events import Followed, MovementChecked, TopicsChosen
from twinlog_source.partitions.orders import PartitionState
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.standing import STANDS, FlowFacts, PartitionStanding, standing_of
from twinlog_source.topics.flow_book import FlowBook
from twinlog_source.topics.open_transactions import LOOKS, OpenTransactions
from twinlog_source.topics.source_ends import SourceEnds

# The positions of a flow that another process copies, read from the target's log, so that a standby knows
# the lag as well as the owner. Writes nothing, and changes nothing of a flow that this process owns.

FOLLOW_SECONDS = 4.0
PATIENCE_SECONDS = 4.0
"""A process that takes the flow over within this time reads the positions itself."""


@dataclass(slots=True, kw_only=True)
class PositionsFollower:
    book: FlowBook
    decisions: Decisions
    is_owned: Callable[[], bool]
    """Whether this process owns the flow."""
    _due_at: float | None = field(default=None)

    @property
    def is_due(self) -> bool:
        now = self.book.clock.monotonic()
        if self.is_owned():
            self._due_at = None
        elif self._due_at is None:
            self._due_at = now + PATIENCE_SECONDS
        return self._due_at is not None and now >= self._due_at

    async def follow(self) -> None:
        """Update topics and positions to what the owner has committed. Raises KafkaError, and WireFormatError
        as `PositionsLog.refresh`."""
        self._due_at = self.book.clock.monotonic() + FOLLOW_SECONDS
        topic = self.book.positions.topic
        if not self.book.positions.partition_count:
            found = (await self.book.target.describe_topics([topic]))[topic]
            if isinstance(found, Exception):
                raise found
            self.book.positions.note_topic(found)
        read_at = self.book.clock.monotonic()
        await self.book.positions.peek()
        if self.is_owned():
            return  # This process now owns the flow and knows newer positions.
        stored, topics = self.book.positions.known(), self.decisions.topics(self.book.flow.flow)
        targets = {
            partition: topics[partition.topic].target_topic for partition in copyable_partitions(topics)
        }
        self.book.note(TopicsChosen(targets=targets))
        self.book.note(Followed(positions=stored, read_at=read_at))


TICKS = Pace(shortest_seconds=1.0, longest_seconds=3.0, per_second=40)
"""How often it is seen whether a flow moves."""
FOLLOW_TIMEOUT_SECONDS = 10.0
STEADY_SECONDS = 20.0
"""A reason that lasts for less is of a moment: a start goes through several."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class FlowMonitor:
    book: FlowBook
    ends: SourceEnds
    follower: PositionsFollower
    transactions: OpenTransactions | None = None
    """None: the flow copies what no transaction has committed as well."""
    facts: Callable[[], FlowFacts]
    flows: int = 1
    """The number of flows in the process."""
    _limiter: RepeatLimiter = field(default_factory=RepeatLimiter)
    _stands: dict[TopicPartition, tuple[str, int | None, float]] = field(default_factory=dict)
    """Reason and position of what stands, and since when it does for this reason."""
    _stood: dict[TopicPartition, tuple[str, int | None, float]] = field(default_factory=dict)
    """The same at the look before."""
    _told: dict[TopicPartition, tuple[str, int | None]] = field(default_factory=dict)
    """Reason and position of what stood when it was logged."""

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`. Reads ends and positions concurrently, so that neither cluster delays the
        other."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_ends(stop), name="source ends")
            if self.transactions is not None:
                looking = self._look_for_transactions(self.transactions, stop)
                group.create_task(looking, name="open transactions of the source")
            group.create_task(self._follow(stop), name="positions of the owner")
            while not await wait_or_stop(stop, TICKS.seconds(self.flows)):
                self.note_progress()
                self.tell_standing()

    def note_progress(self) -> None:
        """Record which partitions have made progress."""
        paused = (
            frozenset(filter(self.book.control.is_paused, self.book.table.rows))
            if self.book.control.pauses
            else ()
        )
        self.book.note(MovementChecked(paused=paused))

    def tell_standing(self) -> None:
        """Log which partitions this process copies and are STALLED or FAULTED, and were for the same reason
        for a while: once for each place and reason, with the same reason together, and each reason once a
        minute at most."""
        facts = self.facts()
        found: dict[str, list[tuple[PartitionRow, PartitionStanding]]] = {}
        self._stood, self._stands = self._stands, {}
        for row in self.book.table.rows.values() if facts.is_owned else ():
            is_slow = row.stall.since(facts.stalled_seconds, now=facts.now) is not None
            if is_slow or row.task_state == PartitionState.FAULTED:
                standing = standing_of(row, facts)
                if standing.state in STANDS and self._is_news(row, standing.reason, facts.now):
                    found.setdefault(standing.reason, []).append((row, standing))
        for reason, stand in found.items():
            if self._limiter.admit(reason, now=facts.now) is None:
                continue
            self._told |= {row.partition: (reason, row.position) for row, _ in stand}
            row, standing = stand[0]
            log.warning(
                "partitions_stand",
                flow=str(self.book.flow.flow),
                state=standing.state,
                reason=reason,
                partitions=len(stand),
                first=str(row.partition),
                message=standing.message,
            )

    def _is_news(self, row: PartitionRow, reason: str, now: float) -> bool:
        stood = self._stood.get(row.partition)
        if stood is None or stood[:2] != (reason, row.position):
            stood = reason, row.position, now
        self._stands[row.partition] = stood
        is_told = self._told.get(row.partition) == (reason, row.position)
        return now - stood[2] >= STEADY_SECONDS and not is_told

    async def _read_ends(self, stop: asyncio.Event) -> None:
        while not await wait_or_stop(stop, max(TICKS.shortest_seconds, self.ends.due_in_seconds)):
            if self.ends.is_due:
                await finish_or_cancel(self.ends.look(), stop=stop, grace_seconds=0)

    async def _look_for_transactions(self, transactions: OpenTransactions, stop: asyncio.Event) -> None:
        while not await wait_or_stop(stop, LOOKS.seconds(self.flows)):
            await finish_or_cancel(transactions.look(), stop=stop, grace_seconds=0)

    async def _follow(self, stop: asyncio.Event) -> None:
        while not await wait_or_stop(stop, TICKS.seconds(self.flows)):
            if self.follower.is_due:
                await finish_or_cancel(self._follow_once(), stop=stop, grace_seconds=0)

    async def _follow_once(self) -> None:
        try:
            async with asyncio.timeout(FOLLOW_TIMEOUT_SECONDS):
                await self.follower.follow()
        except (TwinlogError, TimeoutError) as error:
            # Positions that cannot be read are unknown, and the lag shows it. A record of a later release is
            # shown as the flow's problem by the process that tries to take the flow over.
            log.debug("positions_not_followed", flow=str(self.book.flow.flow), error=str(error))
