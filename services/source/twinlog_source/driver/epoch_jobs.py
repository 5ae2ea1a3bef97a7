"""The runs of a flow's epochs. A run is started ahead, so that its tasks are ready when the previous epoch
ends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from twinlog.clock import Clock
from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.model import Flow
from twinlog.service.waiting import wait_for_any, wait_or_stop
from twinlog.transforms.expressions import Expressions
from twinlog_source.driver.cores import Need
from twinlog_source.driver.epoch import Epoch, SlotState
from twinlog_source.driver.instruments import FlowInstruments
from twinlog_source.partitions.planner import Plan
from twinlog_source.reasons import EndReason
from twinlog_source.records.pipe import PipeJob

PREPARE_TIMEOUT_SECONDS = 60.0
"""In which one more task has to get ready: on a crowded machine those that are ready are not given up for
the last one."""
MEANWHILE_SECONDS = 5.0
"""How often `meanwhile` runs while tasks get ready."""
FIRST_NUMBER = 1
"""The number of a flow's first epoch in this process."""
JOB_END_SECONDS = 5.0
LINGER_SECONDS = 60.0
"""Tasks whose epoch has been over for this long are cut off: they do not react."""

log = structlog.get_logger(__name__)


class EpochRunner(Protocol):
    """Runs the tasks of an epoch (on workers of Spark)."""

    @property
    def spark_ui(self) -> str:
        """The address of Spark's web UI; empty if it is switched off, or Spark has not started."""
        ...

    def warm_up(self) -> None:
        """Start what takes long to start, and return at once. A failure appears again in `run`."""
        ...

    async def run(self, epoch: Epoch) -> None:
        """Return when all tasks of the epoch have ended. Raises TwinlogError when they could not run."""
        ...

    async def check_expressions(self, flow: Flow, expressions: Expressions) -> None:
        """Let Spark look at them, without records. Raises TwinlogError (TRANSFORM_REFUSED: for good)."""
        ...

    async def run_pipe(self, flow: Flow, expressions: Expressions, job: PipeJob) -> None:
        """Run the job through which records of a task flow, to its end; cancelling ends the job. Raises
        TwinlogError when it failed, or could not run."""
        ...

    @property
    def most(self) -> int:
        """Slots that a flow may have at most."""
        ...

    async def claim(self, flow: Flow, need: Need) -> int:
        """How many slots the flow gets. Waits until Spark is up; raises TwinlogError."""
        ...

    def share(self, flow: Flow, need: Need | None) -> int:
        """The same now; None: the flow is not copied here any more."""
        ...

    def is_crowded(self) -> bool:
        """Whether more slots copy than there are cores."""
        ...

    def was_awake(self, seconds: float) -> bool:
        """Whether this process was not suspended in the last so many seconds."""
        ...


@dataclass(slots=True, kw_only=True)
class EpochJobs:
    """Every epoch that has a job. Use it within the lifetime of `group`, on the driver's event loop only."""

    flow: Flow
    runner: EpochRunner
    instruments: FlowInstruments
    clock: Clock
    linger_seconds: float = LINGER_SECONDS
    _epochs: dict[int, Epoch] = field(default_factory=dict)
    _number: int = FIRST_NUMBER - 1
    _running: set["asyncio.Task[None]"] = field(default_factory=set)

    def epoch_of(self, number: int) -> Epoch | None:
        """The epoch with this number; None once its job has ended."""
        return self._epochs.get(number)

    def next_number(self, *, beside: Epoch | None) -> int:
        """The number of an epoch that is prepared while `beside` copies."""
        return number_after(self._number, beside=None if beside is None else beside.number)

    async def prepare(
        self,
        chosen: Plan,
        *,
        number: int,
        group: asyncio.TaskGroup,
        meanwhile: Callable[[], Awaitable[None]],
        shares_worker: bool = False,
    ) -> Epoch:
        """Start the tasks of an epoch and wait until they are ready; await `meanwhile` every few seconds.
        Raises the reason why they did not get ready, and what `meanwhile` raises."""
        self._number = number
        epoch = Epoch(flow=self.flow, number=number, plan=chosen, shares_worker=shares_worker)
        self._epochs[epoch.number] = epoch
        job = group.create_task(self._run(epoch), name=f"{self.flow} epoch {epoch.number}")
        self._running.add(job)
        job.add_done_callback(self._running.discard)
        try:
            ready = await self._until_ready(epoch, meanwhile)
            failure = epoch.failure
            if failure is not None:
                raise failure
            if not ready:
                raise TransientKafkaError(
                    f"{_missing(epoch)} of {len(epoch.slots)} tasks of epoch {epoch.number} of {self.flow}"
                    f" are not ready, and none became so within {PREPARE_TIMEOUT_SECONDS:g} s",
                    reason="EPOCH_NOT_READY",
                )
        except BaseException:
            epoch.end(EndReason.NOT_NEEDED)
            raise
        return epoch

    async def _until_ready(self, epoch: Epoch, meanwhile: Callable[[], Awaitable[None]]) -> bool:
        """Whether the epoch was ready in time, or why it failed."""
        loop = asyncio.get_running_loop()
        give_up_at, missing = loop.time() + PREPARE_TIMEOUT_SECONDS, len(epoch.slots)
        while (left_seconds := give_up_at - loop.time()) > 0:
            if await epoch.wait_until(
                lambda: epoch.are(SlotState.PREPARED) or epoch.failure is not None,
                min(left_seconds, MEANWHILE_SECONDS),
            ):
                return True
            await meanwhile()
            if _missing(epoch) < missing:
                give_up_at, missing = loop.time() + PREPARE_TIMEOUT_SECONDS, _missing(epoch)
        return False

    async def shut_down(self) -> None:
        """End the running jobs: in order, or by force after a while."""
        for epoch in self._epochs.values():
            epoch.end(EndReason.SHUTDOWN)
        if self._running:
            await asyncio.wait(self._running, timeout=JOB_END_SECONDS)
        for job in self._running:
            job.cancel()

    async def _run(self, epoch: Epoch) -> None:
        began = self.clock.monotonic()
        failure: TwinlogError | None = None
        try:
            failure = await self._outcome(epoch)
        finally:
            self._epochs.pop(epoch.number, None)
            epoch.job_ended(failure)
            self.instruments.epoch_ended(self.clock.monotonic() - began)

    async def _outcome(self, epoch: Epoch) -> TwinlogError | None:
        """Run the job; return why it failed, or None."""
        failure: TwinlogError | None = None
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._end_lingering(epoch, ended), name=f"{self.flow} end of its epoch")
            try:
                await self.runner.run(epoch)
            except TwinlogError as error:
                failure = error
                log.warning(
                    "epoch_failed",
                    flow=str(self.flow),
                    epoch=epoch.number,
                    reason=error.reason,
                    error=str(error),
                )
            finally:
                ended.set()
        return failure

    async def _end_lingering(self, epoch: Epoch, ended: asyncio.Event) -> None:
        """Until the run has `ended`: tasks that outlive their epoch are cut off."""
        await wait_for_any(epoch.over, ended)
        while not await wait_or_stop(ended, self.linger_seconds):
            log.warning("epoch_aborted", flow=str(self.flow), epoch=epoch.number, why=epoch.ending)
            for slot in epoch.slots:
                if slot.state is not SlotState.FINISHED:
                    # Its stream ends and the epoch is over, so a task that reconnects is refused.
                    epoch.cut_off(slot)


def _missing(epoch: Epoch) -> int:
    return sum(slot.state is not SlotState.PREPARED for slot in epoch.slots)


def number_after(last: int, *, beside: int | None) -> int:
    """The number of the epoch after `last`. Even and odd epochs have different transactional ids: if `last`
    never began, the next one must not take the ids of the epoch that still copies."""
    return last + 2 if beside is not None and (last + 1 - beside) % 2 == 0 else last + 1
