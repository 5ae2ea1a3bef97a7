"""Runs Kafka's own command-line tools, to check that Java reads what we write."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from twinlog.local.download.artifacts import KAFKA_4_TOOLS, ensure_jars
from twinlog.local.processes.process import GuardedProcess, ProcessError
from twinlog.machine.java import find_java
from twinlog.properties_text import render_properties

CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_LOGGING_FILE = Path(__file__).with_name("tools_log4j2.properties")
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
    java = find_java()
    jars = ensure_jars(KAFKA_4_TOOLS, java=java)
    command = [
        str(java.executable),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={_LOGGING_FILE}",
        *("-cp", jars.class_path),
        main_class,
        *arguments,
    ]
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
