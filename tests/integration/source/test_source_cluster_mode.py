"""The same service on a Spark standalone cluster with three workers, started from the wheel."""

import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from integration.source.source_rig import Rig, open_rig
from integration.standalone_spark import (
    QUICK_JVM,
    SECRET,
    WORKERS,
    StandaloneSpark,
    command_line,
    executors,
    kill_with_executor,
)
from twinlog.api.source.v1.source_service_pb2 import ListFlowsRequest
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.local.processes.process import GuardedProcess
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess

FLOWS = 5
SOURCES = 3
PARTITIONS = 4
PRODUCED = 3_000
"""In each partition: so much that no two flows begin in one Python worker."""
ON_SPARK = {
    "spark.authenticate.secret": SECRET,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.driver.host": "127.0.0.1",
}
WORK = """
import json, os, sys

from twinlog.machine import spark_environment
from twinlog_source.pipeline.job import load_workers
from twinlog_source.pipeline.session import open_context

extra = json.loads(os.environ["TEST_SETTINGS"])
context, _ = open_context(
    app_name="test", master=sys.argv[1], threads=1, extra=extra, environment=spark_environment()
)
load_workers(context)
print("worked", flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def having_worked(cluster: StandaloneSpark) -> AsyncIterator[None]:
    """A process whose Spark has run all that it had, and which waits."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORK, cluster.master),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TEST_SETTINGS": json.dumps(ON_SPARK)},
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(180):
            assert await child.stdout.readline() == b"worked\n"
        yield
    finally:
        child.kill()
        await child.wait()


async def test_a_process_without_work_holds_no_cores_for_which_another_one_waits(
    standalone: StandaloneSpark,
) -> None:
    async with having_worked(standalone), having_worked(standalone):
        pass


def flows_by_worker(service: ServiceProcess) -> dict[int, set[str]]:
    """By the process id of a worker: the flows whose newest tasks it runs."""
    newest: dict[str, int] = {}
    # What is behind the last end of a line is half written.
    for line in service.log().rpartition("\n")[0].splitlines():
        if '"task_joined"' in line:
            entry = json.loads(line)
            newest[entry["flow"]] = int(entry["worker"].rpartition(":")[2])
    found: dict[int, set[str]] = defaultdict(set)
    for flow, pid in newest.items():
        found[pid].add(flow)
    return found


def that_copies(service: ServiceProcess, workers: list[GuardedProcess]) -> GuardedProcess | None:
    """One of them below which a task lives."""
    pids = {child.pid for each in executors(workers) for child in each.children(recursive=True)}
    copying = pids & flows_by_worker(service).keys()
    above = {parent.pid for pid in copying for parent in psutil.Process(pid).parents()}
    return next((worker for worker in workers if worker.pid in above), None)


async def test_five_flows_lose_and_repeat_nothing_while_a_worker_is_killed_and_another_one_comes(
    kafka_pair: KafkaPair, tmp_path: Path, unique_topic: str, standalone: StandaloneSpark
) -> None:
    workers = standalone.workers
    topic = unique_topic
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        flows = flows_on(rig, topic, standalone, FLOWS)
        rig.extra |= {
            "twinlog.spark.conf.spark.dynamicAllocation.enabled": "true",
            "twinlog.log.level": "debug",
        }
        await rig.create(topic, PARTITIONS)
        await put(rig, topic, "before", PRODUCED)
        async with rig.configsync() as configsync, rig.running(configsync) as service:
            await all_same(flows, topic)
            # Some of them are enough to copy everything, and others may still be starting.
            await eventually(lambda: len(executors(workers)) == WORKERS)
            assert not [each for each in psutil.process_iter() if SECRET in command_line(each)]
            # What encryption unpacks lies where Spark cleans up, also after the kill below.
            unpacked = {Path(each.cwd()) for each in executors(workers)}
            await eventually(lambda: all(list(each.glob("*commons-crypto*.so")) for each in unpacked))
            # Which of them Spark gave tasks to is its own business.
            kill_with_executor(await eventually(lambda: that_copies(service, workers)))
            await put(rig, topic, "with two", 300)
            await all_same(flows, topic)
            added = standalone.add_worker()
            for worker in workers[:-1]:
                kill_with_executor(worker)
            await eventually(lambda: executors([added]))
            await put(rig, topic, "with the new one alone", 300)
            await all_same(flows, topic)
            assert that_copies(service, [added])
            assert "task_rejoined" in service.log() or "slots_fenced" in service.log()


async def test_three_sources_share_a_cluster_and_two_take_the_flows_of_the_third(
    kafka_pair: KafkaPair, tmp_path: Path, unique_topic: str, standalone: StandaloneSpark
) -> None:
    topic = unique_topic
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig, AsyncExitStack() as stack:
        flows = flows_on(rig, topic, standalone, 2 * SOURCES)
        rig.extra |= {"twinlog.spark.conf.spark.cores.max": "2", "twinlog.owner.timeout.seconds": "6"}
        await rig.create(topic, PARTITIONS)
        await put(rig, topic, "of three", 300)
        configsync = await stack.enter_async_context(rig.configsync())
        sources = [await stack.enter_async_context(rig.running(configsync)) for _ in range(SOURCES)]

        async def shared_by(*counts: int) -> list[set[str]]:
            owned = [await owned_by(source) for source in sources]
            assert sorted(map(len, owned)) == sorted(counts), owned
            assert len(set[str].union(*owned)) == len(flows), owned
            return owned

        before = await eventually(lambda: shared_by(2, 2, 2), 120)
        await all_same(flows, topic)
        await eventually(lambda: len(executors(standalone.workers)) == SOURCES)
        await sources.pop().kill()
        await put(rig, topic, "of two", 300)
        after = await eventually(lambda: shared_by(3, 3), 60)
        assert all(kept <= now for kept, now in zip(before, after, strict=False)), (before, after)
        await all_same(flows, topic)
        # The cluster ends what the third one had there.
        await eventually(lambda: len(executors(standalone.workers)) == SOURCES - 1)


def flows_on(rig: Rig, topic: str, cluster: StandaloneSpark, count: int) -> list[Rig]:
    """Flows that copy a topic from one source under several names, on a Spark cluster."""
    aliases = [rig.a, *(unique_name("more") for _ in range(count - 1))]
    rig.extra |= {
        "topics": topic,
        "clusters": ", ".join([*aliases, rig.b]),
        "twinlog.spark.master": cluster.master,
        **{f"twinlog.spark.conf.{name}": value for name, value in ON_SPARK.items()},
        "twinlog.epoch.seconds": "5",
        "twinlog.epoch.max.seconds": "20",
    }
    for alias in aliases[1:]:
        rig.extra[f"{alias}.bootstrap.servers"] = rig.source_servers
        rig.extra[f"{alias}->{rig.b}.enabled"] = "true"
    return [replace(rig, a=alias) for alias in aliases]


async def owned_by(source: ServiceProcess) -> set[str]:
    """The sources of the flows that a process copies."""
    answer = await SourceServiceStub(source.channel).ListFlows(ListFlowsRequest(), timeout=CALL_SECONDS)
    return {each.flow.source for each in answer.flows if each.epoch and not each.reason}


async def put(rig: Rig, topic: str, word: str, count: int) -> None:
    for partition in range(PARTITIONS):
        await rig.produce(topic, [f"{word} {n}".encode() for n in range(count)], partition=partition)


async def all_same(flows: list[Rig], topic: str) -> None:
    for each in flows:
        await each.same(topic, PARTITIONS)
