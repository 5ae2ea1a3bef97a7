"""What many idle flows cost: `python -m bench.many_flows [--flows 100] [--topics 100] [--seconds 60]`.

Two local brokers. Every flow has a source alias of its own (one broker stands for all of them) and the hub
as its target, with as many topics each. First nothing is written; then one topic of each flow gets a record a
second, as `heartbeats` does (not with `--beat-seconds 0`). The heartbeats of all would lie in one topic here,
which every flow would copy, so they are left out. Prints for each of both what every service takes with its
children: processor time as a share of one core, and memory.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.comparing.process_tree import TreeMeter
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import LogWriter, NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.service_process import ServiceProcess, run_service

BEAT_SECONDS = 1.0
BEATS_SECONDS = 30.0
"""With records, before it is measured."""
WARM_UP_SECONDS = 200.0
"""Flows that began apart share workers two minutes after the start."""
SERVICES = ("configsync", "heartbeat", "checkpoint", "source")


def settings(flows: int, source: str, hub: str) -> str:
    aliases = [f"s{number:03}" for number in range(flows)]
    lines = [f"clusters = hub, {', '.join(aliases)}", f"hub.bootstrap.servers = {hub}"]
    lines += [f"{alias}.bootstrap.servers = {source}" for alias in aliases]
    for alias in aliases:
        lines += [f"{alias}->hub.enabled = true", f"{alias}->hub.emit.heartbeats.enabled = true"]
    # As in MM2, every two clusters of a file would be a flow that carries heartbeats: ten thousand of them.
    lines += ["emit.heartbeats.enabled = false"]
    lines += [f"{alias}->hub.topics = t-.*, {beats_of(number)}" for number, alias in enumerate(aliases)]
    lines += ["heartbeats.replication.enabled = false"]
    lines += ["replication.factor = 1", "offset.storage.replication.factor = 1"]
    lines += [f"{kind}.replication.factor = 1" for kind in ("heartbeats.topic", "checkpoints.topic")]
    lines += ["offset-syncs.topic.replication.factor = 1"]
    return "\n".join(lines)


def beats_of(flow: int) -> str:
    """The topic that gets a record a second."""
    return f"beat-{flow:03}"


async def make_topics(source: str, count: int, flows: int) -> None:
    async with open_cluster("source", {"bootstrap.servers": source}) as cluster:
        names = [f"t-{number:03}" for number in range(count)] + [beats_of(flow) for flow in range(flows)]
        wanted = [NewTopic(name=name, partition_count=1, replication_factor=1) for name in names]
        made = await cluster.create_topics([*wanted, _syncs()])
        print("topics of the source:", sum(error is None for error in made.values()))


def _syncs() -> NewTopic:
    """The source service would make it."""
    return NewTopic(name="mm2-offset-syncs.hub.internal", partition_count=1, replication_factor=1)


@asynccontextmanager
async def beating(source: str, flows: int, beat_seconds: float) -> AsyncIterator[None]:
    """Every flow gets its record every `beat_seconds` while this lasts, one after the other."""
    stop = asyncio.Event()

    async def beat(writer: LogWriter, flow: int) -> None:
        await wait_or_stop(stop, beat_seconds * flow / flows)
        while not stop.is_set():
            await writer.append(
                TopicPartition(beats_of(flow), 0),
                key=b"beat",
                value=bytes(40),
                timestamp_ms=SystemClock().now_ms(),
            )
            await wait_or_stop(stop, beat_seconds)

    async with (
        open_cluster("source", {"bootstrap.servers": source}) as cluster,
        cluster.writer() as writer,
        asyncio.TaskGroup() as group,
    ):
        for flow in range(flows):
            group.create_task(beat(writer, flow), name=beats_of(flow))
        try:
            yield
        finally:
            stop.set()


async def pause(seconds: float) -> None:
    await wait_or_stop(asyncio.Event(), seconds)


async def settled(service: ServiceProcess, flows: int, topics: int) -> None:
    stub = ConfigSyncServiceStub(service.channel)
    while True:
        answer = await stub.ListFlows(pb2.ListFlowsRequest(), timeout=60)
        in_step = [
            flow
            for flow in answer.flows
            if flow.state == pb2.FLOW_STATE_SETTLED and flow.topics_by_state["READY"] >= topics
        ]
        ready = sum(flow.topics_by_state["READY"] for flow in in_step)
        print(f"{len(in_step)} of {flows} flows are in step, {ready} topics", flush=True)
        if len(in_step) == flows:
            return
        await pause(10)


async def copied(service: ServiceProcess, flows: int) -> None:
    """Return when every flow of the source service has a running epoch."""
    stub = SourceServiceStub(service.channel)
    while True:
        answer = await stub.ListFlows(source_pb.ListFlowsRequest(), timeout=60)
        running = sum(flow.epoch > 0 and not flow.reason for flow in answer.flows)
        print(f"{running} of {flows} flows are copied", flush=True)
        if running == flows:
            return
        await pause(10)


async def measure(services: list[ServiceProcess], seconds: float, *, what: str) -> None:
    print(f"{what}:")
    meters = {service.name: TreeMeter() for service in services}
    loop = asyncio.get_running_loop()

    def cpu_seconds() -> dict[str, float]:
        """CPU time of each service with its children."""
        return {s.name: meters[s.name].cpu_seconds(s.process.pid, loop.time()) for s in services}

    before, began = cpu_seconds(), loop.time()
    await pause(seconds)
    after, took = cpu_seconds(), loop.time() - began
    total = 0.0
    for service in services:
        share = (after[service.name] - before[service.name]) / took
        total += share
        memory = meters[service.name].peak_pss_bytes // (1 << 20)
        print(f"{service.name:<12} {share:6.1%} of a core, {memory} MiB (PSS)")
    print(f"{'together':<12} {total:6.1%} of a core")


async def compare(arguments: argparse.Namespace, source: str, hub: str, directory: Path) -> None:
    await make_topics(source, arguments.topics, arguments.flows)
    text = settings(arguments.flows, source, hub)
    async with contextlib.AsyncExitStack() as stack:
        services: list[ServiceProcess] = []
        for name in arguments.services.split(","):
            own = text
            if services:
                own += f"\ntwinlog.configsync.endpoint = {services[0].endpoint}"
            folder = directory / name
            folder.mkdir()
            service = await stack.enter_async_context(run_service(name, folder, own))
            services.append(service)
            if name == "configsync":
                await settled(service, arguments.flows, arguments.topics + 1)
            if name == "source":
                await copied(service, arguments.flows)
        await pause(arguments.warm_up)
        await measure(services, arguments.seconds, what="no records")
        if arguments.beat_seconds:
            async with beating(source, arguments.flows, arguments.beat_seconds):
                await pause(BEATS_SECONDS)
                what = f"a record of each flow every {arguments.beat_seconds:g} s"
                await measure(services, arguments.seconds, what=what)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flows", type=int, default=100)
    parser.add_argument("--topics", type=int, default=100, help="of each flow")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--beat-seconds", type=float, default=BEAT_SECONDS, help="0: without the second part")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS)
    parser.add_argument("--services", default=",".join(SERVICES), help="configsync first")
    arguments = parser.parse_args()
    heap = 1024
    with (
        tempfile.TemporaryDirectory(prefix="twinlog-many-flows-") as directory,
        BlockingCluster(ClusterSpec(name="source", heap_megabytes=512)) as source,
        BlockingCluster(ClusterSpec(name="hub", heap_megabytes=heap)) as hub,
    ):
        asyncio.run(compare(arguments, source.bootstrap_servers, hub.bootstrap_servers, Path(directory)))
    sys.exit(0)


if __name__ == "__main__":
    main()
