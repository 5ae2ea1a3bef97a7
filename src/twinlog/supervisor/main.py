"""`twinlog run` from its arguments to the exit code."""

import logging
import os
import random
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import structlog

from twinlog import __version__
from twinlog.backoff import Backoff, Jitter
from twinlog.clock import Clock, SystemClock
from twinlog.config import NoticeLevel
from twinlog.service.runtime import ending_signals
from twinlog.supervisor.children import Children, Program, load, read_signals, signals
from twinlog.supervisor.plan import RunPlan, RunRequest, plan_run
from twinlog.supervisor.runs import announced, beginning, complete_standard_streams, write_line
from twinlog.supervisor.supervisor import PROBE, ChildEnd, Supervision
from twinlog.telemetry.logging import configure_logging

_KILL_MARGIN_SECONDS = 5.0
"""Time beyond a child's own drain and grace before it counts as stuck."""
_NOT_STARTED = 127

_log = structlog.stdlib.get_logger("twinlog")


def run(request: RunRequest) -> int:
    """Run the services until a signal. Returns the exit code. Raises ConfigError before anything starts."""
    complete_standard_streams()
    with ExitStack() as stack:
        plan, unannounced = begin_run(request, environment=os.environ, stack=stack)
        runtime = plan.configuration.runtime
        configure_logging(
            service="twinlog",
            version=__version__,
            format=runtime.log_format,
            level=runtime.log_level,
            stream=sys.stderr,
        )
        for notice in plan.notices:
            level = logging.WARNING if notice.level is NoticeLevel.WARNING else logging.INFO
            _log.log(level, "configuration_notice", key=notice.key, line=notice.line, message=notice.text)
        for key, (wanted, listen) in plan.moved.items():
            _log.info(
                "address_taken", key=key, reason="ADDRESS_IN_USE", wanted=str(wanted), listen=str(listen)
            )
        if unannounced is not None:
            _log.warning("run_not_announced", error=str(unannounced))
        return _run(plan)


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


def _run(plan: RunPlan) -> int:
    clock, runtime = SystemClock(), plan.configuration.runtime
    started = clock.monotonic()

    def on_serving() -> None:
        write_line(sys.stdout, plan.ready_line)
        if plan.metrics_line:
            write_line(sys.stdout, plan.metrics_line)
        _log.info("serving", seconds=round(clock.monotonic() - started, 1))

    _log.info(
        "starting",
        pid=os.getpid(),
        config=plan.configuration.file,
        flows=[str(entry.flow) for entry in plan.configuration.flows],
        **{str(service): str(address.listen) for service, address in plan.addresses.items()},
    )
    load([f"{program.module}.app" for program in plan.services])
    supervision = Supervision(
        names=[program.name for program in plan.services],
        new_backoff=child_backoff,
        grace_seconds=runtime.drain_seconds + runtime.grace_seconds + _KILL_MARGIN_SECONDS,
    )
    supervise(supervision, [*plan.services, plan.probe], clock=clock, on_serving=on_serving)
    outcome = {0: "clean", 2: "refused"}.get(supervision.exit_code, "failed")
    _log.info("stopped", outcome=outcome, seconds=round(clock.monotonic() - started, 1))
    return supervision.exit_code


def child_backoff() -> Backoff:
    # At least half of each wait: a child that dies at once must not restart many times a second.
    return Backoff(initial_seconds=1.0, max_seconds=30.0, random=random.random, jitter=Jitter.EQUAL)


def supervise(
    supervision: Supervision, programs: list[Program], *, clock: Clock, on_serving: Callable[[], None]
) -> None:
    """Run children until a signal has ended them, or one gave up. A second signal kills them. The probe ends
    with 0 once all serve."""
    by_name = {program.name: program for program in programs}
    with Children() as children, signals(ending_signals()) as received:
        while not supervision.is_over:
            now = clock.monotonic()
            for name in supervision.to_start(now):
                try:
                    pid = children.start(by_name[name])
                except OSError as error:
                    _log.error("service_not_started", name=name, message=str(error))
                    _tell(supervision.ended(name, _NOT_STARTED, now))
                else:
                    if name != PROBE:
                        _log.info("service_started", name=name, pid=pid)
            served = supervision.has_served
            for name, exit_code in children.wait(supervision.wait_seconds(clock.monotonic()), received):
                _tell(supervision.ended(name, exit_code, clock.monotonic()))
            if supervision.has_served and not served:
                on_serving()
            if numbers := read_signals(received):
                was_stopping, name = supervision.is_stopping, signal.Signals(numbers[0]).name
                if supervision.stop(clock.monotonic()):
                    _log.warning("stopping_now", signal=name)
                elif not was_stopping:
                    _log.info("stopping", signal=name)
            for name, number in supervision.signals(clock.monotonic()):
                children.signal(name, number)


def _tell(end: ChildEnd | None) -> None:
    if end is not None:
        getattr(_log, end.level)(end.event, **end.values)
