"""Time limits for calls to a cluster: every await on a peer ends in time, with an error that says so."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextvars import ContextVar
from typing import Final

from twinlog.kafka.errors import TIMEOUT, from_reason

_SHORT_SECONDS: Final = 6.0
_PATIENCE: Final = ContextVar("patience", default=math.inf)


_NOBODY: Final[Mapping[str, Collection[int]]] = {}
_SILENT: Final = ContextVar("silent", default=_NOBODY)


@contextlib.contextmanager
def short_patience(when: bool) -> Iterator[None]:
    """`when` brokers are known not to answer, no call of the body, or of a task that it starts, takes long:
    the others tell what they know."""
    token = _PATIENCE.set(_SHORT_SECONDS if when else math.inf)
    try:
        yield
    finally:
        _PATIENCE.reset(token)


@contextlib.contextmanager
def leaving_out(silent: Mapping[str, Collection[int]]) -> Iterator[None]:
    """The body, and the tasks that it starts, ask none of these brokers, which were found silent just now; by
    the alias of the cluster."""
    token = _SILENT.set(silent)
    try:
        yield
    finally:
        _SILENT.reset(token)


def is_silent(alias: str, node_id: int) -> bool:
    """Whether a broker is left out."""
    return node_id in _SILENT.get().get(alias, ())


def bounded(seconds: float, *, share: float = 1.0) -> float:
    """The time-out of a call that may take so long; `share`: of a short patience."""
    return min(seconds, _PATIENCE.get() * share)


@contextlib.asynccontextmanager
async def deadline(
    seconds: float, doing: str, *, alias: str = "", share: float = 1.0
) -> AsyncIterator[asyncio.Timeout]:
    """Cancel the body after `seconds` and raise TransientKafkaError KAFKA_TIMEOUT instead. The body gets an
    object for `extend`. `share`: for one of the peers that a call with this deadline asks, so that the call
    still tells what the others know, also where patience is short."""
    seconds = bounded(seconds) * share
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
