"""The Spark session for the copy, with measured settings and a reason for each.

Bytes of records never enter the JVM: Spark schedules epochs, starts and replaces the Python workers, and
spreads them over a cluster.
"""

import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext

from twinlog.machine.work_directory import WorkDirectory
from twinlog_source.pipeline.class_archive import class_path, use_archive
from twinlog_source.pipeline.jvm_log import JvmOutput, silence_py4j, words_of
from twinlog_source.pipeline.launch import (
    DIRECTORY_PREFIX,
    PRIVATE,
    SPARK_FAILURES,
    SparkUnavailableError,
    directory_settings,
    end_jvm,
    launch_jvm,
    socket_settings,
)

__all__ = [
    "SPARK_FAILURES",
    "SparkUnavailableError",
    "close_context",
    "is_local",
    "is_stopped",
    "local_cores",
    "open_context",
    "resolve_master",
]

LOG4J_PROPERTIES = Path(__file__).with_name("log4j2.properties")

DRIVER_JVM_OPTIONS = " ".join(
    (
        "-XX:+UseSerialGC",  # The heap is small: parallel collectors only add threads.
        "-XX:TieredStopAtLevel=1",  # The JVM schedules a job per epoch, so optimised code is never needed.
        # By default the young generation grows with the machine's memory, and stays resident once it was
        # filled.
        "-Xms48m -Xmn24m",
        "-Xss512k",
        "-XX:-UsePerfData",
        f"-Dlog4j2.configurationFile={LOG4J_PROPERTIES.as_uri()}",
    )
)
TASK_FAILURES = 1_000_000
"""A lost task joins its slot again, as often as necessary: the driver decides when an epoch ends."""

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    # Each slot's next epoch is scheduled while the old one runs, so jobs must not queue behind each other.
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "false",  # A second copy of a task would be a second writer.
    "spark.python.worker.reuse": "true",
    "spark.task.maxFailures": str(TASK_FAILURES),
    "spark.python.daemon.module": "twinlog_source.pipeline.daemon",
    "spark.locality.wait": "0s",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Without it, the driver and the block manager deserialise Java objects from anybody who reaches their
    # ports.
    "spark.authenticate": "true",
}
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
CLUSTER_SETTINGS: Mapping[str, str] = {
    "spark.network.crypto.enabled": "true",
    # The encryption library is unpacked to a file that a killed executor leaves behind. Put it into the
    # executor's working directory, which the worker cleans up, instead of /tmp.
    "spark.executor.defaultJavaOptions": "-Dcommons.crypto.lib.tempdir=.",
}


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
    """Start the JVM; return its context, and its output. Blocks for seconds: call it in a thread. Sets the
    process's umask to 077 for part of the time.

    `extra` are the user's `twinlog.spark.conf.*`, which take precedence. `environment` (JAVA_HOME and the
    like) is set for this process before the JVM is launched. `jvm_options` replace those that use the class
    archive. Raises SparkUnavailableError when Java or the master is missing.
    """
    os.environ.update(environment)
    # By default Spark uses `python3` from PATH, which need not be this environment's.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local(master):
        # By default Spark resolves this machine's name, and fails if that name is unknown.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf(loadDefaults=False)
    conf.setMaster(resolve_master(master, threads)).setAppName(app_name)
    more_options = use_archive() if jvm_options is None else jvm_options
    conf.set("spark.driver.extraClassPath", class_path())
    directory = WorkDirectory(DIRECTORY_PREFIX)
    in_directory = f'"-Djava.io.tmpdir={directory.path}"'
    conf.set("spark.driver.extraJavaOptions", f"{DRIVER_JVM_OPTIONS} {in_directory} {more_options}".rstrip())
    of_place: Mapping[str, str]
    if is_local(master):
        of_place = {**LOCAL_SETTINGS, **directory_settings(directory.path)}
    else:
        # Spark refuses encryption without authentication.
        of_place = {} if extra.get("spark.authenticate") == "false" else CLUSTER_SETTINGS
    # Loopback TCP costs a delayed acknowledgement of 40 ms per exchange with the worker.
    for settings in (SETTINGS, socket_settings(directory.path), of_place, extra):
        for name, value in settings.items():
            conf.set(name, value)
    silence_py4j()
    gateway, output = launch_jvm(conf, directory, master=master)
    umask = os.umask(PRIVATE)  # pyspark opens a socket of its own, which accepts pickled objects.
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        context.setLogLevel("ERROR")
    except SPARK_FAILURES as error:
        # Only a running JVM can explain its exception.
        why = _java_words(error)
        close_context(None)
        why = why or output.last_words() or type(error).__name__
        raise SparkUnavailableError(f"Spark ({master}) did not start: {why}") from error
    finally:
        os.umask(umask)
    return context, output


def is_stopped(context: SparkContext) -> bool:
    """Whether Spark has given up a context whose JVM still runs, as it does without a master. Raises
    SPARK_FAILURES when the JVM is gone."""
    return bool(context._jsc.sc().isStopped())


def close_context(context: SparkContext | None) -> None:
    """Stop Spark and its JVM, so that this process can open another context. Blocks for up to some
    seconds."""
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
    end_jvm(gateway)


def _java_words(error: BaseException) -> str:
    """The message of a Java exception; empty for one of py4j, and when the JVM is gone."""
    try:
        return words_of(str(error)) if isinstance(error, Py4JJavaError) else ""
    except SPARK_FAILURES:
        return ""
