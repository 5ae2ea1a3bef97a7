"""The event loop of the unit tests: waits for time cost none, waits for threads cost what they take."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from twinlog.clock import SystemClock
from twinlog.testing.virtual_time import LoopClock, VirtualTimeLoop, run_in_virtual_time


async def pass_by(seconds: float) -> None:
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)


async def test_unit_tests_run_in_virtual_time() -> None:
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


async def test_hours_pass_at_once_and_in_order() -> None:
    clock, real = LoopClock(), SystemClock()
    began, really_began = clock.monotonic(), real.monotonic()
    woken: list[int] = []

    async def sleeper(hours: int) -> None:
        await pass_by(hours * 3600)
        woken.append(hours)

    async with asyncio.TaskGroup() as group:
        for hours in (3, 1, 2):
            group.create_task(sleeper(hours), name=f"sleeper-{hours}")
    assert woken == [1, 2, 3]
    assert clock.monotonic() - began == 3 * 3600
    assert real.monotonic() - really_began < 3600


async def test_time_stands_still_while_threads_work() -> None:
    """A time-out on a thread's work must not fire because the loop has nothing else to do."""
    loop = asyncio.get_running_loop()
    began, asked = loop.time(), threading.Event()

    def work() -> str:
        asked.wait(0.05)
        return "done"

    async with asyncio.timeout(0.001):
        assert await asyncio.to_thread(work) == "done"
    with ThreadPoolExecutor(1) as pool:
        async with asyncio.timeout(0.001):
            assert await loop.run_in_executor(pool, work) == "done"
    assert loop.time() == began


def test_a_wait_for_what_never_comes_is_an_error() -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="never comes"):
        run_in_virtual_time(hang())
