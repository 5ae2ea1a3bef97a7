"""Measures the process tree of a copier from the outside."""

from bench.comparing.process_tree import TreeCpu, TreeMemory, cpu_snapshot, living_tree, memory_now

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
