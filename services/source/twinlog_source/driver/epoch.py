"""One epoch in the driver: a slot for each task, each with the stream of the task that serves it now.

A lost task is run again, so a slot may see several tasks. The newest one that shows the epoch's token is
served; the stream of an older one is closed.
"""

import asyncio
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.model import Flow, TopicPartition
from twinlog.telemetry.tracing import traceparent
from twinlog_source.partitions.orders import End, TaskCommand, TaskCounters
from twinlog_source.partitions.planner import NO_DEBT, LimitDebt, Plan, SlotLimits
from twinlog_source.reasons import EndReason

COMMAND_QUEUE_SIZE = 1_024
LOSSES_AT_ONCE = 3
"""How many tasks of a slot may be lost before the next one has to wait."""
FIRST_REJOIN_SECONDS = 0.5
LONGEST_REJOIN_SECONDS = 10.0
"""Less than the time for which a task waits for its driver's first message."""


def rejoin_wait(losses: int) -> float:
    """Seconds that a task waits until it is told to get ready, after so many lost ones before it. Its
    worker runs a lost task again, and one that always crashes would keep a core busy.

    >>> [rejoin_wait(losses) for losses in (0, 2, 3, 4, 5, 100)]
    [0.0, 0.0, 0.5, 1.0, 2.0, 10.0]
    """
    if losses < LOSSES_AT_ONCE:
        return 0.0
    return min(FIRST_REJOIN_SECONDS * 2.0 ** min(losses - LOSSES_AT_ONCE, 10), LONGEST_REJOIN_SECONDS)


class SlotState(StrEnum):
    WAITING = "waiting"
    """The slot has no ready task."""
    PREPARED = "prepared"
    RUNNING = "running"
    LOST = "lost"
    """The slot's task was lost; another one may come."""
    FINISHED = "finished"
    """The task has sent its last message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWords:
    """Why a task ended, in its own words."""

    reason: str
    """END_OF_EPOCH, or the reason of a failure."""
    message: str = ""
    debt: LimitDebt = NO_DEBT
    """What the task has read beyond its limits."""


@dataclass(slots=True, kw_only=True)
class Slot:
    """One slot of an epoch. Changed on the driver's event loop only."""

    index: int
    partitions: tuple[TopicPartition, ...]
    state: SlotState = SlotState.WAITING
    started: bool = False
    """Positions were handed out. They are certain again only after the task's last message, or after fencing
    and reading the log."""
    joined: int = 0
    """How many tasks have connected; the newest is served."""
    losses: int = 0
    """How many tasks were lost since one ran for a while; each loss makes the next task wait longer."""
    commands: asyncio.Queue[TaskCommand] = field(default_factory=lambda: asyncio.Queue(COMMAND_QUEUE_SIZE))
    final: LastWords | None = None
    worker: str = ""
    heard_at: float = 0.0
    """When its task came, was started, or reported last, in monotonic seconds."""
    waits_for_driver: bool = False
    """The driver has to answer its task, and reads no reports meanwhile."""
    counted: TaskCounters = field(default_factory=TaskCounters)
    """The task's counters from its latest report."""
    limits: SlotLimits = field(default_factory=SlotLimits)
    """The limits that the task knows."""
    paused: frozenset[TopicPartition] = frozenset()
    """The partitions of which the task knows that they are paused."""

    @property
    def ended_well(self) -> bool:
        return self.final is not None and self.final.reason == EndReason.END_OF_EPOCH

    def tell(self, command: TaskCommand) -> None:
        """Queue a command. A task whose queue is full has already been lost."""
        if not self.commands.full():
            self.commands.put_nowait(command)


@dataclass(slots=True, kw_only=True)
class Epoch:
    """An epoch of one flow: its plan, its token, its slots."""

    flow: Flow
    number: int
    plan: Plan
    shares_worker: bool = False
    """Its one task may run in a worker with those of other flows."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    trace: str = field(default_factory=traceparent)
    """W3C's `traceparent` of the span that prepared the epoch; its tasks' spans link to it."""
    slots: tuple[Slot, ...] = ()
    partitions: frozenset[TopicPartition] = frozenset()
    """The partitions of all slots."""
    ending: str = ""
    """Why the epoch was told to end; tasks that connect later are refused."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the epoch was told to end."""
    job_failure: TwinlogError | None = None
    """Why its job ended, whether or not it was asked to."""
    debts: tuple[LimitDebt, ...] = ()
    """What the tasks of the epoch before have read beyond their limits: its own tasks wait for it."""
    closed: bool = False
    """Its positions are final; later messages of its tasks are out of date."""
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.slots = tuple(Slot(index=i, partitions=partitions) for i, partitions in enumerate(self.plan))
        self.partitions = frozenset(partition for slot in self.slots for partition in slot.partitions)

    def accepts(self, token: str) -> bool:
        return secrets.compare_digest(self.token.encode(), token.encode())

    def move(self, slot: Slot, state: SlotState) -> None:
        slot.state = state
        self._moved.set()

    def cut_off(self, slot: Slot) -> None:
        """Stop serving the slot's task: close its stream. Another task may come unless the epoch is over."""
        slot.joined += 1
        slot.waits_for_driver = False
        self.move(slot, SlotState.LOST)

    def silent_slots(self, *, since: float, lost_since: float) -> list[Slot]:
        """The started slots whose task must be frozen: it runs and was not heard from since `since`, or it
        was lost, or is to get ready in place of a lost one, and no task was heard from since `lost_since`. In
        monotonic seconds."""
        limits = {SlotState.RUNNING: since, SlotState.LOST: lost_since, SlotState.WAITING: lost_since}
        return [
            slot
            for slot in self.slots
            if slot.started
            and not slot.waits_for_driver
            and slot.heard_at < limits.get(slot.state, -math.inf)
        ]

    def job_ended(self, failure: TwinlogError | None) -> None:
        """No more tasks will connect."""
        self.job_failure = failure or TwinlogError(
            f"the Spark job of epoch {self.number} of {self.flow} ended without its tasks",
            reason="EPOCH_FAILED",
        )
        self._moved.set()

    @property
    def failure(self) -> TwinlogError | None:
        """Why a task ended before it was told to; None while there is no failure."""
        for slot in self.slots:
            if slot.final is not None and not slot.ended_well:
                return TransientKafkaError(slot.final.message, reason=slot.final.reason)
        return None if self.ending else self.job_failure

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition on the slots; False if it takes too long."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return condition()
        return True

    def are(self, *states: SlotState) -> bool:
        return all(slot.state in states for slot in self.slots)

    def end(self, reason: str) -> None:
        """Ask all tasks to finish."""
        self.ending = reason
        self.over.set()
        self.tell(End(reason=reason))

    def tell(self, command: TaskCommand) -> None:
        """Queue a command for every task."""
        for slot in self.slots:
            slot.tell(command)
