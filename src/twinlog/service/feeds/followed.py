"""Follows a watch of configsync for the lifetime of a service, and notifies readers of changes."""

import asyncio
from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.service.feeds.client import WatchCall, WatchEvent, WatchResponse, watch
from twinlog.service.runtime import Backoff
from twinlog.telemetry.repeats import RepeatLimiter

R = TypeVar("R", bound=WatchResponse)


class FollowedWatch(ABC, Generic[R]):
    """Run `run` as a loop; everything else may be read at any time from the same event loop."""

    task_name: ClassVar[str]

    def __init__(self, *, clock: Clock, backoff: Backoff) -> None:
        self._clock = clock
        self._backoff = backoff
        self._limiter = RepeatLimiter(interval_seconds=60.0)
        self._subscribers: list[asyncio.Event] = []

    def subscribe(self) -> asyncio.Event:
        """Return a new event for one caller, set now and at every change. The caller clears it before it
        reads."""
        event = asyncio.Event()
        event.set()
        self._subscribers.append(event)
        return event

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: follow the watch until `stop`, through every absence of configsync."""
        async with asyncio.TaskGroup() as group:
            follower = group.create_task(self._follow(stop), name=self.task_name)
            await stop.wait()
            follower.cancel()

    @abstractmethod
    def handle(self, event: WatchEvent[R]) -> None:
        """Apply one event of the watch."""

    @abstractmethod
    def _open(self, token: bytes) -> WatchCall[R]:
        """Start the call, from a resume token."""

    def _tell(self) -> None:
        for subscriber in self._subscribers:
            subscriber.set()

    def _left_out(self, error: TwinlogError) -> int | None:
        """How many losses of this kind were not logged since the last one; None = do not log this one."""
        return self._limiter.admit(error.reason, now=self._clock.monotonic())

    async def _follow(self, stop: asyncio.Event) -> None:
        async for event in watch(self._open, peer="configsync", stop=stop, backoff=self._backoff):
            self.handle(event)
