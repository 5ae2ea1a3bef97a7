"""CPU time and memory of a process with everything below it, also of children that have ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

import psutil


class ProcessKey(NamedTuple):
    """Unlike a pid, never used again for another process."""

    pid: int
    created_at: float


class CpuUsage(NamedTuple):
    """User and system seconds."""

    own_seconds: float
    reaped_seconds: float
    """CPU time of descendants that ended and were waited for."""


class TreeCpu:
    """Adds up the CPU time of a tree from snapshots of its living processes.

    Two counts of which each can only miss something: what the living used with what they reaped (misses
    children nobody waited for), and what each process ever seen had used when it was last seen (misses its
    last moments). The larger one is taken, and the sum never falls.
    """

    def __init__(self) -> None:
        self.total_seconds = 0.0
        self._last_seen: dict[ProcessKey, float] = {}

    def update(self, living: Mapping[ProcessKey, CpuUsage]) -> float:
        """Take a snapshot and return the total so far."""
        self._last_seen.update((key, usage.own_seconds) for key, usage in living.items())
        with_reaped = sum(usage.own_seconds + usage.reaped_seconds for usage in living.values())
        ever_seen = sum(self._last_seen.values())
        self.total_seconds = max(self.total_seconds, with_reaped, ever_seen)
        return self.total_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeMemory:
    """Memory of a tree. PSS shares out pages that several processes hold; RSS counts them for each."""

    pss_bytes: int = 0
    rss_bytes: int = 0
    pss_by_process: tuple[tuple[str, int], ...] = ()
    """Label and PSS in bytes of each process, the largest first; of a peak, at that moment."""

    def peak(self, other: "TreeMemory") -> "TreeMemory":
        larger = self if self.pss_bytes >= other.pss_bytes else other
        return TreeMemory(
            pss_bytes=larger.pss_bytes,
            rss_bytes=max(self.rss_bytes, other.rss_bytes),
            pss_by_process=larger.pss_by_process,
        )


def process_label(command: Sequence[str]) -> str:
    """What a process is, in a word: the module or script of a Python, the main class of a Java."""
    if not command:
        return "?"
    program = PurePath(command[0]).name
    rest = iter(command[1:])
    for word in rest:
        if word in ("-cp", "-classpath"):
            next(rest, None)
        elif word == "-m":
            return next(rest, program)
        elif not word.startswith("-"):
            return PurePath(word).name.rpartition(".")[2] if program == "java" else PurePath(word).name
    return program


def living_tree(pid: int) -> list[psutil.Process]:
    """The process and its descendants; empty once it has ended."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_snapshot(processes: list[psutil.Process]) -> dict[ProcessKey, CpuUsage]:
    """What `TreeCpu.update` takes. Processes that end meanwhile are left out."""
    snapshot = {}
    for process in processes:
        try:
            times = process.cpu_times()
            key = ProcessKey(process.pid, process.create_time())
        except psutil.NoSuchProcess:
            continue
        snapshot[key] = CpuUsage(
            own_seconds=times.user + times.system,
            reaped_seconds=times.children_user + times.children_system,
        )
    return snapshot


def memory_now(processes: list[psutil.Process]) -> TreeMemory:
    """Memory of these processes together. A few milliseconds for each: not to be asked often."""
    rss_bytes = 0
    pss_by_process = []
    for process in processes:
        try:
            memory = process.memory_full_info()
            label = process_label(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        rss_bytes += memory.rss
        pss_by_process.append((label, memory.pss))
    return TreeMemory(
        pss_bytes=sum(pss_bytes for _, pss_bytes in pss_by_process),
        rss_bytes=rss_bytes,
        pss_by_process=tuple(sorted(pss_by_process, key=lambda each: -each[1])),
    )


# Measures the process tree of a copier from the outside.


_MEMORY_EVERY_SECONDS = 1.0


class TreeMeter:
    """To be asked again and again, while it starts as well."""

    def __init__(self) -> None:
        self.peak_memory = TreeMemory()
        self._cpu = TreeCpu()
        self._next_memory_at = 0.0

    def cpu_seconds(self, pid: int | None, now: float) -> float:
        """CPU time of the tree below `pid` until now; looks at its memory each second as well. `now` in
        seconds.
        """
        if pid is None:
            return 0.0
        processes = living_tree(pid)
        if now >= self._next_memory_at:
            self._next_memory_at = now + _MEMORY_EVERY_SECONDS
            self.peak_memory = self.peak_memory.peak(memory_now(processes))
        return self._cpu.update(cpu_snapshot(processes))
