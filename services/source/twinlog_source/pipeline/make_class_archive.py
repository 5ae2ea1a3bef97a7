"""Makes the class archive of Spark's JVM: `python -m twinlog_source.pipeline.make_class_archive`."""

import logging
import os
import subprocess
import sys
from pathlib import Path

from pyspark import SparkContext

from twinlog.errors import TwinlogError
from twinlog.local.java import Java, find_java, spark_environment
from twinlog_source.pipeline.class_archive import base_archive, class_archive, write_archive
from twinlog_source.pipeline.session import SparkUnavailableError, open_context

_WRITE_SECONDS = 120.0


def make_archive(java: Java, archive: Path) -> None:
    """Start Spark once, run a job, and let its JVM write down at its exit what it loaded. Blocks for some ten
    seconds. Raises SparkUnavailableError, also when the JVM wrote nothing.
    """
    draft = archive.with_suffix(f".{os.getpid()}")
    context = open_context(
        app_name="twinlog-class-archive",
        master="local[1]",
        threads=2,
        extra={},
        environment=spark_environment(),
        jvm_options=write_archive(java, draft),
    )
    context.parallelize([1, 2], 2).mapPartitions(list).collect()
    gateway = SparkContext._gateway
    context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_WRITE_SECONDS)
    if not draft.is_file():
        raise SparkUnavailableError(f"{java.executable} wrote no archive of its classes")
    # Whoever comes last wins: both have archived the same classes.
    draft.replace(archive)


def make_base(java: Java, archive: Path) -> None:
    """Write down this Java's own classes. Blocks for some seconds. Raises SubprocessError."""
    draft = archive.with_suffix(f".{os.getpid()}")
    command = (java.executable, "-Xshare:dump", f"-XX:SharedArchiveFile={draft}")
    subprocess.run(command, check=True, capture_output=True, timeout=_WRITE_SECONDS)
    draft.replace(archive)


def main() -> None:
    java = find_java()
    archive, base = class_archive(java), base_archive(java)
    if archive.is_file():
        return
    sys.stdout.write("Preparing a quicker start of Spark, once…\n")
    sys.stdout.flush()
    # A Python worker that is stopped in the middle complains by a traceback.
    logging.getLogger("twinlog_source.spark").setLevel(logging.ERROR)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        if base is not None:
            make_base(java, base)
        make_archive(java, archive)
    except (TwinlogError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Spark will start as ever, in twice the time: {error}\n")


if __name__ == "__main__":
    main()
