"""How many slots an epoch gets, which worker runs it, and whether its plan still fits the load."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from twinlog.clock import Clock
from twinlog.model import Flow, TopicPartition
from twinlog_source.driver.cores import FLOWS_OF_THEIR_OWN, Need, is_small
from twinlog_source.driver.epoch import Epoch
from twinlog_source.driver.epoch_jobs import EpochRunner
from twinlog_source.log.facts import MOST_SLOTS
from twinlog_source.partitions.planner import Load, Plan, plan, slots_needed
from twinlog_source.partitions.table import PartitionTable


@dataclass(slots=True, kw_only=True)
class EpochPlans:
    flow: Flow
    table: PartitionTable
    clock: Clock
    runner: Callable[[], EpochRunner]
    max_slots: int | None
    """The limit of the configuration; None = all that Spark has."""
    flows: int
    """Flows of this process."""
    kept_seconds: float
    """How long an epoch keeps slots that it needs no longer, while others do not need them."""
    _chosen_at: float = -math.inf
    _first_backlog: int = 0
    """Records to copy when the flow was planned for its first epoch."""

    async def choose(
        self, partitions: Collection[TopicPartition], *, previous: Plan, first_backlog: int
    ) -> Plan:
        """Return the plan of the next epoch. `first_backlog` is the number of records to copy if there was no
        epoch before. Raises TwinlogError."""
        self._first_backlog, self._chosen_at = first_backlog, self.clock.monotonic()
        need = self._need(partitions, present=len(previous), first_backlog=first_backlog)
        slots = await self.runner().claim(self.flow, need)
        return plan(self.table.rates(partitions), max_slots=slots, previous=previous)

    def shares_worker(self, chosen: Plan) -> bool:
        """Whether the flow has so little to copy that it needs no worker of its own."""
        return self._need(chosen[0], present=len(chosen), first_backlog=self._first_backlog).is_small

    def leave(self) -> None:
        """The flow is not copied here any more, or has nothing to copy."""
        self.runner().share(self.flow, None)

    def misfits(self, epoch: Epoch) -> bool:
        """Whether the flow needs a worker of its own, or should have more slots, or fewer because the cores
        do not suffice. A flow that needs fewer slots keeps them until the epoch ends."""
        present = len(epoch.slots)
        need = self._need(epoch.partitions, present=present)
        if self.clock.monotonic() < self._chosen_at + self.kept_seconds:
            need = replace(need, slots=max(need.slots, present))
        share = min(self.runner().share(self.flow, need), len(epoch.partitions))
        if epoch.shares_worker and not need.is_small:
            return True
        return share > present or (share < present and self.runner().is_crowded())

    def holds(self, epoch: Epoch) -> bool:
        """Whether the epoch copies the right partitions, and no other distribution over its slots would be
        much better."""
        partitions = self.table.plannable()
        if partitions != epoch.partitions:
            return False
        slots = self.runner().share(self.flow, self._need(partitions, present=len(epoch.slots)))
        return plan(self.table.rates(partitions), max_slots=slots, previous=epoch.plan) == epoch.plan

    def _need(self, partitions: Collection[TopicPartition], *, present: int, first_backlog: int = 0) -> Need:
        load = self._load(partitions, first_backlog)
        most = min(self.max_slots or self.runner().most, MOST_SLOTS, max(1, len(partitions)))
        slots = slots_needed(load, present=present, most=most)
        return Need(slots, slots == 1 and self.flows > FLOWS_OF_THEIR_OWN and is_small(load))

    def _load(self, partitions: Collection[TopicPartition], first_backlog: int = 0) -> Load:
        load = self.table.load(partitions, now=self.clock.monotonic())
        return replace(load, first_backlog_records=first_backlog)
