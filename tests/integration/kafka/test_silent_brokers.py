"""Brokers that do not answer: calls end, as the settings of a file say."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from integration.kafka.listener_rig import PATIENT_SECONDS, Listener, refused
from twinlog.config import load
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster


async def test_a_call_to_brokers_that_do_not_answer_ends_with_default_api_timeout_ms() -> None:
    async with Listener().listening() as server:
        properties = {"bootstrap.servers": server, "default.api.timeout.ms": "400"}
        async with open_cluster("silent", properties) as cluster:
            for ask in (cluster.list_topics, cluster.describe_broker_configs):
                with pytest.raises(KafkaError):
                    async with asyncio.timeout(PATIENT_SECONDS):
                        await ask()


async def test_administrative_calls_of_a_flow_end_with_admin_timeout_ms(tmp_path: Path) -> None:
    async with Listener().listening() as server:
        file = tmp_path / "mm2.properties"
        lines = ["clusters = A, B, C", "A->B.enabled = true", "A->C.enabled = true"]
        lines += [f"{alias}.bootstrap.servers = {server}" for alias in "ABC"]
        file.write_text("\n".join([*lines, "A->B.admin.timeout.ms = 400", "A->C.admin.timeout.ms = 600000"]))
        hasty, patient = load(file, environ={}).enabled_flows
        assert (str(hasty.flow), str(patient.flow)) == ("A->B", "A->C")
        async with AsyncExitStack() as opened:
            calls: dict[str, list[asyncio.Task[None]]] = {"hasty": [], "patient": []}
            group = await opened.enter_async_context(asyncio.TaskGroup())
            for name, flow in (("hasty", hasty), ("patient", patient)):
                for client in (flow.clients.source_admin, flow.clients.target_admin):
                    cluster = await opened.enter_async_context(open_cluster(client.alias, client.properties))
                    for ask in (cluster.list_topics, cluster.describe_broker_configs):
                        calls[name].append(group.create_task(refused(ask), name=name))
            async with asyncio.timeout(PATIENT_SECONDS):
                await asyncio.wait(calls["hasty"])
            assert not [call for call in calls["patient"] if call.done()]
            for call in calls["patient"]:
                call.cancel()
