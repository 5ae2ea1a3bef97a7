"""The settings of Spark for the copy, each with its reason. Their values were measured."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

LOG4J_PROPERTIES = Path(__file__).with_name("log4j2.properties")

DRIVER_JVM_OPTIONS = " ".join(
    (
        "-XX:+UseSerialGC",  # The heap is small: parallel collectors only add threads.
        # The JVM schedules a job per worker: optimised code is not needed, and one thread compiles the rest.
        "-XX:TieredStopAtLevel=1 -XX:CICompilerCount=1",
        # By default the young generation grows with the machine's memory, and stays resident once it was
        # filled.
        "-Xms32m -Xmn12m",
        "-Xss512k",
        "-XX:-UsePerfData",
        "-XX:TrimNativeHeapInterval=30000",  # Compilers free 7 MB after the start; glibc would keep them.
        f"-Dlog4j2.configurationFile={LOG4J_PROPERTIES.as_uri()}",
    )
)
SQL_JVM_OPTIONS = "-XX:TieredStopAtLevel=4 -XX:CICompilerCount=2 -Xms96m -Xmn32m -Xss4m"
"""With Spark SQL the JVM runs code that it has generated on each record, and reads long expressions."""
SQL_SETTINGS = {"spark.python.udf.pipelined.enabled": "true"}
"""Otherwise Spark reads what a Python function returns only when there is no next record to give it, and
waits for that one."""
_SOCKET_NAME_BYTES = 43
"""`/.<uuid>.sock`"""
_SOCKET_PATH_BYTES = 103
"""What fits into the address of a Unix socket on every system."""

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.speculation": "false",  # A second copy of a task would be a second writer.
    "spark.python.worker.reuse": "true",
    "spark.task.maxFailures": "1",  # The driver decides whether and when a lost worker is run again.
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
_ALLOCATION = "spark.dynamicAllocation.enabled"
STANDALONE_SETTINGS: Mapping[str, str] = {
    # An application of a standalone cluster takes all cores that it may have when it starts, and keeps them:
    # a process on standby would hold those for which the owner of a flow waits.
    _ALLOCATION: "true",
    "spark.dynamicAllocation.executorIdleTimeout": "10s",
}
"""Not with Spark SQL: a flow whose records are changed counts the cores that are there."""


def keeps_cores(master: str, conf: Mapping[str, str], *, with_sql: bool) -> bool:
    """Whether Spark holds the cores that it got when it started, also while nothing runs.

    >>> keeps_cores("spark://m:7077", {}, with_sql=True), keeps_cores("spark://m:7077", {}, with_sql=False)
    (True, False)
    >>> keeps_cores("spark://m:7077", {"spark.dynamicAllocation.enabled": "true"}, with_sql=True)
    False
    """
    default = "false" if with_sql else STANDALONE_SETTINGS[_ALLOCATION]
    return master.startswith("spark://") and conf.get(_ALLOCATION, default) != "true"


def is_local(master: str) -> bool:
    return master.startswith("local")


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


def promised_cores(conf: Mapping[str, str]) -> int | None:
    """Those of dynamic allocation, which gives Spark what waits for a core; None = what it has now is all.

    >>> conf = {"spark.dynamicAllocation.enabled": "true", "spark.executor.cores": "2"}
    >>> promised_cores(conf)
    >>> promised_cores({**conf, "spark.dynamicAllocation.maxExecutors": "4"})
    8
    """
    most, each = conf.get("spark.dynamicAllocation.maxExecutors", ""), conf.get("spark.executor.cores", "")
    if conf.get(_ALLOCATION) != "true" or not (most.isdecimal() and each.isdecimal()):
        return None
    return int(most) * int(each)


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


def spark_settings(
    *,
    app_name: str,
    master: str,
    threads: int,
    directory: Path,
    extra: Mapping[str, str],
    with_sql: bool = False,
) -> dict[str, str]:
    """All settings of a Spark that keeps its files in `directory`. `extra` are the user's and take
    precedence. `with_sql`: records pass through it."""
    options = f"{DRIVER_JVM_OPTIONS} {SQL_JVM_OPTIONS}" if with_sql else DRIVER_JVM_OPTIONS
    if is_local(master):
        of_place = {**LOCAL_SETTINGS, **directory_settings(directory)}
    elif extra.get("spark.authenticate") == "false":
        of_place = {}  # Spark refuses encryption without authentication.
    else:
        of_place = {**CLUSTER_SETTINGS}
    if master.startswith("spark://") and not with_sql:
        of_place |= STANDALONE_SETTINGS
    return {
        "spark.master": f"local[{threads}]" if is_local(master) else master,
        "spark.app.name": app_name,
        "spark.driver.extraJavaOptions": f'{options} "-Djava.io.tmpdir={directory}"',
        **SETTINGS,
        **(SQL_SETTINGS if with_sql else {}),
        # Loopback TCP costs a delayed acknowledgement of 40 ms per exchange with the worker.
        **socket_settings(directory),
        **of_place,
        **extra,
    }
