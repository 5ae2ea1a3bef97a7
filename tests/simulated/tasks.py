"""Runs the tasks of epochs as processes of the simulated world, as Spark does elsewhere."""

import asyncio
from collections.abc import Callable
from typing import Any

from simulated.process import Process
from twinlog.clock import Clock
from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.model import Flow
from twinlog.transforms.expressions import Expressions
from twinlog_source.driver.epoch import Epoch
from twinlog_source.reasons import EndReason
from twinlog_source.records.changing import MakePipe
from twinlog_source.records.pipe import PipeJob, record_pipe
from twinlog_source.task.run import TaskSpec, connection

_CONNECT_TIMEOUT_SECONDS = 20.0


class SimulatedTasks:
    """`EpochRunner` in the loop: a task that dies or loses its driver is run again."""

    def __init__(
        self,
        new_process: Callable[[str], Process],
        *,
        slots: int,
        endpoint: Callable[[], str],
        certificate: str,
        clock: Clock,
        make_pipe: MakePipe = record_pipe,
        refusal: Callable[[], TwinlogError | None] = lambda: None,
    ) -> None:
        self.running: dict[tuple[str, int, int], Process] = {}
        """By flow, epoch and slot."""
        self._new_process = new_process
        self._slots = slots
        self._endpoint = endpoint
        self._certificate = certificate
        self._clock = clock
        self._make_pipe = make_pipe
        """What changes records, instead of Spark."""
        self._refusal = refusal
        """Why expressions are refused."""
        self._cancelled: set[tuple[str, int]] = set()

    def warm_up(self) -> None:
        """Nothing takes long to start."""

    async def slots(self) -> int:
        return self._slots

    async def run(self, epoch: Epoch) -> None:
        async with asyncio.TaskGroup() as group:
            for slot in epoch.slots:
                group.create_task(self._keep_running(epoch, slot.index), name=f"slot {slot.index}")
        if (str(epoch.flow), epoch.number) in self._cancelled:
            raise TransientKafkaError("the job was cancelled", reason="EPOCH_FAILED")

    async def check_expressions(self, flow: Flow, expressions: Expressions) -> None:
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    async def run_pipe(self, flow: Flow, expressions: Expressions, job: PipeJob) -> None:
        raise NotImplementedError(f"{flow} {expressions} {job}: there is no Spark")

    async def cancel(self, epoch: Epoch) -> None:
        self._cancelled.add((str(epoch.flow), epoch.number))
        for key in [key for key in self.running if key[:2] == (str(epoch.flow), epoch.number)]:
            await self.running[key].kill()

    async def close(self) -> None:
        for process in list(self.running.values()):
            await process.kill()

    async def _keep_running(self, epoch: Epoch, slot: int) -> None:
        key = str(epoch.flow), epoch.number, slot
        spec = TaskSpec(
            flow_name=str(epoch.flow),
            epoch=epoch.number,
            slot=slot,
            driver_endpoint=self._endpoint(),
            driver_certificate=self._certificate,
            token=epoch.token,
            connect_timeout_seconds=_CONNECT_TIMEOUT_SECONDS,
        )
        while key[:2] not in self._cancelled:
            process = self.running[key] = self._new_process(f"task {key}")
            running: asyncio.Task[Any] = process.start(
                connection(spec, rpc=process.rpc, clock=self._clock, make_pipe=self._make_pipe).run()
            )
            try:
                await asyncio.wait([running])
            finally:
                del self.running[key]
            if not process.is_killed and running.result()[0] != EndReason.LEASE_LOST:
                return
