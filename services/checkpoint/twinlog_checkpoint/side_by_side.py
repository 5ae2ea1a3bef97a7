"""Many things done side by side, a few at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from twinlog.errors import TwinlogError

T = TypeVar("T")


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
