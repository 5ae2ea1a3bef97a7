"""Spark's JVM, a real one: what is told when it does not start, and what it lets others see and do."""

import asyncio
import json
import os
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

START = """
import sys

from twinlog.machine import spark_environment
from twinlog_source.pipeline.launch import SparkUnavailableError
from twinlog_source.pipeline.session import open_context

name, value = sys.argv[1:]
try:
    open_context(
        app_name="test",
        master="local[1]",
        threads=1,
        extra={name: value},
        environment=spark_environment(),
    )
except SparkUnavailableError as error:
    print(error.reason, error)
"""

CANCEL = """
import asyncio
import socket

from twinlog.clock import SystemClock
from twinlog.machine import spark_environment
from twinlog_source.pipeline.runner import SparkRunner
from twinlog_source.pipeline.launch import SparkUnavailableError


async def main():
    silent = socket.create_server(("127.0.0.1", 0))
    runner = SparkRunner(
        master="local[1]",
        threads=1,
        conf={},
        environment=spark_environment,
        driver_endpoint=lambda: f"127.0.0.1:{silent.getsockname()[1]}",
        driver_certificate="",
        log_level="INFO",
        clock=SystemClock(),
    )
    for number in (1, 2):
        job = asyncio.ensure_future(runner.run_worker(number, "token"))
        while not (await asyncio.wait([job], timeout=0.2))[0]:
            await runner.kill_worker(number)
        try:
            await job
        except SparkUnavailableError as error:
            print(error)
    await runner.close()


asyncio.run(main())
"""


LEAVE = """
import os
import socket

os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"  # as Spark sets it
from twinlog_source.pipeline.daemon import worker

ours, of_spark = socket.socketpair()
of_spark.close()
print(worker(ours, True))
"""


KILL = """
from pyspark import SparkContext

from twinlog.machine import spark_environment
from twinlog_source.pipeline.job import load_workers
from twinlog_source.pipeline.launch import kill_jvm
from twinlog_source.pipeline.session import close_context, open_context

context, output = open_context(
    app_name="test", master="local[1]", threads=1, extra={}, environment=spark_environment()
)
load_workers(context)
kill_jvm(SparkContext._gateway)
print(output.last_words())
close_context(context)
print("closed")
"""


FORK_SERVER = """
import contextlib

import psutil

from twinlog.machine import spark_environment
from twinlog_source.pipeline.job import load_workers
from twinlog_source.pipeline.launch import SPARK_FAILURES
from twinlog_source.pipeline.session import close_context, open_context


def fork_servers():
    return [
        each
        for each in psutil.Process().children(recursive=True)
        if each.name() != "java" and each.parent().name() == "java"
    ]


context, output = open_context(
    app_name="test", master="local[1]", threads=1, extra={}, environment=spark_environment()
)
load_workers(context)
(first,) = fork_servers()
workers = first.children()
first.kill()
first.wait(30)
print("alive", all(each.is_running() for each in workers))
load_workers(context)
for each in workers:
    each.kill()
with contextlib.suppress(*SPARK_FAILURES):
    load_workers(context)  # Spark may take one that is dead; the pool of workers tries again.
load_workers(context)
(second,) = fork_servers()
print("another", second.pid != first.pid)
close_context(context)
"""


def test_a_fork_server_that_is_killed_is_started_again_with_the_next_worker() -> None:
    """Its workers go on without it."""
    child = subprocess.run(
        [sys.executable, "-c", FORK_SERVER], capture_output=True, text=True, timeout=120, check=False
    )
    assert child.stdout.split() == ["alive", "True", "another", "True"], child.stderr


def test_a_jvm_that_is_killed_leaves_no_traceback_of_its_driver() -> None:
    child = subprocess.run(
        [sys.executable, "-c", KILL], capture_output=True, text=True, timeout=120, check=False
    )
    assert (child.returncode, child.stdout.splitlines()[-1:]) == (0, ["closed"]), child.stderr
    assert "Traceback" not in child.stderr, child.stderr


def test_a_worker_that_spark_leaves_after_a_minute_without_a_task_ends_without_a_traceback() -> None:
    """In a process of its own: a worker changes how signals are handled."""
    ended = subprocess.run(
        [sys.executable, "-c", LEAVE], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.split() == ["1"]
    assert not ended.stderr


async def test_a_job_that_nobody_needs_is_cancelled_and_leaves_room_for_the_next() -> None:
    """Its task waits for a driver that says nothing; there is one thread. In a process of its own."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CANCEL), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(120):
            out, err = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, err.decode()
    assert "the job of worker 1 failed" in out.decode(), err.decode()
    assert "the job of worker 2 failed" in out.decode(), err.decode()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        pytest.param(
            "spark.driver.extraJavaOptions",
            "-Xms900g -Dstore.password=sesame",
            "heap size",
            id="a JVM that ends",
        ),
        pytest.param(
            "spark.executor.memory", "1k", "Insufficient executor memory", id="a context that is refused"
        ),
    ],
)
async def test_spark_that_does_not_start_says_why(name: str, value: str, words: str) -> None:
    """In a process of its own: starting a JVM changes the environment."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", START, name, value),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            out, err = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert out.decode().startswith("SPARK_UNAVAILABLE Spark (local[1]) did not start: "), err.decode()
    assert words in out.decode()
    assert "sesame" not in (out + err).decode()


SECRET = "sesame-of-the-store"
RUN = """
import json, sys

from twinlog.machine import spark_environment
from twinlog_source.pipeline.session import close_context, open_context

context, _ = open_context(
    app_name="test",
    master="local[2]",
    threads=2,
    extra={"spark.hadoop.fs.s3a.secret.key": sys.argv[1]},
    environment=spark_environment(),
)
assert context.parallelize(range(4), 2).map(lambda number: number + 1).collect() == [1, 2, 3, 4]
assert context.getConf().get("spark.hadoop.fs.s3a.secret.key") == sys.argv[1]
port = int(context.getConf().get("spark.driver.port"))
print(json.dumps({"jvm": context._gateway.proc.pid, "port": port}), flush=True)
sys.stdin.read()
close_context(context)
"""


@asynccontextmanager
async def running_spark(temporary: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, int]]:
    """A process with a Spark, its JVM's pid, and the port of the driver's RPC. It ends in order."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RUN, SECRET),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
        umask=0,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60):
            known = json.loads(await child.stdout.readline())
        yield child, known["jvm"], known["port"]
        child.stdin.close()
        async with asyncio.timeout(60):
            await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Short, which pytest's own are not: a socket's path has 100 characters at most."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as path:
        yield Path(path)


def command_line(process: psutil.Process) -> str | None:
    """None when the process has ended meanwhile, like the shells that `spark-submit` starts."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # ZombieProcess is one as well
        return None


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


async def test_others_on_the_machine_see_no_secret_and_reach_no_socket(temporary: Path) -> None:
    async with running_spark(temporary) as (child, jvm, _):
        processes = psutil.Process(child.pid).children(recursive=True)
        lines = [line for process in processes if (line := command_line(process)) is not None]
        assert any("SparkSubmit" in line for line in lines)
        assert SECRET not in " ".join(lines)
        assert jvm in [process.pid for process in processes]
        check_private(temporary)
    assert names(temporary) == set()


async def test_spark_runs_where_the_path_of_a_socket_would_be_too_long(tmp_path: Path) -> None:
    temporary = tmp_path / ("long" * 20)
    temporary.mkdir()
    async with running_spark(temporary):
        assert names(temporary)
    assert names(temporary) == set()


def check_private(temporary: Path) -> None:
    """There is one directory, and nothing in it is for others."""
    (directory,) = temporary.iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    inside = list(directory.rglob("*"))
    assert any(stat.S_ISSOCK(path.lstat().st_mode) for path in inside)
    assert [path for path in inside if path.lstat().st_mode & 0o077 and not path.is_symlink()] == []
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in inside if path.is_file())


async def test_what_a_killed_process_left_is_removed_by_the_next_one(temporary: Path) -> None:
    async with running_spark(temporary) as (child, jvm, _):
        left = names(temporary)
        for process in (psutil.Process(child.pid), psutil.Process(jvm)):
            process.kill()
        await child.wait()
    assert left
    async with running_spark(temporary):
        assert not left & names(temporary)
    assert names(temporary) == set()


async def test_the_jvm_takes_no_request_from_one_who_does_not_know_its_secret(temporary: Path) -> None:
    """One request of Spark's RPC, made by hand: without authentication its body is read, and what is in it
    becomes Java objects."""
    async with running_spark(temporary) as (_, _, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = bytes.fromhex("aced0005") + b"not an object"
        # Type (RpcRequest), request id, length of the body, body; before it the length of the frame.
        message = struct.pack(">bqi", 3, 1, len(body)) + body
        writer.write(struct.pack(">q", len(message) + 8) + message)
        async with asyncio.timeout(60):
            answer = await reader.read(1 << 16)
        writer.close()
        assert b"Expected SaslMessage" in answer, answer
