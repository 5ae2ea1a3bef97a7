"""How long a failover of many groups takes: `python -m bench.failover_scale [--groups 5000] [--topics 100]
[--partitions 100] [--offsets 10]`. About ten minutes.

Two local brokers and all four services. Each partition has ten records, and each group offsets in the middle
of some of them. Prints how long `twinlog failover plan`, `run` and a second `run` take.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence

import uvloop

from bench.comparing.loads import LOADS, make_pool
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.errors import StateError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw import ProducerSettings, RawProducer
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.machine.work_directory import WorkDirectory
from twinlog.model import TopicPartition
from twinlog.properties_text import render_properties
from twinlog.service.peers import open_channel
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import make_topics

HEAP_MEGABYTES = 2048
TOPICS_AT_ONCE = 10
PARTITIONS_AT_ONCE = 1000
"""Written to: a broker makes the files of a partition with its first record."""
SMALL_INDEXES = {"log.index.size.max.bytes": "65536"}
"""Brokers map two indexes of each partition into memory: 10 MB each by default."""
COMMITS_AT_ONCE = 64
COPIED_WITHIN_SECONDS = 900.0
CALL_SECONDS = 60.0
BATCHES = 10
"""Batches in each partition."""


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


def properties_of(a: BlockingCluster, b: BlockingCluster) -> Mapping[str, str]:
    return {
        "clusters": "A, B",
        "A.bootstrap.servers": a.bootstrap_servers,
        "B.bootstrap.servers": b.bootstrap_servers,
        "A->B.enabled": "true",
        "A->B.topics": "t-.*",
        "replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
    }


async def fill(cluster: KafkaCluster, session: DataClientPool, partitions: Sequence[TopicPartition]) -> int:
    """Create the topics and write to each partition. Returns how many records one has."""
    names = sorted({partition.topic for partition in partitions})
    count = 1 + max(partition.partition for partition in partitions)
    for first in range(0, len(names), TOPICS_AT_ONCE):
        chunk = names[first : first + TOPICS_AT_ONCE]
        new = [NewTopic(name=name, partition_count=count, replication_factor=1) for name in chunk]
        await make_topics(cluster, *new)
    pool = make_pool(LOADS[0], batch_bytes=1000, pool_bytes=1000, now_ms=time.time_ns() // 1_000_000)
    async with RawProducer(session, ProducerSettings()) as producer:
        for _ in range(BATCHES):
            for first in range(0, len(partitions), PARTITIONS_AT_ONCE):
                for partition in partitions[first : first + PARTITIONS_AT_ONCE]:
                    producer.send(partition, pool.batches[0])
                await producer.flush()
    return BATCHES * pool.batches[0].record_count


async def commit_groups(
    cluster: KafkaCluster, groups: int, offsets: int, partitions: Sequence[TopicPartition], at: int
) -> None:
    chosen = random.Random(1)
    places = asyncio.Semaphore(COMMITS_AT_ONCE)

    async def one(number: int) -> None:
        async with places:
            wanted = {
                partition: CommittedOffset(next_offset=at) for partition in chosen.sample(partitions, offsets)
            }
            for failure in (await cluster.alter_group_offsets(f"group-{number:05}", wanted)).values():
                if failure is not None:
                    raise failure

    async with asyncio.TaskGroup() as tasks:
        for number in range(groups):
            tasks.create_task(one(number), name="commit")


async def until_copied(endpoint: str, records: int) -> None:
    """Raises StateError when it takes too long."""
    give_up_at = time.perf_counter() + COPIED_WITHIN_SECONDS
    async with open_channel(endpoint) as channel:
        stub = SourceServiceStub(channel)
        while True:
            (flow,) = (await stub.ListFlows(pb.ListFlowsRequest(), timeout=CALL_SECONDS)).flows
            if flow.records >= records:
                return
            if time.perf_counter() > give_up_at:
                raise StateError(f"{flow.records} of {records} records were copied: {flow.message}")
            await wait_or_stop(asyncio.Event(), 1.0)


async def command(*words: str, endpoint: str) -> tuple[int, float, str]:
    """Exit code, seconds and output of a `twinlog` command."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "twinlog", *words, "--endpoint", f"checkpoint={endpoint}", "-o", "json",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode or 0, time.perf_counter() - began, out.decode()


async def measure(arguments: argparse.Namespace, a: BlockingCluster, b: BlockingCluster) -> None:
    partitions = [
        TopicPartition(f"t-{topic:03}", number)
        for topic in range(arguments.topics)
        for number in range(arguments.partitions)
    ]
    work = WorkDirectory("twinlog-bench-")
    options = aiokafka_client_options(a.client_properties(), alias="A")
    session = DataClientPool("A", options, timeout_seconds=CALL_SECONDS)
    try:
        async with open_cluster("A", a.client_properties(), timeout_seconds=CALL_SECONDS) as source:
            records = await fill(source, session, partitions)
            say(f"{len(partitions)} partitions with {records} records each")
            await commit_groups(source, arguments.groups, arguments.offsets, partitions, records // 2)
            say(f"{arguments.groups} groups with {arguments.offsets} offsets each")
        async with TwinlogRun(render_properties(properties_of(a, b)), work.path) as twinlog:
            began = time.perf_counter()
            await until_copied(twinlog.endpoints["source"], records * len(partitions))
            say(f"copied {time.perf_counter() - began:.0f} s after the start of the services")
            checkpoint = twinlog.endpoints["checkpoint"]
            for words in (
                ("failover", "plan", "A->B"),
                ("failover", "plan", "A->B"),
                ("failover", "run", "A->B", "--yes", "--wait", "600"),
                ("failover", "run", "A->B", "--yes", "--wait", "600"),
            ):
                code, seconds, out = await command(*words, endpoint=checkpoint)
                say(f"twinlog {' '.join(words)}: exit code {code}, {seconds:.1f} s{_told(words, out)}")
    finally:
        await session.close()
        work.remove()


def _told(words: Sequence[str], out: str) -> str:
    """What the plan or the report counts."""
    if not out.strip():
        return ""
    if words[1] == "plan":
        plan = json.loads(out)
    else:
        steps = [json.loads(line) for line in out.splitlines()]
        plan = steps[-1].get("plan", {"partitions": []})
    by: dict[str, int] = {}
    for entry in plan["partitions"]:
        key = f"{entry['verdict']}/{entry['action']}"
        by[key] = by.get(key, 0) + 1
    return f"; offsets: {by}; blockers: {plan.get('blockers')}"


def _cluster(name: str) -> ClusterSpec:
    return ClusterSpec(name=name, heap_megabytes=HEAP_MEGABYTES, quick_start=False, properties=SMALL_INDEXES)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.failover_scale", description=__doc__)
    parser.add_argument("--groups", type=int, default=5000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--offsets", type=int, default=10)
    arguments = parser.parse_args(argv)
    with BlockingCluster(_cluster("bench-a")) as a, BlockingCluster(_cluster("bench-b")) as b:
        say("two brokers are up")
        uvloop.run(measure(arguments, a, b))
    return 0


if __name__ == "__main__":
    sys.exit(main())
