"""A process of a simulated world: tasks and connections of the test's loop that can be killed together."""

import asyncio
import contextvars
from collections.abc import Coroutine
from contextvars import ContextVar
from itertools import count
from typing import Any

from twinlog.testing.memory_network import CABLE, Cable
from twinlog.testing.rpc import MemoryRpc, RpcNetwork

_PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)
_DYING_SECONDS = 1.0
_NUMBERS = count()
_FIRST_PID = 4711
_living: set[int] = set()


class Process:
    """Whatever its tasks begin belongs to it, too."""

    def __init__(self, name: str, network: RpcNetwork) -> None:
        self.name = name
        self.rpc = MemoryRpc(network)
        self.pid = _FIRST_PID + next(_NUMBERS)
        _living.add(self.pid)
        self.is_killed = False
        self.main: asyncio.Task[Any] | None = None
        self.cable = Cable()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._context = contextvars.copy_context()
        self._context.run(_PROCESS.set, self)
        self._context.run(CABLE.set, self.cable)

    def start(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        loop = asyncio.get_running_loop()
        return loop.create_task(main, name=self.name, context=self._context.copy())

    def join(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    async def kill(self) -> None:
        """As SIGKILL: what it wrote still arrives, and nothing that it does while it ends has an effect."""
        self.is_killed = True
        _living.discard(self.pid)
        self.cable.cut()
        self.rpc.cut()
        while self._tasks:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.wait(list(self._tasks), timeout=_DYING_SECONDS)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if self.is_killed and not task.cancelled():
            task.exception()  # Nobody is left to look at it.


def pid() -> int:
    """As `os.getpid`, for the process whose task runs."""
    process = _PROCESS.get()
    return _FIRST_PID if process is None else process.pid


def kill_here(pid: int, _signal: int) -> None:
    """As `os.kill`, where all processes are on one machine."""
    if pid not in _living:
        raise ProcessLookupError(pid)


def kill_elsewhere(_pid: int, _signal: int) -> None:
    """Where they are on different machines: nobody sees that another one has ended."""


class _Task(asyncio.Task[Any]):
    """Sets of tasks have the same order in each run: not that of addresses."""

    def __init__(self, coroutine: Any, **options: Any) -> None:
        self._number = next(_NUMBERS)
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


def task_factory(
    loop: asyncio.AbstractEventLoop, coroutine: Any, context: contextvars.Context | None = None
) -> asyncio.Task[Any]:
    """For `loop.set_task_factory`: a task belongs to the process of its context."""
    task = _Task(coroutine, loop=loop, context=context)
    process = _PROCESS.get() if context is None else context.get(_PROCESS)
    if process is not None:
        process.join(task)
    return task
