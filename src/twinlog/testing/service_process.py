"""A service as a process of its own, as users run it: called over gRPC, stopped by SIGTERM."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from twinlog.service.peers import open_channel
from twinlog.testing.brokers import eventually

CALL_SECONDS = 30.0
"""Deadline of a call to a service: far more than one takes."""
_STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceProcess:
    """A running service."""

    name: str
    process: asyncio.subprocess.Process
    channel: grpc.aio.Channel
    endpoint: str
    log_file: Path

    def log(self) -> str:
        """All its output so far."""
        return self.log_file.read_text(errors="replace")

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def run_service(
    name: str,
    directory: Path,
    properties: str,
    *,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[ServiceProcess]:
    """Run `twinlog-<name>` with this properties file, with gRPC on a free port and the log in `directory`;
    `environment` comes on top of the test's own.

    Ends it with SIGTERM; it must exit with 0 within a minute, unless the test killed it. Otherwise raises
    AssertionError with the log.
    """
    config, port_file, log_file = _prepare(name, directory, properties)
    with log_file.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"twinlog_{name}", "--config", str(config)),
            *("--listen", "127.0.0.1:0", "--port-file", str(port_file), "--log-format", "json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )

    def bound_port() -> str:
        if process.returncode is not None:
            raise RuntimeError(f"twinlog-{name} ended at its start: {log_file.read_text(errors='replace')}")
        return port_file.read_text().strip() if port_file.exists() else ""

    try:
        endpoint = f"127.0.0.1:{await eventually(bound_port)}"
        async with open_channel(endpoint) as channel:
            yield ServiceProcess(
                name=name, process=process, channel=channel, endpoint=endpoint, log_file=log_file
            )
    finally:
        await _end(process)
    assert process.returncode in (0, -signal.SIGKILL), log_file.read_text(errors="replace")


def _prepare(name: str, directory: Path, properties: str) -> tuple[Path, Path, Path]:
    """Write the properties file; return the paths of the port file and the log."""
    directory.mkdir(parents=True, exist_ok=True)
    config, port_file = directory / "mm2.properties", directory / "port"
    config.write_text(properties)
    port_file.unlink(missing_ok=True)
    return config, port_file, directory / f"{name}.log"


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
