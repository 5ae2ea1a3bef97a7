"""Starts Spark's JVM so that no other user of the machine can read its settings, sockets or files.

Its settings may contain secrets (`twinlog.spark.conf.*`), and every user can read command lines. So settings
are passed in a file of mode 0600, which is removed after it was read. Sockets, blocks and temporary files are
in one directory of mode 0700, because Python workers run the code that their socket receives. The directory
is removed with the JVM; directories that killed processes left are removed at the next start.
"""

import os
import shlex
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import INPUT_CONVERTER, Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from twinlog.errors import TwinlogError
from twinlog.machine import WorkDirectory
from twinlog.properties_text import render_properties
from twinlog_source.pipeline.jvm_log import JvmOutput

SPARK_FAILURES = (Py4JError, PySparkException, OSError)
DIRECTORY_PREFIX = "twinlog-spark-"
PRIVATE = 0o077
"""The umask of the JVM and of the Python workers."""

ANSWER_SECONDS = 240.0
"""How long a JVM may take until it answers. It takes a second, and on a machine without a free core more
than a minute: one that is killed then begins anew, and never answers. One that ends is noticed at once."""
DOWNLOAD_SECONDS = 600.0
"""The same for a JVM that first downloads packages."""
PACKAGES = "spark.jars.packages"
_ANSWER_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""The variable that names the file into which the JVM writes its port and its secret."""
_ADDRESS = struct.Struct(">ii")
"""The beginning of that file: the port, and the length of the secret that follows."""
_LOOK_SECONDS = 0.01
_OWN_DIRECTORY = "_twinlog_directory"

# They look at every argument for Java by a module of pyspark's tests, which loads numpy, pandas and pyarrow
# where these are installed: 80 MB and half a second of CPU. No argument is numpy's.
INPUT_CONVERTER[:] = [
    each for each in INPUT_CONVERTER if not isinstance(each, NumpyArrayConverter | NumpyScalarConverter)
]


class SparkUnavailableError(TwinlogError):
    """There is no JVM or no master, or it was lost: tried again."""

    retriable = True
    default_reason = "SPARK_UNAVAILABLE"


def launch_jvm(
    settings: Mapping[str, str],
    directory: WorkDirectory,
    *,
    master: str,
    given_up: threading.Event | None = None,
    answer_within_seconds: float | None = None,
) -> tuple[Any, JvmOutput]:
    """Let Spark start its JVM; return the bridge to it, and its output. `end_jvm` removes `directory`.

    Raises SparkUnavailableError with the JVM's last output if it does not start, and removes `directory`. A
    JVM that has not answered in time, or when `given_up` is set, is killed; the time is `ANSWER_SECONDS`, or
    `DOWNLOAD_SECONDS` with packages, unless it is given."""
    usual_seconds = DOWNLOAD_SECONDS if settings.get(PACKAGES) else ANSWER_SECONDS
    within_seconds = usual_seconds if answer_within_seconds is None else answer_within_seconds
    home, answer = _spark_home(), directory.path / "gateway"
    file = directory.path / "spark.properties"
    _write_private(file, render_properties(settings))
    # Its output outlives it: it says why a JVM ended before it answered.
    our_end, jvm_end = os.pipe()
    output = JvmOutput(os.fdopen(our_end, "rb"))
    try:
        with os.fdopen(jvm_end, "wb") as stdout:
            process = subprocess.Popen(
                [
                    *(home / "bin" / "spark-submit", "--load-spark-defaults", "--properties-file", file),
                    *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS") or "pyspark-shell"),
                ],
                env={**os.environ, "SPARK_HOME": str(home), _ANSWER_FILE: str(answer)},
                # The JVM ends by itself when this pipe breaks, however this process ends.
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=PRIVATE,
            )
        try:
            _await_answer(process, answer, given_up or threading.Event(), within_seconds=within_seconds)
            gateway = _gateway(answer.read_bytes())
        except BaseException:
            _kill(process)
            raise
    except (*SPARK_FAILURES, SparkUnavailableError) as error:
        words, cause = output.last_words(), (str(error).strip() or type(error).__name__).splitlines()[0]
        # A JVM that ended says why; the words of one that hangs may be about something else.
        why = f"{cause} ({words})" if words and isinstance(error, TimeoutError) else words or cause
        directory.remove()
        raise SparkUnavailableError(f"Spark ({master}) did not start: {why}") from error
    finally:
        file.unlink(missing_ok=True)
    answer.unlink()
    gateway.proc = process
    setattr(gateway, _OWN_DIRECTORY, directory)
    return gateway, output


def _spark_home() -> Path:
    """The user's Spark if it is of pyspark's version, which understands no other; else the one that is
    installed with pyspark."""
    users = os.environ.get("SPARK_HOME")
    if users and any(Path(users, "jars").glob(f"spark-core_*-{pyspark.__version__}*.jar")):
        return Path(users)
    return Path(pyspark.__file__).parent


def _await_answer(
    process: "subprocess.Popen[bytes]", answer: Path, given_up: threading.Event, *, within_seconds: float
) -> None:
    """Blocks until the file is there. Raises SparkUnavailableError or TimeoutError."""
    give_up_at = time.monotonic() + within_seconds
    while not answer.exists():
        if process.poll() is not None:
            raise SparkUnavailableError("the JVM ended")
        if given_up.wait(_LOOK_SECONDS):
            raise SparkUnavailableError("the process ends")
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"the JVM gave no answer within {within_seconds:g} s")


def _gateway(answer: bytes) -> Any:
    """The bridge to the JVM that gave this answer. Raises SPARK_FAILURES."""
    port, length = _ADDRESS.unpack_from(answer)
    secret = answer[_ADDRESS.size : _ADDRESS.size + length].decode()
    # pyspark reads them from the environment only.
    given = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(given)
    try:
        return launch_gateway()
    finally:
        for name in given:
            del os.environ[name]


def end_jvm(gateway: Any, *, within_seconds: float = 5.0) -> None:
    """End the JVM and remove its directory. It is killed after `within_seconds`. Blocks."""
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=within_seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
    directory: WorkDirectory = getattr(gateway, _OWN_DIRECTORY)
    directory.remove()


def kill_jvm(gateway: Any) -> None:
    """At once. Its directory is left for `end_jvm`."""
    _kill(gateway.proc)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """With what it has started: it leads a session of its own."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    if process.stdin is not None:
        process.stdin.close()
    process.wait()


def _write_private(file: Path, text: str) -> None:
    handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as out:
        out.write(text)
