"""Runs workers on Spark: one context for the process, opened when first needed, and replaced when its JVM is
gone."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, TypeVar

import structlog

from twinlog.clock import Clock
from twinlog.errors import ConfigError, StateError, TwinlogError
from twinlog.machine import spark_environment
from twinlog.model import Flow
from twinlog.transforms.expressions import TOPICS, Expressions
from twinlog_source.driver.lender import DriverPlace
from twinlog_source.pipeline.job import job_group, load_workers, run_job
from twinlog_source.pipeline.jvm_log import JvmOutput, words_of_failure
from twinlog_source.pipeline.launch import SPARK_FAILURES, SparkUnavailableError
from twinlog_source.pipeline.session import (
    cancel_group,
    close_context,
    executor_cores,
    has_core,
    is_stopped,
    open_context,
    ui_address,
)
from twinlog_source.pipeline.settings import is_local, keeps_cores, local_cores, promised_cores
from twinlog_source.reasons import PartitionReason
from twinlog_source.records.pipe import PipeJob, TransformFailedError
from twinlog_source.task.settings import WorkerSpec

CONNECT_TIMEOUT_SECONDS = 20.0
LAUNCH_SECONDS = 15.0
_OWN_THREADS = 4

JVM_GONE = (
    "Spark's JVM is gone, and another one is being started; if that happens again, check the system's log for"
    " an out-of-memory kill, and give the machine or the container more memory"
)

CLOSED_CONTEXT = (AttributeError, AssertionError)
"""What pyspark raises on a closed context: it uses a JVM that is None, or asserts that it is not None."""

NO_CORE_SECONDS = 60.0
"""How long the job that changes records may be without a core: other jobs end, and executors come."""
LOOK_SECONDS = 5.0
_EXECUTOR_LOST = "ExecutorLostFailure"
"""No record is to blame for that, even if it happens again and again."""

T = TypeVar("T")


class NoFreeCoreError(TwinlogError):
    """Waits for Spark to get more, and is tried again."""

    retriable = True
    default_reason = PartitionReason.NO_FREE_CORE


log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class SparkRunner:
    """`Workers` on Spark. Use it from one event loop only."""

    master: str
    threads: int
    """Jobs that may run at the same time."""
    conf: Mapping[str, str]
    environment: Callable[[], Mapping[str, str]]
    driver_endpoint: Callable[[], str]
    """Where tasks find the WorkerService."""
    driver_certificate: str
    """PEM; tasks recognise the driver by it."""
    log_level: str
    clock: Clock
    with_sql: bool = False
    """Some flow changes records: Spark SQL is needed."""
    context: Any = None
    """The SparkContext; None while there is none."""
    output: JvmOutput | None = None
    """The output of its JVM."""
    spark_ui: str = ""
    """As in `Workers`."""
    _launch: "asyncio.Future[None] | None" = None
    _warming: "asyncio.Future[None] | None" = None
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """pyspark allows one context per process, so the old one is closed before a new one is opened."""
    _closing: threading.Event = field(default_factory=threading.Event)
    _threads: ThreadPoolExecutor = field(init=False)
    _pipes: Iterator[int] = field(default_factory=itertools.count)
    _with_records: int = 0
    """How many calls use Spark SQL now."""

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.threads + 2, thread_name_prefix="spark")

    def warm_up(self, *, is_owner: bool = True) -> None:
        """Start the JVM and the fork server of its Python workers in the background; both take seconds. Call
        it in the event loop."""
        if not is_owner and self._keeps_cores:
            return
        if self.context is None and self._launch is None:
            self._begin_launch()
            self._warming = asyncio.ensure_future(self.load_workers())

    async def rest(self) -> None:
        """As in `Workers`."""
        if not self._keeps_cores or self._with_records or self._changing.locked():
            return
        async with self._changing:
            context, self.context = self.context, None
            if context is not None:
                await self._in_thread(lambda: close_context(context))
                log.info("spark_ended", master=self.master)

    @property
    def _keeps_cores(self) -> bool:
        return keeps_cores(self.master, self.conf, with_sql=self.with_sql)

    async def load_workers(self) -> None:
        """When Spark is up, let it load what the first epoch's tasks need. On a cluster, executors do that
        with their first task. A failure is ignored here, because the first epoch reports it."""
        with contextlib.suppress(*SPARK_FAILURES, *CLOSED_CONTEXT, TwinlogError, RuntimeError):
            context = await self._open()
            if is_local(self.master):
                await self._in_thread(lambda: load_workers(context))

    @property
    def is_up(self) -> bool:
        return self.context is not None

    @property
    def cores(self) -> int | None:
        return local_cores(self.master)

    async def cluster_cores(self) -> int | None:
        promised, context = promised_cores(self.conf), self.context
        if promised is not None or context is None:
            return promised
        with contextlib.suppress(*SPARK_FAILURES, *CLOSED_CONTEXT):
            # None while no executor has come.
            return await asyncio.to_thread(executor_cores, context) or None
        return None

    async def run_worker(self, number: int, token: str) -> None:
        """Return when the worker has ended. Raises TwinlogError."""
        driver = DriverPlace(endpoint=self.driver_endpoint(), certificate=self.driver_certificate)
        await self._run_worker(number, token, driver, job_group(number))

    async def run_lent(self, number: int, token: str, driver: DriverPlace) -> None:
        await self._run_worker(number, token, driver, job_group(number, driver.endpoint))

    async def _run_worker(self, number: int, token: str, driver: DriverPlace, group: str) -> None:
        context = await self._open()
        spec = WorkerSpec(
            number=number,
            driver_endpoint=driver.endpoint,
            driver_certificate=driver.certificate,
            token=token,
            connect_timeout_seconds=CONNECT_TIMEOUT_SECONDS,
            log_level=self.log_level,
            is_on_cluster=not is_local(self.master),
        )
        await self._on(context, lambda: run_job(context, spec, group), f"the job of {group}")

    async def check_expressions(self, flow: Flow, expressions: Expressions) -> None:
        """Let Spark look at them, without records. Raises TwinlogError (TRANSFORM_REFUSED,
        SPARK_UNAVAILABLE)."""
        from twinlog_source.pipeline.record_pipe import PipeSpec, check_plan

        nobody = PipeJob(port=0, token=b"", strict=False)
        spec = PipeSpec(flow_name=str(flow), expressions=expressions, group="", job=nobody)
        await self._with_sql(lambda context: check_plan(context, spec))

    async def run_pipe(self, flow: Flow, expressions: Expressions, job: PipeJob) -> None:
        """Raises TransformFailedError when Spark failed with the records, and TwinlogError
        (TRANSFORM_REFUSED, SPARK_UNAVAILABLE)."""
        # Here, because it loads Spark SQL, which most flows do not need.
        from twinlog_source.pipeline.record_pipe import PipeSpec, run_pipe

        # Workers of a cluster may ask for jobs with the same number.
        group = f"{flow} records {next(self._pipes)}"
        spec = PipeSpec(flow_name=str(flow), expressions=expressions, group=group, job=job)
        await self._with_sql(lambda context: run_pipe(context, spec), group)

    async def _with_sql(self, work: Callable[[Any], None], group: str = "") -> None:
        """Cancelling it ends the jobs of `group`. Raises as `run_pipe`."""
        if find_spec("pyarrow") is None:
            missing = f"{TOPICS}: needs pyarrow: pip install 'twinlog-source[records]'"
            raise StateError(missing, reason=PartitionReason.TRANSFORM_REFUSED)
        self._with_records += 1
        try:
            await self._in_context(await self._open(), work, group)
        finally:
            self._with_records -= 1

    async def _in_context(self, context: Any, work: Callable[[Any], None], group: str) -> None:
        running = asyncio.ensure_future(self._in_thread(lambda: work(context)))
        running.add_done_callback(_retrieve)
        try:
            if group and not is_local(self.master):
                await self._while_it_has_a_core(context, group, running)
            await asyncio.shield(running)
        except (asyncio.CancelledError, NoFreeCoreError):
            with contextlib.suppress(*SPARK_FAILURES, *CLOSED_CONTEXT):
                if group:
                    await asyncio.to_thread(cancel_group, context, group)
            raise
        except ConfigError as error:
            raise StateError(str(error), reason=PartitionReason.TRANSFORM_REFUSED) from error
        except SPARK_FAILURES as error:
            why = await self._check(context)
            words = words_of_failure(str(error))
            if why or _EXECUTOR_LOST in str(error):
                told = f"the job for changing records failed: {why or words}"
                raise SparkUnavailableError(told) from error
            raise TransformFailedError(words) from error
        except CLOSED_CONTEXT as error:
            raise SparkUnavailableError(f"the job for changing records failed: {JVM_GONE}") from error

    async def _while_it_has_a_core(self, context: Any, group: str, running: "asyncio.Future[None]") -> None:
        """Return when a job has ended. Raises NoFreeCoreError, also for one that was lost with a machine and
        that Spark keeps, and what Spark raises."""
        had_at = self.clock.monotonic()
        while not running.done():
            if await asyncio.to_thread(has_core, context, group) is not False:
                had_at = self.clock.monotonic()  # Or Spark still plans it.
            elif self.clock.monotonic() >= had_at + NO_CORE_SECONDS:
                cores = await asyncio.to_thread(executor_cores, context)
                raise NoFreeCoreError(
                    f"none of the {cores} cores that Spark has is free for changing records: that takes one"
                    " beside each slot, and one more for records that fail"
                )
            await asyncio.wait([running], timeout=LOOK_SECONDS)

    async def kill_worker(self, number: int) -> None:
        """Its job then fails. Raises SparkUnavailableError."""
        await self._kill_group(job_group(number))

    async def kill_lent(self, number: int, driver: DriverPlace) -> None:
        await self._kill_group(job_group(number, driver.endpoint))

    async def _kill_group(self, group: str) -> None:
        context = self.context
        if context is None:
            return
        try:
            # In a separate thread: those of the pool may all be waiting for jobs like this one.
            await asyncio.to_thread(cancel_group, context, group)
        except (*SPARK_FAILURES, *CLOSED_CONTEXT) as error:
            raise SparkUnavailableError(f"job group {group} could not be cancelled: {error}") from error

    async def close(self) -> None:
        """Stop Spark and cut off running jobs. A JVM that has not answered yet is killed; waits for a context
        that is being opened in one that has."""
        self._closing.set()
        if self._launch is not None:
            await asyncio.wait([self._launch], timeout=LAUNCH_SECONDS)
        if self._warming is not None:
            self._warming.cancel()
        context, self.context = self.context, None
        await self._in_thread(lambda: close_context(context))
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _open(self) -> Any:
        """Return the context; the first caller starts the JVM, which takes seconds. Raises
        SparkUnavailableError."""
        while self.context is None:
            launch = self._launch or self._begin_launch()
            # Shielded, so that a caller that gives up does not leave an unknown JVM behind.
            await asyncio.shield(launch)
        return self.context

    def _begin_launch(self) -> "asyncio.Future[None]":
        self._launch = asyncio.ensure_future(self._launch_context())
        self._launch.add_done_callback(self._launched)
        return self._launch

    async def _launch_context(self) -> None:
        began = self.clock.monotonic()
        environment = self.environment()
        async with self._changing:
            self.context, self.output = await self._in_thread(
                lambda: open_context(
                    app_name="twinlog-source",
                    master=self.master,
                    threads=self.threads,
                    extra=self.conf,
                    environment=environment,
                    with_sql=self.with_sql,
                    given_up=self._closing,
                )
            )
            context = self.context
            self.spark_ui = await self._in_thread(lambda: ui_address(context))
        log.info("spark_started", master=self.master, seconds=round(self.clock.monotonic() - began, 3))

    def _launched(self, launch: "asyncio.Future[None]") -> None:
        self._launch = None
        _retrieve(launch)

    async def _on(self, context: Any, work: Callable[[], T], doing: str) -> T:
        """Run an action on a context. Raises SparkUnavailableError when Spark fails."""
        try:
            return await self._in_thread(work)
        except SPARK_FAILURES as error:
            why = await self._check(context)
            failure: Exception = error
        except CLOSED_CONTEXT as error:
            # If two jobs lose one JVM, the first to notice closes the context of both.
            if self.context is context:
                raise
            why, failure = JVM_GONE, error
        raise SparkUnavailableError(f"{doing} failed: {why or words_of_failure(str(failure))}") from failure

    async def _check(self, context: Any) -> str:
        """Discard a context whose JVM no longer answers, or that Spark has stopped. Return the reason as far
        as it is known; empty for a healthy context."""
        if self.context is not context:
            return JVM_GONE  # Another job has already noticed it.
        try:
            if not await self._in_thread(lambda: is_stopped(context)):
                return ""
            output, lost = self.output, "stopped"
        except (*SPARK_FAILURES, *CLOSED_CONTEXT) as error:
            # A killed JVM could not write a reason.
            output, lost = None, type(error).__name__
        why = JVM_GONE if output is None else await self._in_thread(output.last_words)
        log.warning("spark_lost", error=lost)
        async with self._changing:
            if self.context is context:
                self.context = None
                await self._in_thread(lambda: close_context(context))
        return why

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


@contextlib.asynccontextmanager
async def own_spark(conf: Mapping[str, str], clock: Clock) -> AsyncIterator[SparkRunner]:
    """The Spark of a process that copies nothing: it looks at expressions, and changes records to show or
    compare them. Its JVM starts with the first request."""
    runner = SparkRunner(
        master="local[2]",
        threads=_OWN_THREADS,
        conf=conf,
        environment=spark_environment,
        driver_endpoint=lambda: "",
        driver_certificate="",
        log_level="warning",
        clock=clock,
        with_sql=True,
    )
    try:
        yield runner
    finally:
        await runner.close()


def _retrieve(future: "asyncio.Future[Any]") -> None:
    """Retrieve the result even if every caller has given up."""
    if not future.cancelled():
        future.exception()
