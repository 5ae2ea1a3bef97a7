"""Spark's Python fork server, with what every task needs already loaded.

Workers are forks of this process: what is imported here is shared memory and costs a new worker nothing, so
a task that replaces a dead one starts in milliseconds. Nothing here may start a thread or open a socket
before the fork.
"""

import gc
import os

from pyspark.daemon import manager

import twinlog_source.task.run
from twinlog_source.task.memory import keep_freed_memory

if __name__ == "__main__":
    assert twinlog_source.task.run is not None
    # On an executor of a cluster too: a worker runs what comes in by its socket.
    os.umask(0o077)
    keep_freed_memory()
    # A full collection in a worker then looks at what its tasks made, not at 65,000 objects that stay: that
    # takes tens of milliseconds of a running copy, and ends the sharing of their memory.
    gc.collect()
    gc.freeze()
    manager()
