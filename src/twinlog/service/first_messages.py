"""Waits for the first message of calls whose callers are not identified yet.

Invariant: at most `most` calls wait, each for at most `seconds`. A newcomer is never refused: the call that
has waited longest is dropped instead. So a client that sends its message at once is served, whatever others
hold open.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

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
            async with asyncio.timeout(self.seconds) as wait:
                self._waits[wait] = None
                try:
                    return await anext(messages)
                finally:
                    self._waits.pop(wait, None)
        except (TimeoutError, StopAsyncIteration):
            return None
