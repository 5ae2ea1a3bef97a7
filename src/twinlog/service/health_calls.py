"""Calls about health: open to everybody, so bounded by themselves."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from twinlog.service.access.gate import Context, peer_address
from twinlog.service.first_messages import FirstMessages

MAX_WATCHES = 100
"""Streams that one address may have open."""
MAX_SILENT_CALLS = 100
"""So many may wait for their request."""


class HealthCalls:
    def __init__(self, *, request_seconds: float) -> None:
        self._requests = FirstMessages(most=MAX_SILENT_CALLS, seconds=request_seconds)
        self._watches = Counter[str]()

    @asynccontextmanager
    async def request(
        self, method: str, context: Context, requests: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """The request of a call, while it lasts. Aborts calls that are too many, or have none."""
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
