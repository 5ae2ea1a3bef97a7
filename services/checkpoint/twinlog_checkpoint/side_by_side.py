"""Many things done side by side, a few at a time, or one by one without keeping others waiting."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from twinlog.errors import TwinlogError

T = TypeVar("T")

TURN_ITEMS = 500
"""Offsets that are handled in a row: some milliseconds."""
TURN_GROUPS = 50
"""The same of groups with all of their offsets."""


async def in_turns(items: Iterable[T], *, most: int = TURN_ITEMS) -> AsyncIterator[T]:
    """Give the items one by one, and let other tasks run after every `most` of them.

    A list of all offsets of a large flow takes seconds. Who keeps the flow's lease, or answers calls,
    must not wait for that long: the lease would be lost.
    """
    for number, item in enumerate(items, start=1):
        yield item
        if number % most == 0:
            await asyncio.sleep(0)  # noqa: TID251 - not a wait: one turn of the loop


async def each_at_once(
    items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, None]], *, most: int, name: str
) -> None:
    """Await `work(item)` for every item, begun in order, at most `most` at a time.

    The first TwinlogError is raised once what was begun has ended; nothing is begun after it.
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
