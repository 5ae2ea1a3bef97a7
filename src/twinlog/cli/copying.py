"""Runs configsync and source for one flow as children, until every partition is where the copy ends."""

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from twinlog.cli.source.client import every_partition, source_stub
from twinlog.config.copy_until import until_json
from twinlog.errors import ConfigError, StateError, TwinlogError
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_or_stop

_POLL_SECONDS = 0.5
_START_SECONDS = 120.0
_STOP_SECONDS = 120.0
_MOST_ARGUMENT_BYTES = 100_000
_SHOWN_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class FiniteCopy:
    config: Path
    flow: Flow
    ends: Mapping[TopicPartition, int]
    wanted: Mapping[TopicPartition, int]
    """Those that have something to copy."""
    timeout_seconds: float
    """0 = none."""

    async def run(self) -> None:
        """Returns when everything is copied, or the time is over; the services have ended then. Raises
        StateError when they do not start, or end by themselves; ConfigError."""
        until = until_json(self.ends)
        if len(until.encode()) > _MOST_ARGUMENT_BYTES:
            raise ConfigError(
                "these are too many partitions for one command: name some of the topics with --topic",
                metadata={"key": "--topic"},
            )
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
            process = await asyncio.create_subprocess_exec(*self._command(until), stdout=PIPE, stderr=log)
            try:
                endpoint = await self._endpoint(process, log)
                await self._arrive(process, endpoint, log)
            finally:
                await _end(process)

    def _command(self, until: str) -> Iterator[str]:
        yield from (sys.executable, "-m", "twinlog", "run", str(self.config), "--flows", str(self.flow))
        yield from ("--service", "configsync", "--service", "source")
        for key, value in (
            ("twinlog.copy.until", until),
            ("twinlog.delay.seconds", "0"),
            ("twinlog.drain.seconds", "0"),
            ("twinlog.source.listen", "127.0.0.1:0"),
            ("twinlog.configsync.listen", "127.0.0.1:0"),
        ):
            yield from ("--set", f"{key}={value}")

    async def _endpoint(self, process: Process, log: IO[str]) -> str:
        """Where the source service is, once it serves."""
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_START_SECONDS):
                while line := await process.stdout.readline():
                    words = line.decode().split()
                    if words and words[0].startswith("ready"):
                        return next(word.partition("=")[2] for word in words if word.startswith("source="))
        except (TimeoutError, StopIteration):
            pass
        raise _not_running("do not serve", log)

    async def _arrive(self, process: Process, endpoint: str, log: IO[str]) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.timeout_seconds if self.timeout_seconds else float("inf")
        async with source_stub(None, [f"source={endpoint}"]) as stub:
            while loop.time() < give_up_at:
                if process.returncode is not None:
                    raise _not_running("have ended", log)
                try:
                    found = await every_partition(stub, None, "")
                except TwinlogError:
                    found = []  # it is started again
                positions = {
                    TopicPartition(each.source.topic, each.source.partition): each.position for each in found
                }
                if all(positions.get(partition, -1) >= end for partition, end in self.wanted.items()):
                    return
                await wait_or_stop(asyncio.Event(), _POLL_SECONDS)


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()


def _not_running(what: str, log: IO[str]) -> StateError:
    log.seek(0)
    last = "".join(log.readlines()[-_SHOWN_LINES:]).strip()
    return StateError(f"the services of the copy {what}; their last words:\n{last}", reason="NOT_RUNNING")
