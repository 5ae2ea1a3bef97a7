"""A service as a process: how it starts, refuses, drains, is forced and crashes. Its clusters are away."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from twinlog.service.peers import open_channel
from twinlog.testing.brokers import eventually

_SERVICE = """
import asyncio, sys
from twinlog.service.app import ServiceParts, service_main
from twinlog.service.waiting import wait_or_stop

async def good(stop):
    await stop.wait()

async def stuck(stop):
    await asyncio.Event().wait()

async def crashes(stop):
    await wait_or_stop(stop, 0.2)
    raise ValueError("broken: password=hunter2")

LOOPS = {"good": good, "stuck": stuck, "crashes": crashes}

async def build(context, stack):
    return ServiceParts(loops={name: LOOPS[name] for name in sys.argv.pop().split(",")}, grpc=[])

sys.exit(service_main("heartbeat", build, sys.argv[1:-1]))
"""

_PROPERTIES = """
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:1
A->B.enabled = true
twinlog.drain.seconds = 0
twinlog.grace.seconds = 30
twinlog.log.format = json
"""
_LONG_DRAIN_SECONDS = 3600


class Process:
    def __init__(self, process: asyncio.subprocess.Process, log: Path, port_file: Path) -> None:
        self._process = process
        self._log = log
        self._port_file = port_file

    def log(self) -> str:
        return self._log.read_text()

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def port(self) -> int:
        def bound() -> str:
            assert self._process.returncode is None, self.log()
            return self._port_file.read_text() if self._port_file.exists() else ""

        return int(await eventually(bound))

    async def exit_code(self, within_seconds: float = 60.0) -> int:
        async with asyncio.timeout(within_seconds):
            return await self._process.wait()


@asynccontextmanager
async def _service(
    directory: Path, *, loops: str = "good", properties: str = _PROPERTIES, arguments: Sequence[str] = ()
) -> AsyncIterator[Process]:
    config, script = directory / "mm2.properties", directory / "service.py"
    config.write_text(properties)
    script.write_text(_SERVICE)
    log, port_file = directory / "log", directory / "port"
    port_file.unlink(missing_ok=True)
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(script), "--config", str(config), "--port-file", str(port_file)),
            *("--listen", "127.0.0.1:0", *arguments, loops),
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        yield Process(process, log, port_file)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_exits_0_while_clusters_are_away(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with _service(tmp_path) as service:
        async with open_channel(f"127.0.0.1:{await service.port()}") as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service="liveness"), timeout=30
            )
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        service.signal(number)
        assert await service.exit_code() == 0
        assert '"outcome": "clean"' in service.log()


async def test_a_signal_switches_details_on_and_off_while_it_runs(tmp_path: Path) -> None:
    async with _service(tmp_path) as service:
        await service.port()
        for level in ("debug", "info"):
            service.signal(signal.SIGUSR2)

            def switched(told: str = f'"log_level": "{level}"') -> bool:
                return told in service.log()

            await eventually(switched)
        service.signal(signal.SIGTERM)
        assert await service.exit_code() == 0


async def test_a_service_uses_as_many_files_as_the_system_allows(tmp_path: Path) -> None:
    ours = psutil.Process()
    before = ours.rlimit(psutil.RLIMIT_NOFILE)
    ours.rlimit(psutil.RLIMIT_NOFILE, (min(1024, before[1]), before[1]))
    try:
        async with _service(tmp_path) as service:
            await service.port()
            assert psutil.Process(service.pid).rlimit(psutil.RLIMIT_NOFILE) == (before[1], before[1])
            service.signal(signal.SIGTERM)
            assert await service.exit_code() == 0
    finally:
        ours.rlimit(psutil.RLIMIT_NOFILE, before)


async def test_a_crash_would_leave_no_core_file_which_holds_secrets(tmp_path: Path) -> None:
    ours = psutil.Process()
    before = ours.rlimit(psutil.RLIMIT_CORE)
    # What the service inherits unless it says otherwise.
    ours.rlimit(psutil.RLIMIT_CORE, (before[1], before[1]))
    try:
        async with _service(tmp_path) as service:
            await service.port()
            assert psutil.Process(service.pid).rlimit(psutil.RLIMIT_CORE) == (0, before[1])
            service.signal(signal.SIGTERM)
            assert await service.exit_code() == 0
    finally:
        ours.rlimit(psutil.RLIMIT_CORE, before)


async def test_a_second_signal_cuts_a_drain_that_hangs(tmp_path: Path) -> None:
    async with _service(tmp_path, loops="stuck") as service:
        await service.port()
        service.signal(signal.SIGTERM)
        await eventually(lambda: '"stopping"' in service.log())
        service.signal(signal.SIGTERM)
        assert await service.exit_code() == 1
        assert '"outcome": "forced"' in service.log()


async def test_calls_are_answered_until_drain_seconds_are_over(tmp_path: Path) -> None:
    """A load balancer sees that the service leaves, and has so long to send callers elsewhere."""
    arguments = ["--set", f"twinlog.drain.seconds={_LONG_DRAIN_SECONDS}"]
    async with _service(tmp_path, arguments=arguments) as service:
        async with open_channel(f"127.0.0.1:{await service.port()}") as channel:
            health = health_pb2_grpc.HealthStub(channel)

            async def is_alive() -> bool:
                asked = health_pb2.HealthCheckRequest(service="liveness")
                answer = await health.Check(asked, timeout=30)
                return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

            assert await is_alive()
            service.signal(signal.SIGTERM)

            async def says_that_it_leaves() -> bool:
                return not await is_alive()

            await eventually(says_that_it_leaves)
        assert f'"drain_seconds": {_LONG_DRAIN_SECONDS}' in service.log()
        service.signal(signal.SIGTERM)
        assert await service.exit_code() == 1


@pytest.mark.parametrize("log_format", ["json", "console"])
async def test_lines_of_the_log_are_in_log_format(tmp_path: Path, log_format: str) -> None:
    properties = _PROPERTIES.replace("twinlog.log.format = json", f"twinlog.log.format = {log_format}")
    async with _service(tmp_path, properties=properties) as service:
        await service.port()
        service.signal(signal.SIGTERM)
        assert await service.exit_code() == 0
        lines = service.log().splitlines()
        assert any("listening" in line for line in lines)
        assert {_is_json(line) for line in lines} == {log_format == "json"}, lines


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


async def test_a_stuck_loop_is_cancelled_at_the_grace_and_the_exit_is_clean(tmp_path: Path) -> None:
    arguments = ["--set", "twinlog.grace.seconds=0.5"]
    async with _service(tmp_path, loops="stuck,good", arguments=arguments) as service:
        await service.port()
        service.signal(signal.SIGTERM)
        assert await service.exit_code() == 0
        assert '"loop_cancelled"' in service.log()


async def test_a_crash_exits_1_with_the_traceback_and_without_the_secret(tmp_path: Path) -> None:
    async with _service(tmp_path, loops="crashes,good") as service:
        assert await service.exit_code() == 1
        assert "ValueError" in service.log()
        assert "hunter2" not in service.log()


async def test_an_address_in_use_exits_2_and_names_the_key(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with _service(tmp_path, arguments=["--listen", address]) as service:
            assert await service.exit_code() == 2
            assert "twinlog.heartbeat.listen" in service.log()
            assert address in service.log()


async def test_a_metrics_address_in_use_is_logged_and_stops_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ["--set", f"twinlog.heartbeat.metrics.listen={address}"]
        async with _service(tmp_path, arguments=arguments) as service:
            await service.port()
            assert "metrics_endpoint_unavailable" in service.log()
            service.signal(signal.SIGTERM)
            assert await service.exit_code() == 0


async def test_metrics_are_served_by_default_and_make_way_for_another_process(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with _service(tmp_path / "one") as one, _service(tmp_path / "two") as two:
        pages = []
        for service in (one, two):
            await service.port()
            pages += re.findall(
                r'"address": "(127\.0\.0\.1:\d+)", "event": "metrics_listening"', service.log()
            )
        assert len(pages) == len(set(pages)) == 2
        both = one.log() + two.log()
        assert "metrics_address_taken" in both
        assert '"reason": "ADDRESS_IN_USE"' in both
