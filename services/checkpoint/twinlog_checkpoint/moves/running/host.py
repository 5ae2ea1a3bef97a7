"""Runs moves in the service: a run continues when its caller disconnects; callers can attach to it or cancel
it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

import structlog
from opentelemetry.context import Context, get_current

from twinlog.clock import Clock
from twinlog.errors import KafkaError, StateError, TwinlogError
from twinlog.model import Flow
from twinlog.moves.record import MoveKind
from twinlog.service.waiting import finish_or_cancel, wait_for_any
from twinlog.telemetry.tracing import under
from twinlog_checkpoint.flow.parts import Duty
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.running.run_record import MoveEvent, MoveReport, StepEvent, StepState
from twinlog_checkpoint.moves.running.runner import MoveRunner

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class MoveRun:
    """The events of one run. Bounded, because a new progress event of a step replaces the previous one."""

    kind: MoveKind
    options: MoveOptions
    started_ms: int
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    """An operator cancelled it."""
    context: Context = field(default_factory=get_current, repr=False)
    """The trace of the call that started it."""
    report: MoveReport | None = None
    error: TwinlogError | None = None
    """Why it ended without a report."""
    on_end: Callable[["MoveRun"], None] | None = field(default=None, repr=False)
    """Called once when the outcome is known, whether or not a caller follows."""
    _told: list[tuple[int, StepEvent]] = field(default_factory=list)
    _count: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def running(self) -> bool:
        return self.report is None and self.error is None

    @property
    def steps(self) -> list[StepEvent]:
        """The events so far."""
        return [event for _, event in self._told]

    def tell(self, event: MoveEvent) -> None:
        if isinstance(event, MoveReport):
            self._finish(report=event)
        else:
            progress = event.state is StepState.PROGRESS
            if progress and self._told and _same(self._told[-1][1], event):
                self._told.pop()
            self._count += 1
            self._told.append((self._count, event))
        self._wake()

    def end(self, error: TwinlogError) -> None:
        """End without a report. Has no effect if the run has already ended."""
        self._finish(error=error)
        self._wake()

    def _finish(self, *, report: MoveReport | None = None, error: TwinlogError | None = None) -> None:
        if not self.running:
            return
        self.report, self.error = report, error
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(self)

    async def follow(self, stop: asyncio.Event) -> AsyncGenerator[MoveEvent, None]:
        """Yield the events so far, then each new event, and finally the report. Ends at `stop`.

        Raises the error with which the run ended.
        """
        seen = 0
        while True:
            changed = self._changed
            for number, event in list(self._told):
                if number > seen:
                    seen = number
                    yield event
            if changed.is_set():
                continue
            if self.report is not None:
                yield self.report
                return
            if self.error is not None:
                raise self.error
            if stop.is_set():
                raise _stopping()
            await wait_for_any(changed, stop)

    async def ended(self) -> None:
        """Wait until the run has ended."""
        while self.running:
            await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _same(before: StepEvent, now: StepEvent) -> bool:
    return (before.step, before.state) == (now.step, now.state)


class MoveHost:
    """Runs the moves of one flow, one at a time. `run` is a loop; call the other methods from the same event
    loop."""

    def __init__(
        self,
        flow: Flow,
        runners: Mapping[MoveKind, MoveRunner],
        *,
        duty: Duty,
        clock: Clock,
        after_run: Callable[[], None] = lambda: None,
    ) -> None:
        """`after_run` is called whenever a run has ended, however it did."""
        self._flow = flow
        self._runners = runners
        self._duty = duty
        self._clock = clock
        self._after_run = after_run
        self._asked = asyncio.Event()
        self.current: MoveRun | None = None
        """The present or last run."""

    def start(self, kind: MoveKind, options: MoveOptions) -> MoveRun:
        """Start a run. Raises StateError (MOVE_IN_PROGRESS)."""
        if self.current is not None and self.current.running:
            kind, by = self.current.kind, self.current.options.by or "somebody"
            raise StateError(
                f"a {kind} of {self._flow} by {by} is running: `twinlog {kind} watch '{self._flow}'` shows"
                f" it, `twinlog {kind} stop '{self._flow}'` stops it",
                reason="MOVE_IN_PROGRESS",
                metadata={"flow": str(self._flow)},
            )
        self.current = MoveRun(kind=kind, options=options, started_ms=self._clock.now_ms())
        self._asked.set()
        return self.current

    def latest(self) -> MoveRun:
        """Raises StateError (NO_MOVE)."""
        if self.current is None:
            raise StateError(
                f"no move of {self._flow} has run in this process since it started: `twinlog failover status"
                f" '{self._flow}'` shows what is on record",
                reason="NO_MOVE",
                metadata={"flow": str(self._flow)},
            )
        return self.current

    async def cancel(self, by: str) -> MoveRun:
        """Cancel the present run, and return it after it has ended. Raises StateError (NO_MOVE)."""
        run = self.latest()
        if run.running:
            _log.info("move_cancelled", kind=run.kind, flow=str(self._flow), by=by)
            run.cancelled.set()
            await run.ended()
        return run

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: carry out requested runs until `stop`. A requested run that has not begun by then ends as
        well."""
        try:
            while not stop.is_set():
                await wait_for_any(stop, self._asked)
                self._asked.clear()
                if self.current is not None and self.current.running:
                    await self._carry_out(self.current)
        finally:
            if self.current is not None:
                self.current.end(_stopping())

    async def _carry_out(self, run: MoveRun) -> None:
        try:
            await finish_or_cancel(self._consumed(run), stop=run.cancelled, grace_seconds=0.0)
            run.end(_cancelled(run, self._flow))
        except TwinlogError as error:
            _log.warning(
                "move_ended",
                kind=run.kind,
                flow=str(self._flow),
                reason=error.reason,
                message=str(error),
            )
            run.end(error)
        except Exception as error:  # noqa: BLE001 (a loop's boundary: a defect ends the run, not the service)
            _log.exception("move_failed", kind=run.kind, flow=str(self._flow))
            run.end(TwinlogError(f"the {run.kind} failed: {type(error).__name__}; see the service's log"))
        finally:
            run.end(_stopping())
            self._after_run()

    async def _consumed(self, run: MoveRun) -> None:
        runner = self._runners[run.kind]
        with under(run.context):
            await runner.check_target(run.options)
            try:
                # End the run at once when this process loses the flow: the next owner may have begun another.
                await self._duty.hold(lambda: self._told(runner, run), grace_seconds=0.0)
            except KafkaError:
                await runner.check_target(run.options)  # Which brokers to start, if that is why.
                raise

    async def _told(self, runner: MoveRunner, run: MoveRun) -> None:
        async with aclosing(runner.run(run.options)) as events:
            async for event in events:
                run.tell(event)


def _cancelled(run: MoveRun, flow: Flow) -> StateError:
    return StateError(
        f"the {run.kind} of {flow} was cancelled: what it did stays. `twinlog {run.kind} run '{flow}'`"
        f" continues it, `twinlog {run.kind} give-up '{flow}'` removes its fence",
        reason="MOVE_CANCELLED",
        metadata={"flow": str(flow)},
    )


def _stopping() -> StateError:
    return StateError("the service is stopping; run it again to continue", reason="STOPPING")
