"""Starts Spark's JVM so that no other user of the machine can read its settings, sockets or files.

Its settings may contain secrets (`twinlog.spark.conf.*`), and every user can read command lines. So settings
are passed in a file of mode 0600, which is removed after it was read. Sockets, blocks and temporary files are
in one directory of mode 0700, because Python workers run the code that their socket receives. The directory
is removed with the JVM; directories that killed processes left are removed at the next start.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from twinlog.errors import TwinlogError
from twinlog.machine.work_directory import WorkDirectory
from twinlog.properties_text import render_properties
from twinlog_source.pipeline.jvm_log import JvmOutput

SPARK_FAILURES = (Py4JError, PySparkException, OSError)
DIRECTORY_PREFIX = "twinlog-spark-"
PRIVATE = 0o077
"""The umask of the JVM and of the Python workers."""

_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
_SUBMIT_DEFAULT = "pyspark-shell"
_SOCKET_NAME_BYTES = 43
"""`/.<uuid>.sock`"""
_SOCKET_PATH_BYTES = 103
"""What fits into the address of a Unix socket on every system."""
_OWN_DIRECTORY = "_twinlog_directory"


class SparkUnavailableError(TwinlogError):
    """There is no JVM or no master, or it was lost: tried again."""

    retriable = True
    default_reason = "SPARK_UNAVAILABLE"


def socket_settings(directory: Path) -> Mapping[str, str]:
    """Speak with Python by Unix sockets where the paths of those in the JVM's directory fit into an address.
    Elsewhere (TMPDIR is long on macOS) by TCP on loopback, with Spark's secret.

    >>> socket_settings(Path("/tmp/twinlog-spark-x"))
    {'spark.python.unix.domain.socket.enabled': 'true'}
    >>> socket_settings(Path("/a-long-way" * 9))
    {'spark.python.unix.domain.socket.enabled': 'false'}
    """
    fits = len(os.fsencode(directory)) + _SOCKET_NAME_BYTES <= _SOCKET_PATH_BYTES
    return {"spark.python.unix.domain.socket.enabled": str(fits).lower()}


def directory_settings(directory: Path) -> Mapping[str, str]:
    """Settings that keep all files of a Spark on this machine in one directory."""
    return {"spark.local.dir": str(directory), "spark.python.unix.domain.socket.dir": str(directory)}


def launch_jvm(conf: SparkConf, directory: WorkDirectory, *, master: str) -> tuple[Any, JvmOutput]:
    """Start a JVM; return the bridge to it, and its output. `end_jvm` removes `directory`; so does this
    function if the JVM does not start, and raises SparkUnavailableError with the JVM's last output."""
    settings = directory.path / "spark.properties"
    _write_private(settings, render_properties(dict(conf.getAll())))
    # A pipe of our own: pyspark drops the pipe of a JVM that ended before it answered.
    our_end, jvm_end = os.pipe()
    output = JvmOutput(os.fdopen(our_end, "rb"))
    given = os.environ.get(_SUBMIT_ARGS)
    os.environ[_SUBMIT_ARGS] = (
        f"--load-spark-defaults --properties-file {shlex.quote(str(settings))} {given or _SUBMIT_DEFAULT}"
    )
    try:
        with os.fdopen(jvm_end, "wb") as stdout:
            # The JVM ends by itself when the pipe to its stdin breaks, however this process ends.
            gateway = launch_gateway(
                popen_kwargs={
                    "stdout": stdout,
                    "stderr": subprocess.STDOUT,
                    "start_new_session": True,
                    "umask": PRIVATE,
                },
            )
    except SPARK_FAILURES as error:
        why = output.last_words() or (str(error).strip() or type(error).__name__).splitlines()[0]
        directory.remove()
        raise SparkUnavailableError(f"Spark ({master}) did not start: {why}") from error
    finally:
        if given is None:
            del os.environ[_SUBMIT_ARGS]
        else:
            os.environ[_SUBMIT_ARGS] = given
        settings.unlink(missing_ok=True)
    setattr(gateway, _OWN_DIRECTORY, directory)
    return gateway, output


def end_jvm(gateway: Any, *, within_seconds: float = 5.0) -> None:
    """End the JVM and remove its directory. It is killed after `within_seconds`. Blocks."""
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=within_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    directory: WorkDirectory = getattr(gateway, _OWN_DIRECTORY)
    directory.remove()


def _write_private(file: Path, text: str) -> None:
    handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as out:
        out.write(text)
