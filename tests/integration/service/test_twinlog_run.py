"""`twinlog run` as a process: it serves, ends, refuses what is wrong, and leaves nothing behind."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from twinlog.cli import app
from twinlog.cli.common.location import service_endpoints
from twinlog.local.port_lease import PortLease
from twinlog.supervisor.runs import living_runs
from twinlog.testing.brokers import PATIENCE_SECONDS, eventually

_PROPERTIES = """
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:1
A->B.enabled = true
twinlog.drain.seconds = 0
"""
_LINES_OF_AN_END = 60
_LIGHT = ("--service", "heartbeat", "--service", "checkpoint")
_FREE_PORTS = "".join(
    f"twinlog.{service}.listen = 127.0.0.1:0\n"
    for service in ("source", "checkpoint", "heartbeat", "configsync")
)


@dataclass
class Command:
    process: asyncio.subprocess.Process
    directory: Path

    @property
    def stdout(self) -> str:
        return (self.directory / "stdout").read_text()

    @property
    def stderr(self) -> str:
        return (self.directory / "stderr").read_text()

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    async def exit_code(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()

    async def ends_cleanly(self) -> None:
        """By the signal that it got. Its end tells of the child that failed, if one did."""
        code = await self.exit_code()
        assert code == 0, "\n".join(self.stderr.splitlines()[-_LINES_OF_AN_END:])


def _run_command(directory: Path, properties: str, *arguments: str) -> list[str]:
    config = directory / "mm2.properties"
    config.write_text(properties)
    return [sys.executable, "-m", "twinlog", "run", str(config), *arguments]


@asynccontextmanager
async def _twinlog_run(directory: Path, properties: str, *arguments: str) -> AsyncIterator[Command]:
    command = _run_command(directory, properties, *arguments)
    with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as err:
        process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=err)
    try:
        yield Command(process, directory)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_twinlog_run_serves_says_so_once_restarts_and_ends_with_0(tmp_path: Path) -> None:
    async with _twinlog_run(tmp_path, _PROPERTIES + _FREE_PORTS, *_LIGHT) as command:
        await eventually(lambda: command.stdout)
        assert command.stdout.startswith("ready: 1 flow(s) A->B; checkpoint=127.0.0.1:")
        await eventually(lambda: "\nmetrics: checkpoint=http://127.0.0.1:" in command.stdout)

        await eventually(lambda: _clusters_are_seen_away(command))

        victim = next(child for child in command.family() if "twinlog_heartbeat" in child.cmdline()[2:3])
        victim.kill()
        await eventually(lambda: command.stderr.count('"event": "listening"') >= 3)

        command.process.send_signal(signal.SIGTERM)
        await command.ends_cleanly()
    assert command.stdout.count("ready") == 1


async def _clusters_are_seen_away(command: Command) -> bool:
    """What `twinlog status` says of the two services that run, and of the two that do not."""
    places = command.stdout.splitlines()[0].partition("; ")[2].split()
    arguments = [argument for place in places for argument in ("--endpoint", place)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from twinlog.cli import main; main()", "status", "-o", "json"),
        *("--endpoint", "source=127.0.0.1:1", "--endpoint", "configsync=127.0.0.1:1", *arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 1
    status = json.loads(output)
    health = {row["name"]: row["health"] for row in status["services"]}
    assert health == {"source": "DOWN", "checkpoint": "SERVING", "heartbeat": "SERVING", "configsync": "DOWN"}
    assert all(bool(row["version"]) == (row["health"] == "SERVING") for row in status["services"])
    seen = {row["alias"]: row["seen_by"] for row in status["clusters"]}
    return seen == {alias: {"checkpoint": False, "heartbeat": False} for alias in ("A", "B")}


async def test_no_child_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    async with _twinlog_run(tmp_path, _PROPERTIES + _FREE_PORTS, *_LIGHT) as command:
        await eventually(lambda: command.stdout)
        family = command.family()
        assert len(family) >= 2

        command.process.kill()
        await command.exit_code()

        await eventually(lambda: not any(child.is_running() for child in family))


def test_what_children_share_starts_no_thread() -> None:
    """A fork has the thread that made it, and no other."""
    script = """
import os
from twinlog.supervisor.children import load
load([f"twinlog_{name}.app" for name in ("source", "checkpoint", "heartbeat", "configsync")])
print(os.listdir("/proc/self/task") == [str(os.getpid())])
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "True\n"


def test_a_signal_while_modules_are_loaded_is_not_lost_in_an_import(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("""
import os, signal
try:
    os.kill(os.getpid(), signal.SIGTERM)
except BaseException:
    pass
""")
    script = """
import sys
from twinlog.service.runtime import exit_on_signals
from twinlog.supervisor.children import load
sys.path.insert(0, sys.argv[1])
with exit_on_signals():
    load(["module"])
sys.exit("lost")
"""
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)]).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_a_signal_before_anything_serves_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    async with _twinlog_run(tmp_path, _PROPERTIES + _FREE_PORTS, *_LIGHT) as command:
        await eventually(lambda: "service_started" in command.stderr)
        command.process.send_signal(number)
        await command.ends_cleanly()
    assert command.stdout == ""


def test_readers_that_are_gone_neither_end_the_run_nor_change_its_exit_code(tmp_path: Path) -> None:
    command = _run_command(tmp_path, _PROPERTIES + _FREE_PORTS, "--service", "heartbeat")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert any('"event": "serving"' in line for line in process.stderr), "it ended by its ready line"
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=120) == 0


async def test_closed_standard_streams_do_no_harm(tmp_path: Path) -> None:
    lease = PortLease(1)
    port = lease.ports[0]
    listen = f"twinlog.heartbeat.listen = 127.0.0.1:{port}\n"
    command = _run_command(tmp_path, _PROPERTIES + listen, "--service", "heartbeat")
    process = await asyncio.create_subprocess_exec("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command)
    try:
        await eventually(lambda: _listens(port))
        process.terminate()
        async with asyncio.timeout(40):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        lease.release()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _refusal(directory: Path, properties: str, *arguments: str) -> str:
    """What is said before any child starts."""
    _, _, _, *command = _run_command(directory, properties, *arguments)
    ended = CliRunner().invoke(app, command)
    assert (ended.exit_code, ended.stdout) == (2, ""), ended
    assert "service_started" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--flows", "A=>B"), "--flows"),
        (("--flows", "A->C"), "A->C"),
        (("--service", "sauce"), "--service sauce"),
        (("--set", "no-sign"), "--set no-sign"),
    ],
)
def test_a_wrong_command_line_is_refused(tmp_path: Path, arguments: Sequence[str], words: str) -> None:
    assert words in _refusal(tmp_path, _PROPERTIES, *arguments)


async def test_what_a_service_refuses_ends_with_the_command_that_names_all_of_it(tmp_path: Path) -> None:
    secret = f"A.security.protocol = SSL\nA.ssl.truststore.location = {tmp_path}/absent\n"
    properties = _PROPERTIES + _FREE_PORTS + secret
    async with _twinlog_run(tmp_path, properties, "--service", "heartbeat") as command:
        assert await command.exit_code() == 2
    assert f"cannot read {tmp_path}/absent" in command.stderr
    assert command.stderr.splitlines()[-1] == f"next: twinlog preflight {tmp_path}/mm2.properties"


async def test_runs_of_two_files_live_side_by_side_and_a_second_of_one_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by their files, whatever ports they got."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    files = [tmp_path / "one", tmp_path / "two"]
    async with AsyncExitStack() as stack:
        runs = []
        for directory in files:
            directory.mkdir()
            runs.append(await stack.enter_async_context(_twinlog_run(directory, _PROPERTIES)))
        await eventually(lambda: all(run.stdout.startswith("ready") for run in runs))
        places = [service_endpoints(directory / "mm2.properties", None) for directory in files]
        assert set(places[0].values()).isdisjoint(places[1].values())
        for run, found in zip(runs, places, strict=True):
            assert (
                dict(place.split("=") for place in run.stdout.splitlines()[0].split("; ")[1].split()) == found
            )

        again = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "twinlog", "run", str(files[0] / "mm2.properties")),
            stderr=asyncio.subprocess.PIPE,
        )
        _, refusal = await again.communicate()
        assert again.returncode == 2
        assert f"is already running, as process {runs[0].process.pid}:" in refusal.decode()
        for run in runs:
            run.process.send_signal(signal.SIGTERM)
            await run.ends_cleanly()
    assert living_runs() == []


def test_a_chosen_port_that_is_taken_names_the_key(tmp_path: Path) -> None:
    with socket.socket() as other_run:
        other_run.bind(("127.0.0.1", 0))
        other_run.listen()
        listen = f"twinlog.heartbeat.listen = 127.0.0.1:{other_run.getsockname()[1]}\n"
        said = _refusal(tmp_path, _PROPERTIES + listen, "--service", "heartbeat")
    assert "twinlog.heartbeat.listen" in said
    assert "in use" in said
