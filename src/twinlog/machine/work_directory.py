"""A directory for one cluster's data. It goes with its owner, at the latest when the next is made."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_LOCK = ".owner"


class WorkDirectory:
    """A new directory under the system's temporary one. `remove` deletes it.

    A lock in it is held as long as this process lives; making one removes those of dead owners.
    """

    def __init__(self, prefix: str) -> None:
        _remove_abandoned(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        draft = self.path / f"{_LOCK}.draft"
        self._lock = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Under its name only once it is locked: a process that finds it free may delete the directory.
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
                continue  # somebody else's, whatever it is called
        with contextlib.suppress(OSError), (directory / _LOCK).open("r+") as lock:
            # Raises BlockingIOError while its owner lives.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
