"""What a task does before it reports Prepared: find leaders and open connections."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.deadline import deadline

READY_SECONDS = 2.0
"""How long a task waits for leaders and connections before it reports Prepared: some ten round trips to
another continent. A cluster that hangs delays the other end's records by no more than that."""


async def make_ready(
    ways: Mapping[str, Callable[[], Awaitable[None]]], *, bound_seconds: float = READY_SECONDS
) -> None:
    """Open all connections concurrently, for at most `bound_seconds`.

    A failure or a time-out is not an error here: the copy meets it again, and reports it.
    """

    async def attempt(doing: str, way: Callable[[], Awaitable[None]]) -> None:
        with contextlib.suppress(KafkaError):
            async with deadline(bound_seconds, doing):
                await way()

    async with asyncio.TaskGroup() as group:
        for doing, way in ways.items():
            group.create_task(attempt(doing, way), name=doing)
