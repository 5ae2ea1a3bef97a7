"""CPU time and memory of a process with everything below it, also of children that have ended."""

from contextlib import suppress

import psutil

_MEMORY_EVERY_SECONDS = 1.0


class TreeMeter:
    """To be asked again and again, while it starts as well.

    Two counts of CPU time of which each can only miss something: what the living used with what they reaped
    (misses children nobody waited for), and what each process ever seen had used when it was last seen
    (misses its last moments). The larger one is taken, and the sum never falls.
    """

    def __init__(self) -> None:
        self.peak_pss_bytes = 0
        """PSS shares out pages that several processes hold."""
        self._cpu_seconds = 0.0
        self._last_seen: dict[tuple[int, float], float] = {}
        """CPU seconds by process id and start: unlike a pid, these are never used again."""
        self._next_memory_at = 0.0

    def cpu_seconds(self, pid: int | None, now: float) -> float:
        """CPU time of the tree below `pid` until now; looks at its memory each second as well. `now` in
        seconds.
        """
        if pid is None:
            return 0.0
        living = _living_tree(pid)
        if now >= self._next_memory_at:
            self._next_memory_at = now + _MEMORY_EVERY_SECONDS
            self.peak_pss_bytes = max(self.peak_pss_bytes, sum(map(_pss_bytes, living)))
        with_reaped = 0.0
        for process in living:
            with suppress(psutil.NoSuchProcess):
                times, key = process.cpu_times(), (process.pid, process.create_time())
                self._last_seen[key] = times.user + times.system
                with_reaped += sum((times.user, times.system, times.children_user, times.children_system))
        self._cpu_seconds = max(self._cpu_seconds, with_reaped, sum(self._last_seen.values()))
        return self._cpu_seconds


def _living_tree(pid: int) -> list[psutil.Process]:
    """The process and its descendants; empty once it has ended."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _pss_bytes(process: psutil.Process) -> int:
    """A few milliseconds: not to be asked often."""
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0
