"""Waits for partitions to change."""

import asyncio
from collections.abc import Callable, Sequence

from twinlog.testing.broker.partitions import Partition


async def wait_until(partitions: Sequence[Partition], done: Callable[[], bool], seconds: float) -> bool:
    """Look again after each change of one of the partitions. Returns False when the time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not done():
        if loop.time() >= deadline:
            return False
        changed: asyncio.Future[None] = loop.create_future()
        for partition in partitions:
            partition.waiting[changed] = None
        timer = loop.call_at(deadline, _end, changed)
        try:
            await changed
        finally:
            timer.cancel()
            for partition in partitions:
                partition.waiting.pop(changed, None)
    return True


def _end(changed: "asyncio.Future[None]") -> None:
    if not changed.done():
        changed.set_result(None)
