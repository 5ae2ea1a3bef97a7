"""Runs `twinlog run` in a process of its own, as a user starts it, with its services below it."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psutil

from twinlog.errors import StateError
from twinlog.local.port_lease import PortLease
from twinlog.local.processes.process import GuardedProcess
from twinlog.service.waiting import wait_or_stop

SERVICES = ("source", "checkpoint", "heartbeat", "configsync")
READY_TIMEOUT_SECONDS = 240.0
STOP_GRACE_SECONDS = 60.0
_POLL_SECONDS = 0.2
_LOG_TAIL_LINES = 30


class ServiceAwayError(StateError):
    """The supervisor has not restarted the service yet; `eventually` keeps asking."""

    retriable = True


class TwinlogRun:
    """Writes the properties, with listen addresses added, and runs them. An async context manager.

    `async with` returns once all four services serve (the line `ready`), and stops them at its end.
    """

    def __init__(self, properties: str, directory: Path) -> None:
        self.file = directory / "mm2.properties"
        self.log = directory / "twinlog.log"
        self._lease = PortLease(len(SERVICES))
        self.endpoints: Mapping[str, str] = {
            service: f"127.0.0.1:{port}" for service, port in zip(SERVICES, self._lease.ports, strict=True)
        }
        listen = "".join(f"twinlog.{service}.listen = {at}\n" for service, at in self.endpoints.items())
        self.file.write_text(f"{properties}\n{listen}", encoding="latin-1")
        self._process: GuardedProcess | None = None

    @property
    def process(self) -> GuardedProcess:
        """The supervisor's process. Raises StateError before `start`."""
        if self._process is None:
            raise StateError("twinlog run was not started")
        return self._process

    async def start(self) -> None:
        """Start it, and return at its line `ready`. Otherwise raises StateError with the end of its log."""
        seen = self._output().count("\nready") + self._output().startswith("ready")
        command: list[str | Path] = [
            *(sys.executable, "-m", "twinlog", "run", self.file),
            *("--log-format", "json"),
        ]
        self._process = GuardedProcess(command, output=self.log)
        never = asyncio.Event()
        give_up_at = asyncio.get_running_loop().time() + READY_TIMEOUT_SECONDS
        while asyncio.get_running_loop().time() < give_up_at:
            text = self._output()
            if text.count("\nready") + text.startswith("ready") > seen:
                return
            if not self._process.running:
                break
            await wait_or_stop(never, _POLL_SECONDS)
        tail = "\n".join(self._output().splitlines()[-_LOG_TAIL_LINES:])
        is_late = self._process.running
        what = f"was not ready within {READY_TIMEOUT_SECONDS:g} s" if is_late else "ended as it started"
        raise StateError(f"twinlog run {what}:\n{tail}")

    async def stop(self) -> int:
        """Send SIGTERM and return the exit code. Kills it after a minute."""
        if self._process is None:
            return 0
        return await asyncio.to_thread(self._process.stop, STOP_GRACE_SECONDS)

    def kill_service(self, service: str) -> int:
        """Send SIGKILL to one service, not to its children, and return its pid. Raises ServiceAwayError."""
        process = self.service(service)
        process.kill()
        return process.pid

    def service(self, service: str) -> psutil.Process:
        """The process of a service below the supervisor. Raises ServiceAwayError while it is not there."""
        module = f"twinlog_{service}"
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if module in child.cmdline():
                    return child
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        raise ServiceAwayError(f"no process of {service} is running")

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._lease.release()

    def _output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""
