"""Time limits for calls to a cluster: every await on a peer ends in time, with an error that says so."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Final

from twinlog.kafka.errors import TIMEOUT, from_reason

_PATIENCE: Final = ContextVar("patience", default=math.inf)


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """No call of the body, and of tasks that it starts, takes longer: for who knows that brokers do not
    answer, and asks what the others know."""
    token = _PATIENCE.set(seconds)
    try:
        yield
    finally:
        _PATIENCE.reset(token)


def bounded(seconds: float) -> float:
    """The time-out of a call that may take so long."""
    return min(seconds, _PATIENCE.get())


@contextlib.asynccontextmanager
async def deadline(seconds: float, doing: str, *, alias: str = "") -> AsyncIterator[asyncio.Timeout]:
    """Cancel the body after `seconds` and raise TransientKafkaError KAFKA_TIMEOUT instead. The body gets an
    object for `extend`."""
    seconds = bounded(seconds)
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
