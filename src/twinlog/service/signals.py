"""Signals of the operating system: the first requests a stop, the second forces it; SIGUSR2 switches details
on or off."""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
