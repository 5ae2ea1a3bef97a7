"""Measures the lag and the progress of a flow, whether or not this process copies it.

Runs next to the driver's loop and depends on no task, no Spark and no target.
"""

import asyncio
from dataclasses import dataclass

import structlog

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.service.waiting import finish_or_cancel, wait_or_stop
from twinlog_source.driver.positions_follower import PositionsFollower
from twinlog_source.log.control import ControlState
from twinlog_source.partitions.events import MovementChecked
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
    clock: Clock
    flows: int = 1
    """The number of flows in the process."""

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

    def note_progress(self) -> None:
        """Record which partitions have made progress."""
        paused = frozenset(filter(self.control.is_paused, self.table.rows)) if self.control.pauses else ()
        self.table.apply(MovementChecked(paused=paused), self.clock.monotonic())

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
