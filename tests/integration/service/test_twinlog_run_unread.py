"""`twinlog run` while nobody reads its output, as with `| less` or a log driver that blocks."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil
import pytest

from twinlog.testing.brokers import PATIENCE_SECONDS, eventually

_PROPERTIES = """
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:1
A->B.enabled = true
twinlog.drain.seconds = 0
twinlog.heartbeat.listen = 127.0.0.1:0
twinlog.heartbeat.metrics.listen = 127.0.0.1:0
"""


@dataclass
class FullPipe:
    """Nothing fits into it until it is read."""

    reader: IO[bytes]
    writer: int

    def read_until(self, beginning: str) -> list[str]:
        """The lines up to the first one that begins like this, without what had filled the pipe. Waits."""
        lines: list[str] = []
        while not lines or not lines[-1].startswith(beginning):
            line = self.reader.readline()
            assert line, "\n".join(lines)
            lines.append(line.decode().strip("\0\n"))
        return lines


@pytest.fixture
def full_pipe() -> Iterator[FullPipe]:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"\0" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    with os.fdopen(reader, "rb") as stream:
        yield FullPipe(stream, writer)


@contextmanager
def _run(directory: Path, stdout: int | IO[bytes], stderr: int) -> Iterator[subprocess.Popen[bytes]]:
    config = directory / "mm2.properties"
    config.write_text(_PROPERTIES)
    command = [sys.executable, "-m", "twinlog", "run", str(config), "--service", "heartbeat"]
    process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
    os.close(stderr)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _has_service(process: "subprocess.Popen[bytes]") -> bool:
    family = psutil.Process(process.pid).children(recursive=True)
    return any("twinlog_heartbeat" in child.cmdline()[2:3] for child in family)


async def test_a_run_whose_log_nobody_reads_serves_and_stops(tmp_path: Path, full_pipe: FullPipe) -> None:
    told = tmp_path / "stdout"
    with told.open("wb") as stdout, _run(tmp_path, stdout, full_pipe.writer) as process:
        await eventually(lambda: "metrics:" in told.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_end_a_run_that_nobody_reads(
    number: signal.Signals, tmp_path: Path, full_pipe: FullPipe
) -> None:
    with _run(tmp_path, full_pipe.writer, full_pipe.writer) as process:
        await eventually(lambda: _has_service(process))
        for _ in range(2):
            process.send_signal(number)
        assert process.wait(timeout=PATIENCE_SECONDS) in (0, 1)


async def test_a_reader_that_comes_back_gets_all_lines_in_their_order(
    tmp_path: Path, full_pipe: FullPipe
) -> None:
    with _run(tmp_path, full_pipe.writer, full_pipe.writer) as process:
        await eventually(lambda: _has_service(process))
        lines = await asyncio.to_thread(full_pipe.read_until, "metrics: ")
        process.send_signal(signal.SIGTERM)
        lines += full_pipe.reader.read().decode().splitlines()
        assert process.wait(timeout=PATIENCE_SECONDS) == 0
    told = [_name(line) for line in lines]
    ours = ["starting", "service_started", "ready", "metrics", "serving"]
    assert [each for each in told if each in ours] == ours
    assert told[-1] == "stopped"
    assert "log_lines_dropped" not in told


def _name(line: str) -> str:
    """The event of a line of the supervisor's log, or the beginning of a line on stdout."""
    if not line.startswith("{"):
        return line.partition(":")[0]
    fields = json.loads(line)
    return str(fields["event"]) if fields["service"] == "twinlog" else ""
