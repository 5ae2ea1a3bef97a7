"""Runs epochs of several flows in one Spark job with one task: epochs that begin at about the same time share
it.

Each flow's epoch ends independently, and its `run` with it; the job ends with the last of them. A job that
does not end is cancelled, because it occupies a thread and task slots.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog

from twinlog.errors import TwinlogError
from twinlog.service.waiting import wait_or_stop
from twinlog_source.driver.epoch import Epoch, SlotState

GATHER_SECONDS = 1.0
"""A job begins when no epoch has joined it for this long. Its flows begin together when the process starts,
and at renewals."""
LONGEST_GATHER_SECONDS = 5.0
"""The longest time that the first epoch waits for others."""
LOOK_SECONDS = 60.0
CLOSE_SECONDS = 3.0
LINGER_SECONDS = 60.0
"""A job is cancelled when all of its epochs have been over for this long."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Job:
    epochs: list[Epoch]
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    failure: TwinlogError | None = None


@dataclass(slots=True, kw_only=True)
class SharedJobs:
    run_together: Callable[[Sequence[Epoch]], Awaitable[None]]
    """Run the job of these epochs to its end. Raises TwinlogError."""
    cancel: Callable[[Epoch], Awaitable[None]]
    """End the job of this epoch; `run_together` then raises. Raises TwinlogError."""
    gather_seconds: float = GATHER_SECONDS
    longest_gather_seconds: float = LONGEST_GATHER_SECONDS
    linger_seconds: float = LINGER_SECONDS
    pause: Callable[[asyncio.Event, float], Awaitable[bool]] = wait_or_stop
    """Wait this many seconds; True = the event came first."""
    gathering: dict[int, _Job] = field(default_factory=dict)
    """Jobs that have not begun, by worker."""
    waiting_or_running: dict[str, _Job] = field(default_factory=dict)
    """Jobs that have not ended, by epoch."""
    _running: set["asyncio.Future[None]"] = field(default_factory=set)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, epoch: Epoch) -> None:
        """Return when the epoch's task has ended or can no longer come; other tasks of its job may still run.
        Raises TwinlogError when the job failed before that."""
        job = self._join(epoch)
        async with asyncio.TaskGroup() as group:
            waits = [
                group.create_task(job.ended.wait(), name=f"job of {epoch.flow}"),
                group.create_task(_over(epoch), name=f"end of {epoch.flow} epoch {epoch.number}"),
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        if job.failure is not None:
            raise type(job.failure)(str(job.failure), reason=job.failure.reason) from job.failure

    def first_of(self, epoch: Epoch) -> Epoch:
        """The epoch that gives its job the name: the first of the job, or the epoch itself if it has no
        job."""
        job = self.waiting_or_running.get(_name(epoch))
        return epoch if job is None else job.epochs[0]

    async def close(self) -> None:
        """Begin no more jobs, and give those whose tasks have ended a moment to deliver their results."""
        self._closing.set()
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSE_SECONDS)
        for running in self._running:
            running.cancel()

    def _join(self, epoch: Epoch) -> _Job:
        worker = epoch.shared_worker
        assert worker is not None
        job = self.gathering.get(worker)
        if job is None:
            job = self.gathering[worker] = _Job([])
            # Not in a task group: the job outlives the epoch that was its first.
            running = asyncio.ensure_future(self._lead(worker, job))
            self._running.add(running)
            running.add_done_callback(self._running.discard)
        job.epochs.append(epoch)
        self.waiting_or_running[_name(epoch)] = job
        return job

    async def _lead(self, worker: int, job: _Job) -> None:
        try:
            is_closing = await self._gather(job)
            del self.gathering[worker]
            if not is_closing:
                async with asyncio.TaskGroup() as group:
                    lingering = group.create_task(self._end_lingering(job), name="end of a shared job")
                    job.failure = await self._outcome(job)
                    lingering.cancel()
        finally:
            job.ended.set()
            for epoch in job.epochs:
                self.waiting_or_running.pop(_name(epoch), None)

    async def _gather(self, job: _Job) -> bool:
        """Wait until no more epochs join the job. Return whether it must not begin."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.longest_gather_seconds
        while (left_seconds := give_up_at - loop.time()) > 0:
            joined = len(job.epochs)
            if await self.pause(self._closing, min(self.gather_seconds, left_seconds)):
                return True
            if len(job.epochs) == joined:
                break
        return False

    async def _outcome(self, job: _Job) -> TwinlogError | None:
        """Run the job; return why it failed, or None."""
        try:
            await self.run_together(job.epochs)
        except TwinlogError as error:
            return error
        except Exception as error:
            # The boundary of the job: nothing awaits it, its epochs get the error.
            log.exception("shared_job_crashed", flows=len(job.epochs))
            return TwinlogError(
                f"the Spark job of {len(job.epochs)} flows crashed: {type(error).__name__}: {error}",
                reason="EPOCH_FAILED",
            )
        return None

    async def _end_lingering(self, job: _Job) -> None:
        """Loop until cancelled: cancel a job that outlives all of its epochs."""
        for epoch in job.epochs:
            await _over(epoch)
        while not await wait_or_stop(job.ended, self.linger_seconds):
            log.warning("shared_job_cancelled", flows=len(job.epochs))
            try:
                await self.cancel(job.epochs[0])
            except TwinlogError as error:
                log.warning("shared_job_not_cancelled", flows=len(job.epochs), error=str(error))


async def _over(epoch: Epoch) -> None:
    """Return when no task of the epoch is running and none is wanted; later tasks are refused."""
    await epoch.over.wait()
    idle = (SlotState.FINISHED, SlotState.LOST, SlotState.WAITING)
    while not await epoch.wait_until(lambda: epoch.are(*idle), LOOK_SECONDS):
        pass


def _name(epoch: Epoch) -> str:
    return f"{epoch.flow} {epoch.number}"
