"""Runs, retries and ends loops. Every service is a set of named loops under `supervise`."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.service.waiting import STEP_GRACE_SECONDS
from twinlog.service.waiting import Backoff as Backoff
from twinlog.service.waiting import finish_or_cancel as finish_or_cancel
from twinlog.service.waiting import wait_for_any as wait_for_any
from twinlog.service.waiting import wait_or_stop as wait_or_stop
from twinlog.telemetry.logging import RepeatLimiter

Loop = Callable[[asyncio.Event], Awaitable[None]]
"""Runs until the event (stop) is set, then cleans up and returns; never returns before."""


_log = structlog.stdlib.get_logger(__name__)


class LoopExited(TwinlogError):  # noqa: N818 (said as an event, as StopIteration is)
    """A loop returned without a request to stop: a defect of that loop."""

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


async def retrying_loop(
    name: str,
    step: Callable[[], Coroutine[Any, Any, None]],
    *,
    stop: asyncio.Event,
    interval_seconds: float | Callable[[], float],
    backoff: Backoff,
    clock: Clock,
    on_error: Callable[[TwinlogError], None] = lambda _error: None,
    woken: asyncio.Event | None = None,
    grace_seconds: float = STEP_GRACE_SECONDS,
    is_trouble: Callable[[TwinlogError], bool] = lambda _: True,
) -> None:
    """Run `step` every `interval_seconds` (start to start, never overlapping) until `stop`.

    A function instead of a number returns, after each step, the seconds until the next one. `woken` starts it
    earlier. `grace_seconds`: for a step in progress at `stop`; 0 for one that only waits for news.
    `is_trouble`: False of what a first start passes through, which is no warning.

    A TwinlogError, retriable or not, is logged (the first at once, then at most one a minute for each reason,
    with the number left out), given to `on_error`, and followed by a back-off: a broker that refuses must not
    end a service. Any other exception is a defect and propagates.
    """
    limiter = RepeatLimiter(interval_seconds=60.0)
    while not stop.is_set():
        started = clock.monotonic()
        if woken is not None:
            woken.clear()
        try:
            await finish_or_cancel(step(), stop=stop, grace_seconds=grace_seconds)
        except TwinlogError as error:
            on_error(error)
            suppressed = limiter.admit(error.reason, now=clock.monotonic())
            if suppressed is not None:
                (_log.warning if is_trouble(error) else _log.info)(
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
            if callable(interval_seconds):
                wait_seconds = max(0.0, interval_seconds())
            else:
                wait_seconds = max(0.0, interval_seconds - (clock.monotonic() - started))
        await wait_for_any(stop, *([] if woken is None else [woken]), seconds=wait_seconds)


# Signals of the operating system: the first requests a stop, the second forces it; SIGUSR2 switches details
# on or off.


@contextmanager
def handle_signals(
    *,
    on_first: Callable[[str], None],
    on_second: Callable[[str], None],
    on_details: Callable[[], None] | None = None,
) -> Iterator[None]:
    """SIGTERM, SIGINT and SIGHUP call `on_first` once, then `on_second` each time, with the signal's name.

    SIGUSR2 calls `on_details` each time, and ends the process if that is None. Must be entered in the main
    thread's running loop; restores the former behaviour on exit.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def receive(name: str) -> None:
        nonlocal asked
        if asked:
            on_second(name)
            return
        asked = True
        on_first(name)

    former = {number: signal.getsignal(number) for number in ending_signals()}
    for number in former:
        loop.add_signal_handler(number, receive, number.name)
    if on_details is not None:
        former[signal.SIGUSR2] = signal.getsignal(signal.SIGUSR2)
        loop.add_signal_handler(signal.SIGUSR2, on_details)
    try:
        yield
    finally:
        for number, handler in former.items():
            loop.remove_signal_handler(number)
            if handler is not None:
                signal.signal(number, handler)


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Let the same signals end the process with exit code 0, while it has started nothing yet.

    Must be entered in the main thread.
    """
    former = {number: signal.signal(number, lambda *_: sys.exit(0)) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGHUP means that the terminal is gone; a process started by `nohup` continues."""
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *(() if ignores_hangup else (signal.SIGHUP,)))
