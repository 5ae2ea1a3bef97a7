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
