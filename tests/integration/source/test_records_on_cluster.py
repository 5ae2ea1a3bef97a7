"""Records that Spark changes on a standalone cluster: task and pipe are on machines of their own."""

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import psutil

from chaos.played import kill
from integration.source.source_rig import Content, Rig, compare, open_rig
from integration.source.test_source_cluster_mode import flows_by_worker
from integration.standalone_spark import SECRET, StandaloneSpark, executors, kill_with_executor
from twinlog.api.common.v1.owners_service_pb2 import ListOwnersRequest, MoveFlowRequest
from twinlog.api.common.v1.owners_service_pb2_grpc import OwnersServiceStub
from twinlog.local.processes.process import GuardedProcess
from twinlog.testing.brokers import KafkaPair, eventually
from twinlog.testing.service_process import ServiceProcess
from twinlog_source.pipeline.runner import NO_CORE_SECONDS

PARTITIONS = 2
CHANGES = {
    "twinlog.transform.where": "NOT startswith(CAST(value AS string), 'drop')",
    "twinlog.transform.value": "upper(CAST(value AS string))",
}


def changed(record: Content) -> Content:
    timestamp_ms, key, value, headers = record
    assert value is not None
    return timestamp_ms, key, value.upper(), headers


async def all_changed(rig: Rig, topic: str) -> None:
    """Wait until every record is there, changed and once. Fails with the first difference."""

    async def equal() -> bool:
        for partition in range(PARTITIONS):
            sent = await rig.source_content(topic, partition)
            sent = [each for each in sent if not (each[2] or b"").startswith(b"drop")]
            there = await rig.target_content(topic, partition)
            assert len(there) >= len(sent), f"{topic}-{partition}: {len(there)} of {len(sent)} records"
            compare([changed(each) for each in sent], there, f"{topic}-{partition}")
        return True

    await eventually(equal)


async def put(rig: Rig, topic: str, word: str, count: int = 300) -> None:
    for partition in range(PARTITIONS):
        values = [f"{'drop' if n % 5 == 0 else word} {n}".encode() for n in range(count)]
        await rig.produce(topic, values, partition=partition)


def with_the_task(service: ServiceProcess, workers: list[GuardedProcess]) -> psutil.Process | None:
    """The executor in which the flow's newest task lives."""
    tasks = flows_by_worker(service).keys()
    return next((each for each in executors(workers) if tasks & {child.pid for child in below(each)}), None)


def with_the_pipe(service: ServiceProcess, workers: list[GuardedProcess]) -> psutil.Process | None:
    """The executor, without the task, whose processes are connected with that."""
    task = with_the_task(service, workers)
    if task is None:
        return None
    ports = {port for each in below(task) for port, _ in connections(each)}
    return next(
        (
            each
            for each in executors(workers)
            if each != task
            and sum(to in ports for child in below(each) for _, to in connections(child)) == len("FD")
        ),
        None,
    )


def below(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def connections(process: psutil.Process) -> list[tuple[int, int]]:
    """The ports of each: here, there."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        found = process.net_connections("inet")
        return [(each.laddr[1], each.raddr[1]) for each in found if each.status == psutil.CONN_ESTABLISHED]
    return []


def on_cluster(standalone: StandaloneSpark, topic: str) -> dict[str, str]:
    return {
        "topics": topic,
        "twinlog.spark.master": standalone.master,
        "twinlog.spark.conf.spark.authenticate.secret": SECRET,
        "twinlog.spark.conf.spark.executor.memory": "512m",
        "twinlog.spark.conf.spark.driver.host": "127.0.0.1",
        # Each executor has room for a task or a pipe.
        "twinlog.spark.conf.spark.executor.cores": "1",
        "twinlog.log.level": "debug",
        "twinlog.transform.topics": topic,
        **CHANGES,
    }


async def test_records_are_changed_once_whichever_executor_is_lost(
    kafka_pair: KafkaPair, tmp_path: Path, unique_topic: str, standalone: StandaloneSpark
) -> None:
    topic = unique_topic
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        rig.extra |= on_cluster(standalone, topic)
        await rig.create(topic, PARTITIONS)
        await put(rig, topic, "before")
        async with rig.configsync() as configsync, rig.running(configsync) as service:
            await all_changed(rig, topic)
            workers = standalone.workers
            for find in (with_the_pipe, with_the_task, with_the_pipe):
                async with asyncio.TaskGroup() as group:
                    group.create_task(put(rig, topic, find.__name__, 2_000), name="records")
                    kill(await eventually(partial(find, service, workers)))
                await all_changed(rig, topic)

            for worker in workers[:-1]:
                kill_with_executor(worker)
            # The process of a task outlives its executor for a moment, in which it may still copy.
            await eventually(partial(with_the_task, service, workers))
            await put(rig, topic, "too few")

            async def says_so() -> bool:
                found = await rig.partitions(service, topic)
                assert {each.reason for each in found} == {"NO_FREE_CORE"}, found
                return True

            await eventually(says_so, NO_CORE_SECONDS + 60)
            for _ in range(2):
                standalone.add_worker()
            await all_changed(rig, topic)


async def test_a_process_that_gave_its_flow_away_gives_back_the_cores_too(
    kafka_pair: KafkaPair, tmp_path: Path, unique_topic: str, standalone: StandaloneSpark
) -> None:
    topic = unique_topic
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig, AsyncExitStack() as stack:
        rig.extra |= on_cluster(standalone, topic)
        await rig.create(topic, PARTITIONS)
        await put(rig, topic, "before")
        configsync = await stack.enter_async_context(rig.configsync())
        sources = [await stack.enter_async_context(rig.running(configsync)) for _ in range(2)]
        await all_changed(rig, topic)
        for word in ("there", "and back"):
            told = await OwnersServiceStub(sources[0].channel).ListOwners(ListOwnersRequest())
            (own,) = (each for each in told.owners if each.flow == rig.flow)
            (owner,) = (each for each in sources if own.process.endswith(f"process {each.process.pid}"))
            (to,) = set(own.able) - {own.process}
            await OwnersServiceStub(owner.channel).MoveFlow(MoveFlowRequest(flow=rig.flow, to=to))
            await put(rig, topic, word)
            await all_changed(rig, topic)
