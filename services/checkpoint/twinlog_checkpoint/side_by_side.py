"""Processes many items, a few at a time, without blocking the event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from twinlog.errors import TwinlogError

T = TypeVar("T")

TURN_ITEMS = 500
"""Offsets processed in a row: a few milliseconds."""
TURN_GROUPS = 50
"""Groups processed in a row, with all of their offsets."""


async def in_turns(items: Iterable[T], *, most: int = TURN_ITEMS) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run after every `most` of them.

    A list of all offsets of a large flow takes seconds. The task that keeps the flow's lease must run
    meanwhile, or the lease would be lost; so must calls.
    """
    for number, item in enumerate(items, start=1):
        yield item
        if number % most == 0:
            await asyncio.sleep(0)  # noqa: TID251 - not a wait: one turn of the loop


async def each_at_once(
    items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, None]], *, most: int, name: str
) -> None:
    """Await `work(item)` for every item, in order, with at most `most` at the same time.

    After the first TwinlogError no further item is started; the error is raised once the started ones have
    ended.
    """
    wanted = list(items)
    waiting = iter(wanted)
    failures: list[TwinlogError] = []

    async def worker() -> None:
        for item in waiting:
            try:
                await work(item)
            except TwinlogError as error:
                failures.append(error)
            if failures:
                return

    async with asyncio.TaskGroup() as group:
        for number in range(min(most, len(wanted))):
            group.create_task(worker(), name=f"{name} {number}")
    if failures:
        raise failures[0]
