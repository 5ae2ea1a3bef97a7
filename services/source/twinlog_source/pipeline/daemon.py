"""Spark's Python fork server, with everything loaded that tasks need.

Workers are forks of this process: imported modules are shared memory, so a new worker starts in milliseconds.
Nothing here may start a thread or open a socket before the fork.
"""

import gc
import importlib
import os
import socket
import sys

# Spark puts an archive before the installed package that it lies in. Python compiles an archive's modules in
# every process: half a second of CPU for this one, and a tenth for each worker.
_ARCHIVE = "/pyspark/python/lib/pyspark.zip"
sys.path[:] = [entry.removesuffix(_ARCHIVE) for entry in sys.path]

import pyspark.daemon as spark_daemon  # noqa: E402 (from where it is to be loaded)

import twinlog_source.pipeline.job  # noqa: E402
from twinlog_source.task.settings import keep_freed_memory  # noqa: E402

_work = spark_daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run one task after another. Spark closes the socket of a worker that had none for a minute, and of
    all of them when its JVM is gone: that is an end, not a failure with a traceback."""
    try:
        return int(_work(sock, authenticated))
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    assert twinlog_source.pipeline.job is not None
    # Otherwise each worker would load it. It does not load pyarrow, whose threads would be lost in a fork.
    importlib.import_module("pyspark.worker")
    # Also on an executor of a cluster: a worker runs the code that its socket receives.
    os.umask(0o077)
    keep_freed_memory()
    # A full collection in a worker then only scans the objects of its tasks, not 65,000 long-lived ones. That
    # would take tens of milliseconds, and end the sharing of their memory.
    gc.collect()
    gc.freeze()
    spark_daemon.worker = worker
    spark_daemon.manager()
