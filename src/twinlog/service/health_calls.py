"""Health calls: open to everybody, therefore with limits of their own."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc

from twinlog.service.access.gate import Context, peer_address
from twinlog.service.waiting import timeout_of_own_time

# Waits for the first message of calls whose callers are not identified yet.
#
# Invariant: at most `most` calls wait, each for at most `seconds`. A newcomer is never refused: the call
# that has waited longest is dropped instead. So a client that sends its message at once is served,
# whatever others hold open.

Message = TypeVar("Message")


class FirstMessages:
    def __init__(self, *, most: int, seconds: float) -> None:
        self._most = most
        self.seconds = seconds
        self._waits: dict[asyncio.Timeout, None] = {}
        """In the order in which they began."""

    async def of(self, messages: AsyncIterator[Message]) -> Message | None:
        """The first message; None when it came too late or not at all."""
        if len(self._waits) >= self._most:
            longest = next(iter(self._waits))
            del self._waits[longest]
            longest.reschedule(asyncio.get_running_loop().time())
        try:
            async with timeout_of_own_time(self.seconds) as wait:
                self._waits[wait] = None
                try:
                    return await anext(messages)
                finally:
                    self._waits.pop(wait, None)
        except (TimeoutError, StopAsyncIteration):
            return None


MAX_WATCHES = 100
"""Most open streams of one address."""
MAX_SILENT_CALLS = 100
"""Most calls that wait for their request."""


class HealthCalls:
    def __init__(self, *, request_seconds: float) -> None:
        self._requests = FirstMessages(most=MAX_SILENT_CALLS, seconds=request_seconds)
        self._watches = Counter[str]()

    @asynccontextmanager
    async def request(
        self, method: str, context: Context, requests: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Yield the request of a call while the call lasts. Aborts calls beyond the limits or without a
        request."""
        request = await self._requests.of(requests)
        if request is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call sent no request")
        if not method.endswith("/Watch"):
            yield request
            return
        address = peer_address(context.peer())
        if self._watches[address] >= MAX_WATCHES:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{address} watches the health of this port {MAX_WATCHES} times: end some first",
            )
        self._watches[address] += 1
        try:
            yield request
        finally:
            self._watches[address] -= 1
            if not self._watches[address]:
                del self._watches[address]
