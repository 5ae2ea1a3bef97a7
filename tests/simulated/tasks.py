"""Runs workers as processes of the simulated world, as Spark does elsewhere."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext

from simulated.process import Process
from twinlog.clock import Clock
from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.model import Flow
from twinlog.transforms.expressions import Expressions
from twinlog_source.driver.lender import DriverPlace
from twinlog_source.records.changing import ChangingOf, MakePipe
from twinlog_source.records.pipe import PipeJob, record_pipe
from twinlog_source.task.settings import TaskLostError, TaskSpec, WorkerSpec
from twinlog_source.task.stream.session import TaskConnection
from twinlog_source.task.stream.worker import Worker

_CONNECT_TIMEOUT_SECONDS = 20.0


class SimulatedWorkers:
    """`Workers` in the loop."""

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
        cluster: asyncio.Semaphore | None = None,
    ) -> None:
        self.is_up = True
        self.running: dict[int | str, Process] = {}
        """By the number of the worker; of another driver: by its name."""
        self.cores = slots if cluster is None else None
        self._cluster = cluster
        """The free cores of a cluster."""
        self._new_process = new_process
        self._endpoint = endpoint
        self._certificate = certificate
        self._clock = clock
        self._make_pipe = make_pipe
        """What changes records, instead of Spark."""
        self._refusal = refusal
        """Why expressions are refused."""
        self._killed: set[int | str] = set()

    spark_ui = ""

    def warm_up(self, *, is_owner: bool = True) -> None:
        """Nothing takes long to start."""

    async def rest(self) -> None:
        """Nothing holds cores."""

    async def cluster_cores(self) -> int | None:
        return None  # A flow whose records are changed has one slot there.

    async def run_worker(self, number: int, token: str) -> None:
        driver = DriverPlace(endpoint=self._endpoint(), certificate=self._certificate)
        await self._run(number, number, token, driver)

    async def run_lent(self, number: int, token: str, driver: DriverPlace) -> None:
        await self._run(f"{number} of {driver.endpoint}", number, token, driver)

    async def _run(self, name: int | str, number: int, token: str, driver: DriverPlace) -> None:
        spec = WorkerSpec(
            number=number,
            driver_endpoint=driver.endpoint,
            driver_certificate=driver.certificate,
            token=token,
            connect_timeout_seconds=_CONNECT_TIMEOUT_SECONDS,
        )
        async with self._cluster or nullcontext():
            if name in self._killed or not await self._ends(name, spec):
                raise TransientKafkaError(f"worker {name} was killed", reason="EPOCH_FAILED")

    async def kill_worker(self, number: int) -> None:
        await self._kill(number)

    async def kill_lent(self, number: int, driver: DriverPlace) -> None:
        await self._kill(f"{number} of {driver.endpoint}")

    async def _kill(self, name: int | str) -> None:
        self._killed.add(name)
        if name in self.running:
            await self.running[name].kill()

    async def check_expressions(self, flow: Flow, expressions: Expressions) -> None:
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    async def run_pipe(self, flow: Flow, expressions: Expressions, job: PipeJob) -> None:
        raise NotImplementedError(f"{flow} {expressions} {job}: there is no Spark")

    async def close(self) -> None:
        for process in list(self.running.values()):
            await process.kill()

    async def _ends(self, name: int | str, spec: WorkerSpec) -> bool:
        """Run it; whether it was needed no longer, rather than lost."""
        process = self.running[name] = self._new_process(f"worker {name}")

        def connect(task: TaskSpec, changing: ChangingOf) -> TaskConnection:
            return TaskConnection(spec=task, changing=changing, rpc=process.rpc, clock=self._clock)

        worker = Worker(spec=spec, connect=connect, rpc=process.rpc, make_pipe=self._make_pipe)
        running = process.start(worker.run())
        try:
            await asyncio.wait([running])
        finally:
            del self.running[name]
        if process.is_killed or isinstance(running.exception(), TaskLostError):
            return False
        running.result()
        return True
