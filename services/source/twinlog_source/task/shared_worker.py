"""Runs the tasks of several flows in one Python worker, on one event loop; for flows with little to copy.

Invariant A: a task that is lost or crashes is run again here, as Spark does for single tasks, and the others
continue.

Invariant B: the worker ends when every task has ended, or when the driver process, which all of them share,
serves none of them. A single task that is not served tries again, and the others continue.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog
import uvloop

from twinlog.service.waiting import wait_or_stop
from twinlog_source.reasons import EndReason
from twinlog_source.task.run import (
    TaskLostError,
    TaskOutcome,
    TaskSpec,
    configure_task_logging,
    connection,
)
from twinlog_source.task.settings import give_back_memory
from twinlog_source.task.writing.spans import export_spans

AGAIN_SECONDS = 0.5
"""The wait before a task is run again. A driver makes a task wait longer that was lost several times."""
LONGEST_AGAIN_SECONDS = 10.0
"""The same for a task that its driver repeatedly did not serve."""

log = structlog.get_logger(__name__)


class Connection(Protocol):
    """One connection of a task to its driver."""

    @property
    def was_served(self) -> bool:
        """Whether the driver has sent orders."""
        ...

    async def run(self) -> tuple[str, str]:
        """Return why it ended: reason and message. It ends when the driver is silent for too long."""
        ...


Connect = Callable[[TaskSpec], Connection]


@dataclass(slots=True, kw_only=True)
class _Task:
    spec: TaskSpec
    connection: Connection | None = None
    """The newest connection."""
    unserved: int = 0
    """The number of connections in a row that ended before the driver had sent orders."""
    outcome: TaskOutcome | None = None

    @property
    def may_have_driver(self) -> bool:
        """Whether it is served, or may still be."""
        if self.outcome is not None:
            return False
        return not self.unserved or (self.connection is not None and self.connection.was_served)


def run_tasks(specs: Sequence[TaskSpec]) -> list[TaskOutcome]:
    """Copy for all of them until the driver has ended each. Blocks. Raises TaskLostError when the driver is
    gone."""
    configure_task_logging(specs[0])
    export_spans()
    try:
        outcomes: list[TaskOutcome] = uvloop.run(serve_all(specs, connection))
        return outcomes
    finally:
        give_back_memory()


async def serve_all(
    specs: Sequence[TaskSpec], connect: Connect, *, again_seconds: float = AGAIN_SECONDS
) -> list[TaskOutcome]:
    """Return the outcomes of all tasks, in the order of `specs`. Raises TaskLostError."""
    tasks = [_Task(spec=spec) for spec in specs]
    async with asyncio.TaskGroup() as group:
        waiting = {
            group.create_task(
                _stay(task, tasks, connect, again_seconds), name=f"task of {task.spec.flow_name}"
            )
            for task in tasks
        }
        lost: TaskLostError | None = None
        while waiting and lost is None:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            lost = next((error for each in done if (error := each.result()) is not None), None)
        for each in waiting:
            each.cancel()
    if lost is not None:
        raise lost
    return [task.outcome for task in tasks if task.outcome is not None]


async def _stay(
    task: _Task, tasks: Sequence[_Task], connect: Connect, again_seconds: float
) -> TaskLostError | None:
    """Serve one slot until its driver ends it; raise TaskLostError when the driver serves none of `tasks`."""
    spec = task.spec
    while True:
        reason, message = await _once(task, connect)
        if reason != EndReason.LEASE_LOST:
            task.outcome = TaskOutcome(slot=spec.slot, reason=reason, message=message)
            return None
        if not any(each.may_have_driver for each in tasks):
            return TaskLostError(message)
        log.info("task_runs_again", flow=spec.flow_name, epoch=spec.epoch, why=message)
        pause = min(again_seconds * 2.0 ** min(task.unserved, 10), LONGEST_AGAIN_SECONDS)
        await wait_or_stop(asyncio.Event(), pause)


async def _once(task: _Task, connect: Connect) -> tuple[str, str]:
    """Return why its next connection ended."""
    spec = task.spec
    try:
        task.connection = connect(spec)
        ended = await task.connection.run()
    except Exception as error:
        # The boundary of one flow. Its driver counts the task as lost, and makes the next one wait.
        log.exception("task_crashed", flow=spec.flow_name, epoch=spec.epoch, slot=spec.slot)
        task.unserved = 0
        return EndReason.LEASE_LOST, type(error).__name__
    task.unserved = 0 if task.connection.was_served else task.unserved + 1
    return ended
