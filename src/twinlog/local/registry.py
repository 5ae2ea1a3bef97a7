"""The registry of running named clusters for `twinlog local`: one file per cluster, written and locked by its
owner. Each installation, such as a clone's .venv, has its own: nobody ends the clusters of another clone.

Only the user can read the file. The lock is free as soon as the owner is gone, however it ended, and the file
is then void.
"""

import fcntl
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from twinlog.errors import ConflictError
from twinlog.machine import is_locked, state_dir

_POLL_SECONDS = 0.05
_LOCK_SECONDS = 0.3


class BrokerState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    """By `twinlog local stop`."""
    DIED = "died"
    """By itself, by a kill, or during its start."""


class OwnerRequest(StrEnum):
    """A request to the owner; the value is the suffix of the file that carries it."""

    END = "end"
    STOP = "stop"
    START = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    broker_id: int
    pid: int | None
    """None while the cluster does not run."""
    address: str
    log_file: str
    state: BrokerState = BrokerState.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCluster:
    """What `twinlog local status` shows. Holds no secret; `client_file` names a file that may."""

    name: str
    cluster_id: str
    kafka_version: str
    bootstrap_servers: str
    security_protocol: str
    client_file: str
    """Java client properties of the super user."""
    brokers: tuple[RunningBroker, ...]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "RunningCluster":
        brokers = tuple(
            RunningBroker(**{**broker, "state": BrokerState(broker.get("state", BrokerState.RUNNING))})
            for broker in content["brokers"]
        )
        return cls(**{**content, "brokers": brokers})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class ClusterEntry:
    """The owner's hold on a name; `claim` returns it."""

    def __init__(self, name: str, lock: IO[str]) -> None:
        self._name = name
        self._lock = lock

    def is_requested(self, request: OwnerRequest) -> bool:
        """Whether the request was made for this cluster."""
        return _request_file(self._name, request).exists()

    def answer(self, request: OwnerRequest) -> None:
        """Answer the request. `publish` its result first."""
        _request_file(self._name, request).unlink(missing_ok=True)

    def publish(self, cluster: RunningCluster) -> None:
        """Publish the cluster's state; one step replaces the state before."""
        file = _entry_file(self._name)
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(cluster.to_json(), indent=1))
        draft.replace(file)

    def release(self) -> None:
        """Free the name before the context ends. Idempotent."""
        if not self._lock.closed:
            _forget(self._name)
            self._lock.close()


@contextmanager
def claim(name: str) -> Iterator[ClusterEntry]:
    """Own the name while the context lasts. Raises ConflictError when a living process owns it."""
    _directory().mkdir(parents=True, exist_ok=True, mode=0o700)
    with _lock_file(name).open("w") as lock:
        _lock(lock.fileno(), name)
        _forget(name)
        entry = ClusterEntry(name, lock)
        try:
            yield entry
        finally:
            entry.release()


def running_clusters() -> Sequence[RunningCluster]:
    """Clusters whose owners live, by name."""
    found = (find_running(file.stem) for file in sorted(_directory().glob("*.json")))
    return [cluster for cluster in found if cluster is not None]


def find_running(name: str) -> RunningCluster | None:
    """None without such a cluster, or when its owner died."""
    if not is_owned(name):
        return None
    try:
        return RunningCluster.from_json(json.loads(_entry_file(name).read_text()))
    except FileNotFoundError:
        return None


def is_owned(name: str) -> bool:
    """Whether a process holds the name, to start the cluster, run it or end it."""
    try:
        return is_locked(_lock_file(name))
    except FileNotFoundError:
        return False


def request_end(name: str) -> None:
    """Ask the owner to end the cluster; `wait_until_gone` returns when it did."""
    _request_file(name, OwnerRequest.END).touch()


def ask(name: str, request: OwnerRequest, timeout_seconds: float) -> RunningCluster | None:
    """Have the owner stop or start the cluster's brokers. Blocks.

    Returns the cluster's new state; None when it has no owner any more or `timeout_seconds` pass first.
    """
    file = _request_file(name, request)
    file.touch()
    deadline = time.monotonic() + timeout_seconds
    while file.exists():
        if not is_owned(name) or time.monotonic() > deadline:
            return None
        time.sleep(_POLL_SECONDS)
    return find_running(name)


def wait_until_gone(name: str, timeout_seconds: float) -> bool:
    """Block until the name has no owner; False when `timeout_seconds` pass first."""
    deadline = time.monotonic() + timeout_seconds
    while is_owned(name):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def owner_log_file(names: Sequence[str]) -> Path:
    """The log of a detached owner of these clusters."""
    _directory().mkdir(parents=True, exist_ok=True, mode=0o700)
    return _directory() / f"{'+'.join(names)}.log"


def _lock(lock: int, name: str) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            # A process that checks for an owner holds the lock for an instant.
            if time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
                continue
            raise ConflictError(
                f"cluster {name} runs already: `twinlog local down {name}` ends it",
                reason="CLUSTER_RUNS",
                metadata={"cluster": name},
            ) from error
        return


def _forget(name: str) -> None:
    _entry_file(name).unlink(missing_ok=True)
    for request in OwnerRequest:
        _request_file(name, request).unlink(missing_ok=True)


def _directory() -> Path:
    return state_dir() / "clusters" / hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]


def _entry_file(name: str) -> Path:
    return _directory() / f"{name}.json"


def _lock_file(name: str) -> Path:
    return _directory() / f"{name}.lock"


def _request_file(name: str, request: OwnerRequest) -> Path:
    return _directory() / f"{name}.{request}"
