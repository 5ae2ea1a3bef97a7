"""Measures the lag and the progress of a flow, whether or not this process copies it, and logs what stands.

Runs next to the driver's loop and depends on no task, no Spark and no target.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition
from twinlog.service.waiting import finish_or_cancel, wait_or_stop
from twinlog.telemetry.logging import RepeatLimiter
from twinlog_source.driver.positions_follower import PositionsFollower
from twinlog_source.log.control import ControlState
from twinlog_source.partitions.events import MovementChecked
from twinlog_source.partitions.reports import PartitionState
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.standing import STANDS, FlowFacts, PartitionStanding, standing_of
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.topics.open_transactions import LOOK_SECONDS as TRANSACTIONS_LOOK_SECONDS
from twinlog_source.topics.open_transactions import OpenTransactions
from twinlog_source.topics.source_ends import SourceEnds

TICK_SECONDS = 1.0
LONGEST_TICK_SECONDS = 3.0
TICKS_PER_SECOND = 40
"""How often all flows of a process together are checked; each flow is checked every few seconds."""
FOLLOW_TIMEOUT_SECONDS = 10.0

log = structlog.get_logger(__name__)


def tick_seconds(flows: int) -> float:
    """How often it is seen whether a flow moves, in a process of so many flows.

    >>> [tick_seconds(flows) for flows in (1, 40, 100, 1000)]
    [1.0, 1.0, 2.5, 3.0]
    """
    return min(LONGEST_TICK_SECONDS, max(TICK_SECONDS, flows / TICKS_PER_SECOND))


@dataclass(slots=True, kw_only=True)
class FlowMonitor:
    table: PartitionTable
    control: ControlState
    ends: SourceEnds
    follower: PositionsFollower
    transactions: OpenTransactions | None = None
    """None: the flow copies what no transaction has committed as well."""
    facts: Callable[[], FlowFacts]
    clock: Clock
    flows: int = 1
    """The number of flows in the process."""
    _limiter: RepeatLimiter = field(default_factory=RepeatLimiter)
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
            while not await wait_or_stop(stop, tick_seconds(self.flows)):
                self.note_progress()
                self.tell_standing()

    def note_progress(self) -> None:
        """Record which partitions have made progress."""
        paused = frozenset(filter(self.control.is_paused, self.table.rows)) if self.control.pauses else ()
        self.table.apply(MovementChecked(paused=paused), self.clock.monotonic())

    def tell_standing(self) -> None:
        """Log which partitions this process copies and are STALLED or FAULTED: once for each place and
        reason, with the same reason together, and each reason once a minute at most."""
        facts = self.facts()
        found: dict[str, list[tuple[PartitionRow, PartitionStanding]]] = {}
        for row in self.table.rows.values() if facts.is_owned else ():
            is_slow = row.stall.since(facts.stalled_seconds, now=facts.now) is not None
            # A copy that becomes translated is FAULTED for a moment.
            if is_slow or (row.task_state == PartitionState.FAULTED and not row.needs_translation):
                standing = standing_of(row, facts)
                is_told = self._told.get(row.partition) == (standing.reason, row.position)
                if standing.state in STANDS and not is_told:
                    found.setdefault(standing.reason, []).append((row, standing))
        for reason, stand in found.items():
            if self._limiter.admit(reason, now=facts.now) is None:
                continue
            self._told |= {row.partition: (reason, row.position) for row, _ in stand}
            row, standing = stand[0]
            log.warning(
                "partitions_stand",
                flow=str(self.follower.flow.flow),
                state=standing.state,
                reason=reason,
                partitions=len(stand),
                first=str(row.partition),
                message=standing.message,
            )

    async def _read_ends(self, stop: asyncio.Event) -> None:
        while not await wait_or_stop(stop, max(TICK_SECONDS, self.ends.due_in_seconds)):
            if self.ends.is_due:
                await finish_or_cancel(self.ends.look(), stop=stop, grace_seconds=0)

    async def _look_for_transactions(self, transactions: OpenTransactions, stop: asyncio.Event) -> None:
        while not await wait_or_stop(stop, TRANSACTIONS_LOOK_SECONDS):
            await finish_or_cancel(transactions.look(), stop=stop, grace_seconds=0)

    async def _follow(self, stop: asyncio.Event) -> None:
        while not await wait_or_stop(stop, tick_seconds(self.flows)):
            if self.follower.is_due:
                await finish_or_cancel(self._follow_once(), stop=stop, grace_seconds=0)

    async def _follow_once(self) -> None:
        try:
            async with asyncio.timeout(FOLLOW_TIMEOUT_SECONDS):
                await self.follower.follow()
        except (TwinlogError, TimeoutError) as error:
            # Positions that cannot be read are unknown, and the lag shows it. A record of a later release is
            # shown as the flow's problem by the process that tries to take the flow over.
            log.debug("positions_not_followed", flow=str(self.follower.flow.flow), error=str(error))
