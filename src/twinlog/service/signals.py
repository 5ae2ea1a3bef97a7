"""Signals of the operating system: the first asks for the end, the second forces it."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def handle_signals(*, on_first: Callable[[str], None], on_second: Callable[[str], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `on_first` once, then `on_second` each time, with the signal's name.

    Must be entered in the main thread's running loop; the former behaviour is back on exit.
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

    for number in _SIGNALS:
        loop.add_signal_handler(number, receive, number.name)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
