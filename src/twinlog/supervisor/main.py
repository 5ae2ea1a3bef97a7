"""`twinlog run` from its arguments to the exit code."""

import asyncio
import os
import random
import sys
from collections.abc import Mapping
from contextlib import ExitStack

from twinlog import __version__
from twinlog.clock import Clock, SystemClock
from twinlog.errors import TwinlogError
from twinlog.service.signals import handle_signals
from twinlog.service.waiting import Backoff, finish_or_cancel, wait_or_stop
from twinlog.supervisor.child import Child
from twinlog.supervisor.forked import Starter, open_starter
from twinlog.supervisor.log_lines import LogLines
from twinlog.supervisor.plan import RunPlan, RunRequest, plan_run
from twinlog.supervisor.queued_output import queued_output
from twinlog.supervisor.runs import announced, beginning
from twinlog.supervisor.streams import OutputStream, complete_standard_streams, write_line
from twinlog.supervisor.supervisor import EXIT_FAILED, Supervisor

_KILL_MARGIN_SECONDS = 5.0
"""Time beyond a child's own drain and grace before it counts as stuck."""
_PROBE_PAUSE_SECONDS = 1.0


def run(request: RunRequest) -> int:
    """Run the services until a signal. Returns the exit code. Raises ConfigError before anything starts."""
    complete_standard_streams()
    with ExitStack() as stack:
        plan, unannounced = begin_run(request, environment=os.environ, stack=stack)
        stdout, stderr = stack.enter_context(queued_output(sys.stdout, sys.stderr))
        log = LogLines(stderr, format=plan.configuration.runtime.log_format, clock=SystemClock())
        stderr.tell_dropped(log.dropped)
        for notice in plan.configuration.notices:
            log.event(
                notice.level, "configuration_notice", key=notice.key, line=notice.line, message=notice.text
            )
        moved = {f"twinlog.{service}.listen": places for service, places in plan.moved.items()}
        moved |= {f"twinlog.{service}.metrics.listen": it for service, it in plan.metrics_moved.items()}
        for key, (wanted, listen) in moved.items():
            log.event(
                "info",
                "address_taken",
                key=key,
                reason="ADDRESS_IN_USE",
                wanted=str(wanted),
                listen=str(listen),
            )
        if unannounced is not None:
            log.event("warning", "run_not_announced", error=str(unannounced))
        try:
            return asyncio.run(_run(plan, log, stdout))
        except asyncio.CancelledError:
            log.event("error", "stopped", outcome="forced", message="a second signal cut the stop short")
            return EXIT_FAILED


def begin_run(
    request: RunRequest, *, environment: Mapping[str, str], stack: ExitStack
) -> tuple[RunPlan, OSError | None]:
    """Plan a run, and announce it to the command line and other runs until `stack` ends. Runs that begin at
    the same time take different addresses. Raises ConfigError."""
    with beginning():
        plan = plan_run(request, environment=environment, stack=stack)
        try:
            stack.enter_context(announced(plan.as_living_run(os.getpid())))
        except OSError as error:
            return plan, error
    return plan, None


async def _run(plan: RunPlan, log: LogLines, stdout: OutputStream) -> int:
    stop = asyncio.Event()
    clock = SystemClock()
    started = clock.monotonic()
    main = asyncio.current_task()
    assert main is not None

    def ask(signal_name: str) -> None:
        log.event("info", "stopping", signal=signal_name)
        stop.set()

    def force(signal_name: str) -> None:
        log.event("warning", "stopping_now", signal=signal_name)
        main.cancel()

    def told(reason: str) -> None:
        log.event("warning", "service_not_forked", message=f"{reason}; it is started as a program of its own")

    log.event(
        "info",
        "starting",
        version=__version__,
        pid=os.getpid(),
        config=plan.configuration.file,
        flows=[str(entry.flow) for entry in plan.configuration.flows],
        **{str(service): str(address.listen) for service, address in plan.addresses.items()},
    )
    with handle_signals(on_first=ask, on_second=force):
        async with open_starter(plan.modules, plan.environment, stop=stop, tell=told) as start:
            exit_code = await _supervisor(plan, log, clock, start, started, stdout).run(stop)
    outcome = {0: "clean", 2: "refused"}.get(exit_code, "failed")
    log.event("info", "stopped", outcome=outcome, seconds=round(clock.monotonic() - started, 1))
    return exit_code


def _supervisor(
    plan: RunPlan, log: LogLines, clock: Clock, start: Starter, started: float, stdout: OutputStream
) -> Supervisor:
    runtime = plan.configuration.runtime

    def announce() -> None:
        write_line(stdout, plan.ready_line)
        if plan.metrics_line:
            write_line(stdout, plan.metrics_line)
        # A line of its own: others read the first one.
        if log.obstacles:
            write_line(stdout, f"not working yet: {log.obstacles}")
        log.event("info", "serving", seconds=round(clock.monotonic() - started, 1))

    async def wait_until_serving(stop: asyncio.Event) -> bool:
        return await _wait_until_serving(plan, log, stop, start)

    return Supervisor(
        plan.children,
        start=start,
        log=log,
        clock=clock,
        new_backoff=_child_backoff,
        grace_seconds=runtime.drain_seconds + runtime.grace_seconds + _KILL_MARGIN_SECONDS,
        wait_until_serving=wait_until_serving,
        on_serving=announce,
    )


def _child_backoff() -> Backoff:
    # At least half of each wait: a child that dies at once must not restart many times a second.
    return Backoff(initial_seconds=1.0, max_seconds=30.0, random=lambda: 0.5 + random.random() / 2)  # noqa: S311


async def _wait_until_serving(plan: RunPlan, log: LogLines, stop: asyncio.Event, start: Starter) -> bool:
    """Ask for readiness in a process that ends once all serve: gRPC never loads into the supervisor."""
    spec = plan.probe

    def pass_on(line: str) -> None:
        log.child_line(spec.name, line)

    while not stop.is_set():
        try:
            process = await finish_or_cancel(start(spec), stop=stop, grace_seconds=0.0)
        except TwinlogError as error:
            log.event("error", "probe_failed", message=str(error))
        else:
            if process is None:
                return False
            end = await Child(process, on_line=pass_on).run(stop, grace_seconds=0.0)
            if stop.is_set():
                return False
            if end.exit_code == 0:
                return True
            log.event("error", "probe_failed", exit_code=end.exit_code)
        await wait_or_stop(stop, _PROBE_PAUSE_SECONDS)
    return False
