"""The Spark session that carries the copy: settings whose values were measured, each with its reason.

Bytes of records never enter the JVM: Spark schedules epochs, starts and replaces the Python workers, and
spreads them over a cluster.
"""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from twinlog.errors import TwinlogError
from twinlog_source.pipeline.class_archive import class_path, use_archive
from twinlog_source.pipeline.jvm_log import JvmOutput, silence_py4j, words_of

LOG4J_PROPERTIES = Path(__file__).with_name("log4j2.properties")
SPARK_FAILURES = (Py4JError, PySparkException, OSError)

DRIVER_JVM_OPTIONS = " ".join(
    (
        "-XX:+UseSerialGC",  # one small heap: parallel collectors only add threads
        "-XX:TieredStopAtLevel=1",  # the JVM schedules a job per epoch: peak code is never reached
        # By default the young generation grows with the machine, and what was once filled stays resident.
        "-Xms48m -Xmn24m",
        "-Xss512k",
        "-XX:-UsePerfData",
        f"-Dlog4j2.configurationFile={LOG4J_PROPERTIES.as_uri()}",
    )
)
TASK_FAILURES = 1_000_000
"""A task that was lost joins its slot again, as often as it takes: the driver decides when an epoch ends."""

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    # Each slot's next epoch is scheduled while the old one runs: jobs must not queue behind each other.
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "false",  # a second copy of a task would be a second writer
    "spark.python.worker.reuse": "true",
    # Loopback TCP costs a delayed acknowledgement of 40 ms per exchange with the worker.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.task.maxFailures": str(TASK_FAILURES),
    "spark.python.daemon.module": "twinlog_source.pipeline.daemon",
    "spark.locality.wait": "0s",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


class SparkUnavailableError(TwinlogError):
    """No JVM, no master, or lost in the middle: tried again."""

    retriable = True
    default_reason = "SPARK_UNAVAILABLE"


def is_local(master: str) -> bool:
    return master.startswith("local")


def resolve_master(master: str, threads: int) -> str:
    """`local`, `local[n]` and `local[*]` mean as many threads as hand-over needs; any other master is taken
    as it is.

    >>> resolve_master("local[*]", 4)
    'local[4,1000000]'
    >>> resolve_master("spark://host:7077", 4)
    'spark://host:7077'
    """
    return f"local[{threads},{TASK_FAILURES}]" if is_local(master) else master


def local_cores(master: str) -> int | None:
    """Slots that a local master asks for: n of `local[n]`, one per core of `local[*]`; None for a cluster.

    >>> local_cores("local[3]")
    3
    """
    if not is_local(master):
        return None
    named = re.match(r"local\[(\d+)", master)
    if named:
        return int(named[1])
    return 1 if master == "local" else len(os.sched_getaffinity(0))


def open_context(
    *,
    app_name: str,
    master: str,
    threads: int,
    extra: Mapping[str, str],
    environment: Mapping[str, str],
    jvm_options: str | None = None,
) -> tuple[SparkContext, JvmOutput]:
    """Start the JVM; its context, and what it writes. Blocks for seconds: call it in a thread.

    `extra` are the user's `twinlog.spark.conf.*` and win over ours. `environment` (JAVA_HOME and the like)
    is set for this process before the JVM is launched. `jvm_options` take the place of those that use the
    class archive. Raises SparkUnavailableError when Java or the master is missing.
    """
    os.environ.update(environment)
    # Spark takes `python3` of PATH otherwise, which need not be the environment that we are installed in.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local(master):
        # Spark asks for this machine's address by its name otherwise, and ends where that name is not known.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf(loadDefaults=False)
    conf.setMaster(resolve_master(master, threads)).setAppName(app_name)
    more_options = use_archive() if jvm_options is None else jvm_options
    conf.set("spark.driver.extraClassPath", class_path())
    conf.set("spark.driver.extraJavaOptions", f"{DRIVER_JVM_OPTIONS} {more_options}".rstrip())
    for settings in (SETTINGS, LOCAL_SETTINGS if is_local(master) else {}, extra):
        for name, value in settings.items():
            conf.set(name, value)
    silence_py4j()
    gateway, output = _launch_jvm(conf, master)
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        context.setLogLevel("ERROR")
    except SPARK_FAILURES as error:
        # Only a JVM that is up can be asked what its exception says.
        why = _java_words(error)
        close_context(None)
        why = why or output.last_words() or type(error).__name__
        raise SparkUnavailableError(f"Spark ({master}) did not start: {why}") from error
    return context, output


def is_stopped(context: SparkContext) -> bool:
    """Whether Spark has given a context up while its JVM lives on, as it does without a master. Raises
    SPARK_FAILURES when the JVM is gone."""
    return bool(context._jsc.sc().isStopped())


def close_context(context: SparkContext | None) -> None:
    """Stop Spark and its JVM, and make room for another one in this process. Blocks up to some seconds."""
    gateway = SparkContext._gateway
    if context is not None:
        try:
            context.stop()
        except SPARK_FAILURES:
            logging.getLogger(__name__).debug("the JVM was gone already")
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _launch_jvm(conf: SparkConf, master: str) -> tuple[Any, JvmOutput]:
    """The bridge to a new JVM, and what that writes. Raises SparkUnavailableError with the last words of one
    that did not start."""
    # A pipe of our own: pyspark lets go of that of a JVM which ended before it answered.
    our_end, jvm_end = os.pipe()
    output = JvmOutput(os.fdopen(our_end, "rb"))
    try:
        with os.fdopen(jvm_end, "wb") as stdout:
            # The JVM ends by itself when the pipe to its stdin breaks, however this process ends.
            gateway = launch_gateway(
                conf,
                popen_kwargs={"stdout": stdout, "stderr": subprocess.STDOUT, "start_new_session": True},
            )
    except SPARK_FAILURES as error:
        why = output.last_words() or (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SparkUnavailableError(f"Spark ({master}) did not start: {why}") from error
    return gateway, output


def _java_words(error: BaseException) -> str:
    """What an exception of Java says; empty for one of the bridge, and when the JVM is gone."""
    try:
        return words_of(str(error)) if isinstance(error, Py4JJavaError) else ""
    except SPARK_FAILURES:
        return ""
