"""Health calls: open to everybody, therefore with limits of their own."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from twinlog.service.access.gate import Context, peer_address
from twinlog.service.first_messages import FirstMessages

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
