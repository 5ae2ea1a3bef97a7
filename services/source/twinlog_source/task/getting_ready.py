"""What a task does before it says that it is prepared: leaders are found and connections opened."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.deadline import deadline

READY_SECONDS = 2.0
"""How long a task waits for leaders and connections before it is Prepared: some ten round trips to a cluster
on another continent. A cluster that hangs does not delay the records of the other end by more than that."""


async def make_ready(
    ways: Mapping[str, Callable[[], Awaitable[None]]], *, bound_seconds: float = READY_SECONDS
) -> None:
    """Go all ways at the same time, each for itself and for `bound_seconds` at most.

    A way that fails or takes longer is no error: the copy meets it again, and says so.
    """

    async def attempt(doing: str, way: Callable[[], Awaitable[None]]) -> None:
        with contextlib.suppress(KafkaError):
            async with deadline(bound_seconds, doing):
                await way()

    async with asyncio.TaskGroup() as group:
        for doing, way in ways.items():
            group.create_task(attempt(doing, way), name=doing)
