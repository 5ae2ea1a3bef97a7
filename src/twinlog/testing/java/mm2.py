"""The real MirrorMaker 2 of Kafka 4.3 in dedicated mode, for comparison and for hand-overs."""

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from twinlog import properties
from twinlog.local.processes.process import GuardedProcess, LogTail, ProcessError, last_lines
from twinlog.local.tools import (
    CONSOLE_CONSUMER,
    MIRROR_MAKER,
    QUICK_START,
    SERVICE_LOGGING,
    TOOL_LOGGING,
    java_command,
)
from twinlog.model import ClusterAlias, Flow
from twinlog.properties_text import render_properties

# Runs Kafka's own command-line tools, to check that Java reads what we write.

_IDLE_MILLISECONDS = 15_000


class Formatter(StrEnum):
    """MM2's formatters for its internal topics."""

    OFFSET_SYNC = "org.apache.kafka.connect.mirror.formatters.OffsetSyncFormatter"
    CHECKPOINT = "org.apache.kafka.connect.mirror.formatters.CheckpointFormatter"
    HEARTBEAT = "org.apache.kafka.connect.mirror.formatters.HeartbeatFormatter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    lines: Sequence[str]
    """Lines of stdout."""
    errors: str
    """Text of stderr, logging included."""


def run_java_tool(main_class: str, *arguments: str, timeout_seconds: float = 60.0) -> ToolOutput:
    """Run a class of Kafka 4.3's tools, Connect or MM2 to its end. Blocks: 2 s for the smallest.

    Raises ProcessError when it ends with another code than 0, and kills it after `timeout_seconds`.
    """
    command = java_command(main_class, *arguments, logging=TOOL_LOGGING, jvm=("-Xmx256m", *QUICK_START))
    with tempfile.TemporaryDirectory(prefix="twinlog-tool-") as directory:
        output, errors = Path(directory, "output"), Path(directory, "errors")
        name = main_class.rpartition(".")[2]
        with GuardedProcess(command, output=output, errors=errors) as process:
            try:
                exit_code = process.wait(timeout_seconds)
            except TimeoutError as error:
                raise ProcessError(f"{name} did not end within {timeout_seconds:.0f} s") from error
        told = errors.read_text(errors="replace")
        if exit_code != 0:
            raise ProcessError(f"{name} ended with {exit_code}: {told.strip()[-2000:]}")
        return ToolOutput(lines=output.read_text(errors="replace").splitlines(), errors=told)


def read_formatted(
    client_properties: Mapping[str, str], topic: str, formatter: Formatter, *, count: int
) -> Sequence[str]:
    """The first `count` records of `topic` as MM2's formatter prints them; fewer when no more come for 15 s.

    `client_properties` as returned by `BlockingCluster.client_properties`. Blocks. Raises ProcessError.
    """
    with tempfile.TemporaryDirectory(prefix="twinlog-tool-") as directory:
        client_file = Path(directory, "client.properties")
        client_file.touch(mode=0o600)
        client_file.write_text(render_properties(client_properties))
        answer = run_java_tool(
            CONSOLE_CONSUMER,
            *("--bootstrap-server", client_properties["bootstrap.servers"]),
            *("--command-config", str(client_file)),
            *("--topic", topic),
            *("--formatter", formatter),
            *("--max-messages", str(count)),
            *("--timeout-ms", str(_IDLE_MILLISECONDS)),
            "--from-beginning",
        )
    return answer.lines


_CONNECTORS: Final = ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
_HERDER_STARTED = re.compile(r"\[Worker clientId=(\S+?),.*\] Herder started")
_CONNECTOR_CREATED = re.compile(r"Finished creating connector (\w+)")
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.1


def quick_mm2_properties(
    clusters: Mapping[ClusterAlias, Mapping[str, str]],
    flows: Collection[Flow],
    extra: Mapping[str, str] | None = None,
) -> str:
    """An mm2.properties for tests: replication factor 1, every interval one second; `extra` wins.

    `clusters` holds each alias's client properties, as returned by `BlockingCluster.client_properties`.
    """
    settings = {"clusters": ", ".join(clusters)}
    for alias, client in clusters.items():
        settings |= {f"{alias}.{key}": value for key, value in client.items()}
        settings[f"{alias}.offset.flush.interval.ms"] = "5000"
        settings[f"{alias}.plugin.discovery"] = "service_load"  # Else each worker scans all classes.
    for flow in flows:
        settings[f"{flow}.enabled"] = "true"
        if Flow(flow.target, flow.source) not in flows:
            # Otherwise MM2 runs a second worker for the other direction, for heartbeats only.
            settings[f"{flow.target}->{flow.source}.emit.heartbeats.enabled"] = "false"
    factors = (
        "replication.factor",
        "checkpoints.topic.replication.factor",
        "heartbeats.topic.replication.factor",
        "offset-syncs.topic.replication.factor",
        "offset.storage.replication.factor",
        "status.storage.replication.factor",
        "config.storage.replication.factor",
    )
    intervals = (
        "refresh.topics.interval.seconds",
        "refresh.groups.interval.seconds",
        "emit.checkpoints.interval.seconds",
        "emit.heartbeats.interval.seconds",
        "sync.topic.configs.interval.seconds",
    )
    settings |= dict.fromkeys((*factors, *intervals), "1")
    settings["sync.topic.acls.enabled"] = "false"
    return render_properties({**settings, **(extra or {})})


class MirrorMaker2:
    """One MM2 process on a properties file; its log goes to `log_file`. Ends with this process. Blocks."""

    def __init__(
        self,
        properties_file: Path,
        *,
        log_file: Path,
        heap_megabytes: int = 1024,
        quick_start: bool = False,
    ) -> None:
        """`quick_start` skips the JVM's optimising compiler: ready sooner, slower later. Not for
        measurements."""
        self.properties_file = properties_file
        self.log_file = log_file
        self._heap_megabytes = heap_megabytes
        self._speed = QUICK_START if quick_start else ()
        self._process: GuardedProcess | None = None

    @property
    def process(self) -> GuardedProcess:
        """For its pid, CPU time and memory. Raises ProcessError before `start`."""
        if self._process is None:
            raise ProcessError("MirrorMaker 2 was not started")
        return self._process

    def start(self) -> None:
        """Return once every enabled flow has its connectors, after 5-10 s. Raises ProcessError and leaves
        nothing running then."""
        readiness = _Readiness(self._enabled_flows())
        tail = LogTail(self.log_file)
        jvm = ("-Xms256m", f"-Xmx{self._heap_megabytes}m", *self._speed)
        command = java_command(MIRROR_MAKER, str(self.properties_file), logging=SERVICE_LOGGING, jvm=jvm)
        self._process = GuardedProcess(command, output=self.log_file)
        try:
            self._wait(readiness, tail, self._process)
        except BaseException:
            self._process.kill()
            raise

    def stop(self) -> None:
        """Send SIGTERM, as its own scripts do, and SIGKILL after 30 s. Idempotent."""
        if self._process is not None:
            self._process.stop(_STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def _enabled_flows(self) -> set[str]:
        file = self.properties_file
        entries = properties.parse(file.read_bytes(), file=str(file)).entries.values()
        return {
            entry.key.removesuffix(".enabled")
            for entry in entries
            if re.fullmatch(r"[^.]+->[^.]+\.enabled", entry.key) and entry.value == "true"
        }

    def _wait(self, readiness: "_Readiness", tail: LogTail, process: GuardedProcess) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            for line in tail.new_lines():
                readiness.take(line)
            if readiness.reached:
                return
            if not process.running or time.monotonic() > deadline:
                how = "ended" if not process.running else f"was not ready after {_START_SECONDS:.0f} s"
                raise ProcessError(
                    f"MirrorMaker 2 {how}; the end of its log:\n{last_lines(self.log_file, 15)}"
                )
            time.sleep(_POLL_SECONDS)


@asynccontextmanager
async def mirror_maker_2(text: str, directory: Path) -> AsyncIterator[MirrorMaker2]:
    """MirrorMaker 2 on these properties for as long as the block; its file is `for-mm2.properties`."""
    file = directory / "for-mm2.properties"
    file.write_text(text, encoding="latin-1")
    process = MirrorMaker2(file, log_file=directory / f"mm2-{time.time_ns()}.log", quick_start=True)
    await asyncio.to_thread(process.start)
    try:
        yield process
    finally:
        await asyncio.to_thread(process.stop)


class _Readiness:
    """Reads MM2's log: each worker ("herder") logs its start, and then the connectors that it created."""

    def __init__(self, flows: Collection[str]) -> None:
        self._flows = set(flows)
        self._workers: set[str] = set()
        self._created = dict.fromkeys(_CONNECTORS, 0)

    def take(self, line: str) -> None:
        worker = _HERDER_STARTED.search(line)
        if worker:
            self._workers.add(worker[1])
        connector = _CONNECTOR_CREATED.search(line)
        if connector and connector[1] in self._created:
            self._created[connector[1]] += 1

    @property
    def reached(self) -> bool:
        """The lines do not name the connector's worker, so every worker must have as many as there are
        workers."""
        enough = all(count >= len(self._workers) for count in self._created.values())
        return self._flows <= self._workers and enough
