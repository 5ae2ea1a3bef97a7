"""Keeps a set of children running until it is told to stop."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.service.waiting import Backoff, finish_or_cancel, wait_or_stop
from twinlog.supervisor.child import Child, ChildEnd, ChildSpec, Start, start_program
from twinlog.supervisor.log_lines import LogLines, last_words
from twinlog.supervisor.policy import EXIT_BAD_CONFIG, GiveUp, RestartPolicy

EXIT_CLEAN = 0
EXIT_FAILED = 1
_CLEAN_ENDS = (0, 128 + signal.SIGTERM)
"""A child that does not handle signals yet ends by the SIGTERM itself: it had nothing to drain."""

WaitUntilServing = Callable[[asyncio.Event], Awaitable[bool]]
"""Returns True once all children serve at the same time, False when `stop` came first."""


@dataclass(slots=True)
class _Outcome:
    exit_code: int = EXIT_CLEAN
    serving: bool = False


class Supervisor:
    """Runs children side by side; one that ends is restarted with a back-off, the others keep running.

    Exit code of `run`: 0 when every child running at the stop ended with 0 by itself; 1 when one had to be
    killed or ended otherwise; 2 when one refused the configuration before all had served (then the others are
    stopped).
    """

    def __init__(
        self,
        children: Sequence[ChildSpec],
        *,
        log: LogLines,
        clock: Clock,
        new_backoff: Callable[[], Backoff],
        grace_seconds: float,
        wait_until_serving: WaitUntilServing,
        on_serving: Callable[[], None],
        start: Start = start_program,
    ) -> None:
        """`grace_seconds`: longest time from SIGTERM to a child's end. `on_serving` is called at most once.
        `start` starts a child; it raises TwinlogError when it cannot, and is called again later."""
        self._start = start
        self._children = children
        self._log = log
        self._clock = clock
        self._new_backoff = new_backoff
        self._grace_seconds = grace_seconds
        self._wait_until_serving = wait_until_serving
        self._on_serving = on_serving
        self._outcome = _Outcome()

    async def run(self, stop: asyncio.Event) -> int:
        """Run until `stop`, or until a child gives up. Kills all children when cancelled. Returns the exit
        code."""
        async with asyncio.TaskGroup() as group:
            for spec in self._children:
                group.create_task(self._keep_running(spec, stop), name=spec.name)
            group.create_task(self._announce(stop), name="announce")
        return self._outcome.exit_code

    async def _announce(self, stop: asyncio.Event) -> None:
        if await self._wait_until_serving(stop):
            self._outcome.serving = True
            self._on_serving()

    async def _keep_running(self, spec: ChildSpec, stop: asyncio.Event) -> None:
        policy = RestartPolicy(self._new_backoff())
        while not stop.is_set():
            started = self._clock.monotonic()
            end = await self._run_once(spec, stop)
            if end is None:
                return
            if stop.is_set():
                self._judge_stop(spec, end)
                return
            step = policy.ended(
                end.exit_code,
                ran_seconds=self._clock.monotonic() - started,
                has_served=self._outcome.serving,
            )
            if isinstance(step, GiveUp):
                self._log.event("error", "service_refused_to_start", name=spec.name, exit_code=end.exit_code)
                self._outcome.exit_code = EXIT_BAD_CONFIG
                stop.set()
                return
            self._log.event(
                "error" if step.keeps_crashing else "warning",
                "service_keeps_crashing" if step.keeps_crashing else "service_ended",
                name=spec.name,
                exit_code=end.exit_code,
                crashes_in_a_row=step.crashes_in_a_row,
                restart_in_seconds=round(step.after_seconds, 2),
                cause=last_words(end.last_lines, end.exit_code),
            )
            await wait_or_stop(stop, step.after_seconds)

    async def _run_once(self, spec: ChildSpec, stop: asyncio.Event) -> ChildEnd | None:
        """None when `stop` came before the start."""

        def pass_on(line: str) -> None:
            self._log.child_line(spec.name, line)

        try:
            process = await finish_or_cancel(self._start(spec), stop=stop, grace_seconds=0.0)
        except TwinlogError as error:
            self._log.event("error", "service_not_started", name=spec.name, message=str(error))
            return ChildEnd(exit_code=127, killed=False, last_lines=(str(error),))
        if process is None:
            return None
        child = Child(process, on_line=pass_on)
        self._log.event("info", "service_started", name=spec.name, pid=child.pid)
        return await child.run(stop, grace_seconds=self._grace_seconds)

    def _judge_stop(self, spec: ChildSpec, end: ChildEnd) -> None:
        clean = end.exit_code in _CLEAN_ENDS and not end.killed
        self._log.event(
            "info" if clean else "error",
            "service_stopped",
            name=spec.name,
            exit_code=end.exit_code,
            killed_after_seconds=self._grace_seconds if end.killed else None,
        )
        if not clean and self._outcome.exit_code == EXIT_CLEAN:
            self._outcome.exit_code = EXIT_FAILED
