"""The Spark session for the copy.

Bytes of records never enter the JVM: Spark schedules epochs, starts and replaces the Python workers, and
spreads them over a cluster.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext

from twinlog.machine import WorkDirectory
from twinlog_source.pipeline.jvm_log import JvmOutput, silence_py4j, words_of
from twinlog_source.pipeline.launch import (
    DIRECTORY_PREFIX,
    PRIVATE,
    SPARK_FAILURES,
    SparkUnavailableError,
    end_jvm,
    kill_jvm,
    launch_jvm,
)
from twinlog_source.pipeline.settings import is_local, spark_settings

ANSWER_SECONDS = 20.0
"""How long a JVM may take to answer a question or to stop; garbage collection and load take some of it."""
SILENT_SECONDS = 60.0
"""The same for one that nobody waits for."""


def open_context(
    *,
    app_name: str,
    master: str,
    threads: int,
    extra: Mapping[str, str],
    environment: Mapping[str, str],
    with_sql: bool = False,
    given_up: threading.Event | None = None,
) -> tuple[SparkContext, JvmOutput]:
    """Start the JVM; return its context, and its output. Blocks for seconds: call it in a thread. Sets the
    process's umask to 077 for part of the time.

    `extra` are the user's `twinlog.spark.conf.*`, which take precedence. `environment` (JAVA_HOME and the
    like) is set for this process before the JVM is launched. Raises SparkUnavailableError when Java or the
    master is missing, when the JVM does not answer in time, and when `given_up` is set before it answers.
    """
    os.environ.update(environment)
    # By default Spark uses `python3` from PATH, which need not be this environment's.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local(master):
        # By default Spark resolves this machine's name, and fails if that name is unknown.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    directory = WorkDirectory(DIRECTORY_PREFIX)
    settings = spark_settings(
        app_name=app_name,
        master=master,
        threads=threads,
        directory=directory.path,
        with_sql=with_sql,
        extra=extra,
    )
    silence_py4j()
    gateway, output = launch_jvm(settings, directory, master=master, given_up=given_up)
    umask = os.umask(PRIVATE)  # pyspark opens a socket of its own, which accepts pickled objects.
    try:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        context = SparkContext(conf=conf, gateway=gateway)
        # Otherwise the end of a killed JVM is printed as a failure of pyspark's, with its traceback.
        context._accumulatorServer.handle_error = lambda *_: None
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


@contextmanager
def answering(seconds: float = ANSWER_SECONDS) -> Iterator[None]:
    """Kill the JVM if the block takes longer. One that hangs is then gone for everybody who waits for it:
    their calls fail with SPARK_FAILURES."""
    gateway = SparkContext._gateway
    if gateway is None:
        yield
        return
    limit = threading.Timer(seconds, kill_jvm, [gateway])
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


def is_stopped(context: SparkContext) -> bool:
    """Whether Spark has given up a context whose JVM still runs, as it does without a master. Raises
    SPARK_FAILURES when the JVM is gone, or does not answer in time and was killed."""
    with answering():
        return bool(context._jsc.sc().isStopped())


def ui_address(context: SparkContext) -> str:
    """Of Spark's web UI; empty if it is switched off, or its JVM is gone."""
    try:
        with answering():
            return context.uiWebUrl or ""
    except SPARK_FAILURES:
        return ""


def cancel_group(context: SparkContext, group: str) -> None:
    """Kill the tasks of a job group. Raises as `is_stopped` does."""
    with answering():
        context.cancelJobGroup(group)


def executor_cores(context: SparkContext) -> int:
    """How many tasks the executors that have come may run at once. Raises as `is_stopped`."""
    with answering(SILENT_SECONDS):
        spark: Any = context._jsc.sc()
        return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def has_core(context: SparkContext, group: str) -> bool | None:
    """Whether a task of a job group runs; None while the group has no job. Raises as `is_stopped`."""
    with answering(SILENT_SECONDS):
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
    return any(stage is not None and stage.numActiveTasks for stage in stages) if stages else None


def close_context(context: SparkContext | None, *, within_seconds: float = ANSWER_SECONDS) -> None:
    """Stop Spark and its JVM, so that this process can open another context. Blocks for up to some seconds; a
    JVM that takes longer is killed."""
    gateway = SparkContext._gateway
    if context is not None:
        try:
            with answering(within_seconds):
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
