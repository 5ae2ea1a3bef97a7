"""A directory for one cluster's data, removed with its owner, or by the next owner."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_LOCK = ".owner"


class WorkDirectory:
    """A new directory under the system's temporary one. `remove` deletes it.

    This process holds a lock in it as long as it lives. Creating one removes the directories of dead owners.
    """

    def __init__(self, prefix: str) -> None:
        _remove_abandoned(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        draft = self.path / f"{_LOCK}.draft"
        self._lock = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # It gets its name only once it is locked: a process that finds it unlocked may delete it.
        draft.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _remove_abandoned(prefix: str) -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if directory.lstat().st_uid != os.getuid():
                continue  # another program's directory
        with contextlib.suppress(OSError), (directory / _LOCK).open("r+") as lock:
            # Raises BlockingIOError while its owner lives.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
