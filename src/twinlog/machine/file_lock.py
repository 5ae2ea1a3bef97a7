"""Tells from a file's lock whether the owning process lives: the lock is free as soon as that process is
gone.

Not `filelock`, which takes locks; this looks at another process's lock.
"""

import fcntl
import os
from pathlib import Path


def is_locked(file: Path) -> bool:
    """Whether a process holds the file's lock (flock) exclusively. Raises OSError, including
    FileNotFoundError."""
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
