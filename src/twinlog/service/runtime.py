"""How loops run, wait, retry and end. Every service is a set of named loops under `supervise`."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.telemetry.repeats import RepeatLimiter

Loop = Callable[[asyncio.Event], Awaitable[None]]
"""Runs until the event (stop) is set, then cleans up and returns. It never returns before."""

T = TypeVar("T")

STEP_GRACE_SECONDS = 3.0
"""How long a step in flight may go on after `stop`: enough for a broker that answers."""

_log = structlog.stdlib.get_logger(__name__)


class LoopExited(TwinlogError):  # noqa: N818 (said as an event, as StopIteration is)
    """A loop returned though nobody asked it to: a defect of that loop."""

    default_reason = "LOOP_EXITED"

    def __init__(self, name: str) -> None:
        super().__init__(f"the loop {name!r} ended before the service was stopped", metadata={"loop": name})


async def supervise(loops: Mapping[str, Loop], *, stop: asyncio.Event, grace_seconds: float) -> None:
    """Run loops until `stop` is set or one fails; after `stop`, give them `grace_seconds`, then cancel.

    A loop that returns before `stop` is a failure (LoopExited): a service never idles half alive. A loop that
    fails before `stop` cancels the others at once; one that fails while draining lets the others drain first.
    Failures are raised as an ExceptionGroup.
    """
    failed_while_draining: list[Exception] = []

    async def guard(name: str, loop: Loop) -> None:
        try:
            await loop(stop)
        except Exception as error:
            if not stop.is_set():
                raise
            _log.error("loop_failed_while_draining", loop=name, exc_info=error)
            failed_while_draining.append(error)
            return
        if not stop.is_set():
            raise LoopExited(name)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(guard(name, loop), name=name) for name, loop in loops.items()]
        await stop.wait()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                _log.warning("loop_cancelled", loop=task.get_name(), grace_seconds=grace_seconds)
                task.cancel()
    if failed_while_draining:
        raise ExceptionGroup("loops failed while draining", failed_while_draining)


async def wait_or_stop(stop: asyncio.Event, seconds: float) -> bool:
    """Sleep for `seconds` or until `stop` is set, whichever comes first. True when stop is set."""
    if stop.is_set():
        return True
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return stop.is_set()
    return True


async def wait_for_any(*events: asyncio.Event, seconds: float | None = None) -> bool:
    """Wait until one of the events is set; False when `seconds` pass before that."""
    if any(event.is_set() for event in events):
        return True
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(event.wait(), name="wait-for-any") for event in events]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    return any(event.is_set() for event in events)


async def finish_or_cancel(
    step: Coroutine[Any, Any, T], *, stop: asyncio.Event, grace_seconds: float = STEP_GRACE_SECONDS
) -> T | None:
    """Await `step`; once `stop` is set it gets `grace_seconds` more, then it is cancelled and None is
    returned.

    For calls to brokers and peers that may be away: their own time-outs are longer than a stop should take.
    What `step` raises is raised.
    """
    failure: Exception | None = None
    result: T | None = None
    async with asyncio.TaskGroup() as group:
        bound = asyncio.timeout(None)

        async def shorten() -> None:
            await stop.wait()
            bound.reschedule(asyncio.get_running_loop().time() + grace_seconds)

        try:
            async with bound:
                watcher = group.create_task(shorten(), name="stop-watcher")
                try:
                    result = await step
                finally:
                    watcher.cancel()
        except Exception as error:  # noqa: BLE001 (raised again outside the group, which would wrap it)
            failure = error
    if isinstance(failure, TimeoutError) and bound.expired():
        return None
    if failure is not None:
        raise failure
    return result


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Growing waits with full jitter: each is random between 0 and a bound that grows up to `max_seconds`."""

    initial_seconds: float
    max_seconds: float
    random: Callable[[], float]
    """Uniform in [0, 1)."""
    factor: float = 2.0
    _bound_seconds: float = field(init=False, default=0.0)

    def next(self) -> float:
        """The next wait in seconds; the bound of the one after it is `factor` times as large."""
        bound = self._bound_seconds or min(self.initial_seconds, self.max_seconds)
        self._bound_seconds = min(bound * self.factor, self.max_seconds)
        return self.random() * bound

    def reset(self) -> None:
        """Start again from `initial_seconds`: call it after a success."""
        self._bound_seconds = 0.0


def _ignore(_error: TwinlogError) -> None:
    return None


async def retrying_loop(
    name: str,
    step: Callable[[], Coroutine[Any, Any, None]],
    *,
    stop: asyncio.Event,
    interval_seconds: float,
    backoff: Backoff,
    clock: Clock,
    on_error: Callable[[TwinlogError], None] = _ignore,
) -> None:
    """Run `step` every `interval_seconds` (start to start, never overlapping) until `stop`.

    A TwinlogError, retriable or not, is logged (first one at once, then at most one a minute for each reason,
    with the number left out), given to `on_error`, and followed by a back-off: a broker that refuses must not
    end a service. Any other exception is a defect and propagates.
    """
    limiter = RepeatLimiter(interval_seconds=60.0)
    while not stop.is_set():
        started = clock.monotonic()
        try:
            await finish_or_cancel(step(), stop=stop)
        except TwinlogError as error:
            on_error(error)
            suppressed = limiter.admit(error.reason, now=clock.monotonic())
            if suppressed is not None:
                _log.warning(
                    "step_failed",
                    loop=name,
                    reason=error.reason,
                    retriable=error.retriable,
                    message=str(error),
                    left_out=suppressed,
                )
            wait_seconds = backoff.next()
        else:
            backoff.reset()
            wait_seconds = max(0.0, interval_seconds - (clock.monotonic() - started))
        await wait_or_stop(stop, wait_seconds)
