"""The runs of a flow's epochs. A run is started ahead, so that its tasks are ready when the previous epoch
ends."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from twinlog.clock import Clock
from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_for_any, wait_or_stop
from twinlog_source.driver.epoch import Epoch, SlotState
from twinlog_source.driver.epoch_rules import FLOWS_OF_THEIR_OWN, Need, is_small
from twinlog_source.driver.instruments import FlowInstruments
from twinlog_source.driver.state import FlowState
from twinlog_source.driver.worker_pool import WorkerPool
from twinlog_source.log.facts import MOST_SLOTS
from twinlog_source.partitions.planner import LimitDebt, Load, Plan, plan, slots_needed
from twinlog_source.reasons import EndReason

PREPARE_TIMEOUT_SECONDS = 60.0
"""In which one more task has to come or get ready, once Spark is up: on a crowded machine those that are
ready are not given up for the last one."""
MEANWHILE_SECONDS = 5.0
"""How often `meanwhile` runs while tasks get ready."""
FIRST_NUMBER = 1
"""The number of a flow's first epoch in this process."""
JOB_END_SECONDS = 5.0
LINGER_SECONDS = 60.0
"""Tasks whose epoch has been over for this long are cut off: they do not react."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class EpochJobs:
    """Every epoch that has a job. Use it within the lifetime of `group`, on the driver's event loop only."""

    flow: Flow
    runner: WorkerPool
    instruments: FlowInstruments
    clock: Clock
    linger_seconds: float = LINGER_SECONDS
    _epochs: dict[int, Epoch] = field(default_factory=dict)
    _number: int = FIRST_NUMBER - 1
    _running: set["asyncio.Task[None]"] = field(default_factory=set)

    def epoch_of(self, number: int) -> Epoch | None:
        """The epoch with this number; None once its job has ended."""
        return self._epochs.get(number)

    def next_number(self, *, beside: Epoch | None) -> int:
        """The number of an epoch that is prepared while `beside` copies."""
        return number_after(self._number, beside=None if beside is None else beside.number)

    async def prepare(
        self,
        chosen: Plan,
        *,
        number: int,
        group: asyncio.TaskGroup,
        meanwhile: Callable[[], Awaitable[None]],
        shares_worker: bool = False,
    ) -> Epoch:
        """Start the tasks of an epoch and wait until they are ready; await `meanwhile` every few seconds.
        Raises the reason why they did not get ready, and what `meanwhile` raises."""
        self._number = number
        epoch = Epoch(flow=self.flow, number=number, plan=chosen, shares_worker=shares_worker)
        self._epochs[epoch.number] = epoch
        job = group.create_task(self._run(epoch), name=f"{self.flow} epoch {epoch.number}")
        self._running.add(job)
        job.add_done_callback(self._running.discard)
        try:
            ready = await self._until_ready(epoch, meanwhile)
            failure = epoch.failure
            if failure is not None:
                raise failure
            if not ready:
                raise TransientKafkaError(
                    f"{_missing(epoch)} of {len(epoch.slots)} tasks of epoch {epoch.number} of {self.flow}"
                    f" are not ready, and none became so within {PREPARE_TIMEOUT_SECONDS:g} s",
                    reason="EPOCH_NOT_READY",
                )
        except BaseException:
            epoch.end(EndReason.NOT_NEEDED)
            raise
        return epoch

    async def _until_ready(self, epoch: Epoch, meanwhile: Callable[[], Awaitable[None]]) -> bool:
        """Whether the epoch was ready in time, or why it failed."""
        loop = asyncio.get_running_loop()
        give_up_at, missing = loop.time() + PREPARE_TIMEOUT_SECONDS, 2 * len(epoch.slots)
        while (left_seconds := give_up_at - loop.time()) > 0:
            if await epoch.wait_until(
                lambda: epoch.are(SlotState.PREPARED) or epoch.failure is not None,
                min(left_seconds, MEANWHILE_SECONDS),
            ):
                return True
            await meanwhile()
            # That a task came counts, too: on a crowded machine each step takes its time.
            steps = _missing(epoch) + sum(slot.joined == 0 for slot in epoch.slots)
            if steps < missing or not self.runner.workers.is_up:
                give_up_at, missing = loop.time() + PREPARE_TIMEOUT_SECONDS, steps
        return False

    async def shut_down(self) -> None:
        """End the running jobs: in order, or by force after a while."""
        for epoch in self._epochs.values():
            epoch.end(EndReason.SHUTDOWN)
        if self._running:
            await asyncio.wait(self._running, timeout=JOB_END_SECONDS)
        for job in self._running:
            job.cancel()

    async def _run(self, epoch: Epoch) -> None:
        began = self.clock.monotonic()
        failure: TwinlogError | None = None
        try:
            failure = await self._outcome(epoch)
        finally:
            self._epochs.pop(epoch.number, None)
            epoch.job_ended(failure)
            self.instruments.epoch_ended(self.clock.monotonic() - began)

    async def _outcome(self, epoch: Epoch) -> TwinlogError | None:
        """Run the job; return why it failed, or None."""
        failure: TwinlogError | None = None
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._end_lingering(epoch, ended), name=f"{self.flow} end of its epoch")
            try:
                await self.runner.run(epoch)
            except TwinlogError as error:
                failure = error
                log.warning(
                    "epoch_failed",
                    flow=str(self.flow),
                    epoch=epoch.number,
                    reason=error.reason,
                    error=str(error),
                )
            finally:
                ended.set()
        return failure

    async def _end_lingering(self, epoch: Epoch, ended: asyncio.Event) -> None:
        """Until the run has `ended`: tasks that outlive their epoch are cut off."""
        await wait_for_any(epoch.over, ended)
        while not await wait_or_stop(ended, self.linger_seconds):
            log.warning("epoch_aborted", flow=str(self.flow), epoch=epoch.number, why=epoch.ending)
            for slot in epoch.slots:
                if slot.state is not SlotState.FINISHED:
                    # Its stream ends and the epoch is over, so a task that reconnects is refused.
                    epoch.cut_off(slot)


def _missing(epoch: Epoch) -> int:
    return sum(slot.state is not SlotState.PREPARED for slot in epoch.slots)


def number_after(last: int, *, beside: int | None) -> int:
    """The number of the epoch after `last`. Even and odd epochs have different transactional ids: if `last`
    never began, the next one must not take the ids of the epoch that still copies."""
    return last + 2 if beside is not None and (last + 1 - beside) % 2 == 0 else last + 1


# How many slots an epoch gets, which worker runs it, and whether its plan still fits the load.


@dataclass(slots=True, kw_only=True)
class EpochPlans:
    state: FlowState
    runner: WorkerPool
    max_slots: int | None
    """The limit of the configuration; None = all that Spark has."""
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
        self._first_backlog, self._chosen_at = first_backlog, self.state.clock.monotonic()
        need = self._need(partitions, present=len(previous), first_backlog=first_backlog)
        slots = await self.runner.claim(self.state.flow.flow, need)
        return plan(self.state.table.rates(partitions), max_slots=slots, previous=previous)

    def shares_worker(self, chosen: Plan) -> bool:
        """Whether the flow has so little to copy that it needs no worker of its own."""
        return self._need(chosen[0], present=len(chosen), first_backlog=self._first_backlog).is_small

    def leave(self) -> None:
        """The flow is not copied here any more, or has nothing to copy."""
        self.runner.share(self.state.flow.flow, None)

    def misfits(self, epoch: Epoch) -> bool:
        """Whether the flow needs a worker of its own, or should have more slots, or fewer because the cores
        do not suffice. A flow that needs fewer slots keeps them until the epoch ends."""
        present = len(epoch.slots)
        need = self._need(epoch.partitions, present=present)
        if self.state.clock.monotonic() < self._chosen_at + self.kept_seconds:
            need = replace(need, slots=max(need.slots, present))
        share = min(self.runner.share(self.state.flow.flow, need), len(epoch.partitions))
        if epoch.shares_worker and not need.is_small:
            return True
        return share > present or (share < present and self.runner.is_crowded())

    def holds(self, epoch: Epoch) -> bool:
        """Whether the epoch copies the right partitions, and no other distribution over its slots would be
        much better."""
        partitions = self.state.table.plannable()
        if partitions != epoch.partitions:
            return False
        slots = self.runner.share(self.state.flow.flow, self._need(partitions, present=len(epoch.slots)))
        return plan(self.state.table.rates(partitions), max_slots=slots, previous=epoch.plan) == epoch.plan

    def _need(self, partitions: Collection[TopicPartition], *, present: int, first_backlog: int = 0) -> Need:
        load = self._load(partitions, first_backlog)
        most = min(self.max_slots or MOST_SLOTS, MOST_SLOTS, max(1, len(partitions)))
        slots = slots_needed(load, present=present, most=most)
        return Need(
            slots,
            is_small=slots == 1 and self.state.flows > FLOWS_OF_THEIR_OWN and is_small(load),
            has_pipes=any(
                self.state.transform_check.concerns(topic) for topic in {each.topic for each in partitions}
            ),
            follows_cores=self.max_slots is None,
        )

    def _load(self, partitions: Collection[TopicPartition], first_backlog: int = 0) -> Load:
        load = self.state.table.load(partitions, now=self.state.clock.monotonic())
        return replace(load, first_backlog_records=first_backlog)


# Ends an epoch: its tasks finish and hand over their positions, or they are fenced.

FINISH_TIMEOUT_SECONDS: Final = 20.0


async def end_epoch(epoch: Epoch, state: FlowState, reason: str) -> tuple[LimitDebt, ...]:
    """Wait until each task has handed over its positions; those of tasks that do not are read from the log
    once their ids are fenced. Return what the tasks owe to the flow's limits. Blocks for at most 20 seconds,
    and for as long as fencing takes. Raises TwinlogError if that fails: the flow has to be taken over again.
    """
    epoch.end(reason)
    await epoch.wait_until(
        lambda: epoch.are(SlotState.FINISHED, SlotState.LOST, SlotState.WAITING), FINISH_TIMEOUT_SECONDS
    )
    lost = [slot for slot in epoch.slots if not slot.ended_well]
    if lost:
        flow, slots = str(state.flow.flow), [slot.index for slot in lost]
        log.info("slots_fenced", flow=flow, epoch=epoch.number, slots=slots)
        await state.reclaim(epoch.number, lost)
    for slot in epoch.slots:
        if slot.ended_well:
            state.settled(slot.partitions)
    epoch.closed = True
    return tuple(slot.final.debt for slot in epoch.slots if slot.final is not None)
