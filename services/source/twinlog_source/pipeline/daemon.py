"""Spark's Python fork server, with what every task needs already loaded.

Workers are forks of this process: what is imported here is shared memory and costs a new worker nothing, so
a task that replaces a dead one starts in milliseconds. Nothing here may start a thread or open a socket
before the fork.
"""

import ctypes
import sys

from pyspark.daemon import manager

import twinlog_source.task.run

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST_REUSED_BLOCK_BYTES = 32 << 20
KEPT_FREE_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Tell glibc to reuse freed megabyte blocks: giving them back costs 17x the copy itself."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, LARGEST_REUSED_BLOCK_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_FREE_BYTES)


if __name__ == "__main__":
    assert twinlog_source.task.run is not None
    keep_freed_memory()
    manager()
