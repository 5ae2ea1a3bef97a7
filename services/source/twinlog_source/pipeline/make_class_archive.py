"""Makes the class archive of Spark's JVM: `python -m twinlog_source.pipeline.make_class_archive`."""

import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path

from pyspark import SparkContext

from twinlog.errors import TwinlogError
from twinlog.machine.java import Java, JavaNotFoundError, find_java, spark_environment
from twinlog_source.pipeline.class_archive import archives_of, base_archive, class_archive, write_archive
from twinlog_source.pipeline.launch import SparkUnavailableError, end_jvm
from twinlog_source.pipeline.session import open_context

_WRITE_SECONDS = 120.0


def make_archive(java: Java, archive: Path) -> None:
    """Start Spark once, run a job, and let its JVM write the archive at its exit. Blocks for about ten
    seconds. Raises SparkUnavailableError, also when the JVM wrote nothing."""
    draft = archive.with_suffix(f".{os.getpid()}")
    context, _ = open_context(
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
    end_jvm(gateway, within_seconds=_WRITE_SECONDS)
    if not draft.is_file():
        raise SparkUnavailableError(f"{java.executable} wrote no archive of its classes")
    # The JVM's umask is private, but an image is built by one user and run by another.
    draft.chmod(0o644)
    # If two processes create it, the last one wins; both archives have the same classes.
    draft.replace(archive)


def make_base(java: Java, archive: Path) -> None:
    """Write the archive of this Java's own classes. Blocks for some seconds. Raises SubprocessError."""
    draft = archive.with_suffix(f".{os.getpid()}")
    command = (java.executable, "-Xshare:dump", f"-XX:SharedArchiveFile={draft}")
    subprocess.run(command, check=True, capture_output=True, timeout=_WRITE_SECONDS)
    draft.replace(archive)


def remember(java: Java) -> None:
    """Record next to the archives that this Java has some, so that `remove_useless` keeps them. Raises
    OSError."""
    notes = _notes(java)
    if str(java.java_home) not in _noted_homes(notes):
        notes.parent.mkdir(parents=True, exist_ok=True)
        with notes.open("a") as file:
            file.write(f"{java.java_home}\n")


def remove_useless(java: Java) -> None:
    """Remove the archives that nothing can use any more: of a replaced Spark, or of a Java that is gone or
    was updated. Those of `java` and of every other recorded Java stay. A running JVM keeps using its archive
    after the removal. Raises OSError."""
    useful = {archive.stem for archive in archives_of(java)}
    notes = _notes(java)
    for home in _noted_homes(notes):
        with contextlib.suppress(JavaNotFoundError):
            useful.update(archive.stem for archive in archives_of(find_java({"JAVA_HOME": home})))
    for kind in ("java", "spark"):
        # Also drafts, whose suffix is a process id.
        for file in notes.parent.glob(f"{kind}-*.*"):
            if file.stem not in useful:
                file.unlink(missing_ok=True)


def _notes(java: Java) -> Path:
    return class_archive(java).with_name("javas")


def _noted_homes(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.is_file() else []


def main() -> None:
    java = find_java()
    archive, base = class_archive(java), base_archive(java)
    with contextlib.suppress(OSError):
        # Where nothing can be written, nothing is removed either.
        remember(java)
    if archive.is_file():
        return
    sys.stdout.write("Preparing a faster start of Spark (once)…\n")
    sys.stdout.flush()
    # A Python worker that is stopped halfway prints a traceback.
    logging.getLogger("twinlog_source.spark").setLevel(logging.ERROR)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        if base is not None:
            make_base(java, base)
        make_archive(java, archive)
    except (TwinlogError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Spark will start as ever, in twice the time: {error}\n")
        return
    with contextlib.suppress(OSError):
        remove_useless(java)


if __name__ == "__main__":
    main()
