"""Twinlog's directories, by the XDG base directory rules.

Not `platformdirs`: its directories differ on macOS, and one page of documentation should hold everywhere.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from twinlog.errors import ConfigError

# A directory for one cluster's data, removed with its owner, or by the next owner.

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


# Tells from a file's lock whether the owning process lives: the lock is free as soon as that process is
# gone.
#
# Not `filelock`, which takes locks; this looks at another process's lock.


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


def cache_dir() -> Path:
    """For files that can be fetched or made again: jars, class archives, Java wrappers. Does not create
    it."""
    return _base("XDG_CACHE_HOME", ".cache")


def writable_cache(*parts: str) -> Path:
    """Create and return a directory below `cache_dir`. Raises ConfigError that names it and the remedy."""
    directory = cache_dir().joinpath(*parts)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(directory, os.W_OK) else "no right to write there"
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise ConfigError(
            f"cannot keep Kafka's files in {directory}: {why}."
            " Set XDG_CACHE_HOME to a directory that can be written.",
            reason="CACHE_UNWRITABLE",
            metadata={"directory": str(directory)},
        )
    return directory


def state_dir() -> Path:
    """For files about running clusters. Does not create it."""
    return _base("XDG_STATE_HOME", ".local/state")


def _base(variable: str, below_home: str) -> Path:
    root = os.environ.get(variable, "")
    # The XDG rules ask to ignore relative values.
    if root.startswith("/"):
        return Path(root, "twinlog")
    try:
        return Path.home() / below_home / "twinlog"
    except RuntimeError as error:
        raise FileNotFoundError(f"this user has no home directory: set {variable}") from error
