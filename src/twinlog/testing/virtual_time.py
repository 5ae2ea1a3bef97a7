"""The time of tests: a clock for them to move, and an event loop whose time jumps.

In it, waits of hours pass at once, in order, as long as no task does real I/O.

`asyncio.to_thread` does its work in the loop itself, so that a run repeats exactly. While the thread of
another executor works for the loop, time stands still.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from twinlog.testing.memory_network import MemoryNetworkMixin

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_START_MS = 1_700_000_000_000


class _JumpingSelector(selectors.DefaultSelector):
    """Blocks for threads only; a wait for time advances the time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_seconds = 0.0
        self.tick_seconds = 0.0
        """What a turn of the loop takes."""
        self.busy_threads = 0
        """Work of threads for the loop; its end wakes the selector."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        may_block = self.busy_threads and timeout != 0
        # Else nothing is registered but what wakes the loop, and it is awake.
        if may_block or timeout != 0 or len(self.get_map()) > 1:
            events = super().select(None if may_block else 0)
            if events or may_block:
                return events
        if timeout is None:
            raise RuntimeError(
                "every task waits for something that never comes; I/O is no part of virtual time"
            )
        self.now_seconds += max(timeout, self.tick_seconds)
        return []


class VirtualTimeLoop(MemoryNetworkMixin, asyncio.SelectorEventLoop):
    """Starts at 0 seconds; advances only while every task waits. Its `network` needs no sockets."""

    def __init__(self, tick_seconds: float = 0.0) -> None:
        """With ticks no work takes no time: who polls without a pause, polls not for ever."""
        self._jumping = _JumpingSelector()
        self._jumping.tick_seconds = tick_seconds
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_seconds

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        if executor is None:
            return self.create_task(_inline(func, *args), name="no thread")
        work = super().run_in_executor(executor, func, *args)
        self._jumping.busy_threads += 1
        work.add_done_callback(self._thread_is_done)
        return work

    def _thread_is_done(self, _work: "asyncio.Future[Any]") -> None:
        self._jumping.busy_threads -= 1


async def _inline(func: Callable[[*Ts], T], *args: *Ts) -> T:
    return func(*args)


class LoopClock:
    """`Clock` that reads a loop's time: that of the running loop, unless one is given."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return _START_MS + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return (self._loop or asyncio.get_running_loop()).time()


def run_in_virtual_time(test: Coroutine[Any, Any, T], *, tick_seconds: float = 0.0) -> T:
    """Run a coroutine on its own loop with virtual time. `tick_seconds`: what a turn of the loop takes.

    Raises RuntimeError instead of hanging when every task waits for something that never comes.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(tick_seconds)) as runner:
        return runner.run(test)


# A clock that moves when a test says so.


class FakeClock:
    """`Clock` for tests: both readings stand still until `advance`."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000, monotonic: float = 0.0) -> None:
        self._now_ms = float(now_ms)
        self._monotonic = monotonic

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both readings on. Raises ValueError for going back: time does not, see `set_wall_clock`."""
        if seconds < 0:
            raise ValueError("a clock does not run backwards")
        self._now_ms += seconds * 1000
        self._monotonic += seconds

    def set_wall_clock(self, now_ms: int) -> None:
        """Change the wall clock only, forwards or backwards, as an operator or NTP may."""
        self._now_ms = float(now_ms)
