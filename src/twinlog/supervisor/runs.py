"""Which `twinlog run`s live on this machine, for the user's eyes and for the command line: a file per run,
with a lock that the run holds.

The lock is free as soon as the run is gone, however it went, and then its file means nothing. Everything here
blocks, for the time of a few small files.
"""

import contextlib
import fcntl
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from twinlog.machine.file_lock import is_locked
from twinlog.machine.paths import state_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class LivingRun:
    """What a run tells of itself. Holds no secret."""

    pid: int
    config: str
    """The properties file, with links resolved."""
    listens: Mapping[str, str]
    """Service -> the address it is bound to."""
    endpoints: Mapping[str, str]
    """Service -> where the command line reaches it."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Service -> the address where it serves its metrics."""

    def is_of(self, config: Path) -> bool:
        return self.config == str(config.resolve())


@contextlib.contextmanager
def beginning() -> Iterator[None]:
    """One run at a time of this user looks at the others and is announced: two that begin together would take
    the same addresses. Waits for a run that is about to be; does nothing where nothing can be written.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            _make_directory()
            lock = stack.enter_context((_directory() / "beginning.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def announced(run: LivingRun) -> Iterator[None]:
    """Tell of the run while the context lasts. Raises OSError where nothing can be written."""
    _make_directory()
    _forget_the_dead()
    file = _directory() / f"{uuid.uuid4().hex}.json"
    draft = file.with_suffix(".draft")
    with draft.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        json.dump(asdict(run), lock)
        lock.flush()
        draft.rename(file)
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def living_runs() -> list[LivingRun]:
    """All runs of this user that live now; none where nothing can be read."""
    found = []
    for file in _files():
        with contextlib.suppress(OSError, ValueError, TypeError):
            if is_locked(file):
                found.append(LivingRun(**json.loads(file.read_text())))
    return found


def _forget_the_dead() -> None:
    for file in _files():
        with contextlib.suppress(OSError):
            if not is_locked(file):
                file.unlink()


def _files() -> list[Path]:
    try:
        return sorted(_directory().glob("*.json"))
    except OSError:
        return []


def _make_directory() -> None:
    _directory().mkdir(parents=True, exist_ok=True, mode=0o700)


def _directory() -> Path:
    return state_dir() / "runs"
