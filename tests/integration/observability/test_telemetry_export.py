"""Telemetry by OTLP, to a collector in this process: what arrives; one that fails holds nothing up."""

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from integration.observability.collector import collector
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as pb2
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2_grpc as pb2_grpc
from twinlog.service.peers import open_channel
from twinlog.testing.brokers import eventually

_PROPERTIES = """
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:1
A->B.enabled = true
twinlog.drain.seconds = 0
twinlog.heartbeat.metrics.listen = 127.0.0.1:0
"""
SECRET = "planted-7f3a9c"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


@dataclass(slots=True)
class Running:
    process: asyncio.subprocess.Process
    log: Path
    port_file: Path

    async def port(self) -> int:
        def bound() -> str:
            assert self.process.returncode is None, self.log.read_text()
            return self.port_file.read_text() if self.port_file.exists() else ""

        return int(await eventually(bound))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    async def ask(self, *metadata: tuple[str, str]) -> None:
        async with open_channel(f"127.0.0.1:{await self.port()}") as channel:
            stub = pb2_grpc.HeartbeatServiceStub(channel)
            await stub.ListDelays(pb2.ListDelaysRequest(), timeout=30.0, metadata=metadata)

    async def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60.0):
            return await self.process.wait()


@asynccontextmanager
async def heartbeat(
    directory: Path, endpoint: str, *, planted: str = "", **environment: str
) -> AsyncIterator[Running]:
    config, log, port_file = directory / "mm2.properties", directory / "log", directory / "port"
    config.write_text(_PROPERTIES + planted)
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "twinlog_heartbeat", "--config", str(config), "--log-format", "json"),
            *("--port-file", str(port_file), "--listen", "127.0.0.1:0"),
            stdout=output,
            stderr=output,
            env={
                **os.environ,
                "PYTHONUNBUFFERED": "1",
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_METRIC_EXPORT_INTERVAL": "500",
                "OTEL_BSP_SCHEDULE_DELAY": "200",
                "OTEL_BLRP_SCHEDULE_DELAY": "200",
                **environment,
            },
        )
    try:
        yield Running(process, log, port_file)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_metrics_logs_and_spans_reach_a_collector_and_a_call_joins_its_callers_trace(
    tmp_path: Path,
) -> None:
    async with collector() as (endpoint, collected), heartbeat(tmp_path, endpoint) as service:
        await service.ask(("traceparent", TRACEPARENT), ("x-request-id", "ticket-42"))

        method = "twinlog.api.heartbeat.v1.HeartbeatService/ListDelays"
        await eventually(lambda: method in {span.name for span in collected.spans})
        span = next(span for span in collected.spans if span.name == method)
        assert span.trace_id.hex() == TRACE_ID
        said = {attribute.key: attribute.value.string_value for attribute in span.attributes}
        assert said["twinlog.request.id"] == "ticket-42"

        await eventually(lambda: "twinlog.heartbeat.path" in collected.metrics)
        await eventually(lambda: "process.memory.usage" in collected.metrics)
        await eventually(lambda: "listening" in collected.events)
        assert await service.end() == 0


async def test_a_line_of_a_traced_call_names_its_trace(tmp_path: Path) -> None:
    async with collector() as (endpoint, _), heartbeat(tmp_path, endpoint) as service:
        channel = open_channel(f"127.0.0.1:{await service.port()}")
        async with channel:
            stub = pb2_grpc.HeartbeatServiceStub(channel)
            request = pb2.ListDelaysRequest()
            request.flow.source, request.flow.target = "X", "Y"
            with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
                await stub.ListDelays(request, timeout=30.0, metadata=(("traceparent", TRACEPARENT),))
        await eventually(lambda: [line for line in service.lines() if line["event"] == "rpc_refused"])
        refused = next(line for line in service.lines() if line["event"] == "rpc_refused")
        assert refused["trace_id"] == TRACE_ID
        assert refused["request_id"]


async def test_a_collector_that_never_answers_holds_nothing_up(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with heartbeat(tmp_path, endpoint) as service:
            for _ in range(50):
                await service.ask()
            assert await service.end() == 0


async def test_no_secret_of_the_file_is_in_what_is_exported_or_scraped(tmp_path: Path) -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    planted = "".join(
        f"{alias}.security.protocol = SASL_PLAINTEXT\n{alias}.sasl.mechanism = PLAIN\n"
        f'{alias}.sasl.jaas.config = {login} username="u" password="{SECRET}";\n'
        for alias in ("A", "B")
    )
    async with (
        collector() as (endpoint, collected),
        heartbeat(tmp_path, endpoint, planted=planted) as service,
    ):
        await service.ask()

        def listening() -> str:
            found = [line["address"] for line in service.lines() if line["event"] == "metrics_listening"]
            return found[0] if found else ""

        address = await eventually(listening)
        await eventually(lambda: "twinlog.heartbeat.path" in collected.metrics and collected.events)
        await eventually(lambda: [line for line in service.lines() if line.get("reason")])

        def scrape() -> bytes:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
                return bytes(answer.read())

        scraped = await asyncio.to_thread(scrape)
        assert await service.end() == 0
    assert b"twinlog_cluster_reachable" in scraped
    for text in (scraped, bytes(collected.everything), service.log.read_bytes()):
        assert SECRET.encode() not in text


async def test_what_is_turned_off_is_not_exported(tmp_path: Path) -> None:
    async with collector() as (endpoint, collected):
        async with heartbeat(tmp_path, endpoint, OTEL_METRICS_EXPORTER="none") as service:
            await service.ask()
            await eventually(lambda: collected.spans)
            assert await service.end() == 0
        assert collected.metrics == set()
        assert "otlp_exporting" in collected.events


REFUSED = {
    "OTEL_EXPORTER_OTLP_TIMEOUT": "10s",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "zstd",
    "OTEL_BSP_MAX_QUEUE_SIZE": "10",
    "OTEL_BLRP_SCHEDULE_DELAY": "-1",
    "OTEL_ATTRIBUTE_COUNT_LIMIT": "x",
    "OTEL_SPAN_LINK_COUNT_LIMIT": "-3",
    "OTEL_METRIC_EXPORT_INTERVAL": "0",
    "OTEL_METRICS_EXEMPLAR_FILTER": "foo",
}
_OPENS = """
import os
from twinlog.telemetry.exporter import open_telemetry
from twinlog.telemetry.logging import configure_logging
configure_logging(service="source", version="1", format="json", level="info")
with open_telemetry(service="source", version="1", instance_id="x") as telemetry:
    telemetry.meter.create_counter("twinlog.test").add(1)
print("serves", flush=True)
os._exit(0)
"""


async def _opened(**environment: str) -> tuple[int | None, list[dict[str, Any]], str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _OPENS),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", **environment},
    )
    output = (await process.communicate())[0].decode()
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return process.returncode, lines, output


@pytest.mark.parametrize("variable", REFUSED)
async def test_a_variable_that_the_sdk_refuses_costs_signals_and_never_the_service(variable: str) -> None:
    exit_code, lines, output = await _opened(**{variable: REFUSED[variable]})
    assert (exit_code, "serves" in output) == (0, True), output
    refused = [line for line in lines if line["event"] == "telemetry_setting_refused"]
    assert refused
    assert all(variable in line["remedy"] for line in refused)


async def test_a_variable_of_one_signal_leaves_the_others() -> None:
    _, lines, output = await _opened(OTEL_EXPORTER_OTLP_TRACES_TIMEOUT="soon")
    exporting = next(line for line in lines if line["event"] == "otlp_exporting")
    assert exporting["signals"] == ["LOGS", "METRICS"], output
    (refused,) = [line for line in lines if line["event"] == "telemetry_setting_refused"]
    assert refused["signal"] == "TRACES"
