"""A task that initialised its ids again continues where the log says, as its driver reads it after that."""

import asyncio
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from twinlog.batches import EndMarker
from twinlog.model import Record, TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.driver.epoch import Epoch
from twinlog_source.driver.epoch_jobs import EpochJobs
from twinlog_source.driver.instruments import FlowInstruments
from twinlog_source.driver.state import FlowState
from twinlog_source.driver.stream.task_host import TaskHost
from twinlog_source.driver.stream.task_settings import TaskSettings
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.orders import TaskCounters, TaskReport
from unit.metric_points import counted
from unit.source.flow_rig import POSITIONS, FlowRig, P

OTHER = TopicPartition("t", 1)


def position_of(partition: TopicPartition, position: int) -> tuple[TopicPartition, Record]:
    key = source_offset_key("A", partition)
    place = TopicPartition(POSITIONS, partition_for_key(key, 25))
    return place, Record(offset=0, timestamp_ms=1, key=key, value=encode_source_offset(position))


def host_of(state: FlowState, rig: FlowRig) -> TaskHost:
    unasked: Any = None
    return TaskHost(
        state=state,
        tasks=TaskSettings(flow=state.flow),
        jobs=EpochJobs(flow=state.flow.flow, runner=unasked, instruments=unasked, clock=rig.clock),
        instruments=unasked,
    )


async def test_what_the_failed_round_committed_after_all_is_in_the_answer(rig: FlowRig) -> None:
    """The answer to its commit was lost. The coordinator has decided when the ids are initialised again, and
    its markers may come a moment later: the driver waits for them."""
    state = await rig.owner("twinlog.offsets = translated")
    epoch = Epoch(flow=state.flow.flow, number=1, plan=((P,), (OTHER,)))
    place, record = position_of(P, 7)
    lost = rig.target.append_transaction(place, [record], None)
    rig.target.append_transaction(*_committed(OTHER, 3))
    reading = asyncio.Event()

    def waits(call: Call) -> None:
        if call.arguments["partition"] == place:
            reading.set()

    rig.target.intercept("fetch", waits)
    async with asyncio.TaskGroup() as group:
        answer = group.create_task(
            host_of(state, rig).reopened(epoch, epoch.slots[0]), name="answer the task"
        )
        await reading.wait()
        rig.target.finish_transaction(place, lost, EndMarker.COMMIT)
    assert answer.result() == {P: 7}, "and nothing of other tasks' partitions"


def _committed(partition: TopicPartition, position: int) -> tuple[TopicPartition, list[Record], EndMarker]:
    place, record = position_of(partition, position)
    return place, [record], EndMarker.COMMIT


async def test_what_a_task_tells_again_is_counted_once_and_what_it_lost_is_counted(rig: FlowRig) -> None:
    state, reader = await rig.owner("twinlog.offsets = translated"), InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    meter = provider.get_meter("test")
    metrics = FlowInstruments(meter, state.flow, state.table, state.control, rig.clock)
    state.ledger.on_gap = metrics.gap
    host = replace(host_of(state, rig), instruments=metrics)
    epoch = Epoch(flow=state.flow.flow, number=1, plan=((P,),))
    lost = Gap(partition=P, from_offset=3, to_offset=8, reason="RETENTION", found_at_ms=1)
    for gaps in ((lost,), ()):
        host.observe(epoch, epoch.slots[0], TaskReport(gaps=gaps, counters=TaskCounters(failures={"X": 2})))
    assert counted(reader, "twinlog.replication.failures", "error.type") == {("X",): 2}
    assert counted(reader, "twinlog.replication.lost", "error.type") == {("RETENTION",): 5}
    provider.shutdown()
