"""Background tasks of an object that is opened in one task and closed in another.

A TaskGroup belongs to the task that enters it: an unexpected error of a child would cancel that task, which
may do something else by then, or have ended. So a separate task enters and leaves the group here, and callers
get the error when they use the children's results.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

log = logging.getLogger(__name__)


class OwnedTasks:
    """Call `open`, then `create_task` as often as needed, then `close`; each from any task of the loop."""

    def __init__(self, name: str, on_failure: Callable[[Exception], None]) -> None:
        """`on_failure` is called once, when a child failed unexpectedly and the others were cancelled."""
        self._name = name
        self._on_failure = on_failure
        self._group: asyncio.TaskGroup | None = None
        self._owner: asyncio.Task[None] | None = None
        self._opened, self._closing = asyncio.Event(), asyncio.Event()

    async def open(self) -> None:
        self._owner = asyncio.get_running_loop().create_task(self._own(), name=f"owner of {self._name}")
        try:
            await self._opened.wait()
        except asyncio.CancelledError:
            # Otherwise nothing would close it.
            self._closing.set()
            raise

    async def close(self) -> None:
        """Wait for the children; the caller has cancelled those that would continue."""
        self._closing.set()
        if self._owner is not None:
            await asyncio.wait([self._owner])

    def create_task(self, work: Coroutine[None, None, None], name: str) -> "asyncio.Task[None]":
        assert self._group is not None, "open comes first"
        try:
            return self._group.create_task(work, name=name)
        except RuntimeError:
            work.close()  # As Python 3.13 does: the group is over, because its owner was cancelled.
            raise

    async def _own(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._group:
                self._opened.set()
                await self._closing.wait()
        except* Exception as failures:
            log.exception("background_task_failed", extra={"of": self._name})
            self._on_failure(failures.exceptions[0])
