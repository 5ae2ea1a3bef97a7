"""What an owner does while one epoch ends and the next one gets ready: slow tasks, lost ones, a stop."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.errors import FatalKafkaError
from twinlog.kafka.deadline import pause
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually
from twinlog_source.driver.epoch import Epoch, LastWords, SlotState
from twinlog_source.driver.epoch_jobs import PREPARE_TIMEOUT_SECONDS, EpochJobs
from twinlog_source.driver.flow_driver import FlowDriver
from twinlog_source.driver.instruments import FlowInstruments
from twinlog_source.driver.ownership import STALE_OWNER_SECONDS
from twinlog_source.driver.state import FlowState
from twinlog_source.driver.worker_pool import WorkerPool
from twinlog_source.log.fact_records import parse_control
from twinlog_source.log.facts import OwnerFact
from twinlog_source.partitions.orders import Start
from twinlog_source.partitions.planner import NO_DEBT, LimitDebt
from twinlog_source.reasons import EndReason
from unit.source.driver.one_core import OneCore
from unit.source.flow_rig import POSITIONS, FlowRig

EPOCH_SECONDS = 30.0


@dataclass(slots=True)
class Tasks(OneCore):
    """Spark with one task for each epoch: ready at once, and gone some time after it was told to end."""

    rig: FlowRig
    ends_after_seconds: float = 0.0
    never_ready_from: int = 1_000
    """The number of the first epoch whose task does not get ready."""
    debt: LimitDebt = NO_DEBT
    """What each of them has read beyond its limits."""
    epochs: dict[int, Epoch] = field(default_factory=dict)
    ended_at_ms: dict[int, int] = field(default_factory=dict)
    """By epoch: when its task ended."""

    async def run(self, epoch: Epoch) -> None:
        self.epochs[epoch.number] = epoch
        (slot,) = epoch.slots
        if epoch.number < self.never_ready_from:
            epoch.move(slot, SlotState.PREPARED)
        await epoch.over.wait()
        await pause(self.ends_after_seconds)
        self.ended_at_ms[epoch.number] = self.rig.clock.now_ms()
        slot.final = LastWords(reason=EndReason.END_OF_EPOCH, debt=self.debt)
        epoch.move(slot, SlotState.FINISHED)


def owner_marks(rig: FlowRig) -> list[OwnerFact]:
    """What owners have signed, in order."""
    logs = [
        rig.target.records(TopicPartition(POSITIONS, number))
        for number in range(len(rig.target.topics[POSITIONS].partitions))
    ]
    parsed = [parse_control("A", each.key, each.value) for log in logs for each in log if each.key]
    return [each.fact for each in parsed if each is not None and isinstance(each.fact, OwnerFact)]


@asynccontextmanager
async def driven(
    rig: FlowRig, tasks: Tasks, offsets: str = "twinlog.offsets = translated"
) -> AsyncIterator[tuple[FlowDriver, asyncio.Event]]:
    """A flow whose epochs last half a minute, and its stop."""
    # These tasks report nothing.
    state: FlowState = await rig.process(offsets, "twinlog.stalled.seconds = 86400")
    meter = NoOpMeterProvider().get_meter("test")
    instruments = FlowInstruments(meter, state.flow, state.table, state.control, rig.clock)
    starts: Any = SimpleNamespace(start=lambda *_: Start())
    driver = FlowDriver(
        state=state,
        jobs=EpochJobs(
            flow=state.flow.flow, runner=cast("WorkerPool", tasks), instruments=instruments, clock=rig.clock
        ),
        host=starts,
        is_elected=lambda: True,
        standing=lambda: None,
        is_probed=lambda _: True,
        refusal=lambda _: None,
        instruments=instruments,
        random=lambda: 0.5,
        max_slots=1,
        epoch_seconds=EPOCH_SECONDS,
        longest_epoch_seconds=EPOCH_SECONDS,
    )
    stop, over = asyncio.Event(), asyncio.Event()

    async def tick() -> None:
        while not over.is_set():
            await pause(0.1)
            rig.clock.advance(0.1)

    async with asyncio.TaskGroup() as group:
        group.create_task(tick(), name="clock")
        running = group.create_task(driver.run(stop), name="driver")
        yield driver, stop
        stop.set()
        await asyncio.wait([running])
        over.set()


async def test_an_owner_that_is_stopped_in_a_hand_over_leaves_once_the_old_tasks_have_ended(
    rig: FlowRig,
) -> None:
    """What they still write is not at rest."""
    tasks = Tasks(rig, ends_after_seconds=5.0)
    async with driven(rig, tasks) as (_, stop):
        first = await eventually(lambda: tasks.epochs.get(1))
        await first.over.wait()
        assert first.ending == EndReason.EPOCH_OVER
        stop.set()
    assert owner_marks(rig)[-1].renewed_at_ms >= tasks.ended_at_ms[1], "it left then"


async def test_an_owner_signs_while_its_next_epoch_does_not_get_ready(rig: FlowRig) -> None:
    """The present one copies: another process must not take it for gone."""
    async with driven(rig, Tasks(rig, never_ready_from=2)):
        await pause(EPOCH_SECONDS + 3 * PREPARE_TIMEOUT_SECONDS)
    times = [mark.renewed_at_ms for mark in owner_marks(rig)]
    assert len(times) > 5
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) < STALE_OWNER_SECONDS * 1000


async def test_a_replacement_task_is_not_started_before_it_is_prepared(
    rig: FlowRig,
) -> None:
    """Its ids are initialised later than the owner looked whether the flow is still its own (Invariant B)."""
    tasks = Tasks(rig, ends_after_seconds=1.0)
    async with driven(rig, tasks) as (driver, _):
        second = await eventually(lambda: tasks.epochs.get(2), 2 * EPOCH_SECONDS)
        (slot,) = second.slots
        await tasks.epochs[1].over.wait()
        second.move(slot, SlotState.WAITING)  # lost; Spark's next one has said hello
        await eventually(lambda: driver.current is second)
        assert slot.started
        assert slot.commands.empty()


async def test_who_was_displaced_fences_nobody(rig: FlowRig) -> None:
    """The tasks of the present owner have the same transactional ids."""
    first = await rig.owner()
    await rig.owner()
    fenced: list[str] = []

    async def note() -> None:
        fenced.append("")

    rig.while_fencing = note
    epoch = Epoch(flow=first.flow.flow, number=1, plan=((TopicPartition("t", 0),),))
    with pytest.raises(FatalKafkaError) as raised:
        await first.reclaim(1, epoch.slots)
    assert raised.value.reason == "PRODUCER_FENCED"
    assert fenced == []


async def test_what_tasks_have_read_beyond_their_limits_is_handed_to_the_next_ones(rig: FlowRig) -> None:
    tasks = Tasks(rig, debt=LimitDebt(bytes=7))
    async with driven(rig, tasks) as (driver, _):
        second = await eventually(lambda: tasks.epochs.get(2), 2 * EPOCH_SECONDS)
        await eventually(lambda: driver.current is second)
        assert second.debts == (LimitDebt(bytes=7),)
