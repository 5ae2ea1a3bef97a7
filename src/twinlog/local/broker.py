"""One broker process of a cluster."""

import re
from collections.abc import Sequence
from pathlib import Path

from twinlog.local.broker_properties import NodePlace
from twinlog.local.processes.process import GuardedProcess, LogTail, ProcessError, last_lines
from twinlog.local.spec import ClusterSpec
from twinlog.machine.java import Java

_STARTED = re.compile(r"Kafka ?Server.* started")
_HERE = Path(__file__).parent
_LOGGING = [
    f"-Dlog4j2.configurationFile={_HERE / 'broker_log4j2.properties'}",
    "-Dlog4j2.disableJmx=true",
]
_LOGGING_BEFORE_4 = [f"-Dlog4j.configuration=file:{_HERE / 'broker_log4j.properties'}"]


def broker_command(
    spec: ClusterSpec, node: NodePlace, *, java: Java, class_path: str, jvm_options: Sequence[str] = ()
) -> list[str]:
    """The command line for a broker whose directory is ready."""
    speed = ["-XX:TieredStopAtLevel=1", "-Xss512k"] if spec.quick_start else []
    return [
        str(java.executable),
        "-Xms64m",
        f"-Xmx{spec.heap_megabytes}m",
        "-XX:+UseSerialGC",
        *speed,
        "-Djava.awt.headless=true",
        *(_LOGGING_BEFORE_4 if spec.version.is_before_4 else _LOGGING),
        *jvm_options,
        *("-cp", class_path),
        "kafka.Kafka",
        str(node.directory / "server.properties"),
    ]


class Broker:
    """Starts, kills and pauses one broker. Calls block briefly; its cluster calls them one at a time."""

    def __init__(self, node: NodePlace, command: Sequence[str]) -> None:
        self.node = node
        self._command = command
        self._process: GuardedProcess | None = None
        self._tail: LogTail | None = None
        self._ready = False

    @property
    def log_file(self) -> Path:
        return self.node.directory / "broker.log"

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._process.pid if self._process is not None and self._process.running else None

    @property
    def process(self) -> GuardedProcess:
        """Raises ProcessError before the first start."""
        if self._process is None:
            raise ProcessError(f"broker {self.node.node_id} was not started")
        return self._process

    def launch(self) -> None:
        """Start the process; it serves once `check_ready` returns True."""
        self._ready = False
        self._tail = LogTail(self.log_file)
        self._process = GuardedProcess(self._command, output=self.log_file, cwd=self.node.directory)

    def check_ready(self) -> bool:
        """Whether it serves clients. Raises ProcessError with the end of its log if it ended instead."""
        if self._tail is not None and not self._ready:
            exit_code = self.process.poll()
            self._ready = any(_STARTED.search(line) for line in self._tail.new_lines())
            if exit_code is not None:
                raise ProcessError(
                    f"broker {self.node.node_id} ended with {exit_code} while starting; the end of its log:\n"
                    f"{last_lines(self.log_file, 15)}"
                )
        return self._ready

    def kill(self) -> None:
        """SIGKILL: like a crash of the machine, except that written data is kept."""
        self.process.kill()

    def stop(self, grace_seconds: float) -> None:
        """Controlled shutdown, SIGKILL after `grace_seconds`. No-op when it does not run."""
        if self._process is not None:
            self._process.stop(grace_seconds)
