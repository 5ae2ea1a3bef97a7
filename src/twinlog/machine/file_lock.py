"""Locks that tell whether the process behind a file lives: free as soon as it is gone, however it went.

Not `filelock`: it takes locks; here somebody else's is looked at.
"""

import fcntl
import os
from pathlib import Path


def is_locked(file: Path) -> bool:
    """Whether a process holds the file's lock (flock) exclusively. Raises OSError, FileNotFoundError too."""
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
