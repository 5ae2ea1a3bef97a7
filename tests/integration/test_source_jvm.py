"""What is told of a JVM that does not start, with a real one."""

import asyncio
import sys

START = """
from twinlog.local.java import spark_environment
from twinlog_source.pipeline.session import SparkUnavailableError, open_context

try:
    open_context(
        app_name="test",
        master="local[1]",
        threads=1,
        extra={"spark.driver.extraJavaOptions": "-Xms900g -Dstore.password=sesame"},
        environment=spark_environment(),
    )
except SparkUnavailableError as error:
    print(error.reason, error)
"""


async def test_a_jvm_that_does_not_start_says_why() -> None:
    """In a process of its own: starting a JVM changes the environment."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", START, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            out, err = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert out.decode().startswith("SPARK_UNAVAILABLE Spark (local[1]) did not start: "), err.decode()
    assert "heap size" in out.decode()
    assert "sesame" not in (out + err).decode()
