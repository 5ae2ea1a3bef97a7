"""One child of the supervisor, without a process: what is made of its end."""

import asyncio
import os
import signal
from typing import IO

import pytest

from twinlog.supervisor.child import Child, ChildEnd

LATE_LOOKS = 200
"""How often one looks until the exit code is there: seconds, on a busy machine."""


class ReapedLate:
    """Ends by SIGTERM or by itself, and has its exit code a while after that."""

    pid = 17

    def __init__(self, exit_code: int) -> None:
        self._exit_code = exit_code
        self._end, self._end_writer = os.pipe()
        out, self._out_writer = os.pipe()
        self.stdout: IO[bytes] = os.fdopen(out, "rb")
        self._looks_left: int | None = None
        self.signals: list[signal.Signals] = []

    def fileno(self) -> int:
        return self._end

    def poll(self) -> int | None:
        if self._looks_left is None:
            return None
        self._looks_left -= 1
        return self._exit_code if self._looks_left < 0 else None

    def send_signal(self, number: signal.Signals) -> None:
        self.signals.append(number)
        if self._looks_left is None:
            self.end()

    def end(self) -> None:
        os.close(self._end_writer)
        os.close(self._out_writer)
        self._looks_left = LATE_LOOKS

    def close(self) -> None:
        os.close(self._end)
        self.stdout.close()


@pytest.mark.parametrize("exit_code", [0, 1])
async def test_a_child_whose_exit_code_comes_late_counts_as_stopped_not_as_killed(exit_code: int) -> None:
    process, stop = ReapedLate(exit_code), asyncio.Event()
    stop.set()
    end = await Child(process, on_line=print).run(stop, grace_seconds=1.0)
    assert end == ChildEnd(exit_code=exit_code, killed=False, last_lines=())
    assert process.signals == [signal.SIGTERM]
    process.close()


async def test_a_child_that_ended_by_itself_and_is_reaped_late_ends_nothing_else() -> None:
    process = ReapedLate(1)
    process.end()
    end = await Child(process, on_line=print).run(asyncio.Event(), grace_seconds=1.0)
    assert end == ChildEnd(exit_code=1, killed=False, last_lines=())
    assert process.signals == []
    process.close()
