"""An event loop whose time jumps: waits of hours pass at once, in their order, as long as nothing does real
I/O.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_START_MS = 1_700_000_000_000


class _JumpingSelector(selectors.DefaultSelector):
    """Never blocks: a wait for time moves the time on."""

    def __init__(self) -> None:
        super().__init__()
        self.now_seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events:
            return events
        if timeout is None:
            raise RuntimeError("every task waits for something that never comes")
        self.now_seconds += max(timeout, 0.0)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at 0 seconds; moves on only while every task waits."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_seconds


class LoopClock:
    """`Clock` that reads the running loop's time: what `VirtualTimeLoop` says."""

    def now_ms(self) -> int:
        return _START_MS + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def run_in_virtual_time(test: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own whose time jumps.

    Raises RuntimeError instead of hanging when every task waits for something that never comes.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(test)
