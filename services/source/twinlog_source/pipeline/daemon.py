"""Spark's Python fork server, with what every task needs already loaded.

Workers are forks of this process: what is imported here is shared memory and costs a new worker nothing, so
a task that replaces a dead one starts in milliseconds. Nothing here may start a thread or open a socket
before the fork.
"""

import gc
import importlib
import importlib.util
import os
import sys

from twinlog_source.pipeline.python_path import unpacked

sys.path[:] = unpacked(sys.path)

from pyspark.daemon import manager  # noqa: E402 (from where it is to be loaded)

import twinlog_source.pipeline.job  # noqa: E402
from twinlog_source.task.memory import keep_freed_memory  # noqa: E402

STARTS_THREADS = ("pandas", "pyarrow")
"""What pyspark's worker module loads where it is installed, and what may start threads then."""

if __name__ == "__main__":
    assert twinlog_source.pipeline.job is not None
    if not any(importlib.util.find_spec(name) for name in STARTS_THREADS):
        importlib.import_module("pyspark.worker")  # each worker would load it for itself
    # On an executor of a cluster too: a worker runs what comes in by its socket.
    os.umask(0o077)
    keep_freed_memory()
    # A full collection in a worker then looks at what its tasks made, not at 65,000 objects that stay: that
    # takes tens of milliseconds of a running copy, and ends the sharing of their memory.
    gc.collect()
    gc.freeze()
    manager()
