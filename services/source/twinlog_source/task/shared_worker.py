"""Tasks of several flows in one Python worker, on one event loop: for flows with little to copy.

Invariant A: a task that is lost or crashes is run again here, as Spark runs one that is alone, and the others
continue.
Invariant B: the worker ends when every task has ended, or when the driver, which is that of all of them, does
not answer at all.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog
import uvloop

from twinlog.service.waiting import wait_or_stop
from twinlog_source.reasons import EndReason
from twinlog_source.task.memory import give_back_memory
from twinlog_source.task.run import (
    TaskLostError,
    TaskOutcome,
    TaskSpec,
    configure_task_logging,
    connection,
)

AGAIN_SECONDS = 0.5
"""Before a task is run again. A driver makes one wait longer that was lost several times."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How one connection of a task to its driver ended."""

    reason: str
    message: str
    was_served: bool
    """The driver had told it what to do."""


Serve = Callable[[TaskSpec], Awaitable[Served]]


def run_tasks(specs: Sequence[TaskSpec]) -> list[TaskOutcome]:
    """Copy for all of them until their driver has ended each. Blocks. Raises TaskLostError when the driver
    is gone."""
    configure_task_logging(specs[0])
    try:
        outcomes: list[TaskOutcome] = uvloop.run(serve_all(specs, _serve))
        return outcomes
    finally:
        give_back_memory()


async def serve_all(
    specs: Sequence[TaskSpec], serve: Serve, *, again_seconds: float = AGAIN_SECONDS
) -> list[TaskOutcome]:
    """The outcomes of all tasks, in the order of `specs`. Raises TaskLostError."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_stay(spec, serve, again_seconds), name=f"task of {spec.flow_name}")
            for spec in specs
        ]
        waiting: set[asyncio.Task[TaskOutcome | TaskLostError]] = set(tasks)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if any(isinstance(task.result(), TaskLostError) for task in done):
                break
        for task in waiting:
            task.cancel()
    outcomes: list[TaskOutcome] = []
    for task in tasks:
        outcome = TaskLostError("the driver is gone") if task.cancelled() else task.result()
        if isinstance(outcome, TaskLostError):
            raise outcome
        outcomes.append(outcome)
    return outcomes


async def _stay(spec: TaskSpec, serve: Serve, again_seconds: float) -> TaskOutcome | TaskLostError:
    """Serve one slot until its driver says that it is over; TaskLostError when there is no driver."""
    while True:
        served = await _once(spec, serve)
        if served.reason != EndReason.LEASE_LOST:
            return TaskOutcome(slot=spec.slot, reason=served.reason, message=served.message)
        if not served.was_served:
            return TaskLostError(served.message)
        log.info("task_runs_again", flow=spec.flow_name, epoch=spec.epoch, why=served.message)
        await wait_or_stop(asyncio.Event(), again_seconds)


async def _once(spec: TaskSpec, serve: Serve) -> Served:
    try:
        return await serve(spec)
    except Exception as error:
        # The boundary of one flow. Its driver counts it as lost, and has the next one wait.
        log.exception("task_crashed", flow=spec.flow_name, epoch=spec.epoch, slot=spec.slot)
        return Served(reason=EndReason.LEASE_LOST, message=type(error).__name__, was_served=True)


async def _serve(spec: TaskSpec) -> Served:
    session = connection(spec)
    reason, message = await session.run()
    return Served(reason=reason, message=message, was_served=session.was_served)
