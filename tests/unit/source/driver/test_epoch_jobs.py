"""The runs of epochs: none stays that nobody needs."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.config import load
from twinlog.errors import TransientKafkaError
from twinlog.kafka.deadline import pause
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import eventually
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.config import source_flows
from twinlog_source.driver.epoch import Epoch, SlotState
from twinlog_source.driver.epoch_jobs import (
    MEANWHILE_SECONDS,
    PREPARE_TIMEOUT_SECONDS,
    EpochJobs,
    number_after,
)
from twinlog_source.driver.instruments import FlowInstruments
from twinlog_source.driver.worker_pool import WorkerPool
from twinlog_source.log.control import ControlState
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.pipeline.launch import SparkUnavailableError
from unit.source.driver.one_core import OneCore

P = TopicPartition("t", 0)


class OneFile:
    """A file of one flow."""

    def read_bytes(self, path: str) -> bytes:
        return b"clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"

    def is_file(self, path: str) -> bool:
        return True


class StuckSpark(OneCore):
    """Its tasks end only when they are cut off."""

    async def run(self, epoch: Epoch) -> None:
        await epoch.wait_until(lambda: epoch.are(SlotState.LOST), 60.0)


async def nothing() -> None:
    """There is nothing to do meanwhile."""


def jobs_on(spark: StuckSpark) -> EpochJobs:
    (flow,) = source_flows(load(Path("mm2.properties"), environ={}, files=OneFile()))
    clock = FakeClock()
    meter = NoOpMeterProvider().get_meter("test")
    instruments = FlowInstruments(meter, flow, PartitionTable(), ControlState(), clock)
    runner = cast("WorkerPool", spark)
    return EpochJobs(
        flow=flow.flow, runner=runner, instruments=instruments, clock=clock, linger_seconds=0.001
    )


class LostSpark(StuckSpark):
    """Its JVM is killed under every job."""

    async def run(self, epoch: Epoch) -> None:
        raise SparkUnavailableError(f"the job of epoch {epoch.number} failed: Spark's JVM is gone")


async def test_an_epoch_whose_spark_is_gone_fails_with_sparks_reason() -> None:
    async with asyncio.TaskGroup() as group:
        with pytest.raises(SparkUnavailableError, match="JVM is gone") as failure:
            await jobs_on(LostSpark()).prepare(((P,),), number=1, group=group, meanwhile=nothing)
    assert failure.value.reason == "SPARK_UNAVAILABLE"
    assert failure.value.retriable


class SlowSpark(StuckSpark):
    """One task after the other gets ready, the last one of them never."""

    async def run(self, epoch: Epoch) -> None:
        for slot in epoch.slots[:-1]:
            await pause(PREPARE_TIMEOUT_SECONDS - MEANWHILE_SECONDS)
            epoch.move(slot, SlotState.PREPARED)
        await epoch.over.wait()


async def test_tasks_that_are_ready_are_given_up_only_when_no_other_has_become_so_for_a_while() -> None:
    now = asyncio.get_running_loop().time
    async with asyncio.TaskGroup() as group:
        with pytest.raises(TransientKafkaError, match="1 of 4 tasks") as failure:
            await jobs_on(SlowSpark()).prepare(((P,),) * 4, number=1, group=group, meanwhile=nothing)
    assert failure.value.reason == "EPOCH_NOT_READY"
    assert now() >= 4 * (PREPARE_TIMEOUT_SECONDS - MEANWHILE_SECONDS)


class CrowdedSpark(StuckSpark):
    """Its JVM needs minutes to start, and its task a while for each step."""

    def __init__(self) -> None:
        self.workers = SimpleNamespace(is_up=False)

    async def run(self, epoch: Epoch) -> None:
        await pause(4 * PREPARE_TIMEOUT_SECONDS)
        self.workers.is_up = True
        (slot,) = epoch.slots
        await pause(PREPARE_TIMEOUT_SECONDS - MEANWHILE_SECONDS)
        slot.joined = 1
        await pause(PREPARE_TIMEOUT_SECONDS - MEANWHILE_SECONDS)
        epoch.move(slot, SlotState.PREPARED)
        await epoch.over.wait()


async def test_a_task_on_a_crowded_machine_is_not_given_up_while_spark_starts_and_each_step_is_made() -> None:
    async with asyncio.TaskGroup() as group:
        epoch = await jobs_on(CrowdedSpark()).prepare(((P,),), number=1, group=group, meanwhile=nothing)
        epoch.end("EPOCH_OVER")


async def test_an_epoch_whose_job_ends_without_its_tasks_says_so() -> None:
    epoch = Epoch(flow=Flow("A", "B"), number=7, plan=((P,),))
    epoch.job_ended(None)
    assert epoch.failure is not None
    assert (epoch.failure.reason, "epoch 7 of A->B" in str(epoch.failure)) == ("EPOCH_FAILED", True)
    epoch.end("EPOCH_OVER")
    assert epoch.failure is None


async def test_a_task_that_outlives_its_epoch_is_cut_off() -> None:
    jobs = jobs_on(StuckSpark())
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        preparing = group.create_task(
            jobs.prepare(((P,),), number=1, group=group, meanwhile=nothing), name="prepare"
        )
        epoch = await eventually(lambda: jobs.epoch_of(1))
        (slot,) = epoch.slots
        slot.joined = 1
        epoch.move(slot, SlotState.PREPARED)
        await preparing
        epoch.move(slot, SlotState.RUNNING)
        epoch.end("EPOCH_OVER")
        await eventually(lambda: jobs.epoch_of(1) is None)
        assert (slot.joined, slot.state) == (2, SlotState.LOST), "its stream is served no longer"


async def test_everybody_who_waits_for_an_epoch_sees_it_move() -> None:
    epoch = Epoch(flow=Flow("A", "B"), number=7, plan=((P,),))
    states = (SlotState.PREPARED, SlotState.RUNNING, SlotState.FINISHED)

    async def is_seen(state: SlotState) -> bool:
        return await epoch.wait_until(lambda: epoch.are(state), 60.0)

    async with asyncio.TaskGroup() as group:
        waits = {
            state: [group.create_task(is_seen(state), name=f"{state} {n}") for n in range(2)]
            for state in states
        }
        for state in states:
            assert not any(wait.done() for wait in waits[state])
            epoch.move(epoch.slots[0], state)
            await asyncio.wait(waits[state])
    assert all(wait.result() for both in waits.values() for wait in both)


def test_an_epoch_that_is_made_ready_never_has_the_ids_of_the_one_that_copies() -> None:
    assert number_after(0, beside=None) == 1
    assert number_after(1, beside=1) == 2
    assert number_after(2, beside=1) == 4  # 2 never began
    assert number_after(4, beside=1) == 6
    assert number_after(4, beside=4) == 5
    assert number_after(2, beside=None) == 3
