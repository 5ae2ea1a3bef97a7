"""What is told of Spark when it does not start, with a real JVM."""

import asyncio
import sys

import pytest

START = """
import sys

from twinlog.local.java import spark_environment
from twinlog_source.pipeline.session import SparkUnavailableError, open_context

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
from twinlog.local.java import spark_environment
from twinlog.model import Flow, TopicPartition
from twinlog_source.epoch import Epoch
from twinlog_source.pipeline.runner import SparkRunner
from twinlog_source.pipeline.session import SparkUnavailableError


async def main():
    silent = socket.create_server(("127.0.0.1", 0))
    runner = SparkRunner(
        master="local[1]",
        threads=1,
        conf={},
        environment=spark_environment,
        driver_endpoint=lambda: f"127.0.0.1:{silent.getsockname()[1]}",
        log_level="INFO",
        clock=SystemClock(),
    )
    for number in (1, 2):
        epoch = Epoch(flow=Flow("A", "B"), number=number, plan=((TopicPartition("t", 0),),))
        job = asyncio.ensure_future(runner.run(epoch))
        while not job.done():
            await asyncio.sleep(0.2)
            await runner.cancel(epoch)
        try:
            await job
        except SparkUnavailableError as error:
            print(error)
    await runner.close()


asyncio.run(main())
"""


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
    assert "the job of epoch 1 failed" in out.decode(), err.decode()
    assert "the job of epoch 2 failed" in out.decode(), err.decode()


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
