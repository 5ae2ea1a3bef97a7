"""A process's resources, read from /proc at each scrape. Exports nothing on systems without /proc."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from opentelemetry.metrics import Meter, Observation

from twinlog.telemetry import instruments
from twinlog.telemetry.metrics import service as metrics
from twinlog.telemetry.metrics.replication import TASKS_MEMORY

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def observe_process(meter: Meter) -> None:
    """Publish CPU time, memory, descriptors, connections and age of this process."""
    began = time.monotonic()

    def cpu_time() -> Iterable[Observation]:
        times = os.times()
        return [
            Observation(times.user, {"cpu.mode": "user"}),
            Observation(times.system, {"cpu.mode": "system"}),
        ]

    def memory() -> Iterable[Observation]:
        size = resident_bytes(os.getpid())
        return [] if size is None else [Observation(size)]

    def descriptors() -> Iterable[Observation]:
        found = _descriptors()
        return [] if found is None else [Observation(found[0])]

    def sockets() -> Iterable[Observation]:
        found = _descriptors()
        return [] if found is None else [Observation(found[1])]

    instruments.observed_sum(meter, metrics.PROCESS_CPU_TIME, cpu_time)
    instruments.observed_sum(meter, metrics.PROCESS_MEMORY_USAGE, memory)
    instruments.observed_sum(meter, metrics.PROCESS_FILE_DESCRIPTORS, descriptors)
    instruments.gauge(meter, metrics.PROCESS_SOCKETS, sockets)
    instruments.gauge(meter, metrics.PROCESS_UPTIME, lambda: [Observation(time.monotonic() - began)])


def observe_tasks(meter: Meter) -> None:
    """Publish the memory of the processes below this one."""

    def memory() -> Iterable[Observation]:
        sizes = [size for pid in descendants(os.getpid()) if (size := resident_bytes(pid)) is not None]
        return [Observation(sum(sizes))]

    instruments.gauge(meter, TASKS_MEMORY, memory)


def resident_bytes(pid: int) -> int | None:
    """None when the process is gone, or without /proc."""
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None


def descendants(pid: int) -> list[int]:
    """All visible descendants: children, their children and so on."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for children in _PROC.glob(f"{waiting.pop()}/task/*/children"):
            with suppress(OSError, ValueError):
                below = [int(each) for each in children.read_text().split()]
                found += below
                waiting += below
    return found


def _descriptors() -> tuple[int, int] | None:
    """The number of descriptors, and of sockets among them."""
    try:
        entries = list((_PROC / "self/fd").iterdir())
    except OSError:
        return None
    sockets = 0
    for entry in entries:
        with suppress(OSError):
            sockets += str(entry.readlink()).startswith("socket:")
    return len(entries), sockets
