"""Ports that brokers keep over a restart, while other clusters and test runs look for ports too.

The ports lie below the range from which systems assign ports to outgoing connections (from 32768 on Linux,
49152 on macOS), so no other program gets one by chance while its broker is down. One lock file per port, held
as long as the owner lives, keeps this user's other clusters off it.
"""

import fcntl
import os
import random
import socket
from collections.abc import Sequence

from twinlog.errors import TwinlogError
from twinlog.local.spec import ADDRESS
from twinlog.machine import writable_cache

_FIRST_PORT = 20_000
_LAST_PORT = 31_999


class NoFreePortError(TwinlogError):
    """Every port in the brokers' range is taken."""

    default_reason = "NO_FREE_PORT"


class PortLease:
    """A number of ports, held until `release` or the end of this process. Not thread-safe."""

    def __init__(self, count: int, *, wanted: Sequence[int] = ()) -> None:
        """The lease includes the `wanted` ports. Raises NoFreePortError, also when one of them is taken."""
        self._locks: dict[int, int] = {}
        for port in wanted:
            if not self._try(port):
                self.release()
                raise NoFreePortError(f"port {port} is in use", metadata={"port": str(port)})
        candidates = list(range(_FIRST_PORT, _LAST_PORT + 1))
        random.shuffle(candidates)
        for port in candidates:
            if len(self._locks) == count:
                break
            if port not in self._locks:
                self._try(port)
        if len(self._locks) < count:
            self.release()
            raise NoFreePortError(f"no {count} free ports between {_FIRST_PORT} and {_LAST_PORT}")

    @property
    def ports(self) -> Sequence[int]:
        return tuple(self._locks)

    def release(self) -> None:
        """Idempotent."""
        while self._locks:
            _, lock = self._locks.popitem()
            os.close(lock)

    def _try(self, port: int) -> bool:
        directory = writable_cache("ports")
        lock = os.open(directory / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        if not _is_free(port):
            os.close(lock)
            return False
        self._locks[port] = lock
        return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As brokers do: connections of an earlier owner in TIME_WAIT do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError:
            return False
    return True
