"""Time limits for calls to a cluster: every await on a peer ends in time, with an error that says so."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from twinlog.kafka.errors import TIMEOUT, from_reason


@contextlib.asynccontextmanager
async def deadline(seconds: float, doing: str, *, alias: str = "") -> AsyncIterator[asyncio.Timeout]:
    """Cancel the body after `seconds` and raise TransientKafkaError KAFKA_TIMEOUT instead. The body gets an
    object for `extend`."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield limit
    except TimeoutError as error:
        raise from_reason(TIMEOUT, doing, alias=alias, detail=f"{seconds:g} s") from error


def extend(limit: asyncio.Timeout, seconds: float) -> None:
    """Move a deadline, because this time was not available to the peer."""
    when = limit.when()
    if when is not None:
        limit.reschedule(when + seconds)


async def pause(seconds: float) -> None:
    """Wait inside a call with a deadline of its own; there is no stop event to wait for."""
    await asyncio.sleep(seconds)  # noqa: TID251
