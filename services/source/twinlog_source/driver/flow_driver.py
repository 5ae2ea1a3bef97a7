"""The driver of one flow: plans epochs, hands partitions from each epoch to the next, and knows every
position.

While one epoch copies, the next one gets ready: Spark schedules its tasks, they open clients and fence their
transactional ids. Then the old tasks finish and hand over their positions, and the new ones start:

    epoch n     ───── copying ─────▶ End ─▶ Finished + positions
    epoch n+1   Hello ─▶ Prepared ························ Start + positions ─▶ ───── copying ─────▶
                                     └─── one round trip ───┘

If a task sends no Finished, its ids are fenced, and its positions are read from the target's log.

Invariant A: a partition is started only after every earlier owner of it finished or was fenced.
Invariant B: a task is started only if this process still owned the flow after its ids were initialised.
Invariant C: a start position is what the last task committed: from its own last message, or from the log
after fencing.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import structlog

from twinlog.backoff import Backoff, Jitter
from twinlog.errors import KafkaError, TwinlogError
from twinlog.kafka.deadline import deadline
from twinlog.model import Flow
from twinlog.service.owner.name import OwnerReason
from twinlog.service.waiting import finish_or_cancel, wait_for_any, wait_or_stop
from twinlog.telemetry.logging import RepeatLimiter
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog.telemetry.tracing import span
from twinlog_source.driver.epoch import Epoch, SlotState
from twinlog_source.driver.epoch_jobs import EpochJobs, EpochPlans, end_epoch
from twinlog_source.driver.epoch_rules import (
    DEMANDS,
    REPLANS,
    EpochSpan,
    spread_seconds,
)
from twinlog_source.driver.flow_facts import flow_facts
from twinlog_source.driver.instruments import FlowGauges, FlowInstruments
from twinlog_source.driver.state import FlowState
from twinlog_source.driver.stream.stream_pace import LONGEST_WITHOUT_TASK_SECONDS, frozen_seconds
from twinlog_source.driver.stream.task_host import TaskHost
from twinlog_source.log.facts import FENCED, MOST_SLOTS, PauseFact
from twinlog_source.partitions.events import FlowStopped
from twinlog_source.partitions.orders import SetPaused
from twinlog_source.partitions.planner import LimitDebt, Load, Plan, differ, workers_wanted
from twinlog_source.partitions.standing import FlowFacts, idle_words
from twinlog_source.reasons import EndReason, PartitionReason

LEAVE_SECONDS = 5.0
"""The longest time for writing to the log at the end. A target that does not answer must not delay the
exit."""
POSITIONS_UNSTABLE = "POSITIONS_UNSTABLE"
"""A transaction on the positions topic stays open."""
PROBE_POLL_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 5.0
"""A flow without progress is tried again after this time at the latest, so the reason that it shows is not
older."""

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class FlowDriver:
    """Runs one flow until `stop`. `run` is a loop for `supervise`; failures of brokers, peers and tasks do
    not end it."""

    state: FlowState
    jobs: EpochJobs
    host: TaskHost
    is_elected: Callable[[], bool]
    """Whether the flow's lease confirms that no other process copies it."""
    standing: Callable[[], TwinlogError | None]
    """Why the flow's lease forbids copying here: another process owns the flow, or the owner is not known
    yet."""
    is_probed: Callable[[Flow], bool]
    """Whether both clusters were asked for their ids, with or without an answer."""
    refusal: Callable[[Flow], TwinlogError | None]
    """Why the flow must not be copied: both ends are the same cluster, or a cluster id is unknown."""
    instruments: FlowInstruments
    random: Callable[[], float]
    max_slots: int | None
    epoch_seconds: float
    longest_epoch_seconds: float
    current: Epoch | None = None
    """The epoch that copies now."""
    plans: EpochPlans = field(init=False)
    owned: bool = False
    """Whether this process owns the flow now."""
    _was_copied: bool = False
    """An epoch has run since this process took the flow over."""
    _displaced: bool = False
    _others_go: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the first epoch has begun, or there is nothing for it: Spark SQL may be loaded, which takes
    seconds and both cores of a small machine."""
    _was_unstable: bool = False
    """A transaction on the positions topic stayed open, and no step has succeeded since."""
    _debts: tuple[LimitDebt, ...] = ()
    """Those of the tasks that ended last."""
    _pauses: dict[tuple[str | None, int | None], PauseFact] = field(default_factory=dict)
    """The operators' pauses that the tasks know."""
    _limiter: RepeatLimiter = field(default_factory=RepeatLimiter)

    def __post_init__(self) -> None:
        self.plans = EpochPlans(
            state=self.state,
            runner=self.jobs.runner,
            max_slots=self.max_slots,
            kept_seconds=self.epoch_seconds,
        )

    @property
    def flow(self) -> Flow:
        return self.state.flow.flow

    @property
    def gauges(self) -> FlowGauges:
        return self.instruments.gauges

    @property
    def has_begun(self) -> bool:
        """Whether an epoch has run since the flow was taken over, or there is nothing to copy."""
        reason, _ = self.idle_reason()
        return self.owned and (self._was_copied or reason == PartitionReason.NO_TOPICS)

    def workers_wanted(self) -> int:
        """Tasks with which the flow would keep up; 0 while another process copies it."""
        present = len(self.current.slots) if self.current is not None else 0
        partitions = min(len(self.state.table.rows), self.max_slots or MOST_SLOTS)
        return workers_wanted(self.load(), present=present, partitions=partitions) if self.owned else 0

    def slot_lags(self) -> list[int]:
        """What the partitions of each task have still to copy, as known last."""
        epoch, rows = self.current, self.state.table.rows
        return [
            sum(rows[each].last_known_lag or 0 for each in slot if each in rows)
            for slot in (epoch.plan if epoch is not None else ())
        ]

    def load(self) -> Load:
        """Of all partitions now."""
        return self.state.table.load(list(self.state.table.rows), now=self.state.clock.monotonic())

    def send_throttles(self) -> None:
        """Distribute the limits over the slots of the running epoch, by their present need."""
        epoch = self.current
        if epoch is None:
            return
        shares = self.state.orders.throttles(epoch.plan, now=self.state.clock.monotonic())
        dealt = list(zip(epoch.slots, shares, strict=True))
        if not any(differ(slot.limits, limits) for slot, limits in dealt):
            return
        for slot, limits in dealt:
            slot.limits = limits
            slot.tell(limits)

    def send_pauses(self) -> None:
        """Tell the tasks of the running epoch what the operators' pauses are by now."""
        pauses = self.state.control.pauses
        if pauses == self._pauses:
            return
        self._pauses = dict(pauses)
        for slot in () if self.current is None else self.current.slots:
            paused = self.state.control.paused(slot.partitions)
            for partitions, is_paused in ((paused - slot.paused, True), (slot.paused - paused, False)):
                if partitions:
                    slot.tell(SetPaused(partitions=tuple(sorted(partitions)), paused=is_paused))
            slot.paused = paused

    def idle_reason(self) -> tuple[str, str]:
        """Reason and message of a flow that does not copy; empty while it copies."""
        return idle_words(
            self.state.table.problem,
            is_copied=self.current is not None,
            is_owned=self.owned,
            has_partitions=bool(self.state.table.rows),
            was_copied=self._was_copied,
        )

    def facts(self) -> FlowFacts:
        """The facts from which the state of every partition is derived. May be called from any thread."""
        return flow_facts(self.state, self.idle_reason(), is_owned=self.owned)

    async def stand_by(self, stop: asyncio.Event) -> None:
        """Loop until `stop`: another process copies the flow, or the owner is not known yet. Spark is
        started, so that a take-over need not wait for it."""
        self.jobs.runner.warm_up(self.flow, is_owner=False)
        while not await wait_or_stop(stop, REPLANS.shortest_seconds):
            self.state.ownership.note_signs()
            self._note_problem(self._why_standing_by())

    def _why_standing_by(self) -> TwinlogError | None:
        standing = self.standing()
        if (
            standing is not None
            and standing.reason != OwnerReason.OWNED_ELSEWHERE
            and self.is_probed(self.flow)
        ):
            # If a cluster is down or refuses, no owner can be elected; show that as the reason.
            return self.refusal(self.flow) or standing
        return standing

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`; then the running epoch finishes and stores its positions. Runs again when this
        process gets the flow back."""
        self._note_problem(None)
        backoff = Backoff(
            initial_seconds=1.0,
            max_seconds=LONGEST_RETRY_SECONDS,
            random=self.random,
            jitter=Jitter.EQUAL,
        )
        async with asyncio.TaskGroup() as group:
            check = partial(self.jobs.runner.workers.check_expressions, self.flow)
            looking = self.state.transform_check.run(check, after=self._others_go)
            checking = group.create_task(looking, name="look at expressions")
            while not stop.is_set():
                try:
                    await finish_or_cancel(self._step(stop, group), stop=stop)
                    backoff.reset()
                    self._was_unstable = False
                except TwinlogError as error:
                    self._stumble(error)
                    await wait_or_stop(stop, backoff.next())
            checking.cancel()
            await self._shut_down()

    async def _step(self, stop: asyncio.Event, group: asyncio.TaskGroup) -> None:
        """Take the flow over if necessary, then run one epoch."""
        while not stop.is_set() and not self.is_probed(self.flow):
            await wait_or_stop(stop, PROBE_POLL_SECONDS)
        refusal = self.refusal(self.flow)
        if refusal is not None:
            raise refusal
        self.jobs.runner.warm_up(self.flow, is_owner=True)
        if self.owned:
            await self._may_be_away(self._renew())
        if not self.owned or self.state.positions.has_lost:
            self.owned = False
            with contextlib.suppress(TwinlogError):
                await self._end_current("FENCED")
            # With a lease, the other process has left or was silent for a session. The claim fences it in any
            # case.
            await self.state.take_over(displaced=self._displaced and not self.is_elected())
            self._displaced = False
            self.owned, self._was_copied = True, False
        await self._next_epoch(stop, group)

    def _stumble(self, error: TwinlogError) -> None:
        """Record what failed. A fenced flow has to be taken over again; a running epoch continues
        meanwhile."""
        self._note_problem(error)
        self.instruments.failed(error.reason)
        if error.reason == FENCED:
            self.owned, self._displaced = False, True
        elif error.reason == POSITIONS_UNSTABLE:
            # A transaction of a slow target may stay open for this long. If it is still open the next time,
            # its holder will not end it: a take-over fences all ids and ends what hangs.
            if self._was_unstable:
                self.owned = False
            self._was_unstable = True
        left_out = self._limiter.admit(error.reason, now=self.state.clock.monotonic())
        if left_out is not None:
            log.warning(
                "flow_waits", flow=str(self.flow), reason=error.reason, message=str(error), left_out=left_out
            )

    def _note_problem(self, problem: TwinlogError | None) -> None:
        self.state.note(FlowStopped(problem=problem))

    async def _shut_down(self) -> None:
        try:
            await self._end_current(EndReason.SHUTDOWN)
            if self.owned:
                async with deadline(LEAVE_SECONDS, f"give {self.flow} back", alias=self.flow.target):
                    await self.state.leave()
        except TwinlogError as error:
            log.warning(
                "flow_stopped_uncleanly", flow=str(self.flow), reason=error.reason, message=str(error)
            )
        await self.jobs.shut_down()
        self.plans.leave()
        # Another process may copy the flow before this one does so again.
        self.owned = False

    # ---------------------------------------------------------------------------------------------- epochs

    async def _next_epoch(self, stop: asyncio.Event, group: asyncio.TaskGroup) -> None:
        """Prepare the next epoch, hand over to it, and stay until the one after it is due."""
        chosen = await self._plan(stop)
        if not chosen:
            return
        await self.state.ownership.note_slots(len(chosen))
        number = self.jobs.next_number(beside=self.current)
        await self.state.end_hanging(number)
        with span("prepare epoch", self.span_attributes(number)):
            epoch = await self.jobs.prepare(
                chosen,
                number=number,
                group=group,
                shares_worker=self.plans.shares_worker(chosen),
                meanwhile=self.renew_current,
            )
        ready = self.state.clock.monotonic()
        try:
            with span("hand-over", self.span_attributes(number)):
                await self.state.confirm()
                await self._end_current(EndReason.EPOCH_OVER)
                await self._carry_out_moves()
        except BaseException:
            epoch.end(EndReason.NOT_NEEDED)
            raise
        epoch.debts, self._debts = self._debts, ()
        for slot in epoch.slots:
            slot.started, slot.heard_at = True, self.state.clock.monotonic()
            # A task that connects after the ready one was lost is started by `rejoin` once it is ready.
            if slot.state is SlotState.PREPARED:
                slot.tell(self.host.start(epoch, slot))
                epoch.move(slot, SlotState.RUNNING)
        self.current, self._was_copied = epoch, True
        self._others_go.set()
        self._note_problem(None)
        log.debug(
            "epoch_started",
            flow=str(self.flow),
            epoch=epoch.number,
            slots=len(epoch.slots),
            handover_seconds=round(self.state.clock.monotonic() - ready, 4),
        )
        with span("epoch", self.span_attributes(number)):
            await self._stay(epoch, stop)

    def span_attributes(self, number: int) -> dict[str, str | int]:
        """The attributes of the epoch's span."""
        return {
            **flow_attributes(self.flow.source, self.flow.target),
            "twinlog.epoch": number,
        }

    async def _plan(self, stop: asyncio.Event) -> Plan:
        """Plan the next epoch; empty when asked to stop."""
        while not stop.is_set():
            gone = await self.state.refresh(owned=self.current.partitions if self.current else frozenset())
            if gone and self.current is not None:
                await self._end_current(EndReason.PLAN_CHANGED)
                continue
            # Only now is it known after a take-over which copies keep their source's offsets.
            await self._carry_out_moves()
            partitions = self.state.table.plannable()
            if partitions:
                previous = self.current.plan if self.current else ()
                backlog = 0 if previous else await self.state.backlog_records(partitions)
                return await self.plans.choose(partitions, previous=previous, first_backlog=backlog)
            self.plans.leave()
            self._others_go.set()
            await self._end_current(EndReason.PLAN_CHANGED)
            await wait_or_stop(stop, REPLANS.shortest_seconds)
            break
        return ()

    async def _end_current(self, reason: str) -> None:
        previous, self.current = self.current, None
        if previous is None:
            return
        try:
            self._debts = await end_epoch(previous, self.state, reason)
        except asyncio.CancelledError:
            # Its tasks may still write, so end them before leaving.
            self.current = previous
            raise
        except TwinlogError:
            self.owned = False
            raise

    async def _carry_out_moves(self) -> None:
        """Move positions for operators, if that was ordered: no task may copy then. Raises TwinlogError: the
        flow has to be taken over again."""
        if not self.state.moves.ordered.is_set():
            return
        await self._end_current(EndReason.PLAN_CHANGED)
        try:
            await self.state.carry_out_moves()
        except TwinlogError:
            self.owned = False
            raise

    async def _stay(self, epoch: Epoch, stop: asyncio.Event) -> None:
        """Stay while the plan fits and the tasks are healthy."""
        poll_seconds = REPLANS.seconds(self.state.flows)
        demand_seconds = DEMANDS.seconds(self.state.flows)
        began = looked_at = self.state.clock.monotonic()
        span = EpochSpan(
            began=began,
            soonest_seconds=self.epoch_seconds,
            longest_seconds=spread_seconds(self.longest_epoch_seconds, self.state.flows, self.random()),
        )
        while not span.is_over(now := self.state.clock.monotonic(), lambda: self.plans.holds(epoch)):
            if stop.is_set():
                return
            if now >= looked_at + demand_seconds:
                looked_at = now
                if self.plans.misfits(epoch):
                    return
            failure = epoch.failure
            if failure is not None:
                await self._end_current(EndReason.PLAN_CHANGED)
                raise failure
            if self.state.moves.ordered.is_set():
                await self._carry_out_moves()
                return
            if self._has_frozen_task(epoch, now):
                return
            await self._may_be_away(self._renew())
            if self.state.positions.has_lost:
                return
            # Also while it cannot sign: the positions topic may be gone together with the copies.
            if await self._may_be_away(self.state.plan_is_stale(epoch.partitions)):
                return
            self.send_throttles()
            self.send_pauses()
            await wait_for_any(stop, self.state.moves.ordered, seconds=poll_seconds)

    def _has_frozen_task(self, epoch: Epoch, now: float) -> bool:
        """Cut off tasks that say nothing for so long that their worker must be frozen, also while they get
        ready. Spark does not notice that: the next epoch takes their partitions over, and fences them in case
        they wake up."""
        longest_seconds = frozen_seconds(self.state.flow.settings.stalled_seconds)
        silent = epoch.silent_slots(
            since=now - longest_seconds,
            lost_since=now - max(longest_seconds, LONGEST_WITHOUT_TASK_SECONDS),
        )
        if not self.jobs.runner.was_awake(longest_seconds):
            return False
        for slot in silent:
            log.warning("task_frozen", flow=str(self.flow), slot=slot.index, worker=slot.worker)
            epoch.cut_off(slot)
        return bool(silent)

    async def _renew(self) -> None:
        """Sign if it is due. Raises KafkaError."""
        if await self.state.renew():
            self._was_unstable = False

    async def renew_current(self) -> None:
        """Sign while the next epoch gets ready: an owner that is silent for long counts as gone. Moves of
        positions wait no longer. Raises FatalKafkaError (PRODUCER_FENCED), and TwinlogError as
        `_carry_out_moves`."""
        await self._carry_out_moves()
        if self.current is not None:
            await self._may_be_away(self.state.renew())

    async def _may_be_away(self, step: Awaitable[T]) -> T | None:
        """Ignore a cluster that does not answer: the tasks notice it themselves, report it and retry. Raises
        FatalKafkaError (PRODUCER_FENCED), and TransientKafkaError (POSITIONS_UNSTABLE): while a transaction
        hangs, this process cannot sign, so it must not wait for the end of the epoch."""
        try:
            return await step
        except KafkaError as error:
            if error.reason in (FENCED, POSITIONS_UNSTABLE):
                raise
            log.debug("plan_not_checked", flow=str(self.flow), reason=error.reason)
            return None
