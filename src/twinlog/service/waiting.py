"""Waits that end with `stop`."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from twinlog.backoff import Backoff as Backoff

T = TypeVar("T")

STEP_GRACE_SECONDS = 3.0
"""How long a step in progress may continue after `stop`: enough for a broker that answers."""


_TURNS = 10


@asynccontextmanager
async def timeout_of_own_time(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """As `asyncio.timeout`, but time in which this process does not run counts for a tenth of `seconds` at
    most: nobody is late because the process was starved."""
    loop, waking = asyncio.get_running_loop(), None
    async with asyncio.timeout(None) as limit:

        def turn(left: int) -> None:
            nonlocal waking
            if left:
                waking = loop.call_later(seconds / _TURNS, turn, left - 1)
            else:
                limit.reschedule(loop.time())

        turn(_TURNS)
        try:
            yield limit
        finally:
            if waking is not None:
                waking.cancel()


async def wait_or_stop(stop: asyncio.Event, seconds: float) -> bool:
    """Sleep for `seconds` or until `stop` is set, whichever comes first. True when stop is set."""
    if stop.is_set():
        return True
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return stop.is_set()
    return True


async def wait_for_any(*events: asyncio.Event, seconds: float | None = None) -> bool:
    """Wait until one of the events is set; False when `seconds` pass before that."""
    if any(event.is_set() for event in events):
        return True
    if len(events) == 1:
        (event,) = events
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return event.is_set()
        return True
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(event.wait(), name="wait-for-any") for event in events]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    return any(event.is_set() for event in events)


async def finish_or_cancel(
    step: Coroutine[Any, Any, T], *, stop: asyncio.Event, grace_seconds: float = STEP_GRACE_SECONDS
) -> T | None:
    """Await `step`; after `stop` it has `grace_seconds` more, then it is cancelled and None is returned.

    For calls to brokers and peers that may be away: their own time-outs are longer than a stop should take.
    Raises the errors of `step`.
    """
    failure: Exception | None = None
    result: T | None = None
    async with asyncio.TaskGroup() as group:
        bound = asyncio.timeout(None)

        async def shorten() -> None:
            await stop.wait()
            bound.reschedule(asyncio.get_running_loop().time() + grace_seconds)

        try:
            async with bound:
                watcher = group.create_task(shorten(), name="stop-watcher")
                try:
                    result = await step
                finally:
                    watcher.cancel()
        except Exception as error:  # noqa: BLE001 (raised again outside the group, which would wrap it)
            failure = error
    if isinstance(failure, TimeoutError) and bound.expired():
        return None
    if failure is not None:
        raise failure
    return result
