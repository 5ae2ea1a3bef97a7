"""`python -m bench.scale`: many topics of one partition, and one topic of many. About four minutes.

How long until the first record of each is copied, what the copy costs while nothing happens and while one
partition is busy, and how much memory it takes.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import uvloop

from bench.comparing.copiers import copier_properties
from bench.comparing.loads import LOADS, make_pool
from bench.comparing.process_tree import TreeMeter
from bench.comparing.results import Copier
from bench.comparing.stage import Display, Stage, open_stage
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.errors import StateError
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.raw import ProducerSettings, RawProducer
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.machine import WorkDirectory
from twinlog.model import Flow, TopicPartition
from twinlog.properties_text import render_properties
from twinlog.service.peers import open_channel
from twinlog.service.waiting import wait_or_stop

CALL_SECONDS = 30.0
COPIED_WITHIN_SECONDS = 180.0
SETTLE_SECONDS = 10.0
MEASURED_SECONDS = 30.0
BUSY_BATCHES_PER_SECOND = 50
TOPICS_AT_ONCE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    name: str
    topics: int
    partitions: int

    def partitions_of(self) -> list[TopicPartition]:
        return [
            TopicPartition(f"{self.name}-{topic:04d}", partition)
            for topic in range(self.topics)
            for partition in range(self.partitions)
        ]


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(name="wide", topics=2000, partitions=1),
        Shape(name="deep", topics=1, partitions=200),
    )
}


async def fill(stage: Stage, shape: Shape) -> None:
    """Create the topics with a record in each partition."""
    names = sorted({partition.topic for partition in shape.partitions_of()})
    for first in range(0, len(names), TOPICS_AT_ONCE):
        new = [
            NewTopic(name=name, partition_count=shape.partitions, replication_factor=1)
            for name in names[first : first + TOPICS_AT_ONCE]
        ]
        for failure in (await stage.source.admin.create_topics(new)).values():
            if failure is not None:
                raise failure
    await send(stage, shape.partitions_of(), times=1)


async def send(stage: Stage, partitions: Sequence[TopicPartition], *, times: int) -> None:
    """A small batch to each, again and again."""
    pool = make_pool(LOADS[0], batch_bytes=1000, pool_bytes=1000, now_ms=time.time_ns() // 1_000_000)
    never = asyncio.Event()
    async with RawProducer(stage.source.session, ProducerSettings()) as producer:
        for round_number in range(times):
            for partition in partitions:
                producer.send(partition, pool.batches[0])
            if round_number:
                await wait_or_stop(never, 1 / BUSY_BATCHES_PER_SECOND)
        await producer.flush()


async def until_copied(stub: SourceServiceStub, records: int) -> None:
    """Raises StateError after three minutes."""
    give_up_at = time.perf_counter() + COPIED_WITHIN_SECONDS
    while True:
        (flow,) = (await stub.ListFlows(pb.ListFlowsRequest(), timeout=CALL_SECONDS)).flows
        if flow.records >= records:
            return
        if time.perf_counter() > give_up_at:
            raise StateError(f"{flow.records} of {records} records were copied: {flow.reason} {flow.message}")
        await wait_or_stop(asyncio.Event(), 0.2)


async def measure(stage: Stage, shape: Shape, display: Display) -> None:
    flow = Flow(shape.name, "b")
    partitions = shape.partitions_of()
    display.step(f"{shape.topics:,} topic(s) with {shape.partitions} partition(s) each")
    await fill(stage, shape)
    work = WorkDirectory("twinlog-bench-")
    properties = copier_properties(
        Copier.TWINLOG,
        flow,
        stage.source.brokers.client_properties(),
        stage.target.brokers.client_properties(),
        topics=f"{shape.name}-.*",
    )
    try:
        began = time.perf_counter()
        async with (
            TwinlogRun(render_properties(properties), work.path) as twinlog,
            open_channel(twinlog.endpoints["source"]) as channel,
        ):
            stub = SourceServiceStub(channel)
            await until_copied(stub, len(partitions))
            display.fact(
                f"the first record of each is copied {time.perf_counter() - began:.1f} s after start"
            )
            meter, pid = TreeMeter(), twinlog.process.pid
            await wait_or_stop(asyncio.Event(), SETTLE_SECONDS)
            for what, work_to_do in (
                ("idle", wait_or_stop(asyncio.Event(), MEASURED_SECONDS)),
                (
                    f"one partition busy ({BUSY_BATCHES_PER_SECOND} batches/s)",
                    send(stage, partitions[:1], times=int(MEASURED_SECONDS * BUSY_BATCHES_PER_SECOND)),
                ),
            ):
                at = time.perf_counter()
                before = meter.cpu_seconds(pid, at)
                await work_to_do
                now = time.perf_counter()
                display.fact(f"{what}: {(meter.cpu_seconds(pid, now) - before) / (now - at):.1%} of a core")
            display.fact(f"memory: {meter.peak_pss_bytes / 1e6:,.0f} MB")
            (status,) = (await stub.ListFlows(pb.ListFlowsRequest(), timeout=CALL_SECONDS)).flows
            display.fact(f"{status.slots} slots, epoch {status.epoch}, {dict(status.partitions_by_state)}")
    finally:
        work.remove()


async def run(names: Sequence[str]) -> int:
    display = Display()
    display.step("starting two clusters")
    async with open_stage() as stage:
        for name in names:
            await measure(stage, SHAPES[name], display)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale", description="Many partitions, idle and busy."
    )
    parser.add_argument("shapes", nargs="*", default=list(SHAPES), help=f"{', '.join(SHAPES)} (default: all)")
    return int(uvloop.run(run(parser.parse_args().shapes)))


if __name__ == "__main__":
    sys.exit(main())
