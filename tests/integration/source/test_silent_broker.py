"""One of three brokers of the target swallows what clients send it, and the cluster takes it for well."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from integration.source.cut_link import cut_link
from integration.source.source_rig import open_rig
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.testing.brokers import eventually
from twinlog.testing.service_process import ServiceProcess

SILENT = 3
HOST = "127.0.0.{node_id}"
"""Brokers listen on 127.0.0.1: there is room for a proxy at the same port of another address."""
TWO_REPLICAS = dict.fromkeys(
    (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
    ),
    "2",
)


async def test_tasks_start_hand_over_and_are_taken_over_while_a_broker_of_the_target_is_silent(
    start_cluster: Callable[[ClusterSpec], BlockingCluster], tmp_path: Path, unique_topic: str
) -> None:
    """It leads and coordinates nothing, because it was away when the topics were created."""
    topic = unique_topic
    source = await asyncio.to_thread(start_cluster, ClusterSpec(name="A"))
    target = await asyncio.to_thread(
        start_cluster,
        ClusterSpec(
            name="B",
            broker_count=3,
            client_host=HOST,
            properties={**TWO_REPLICAS, "transaction.state.log.min.isr": "1"},
        ),
    )
    async with AsyncExitStack() as opened:
        ports = [int(server.rpartition(":")[2]) for server in target.bootstrap_servers.split(",")]
        told = [HOST.format(node_id=number) for number in (1, 2, SILENT)]
        links = [
            await opened.enter_async_context(cut_link(port, port, host=host))
            for host, port in list(zip(told, ports, strict=True))[1:]
        ]
        await asyncio.to_thread(target.stop_broker, SILENT)
        rig = await opened.enter_async_context(open_rig(source, target, tmp_path))
        rig.target_servers = ",".join(f"{host}:{port}" for host, port in zip(told, ports, strict=True))
        rig.extra |= {"topics": topic, "twinlog.epoch.seconds": "3"}
        await rig.create(topic, 2)

        async def copies(what: str) -> None:
            for number in range(2):
                values = [f"{what} {value}".encode() for value in range(200)]
                await rig.produce(topic, values, partition=number)
            await rig.same(topic, 2)

        async def names(count: int) -> None:
            async def told() -> bool:
                return len((await rig.target.presence()).brokers) == count

            await eventually(told)

        async def hands_over(service: ServiceProcess, times: int) -> None:
            began = (await rig.flow_status(service)).epoch

            async def done() -> bool:
                return (await rig.flow_status(service)).epoch >= began + times

            await eventually(done)

        async def misses(service: ServiceProcess, *brokers: int) -> None:
            async def told() -> bool:
                ends = {each.alias: each for each in (await rig.flow_status(service)).clusters}
                return list(ends[rig.b].silent_brokers) == [*brokers] and ends[rig.b].reachable

            await eventually(told)

        await names(2)
        configsync = await opened.enter_async_context(rig.configsync())
        first = await opened.enter_async_context(rig.running(configsync))
        await copies("before")
        await asyncio.to_thread(target.restart_broker, SILENT)
        await names(3)
        links[-1].cut()
        await hands_over(first, 3)
        await misses(first, SILENT)
        await copies("after epochs")
        second = await opened.enter_async_context(rig.running(configsync))

        async def stands_by() -> bool:
            return (await rig.flow_status(second)).reason == "OWNED_ELSEWHERE"

        await eventually(stands_by)
        await first.kill()
        await copies("after the first process")
        assert "flow_taken_over" in second.log()
        await hands_over(second, 1)
        await names(3)
        await asyncio.to_thread(target.stop_broker, 2)
        await names(2)
        await misses(second, 2, SILENT)
