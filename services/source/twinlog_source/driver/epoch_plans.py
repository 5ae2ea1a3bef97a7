"""How many slots an epoch gets, which worker runs it, and whether its plan still fits the load."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace

from twinlog.clock import Clock
from twinlog.model import TopicPartition
from twinlog_source.driver.epoch import Epoch
from twinlog_source.driver.shared_workers import is_small
from twinlog_source.log.facts import MOST_SLOTS
from twinlog_source.partitions.planner import Load, Plan, plan, slots_needed
from twinlog_source.partitions.table import PartitionTable


@dataclass(slots=True, kw_only=True)
class EpochPlans:
    table: PartitionTable
    clock: Clock
    count_slots: Callable[[], Awaitable[int]]
    """Return how many slots Spark has."""
    max_slots: int | None
    """The limit of the configuration; None = all that Spark has."""
    shared_worker: int | None
    """The worker that the flow shares while its load is small; None = it shares none."""
    _most_slots: int = 1
    _first_backlog: int = 0
    """Records to copy when the flow was planned for its first epoch."""

    async def look_at_slots(self) -> None:
        """Update the number of available slots. Raises TwinlogError."""
        self._most_slots = min(self.max_slots or await self.count_slots(), MOST_SLOTS)

    def choose(self, partitions: Collection[TopicPartition], *, previous: Plan, first_backlog: int) -> Plan:
        """Return the plan of the next epoch. `first_backlog` is the number of records to copy if there was no
        epoch before."""
        self._first_backlog = first_backlog
        return plan(
            self.table.rates(partitions),
            max_slots=self._slots_needed(partitions, present=len(previous), first_backlog=first_backlog),
            previous=previous,
        )

    def worker_for(self, chosen: Plan) -> int | None:
        """The shared worker of a flow with little to copy."""
        if len(chosen) > 1 or not is_small(self._load(chosen[0], self._first_backlog)):
            return None
        return self.shared_worker

    def outgrew(self, epoch: Epoch) -> bool:
        """Whether the flow needs a worker of its own, or more slots. A flow that needs fewer slots keeps them
        until the epoch ends."""
        load = self._load(epoch.partitions)
        if epoch.shared_worker is not None and not is_small(load):
            return True
        present, most = len(epoch.slots), min(self._most_slots, len(epoch.partitions))
        return present < most and slots_needed(load, present=present, most=self._most_slots) > present

    def holds(self, epoch: Epoch) -> bool:
        """Whether the epoch copies the right partitions, and no other distribution over its slots would be
        much better."""
        partitions = self.table.plannable()
        if partitions != epoch.partitions:
            return False
        slots = self._slots_needed(partitions, present=len(epoch.slots))
        return plan(self.table.rates(partitions), max_slots=slots, previous=epoch.plan) == epoch.plan

    def _slots_needed(
        self, partitions: Collection[TopicPartition], *, present: int, first_backlog: int = 0
    ) -> int:
        return slots_needed(self._load(partitions, first_backlog), present=present, most=self._most_slots)

    def _load(self, partitions: Collection[TopicPartition], first_backlog: int = 0) -> Load:
        load = self.table.load(partitions, now=self.clock.monotonic())
        return replace(load, first_backlog_records=first_backlog)
