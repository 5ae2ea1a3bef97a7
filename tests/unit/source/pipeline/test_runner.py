"""A JVM that dies under several jobs is a failure of each of them, and of nothing else."""

import asyncio
import io
import signal
import subprocess
import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from twinlog.clock import SystemClock
from twinlog.errors import TwinlogError
from twinlog.machine import JavaNotFoundError
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.pipeline.jvm_log import JvmOutput
from twinlog_source.pipeline.launch import SparkUnavailableError
from twinlog_source.pipeline.runner import NO_CORE_SECONDS, NoFreeCoreError, SparkRunner
from twinlog_source.pipeline.session import answering
from twinlog_source.records.pipe import TransformFailedError


class LostContext:
    """A SparkContext whose JVM is gone. Its second job ends only once the first one had it closed: then
    pyspark itself fails at what the context has let go of."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure
        self._jobs = 0
        self._closed = threading.Event()

    def setJobGroup(self, *args: object, **options: object) -> None:  # noqa: N802
        """Named like pyspark's."""

    def parallelize(self, *args: object) -> Any:
        self._jobs += 1
        if self._jobs == 1:
            raise ConnectionRefusedError
        assert self._closed.wait(10)
        raise self._failure

    @property
    def _jsc(self) -> Any:
        raise ConnectionRefusedError

    def stop(self) -> None:
        self._closed.set()


@dataclass(slots=True)
class FailingContext:
    """A SparkContext whose JVM answers and whose jobs fail; Spark may have stopped it."""

    is_stopped: bool
    closed: bool = False

    @property
    def _jsc(self) -> Any:
        return self

    def sc(self) -> Any:
        return self

    def isStopped(self) -> bool:  # noqa: N802
        return self.is_stopped

    def setJobGroup(self, *args: object, **options: object) -> None:  # noqa: N802
        raise Py4JError("no job")

    def stop(self) -> None:
        self.closed = True


def runner_on(context: Any) -> SparkRunner:
    runner = SparkRunner(
        master="local[2]",
        threads=2,
        conf={},
        environment=dict,
        driver_endpoint=lambda: "127.0.0.1:1",
        driver_certificate="",
        log_level="INFO",
        clock=SystemClock(),
    )
    runner.context = context
    return runner


@pytest.mark.parametrize(
    "failure",
    [
        AttributeError("'NoneType' object has no attribute 'setCallSite'"),
        AssertionError(),  # assert self._jvm is not None
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_two_jobs_that_lose_one_jvm_both_fail_as_spark_does(failure: Exception) -> None:
    runner = runner_on(LostContext(failure))

    async def fails(number: int) -> None:
        with pytest.raises(SparkUnavailableError, match=f"worker {number} failed: Spark's JVM is gone"):
            await runner.run_worker(number, "")

    async with asyncio.TaskGroup() as group:
        for number in (1, 2):
            group.create_task(fails(number), name=f"worker {number}")
    await runner.close()


async def test_workers_are_loaded_before_the_first_epoch_asks_for_them() -> None:
    class Idle:
        jobs = 0

        def setJobGroup(self, *args: object, **options: object) -> None:  # noqa: N802
            """Named like pyspark's."""

        def parallelize(self, numbers: list[int], slices: int) -> Any:
            assert (numbers, slices) == ([0], 1)
            return self

        def mapPartitions(self, work: Any) -> Any:  # noqa: N802
            assert list(work([0])) == [0]
            return self

        def collect(self) -> list[int]:
            self.jobs += 1
            return [0]

        def stop(self) -> None:
            """Nothing runs."""

    context = Idle()
    runner = runner_on(context)
    await runner.load_workers()
    assert context.jobs == 1
    runner.master = "spark://h:7077"
    await runner.load_workers()
    assert context.jobs == 1, "executors of a cluster load it with their first task"
    await runner.close()


async def test_workers_that_could_not_be_loaded_are_no_failure_of_any_flow() -> None:
    class Closed:
        def setJobGroup(self, *args: object, **options: object) -> None:  # noqa: N802
            """Named like pyspark's."""

        def parallelize(self, *args: object) -> Any:
            raise AssertionError

        def stop(self) -> None:
            """Nothing runs."""

    def no_java() -> dict[str, str]:
        raise JavaNotFoundError("no Java")

    for context in (FailingContext(is_stopped=False), Closed(), None):
        runner = runner_on(context)
        runner.environment = no_java
        await runner.load_workers()
        await runner.close()


@pytest.mark.parametrize("kind", [AttributeError, AssertionError])
async def test_an_error_of_the_job_itself_is_not_reported_as_a_failure_of_spark(
    kind: type[Exception],
) -> None:
    class Broken:
        def setJobGroup(self, *args: object, **options: object) -> None:  # noqa: N802
            raise kind("a mistake of ours")

        def stop(self) -> None:
            """Nothing runs."""

    runner = runner_on(Broken())
    with pytest.raises(kind, match="a mistake of ours"):
        await runner.run_worker(1, "")
    await runner.close()


async def test_a_context_that_spark_has_stopped_is_replaced_and_said_why() -> None:
    """Its JVM lives on and answers: a master that is away for a minute would else end the copy for good."""
    context = FailingContext(is_stopped=True)
    runner = runner_on(context)
    runner.output = JvmOutput(io.BytesIO(b"All masters are unresponsive! Giving up.\n"))
    with pytest.raises(SparkUnavailableError, match="worker 1 failed: All masters are unresponsive"):
        await runner.run_worker(1, "")
    assert context.closed
    assert runner.context is None
    await runner.close()


async def test_a_job_that_fails_alone_leaves_its_context_be() -> None:
    context = FailingContext(is_stopped=False)
    runner = runner_on(context)
    with pytest.raises(SparkUnavailableError, match="worker 1 failed: no job"):
        await runner.run_worker(1, "")
    assert not context.closed
    assert runner.context is context
    await runner.close()


@pytest.mark.parametrize(
    ("with_sql", "conf", "ends"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"spark.dynamicAllocation.enabled": "true"}, False),
        (False, {"spark.dynamicAllocation.enabled": "false"}, True),
    ],
)
async def test_a_runner_that_rests_ends_the_spark_that_would_keep_its_cores(
    conf: dict[str, str], *, with_sql: bool, ends: bool
) -> None:
    context = FailingContext(is_stopped=False)
    runner = runner_on(context)
    runner.master, runner.with_sql, runner.conf = "spark://h:7077", with_sql, conf
    await runner.rest()
    assert (context.closed, runner.is_up) == (ends, not ends)
    await runner.close()


async def test_a_runner_that_changes_records_to_show_them_does_not_rest_meanwhile() -> None:
    context, began, go = FailingContext(is_stopped=False), threading.Event(), threading.Event()
    runner = runner_on(context)
    runner.master, runner.with_sql = "spark://h:7077", True

    def work(_context: Any) -> None:
        began.set()
        assert go.wait(10)

    async with asyncio.TaskGroup() as group:
        showing = group.create_task(runner._with_sql(work), name="show")  # noqa: SLF001 (as above)
        await asyncio.to_thread(began.wait, 10)
        await runner.rest()
        assert not context.closed
        go.set()
        await showing
    await runner.rest()
    assert context.closed
    await runner.close()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("org.x.SparkException: [CAST_INVALID_INPUT] The value 'x'", TransformFailedError),
        ("org.x.SparkException: ExecutorLostFailure (executor 2 exited)", SparkUnavailableError),
    ],
)
async def test_no_record_is_to_blame_for_a_lost_executor(words: str, kind: type[TwinlogError]) -> None:
    def fails(_context: Any) -> None:
        raise Py4JError(words)

    runner = runner_on(FailingContext(is_stopped=False))
    with pytest.raises(kind):
        await runner._with_sql(fails)  # noqa: SLF001 (what it does needs Spark SQL)
    await runner.close()


class LosesItsCore:
    """A SparkContext on a cluster, each of whose jobs gets a core, and loses it with the machine: Spark keeps
    the job until there is another one."""

    def __init__(self) -> None:
        self.looks = 0

    def statusTracker(self) -> Any:  # noqa: N802
        self.looks += 1
        stage = SimpleNamespace(numActiveTasks=1 if self.looks == 1 else 0)
        return SimpleNamespace(
            getJobIdsForGroup=lambda _group: [7],
            getJobInfo=lambda _job: SimpleNamespace(stageIds=[8]),
            getStageInfo=lambda _stage: stage,
        )

    @property
    def _jsc(self) -> Any:
        profiles = SimpleNamespace(defaultResourceProfile=lambda: None)
        spark = SimpleNamespace(resourceProfileManager=lambda: profiles, maxNumConcurrentTasks=lambda _: 1)
        return SimpleNamespace(sc=lambda: spark)


async def test_a_job_that_loses_its_core_has_none_as_one_that_never_had_it() -> None:
    runner = runner_on(None)
    runner.clock, never = LoopClock(), asyncio.get_running_loop().create_future()
    with pytest.raises(NoFreeCoreError, match="none of the 1 cores"):
        await runner._while_it_has_a_core(LosesItsCore(), "records", never)  # noqa: SLF001 (needs Spark)
    assert NO_CORE_SECONDS <= runner.clock.monotonic() < 2 * NO_CORE_SECONDS
    await runner.close()


class HangingJvm:
    """A gateway and the context on it: no call is answered before the process is dead."""

    def __init__(self) -> None:
        self.proc = subprocess.Popen(["sleep", "600"])

    def stop(self) -> None:
        self.proc.wait()
        raise ConnectionResetError

    def shutdown(self) -> None:
        """There is nobody to tell it."""


def test_a_jvm_that_does_not_answer_is_killed_and_ends_every_call_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jvm = HangingJvm()
    monkeypatch.setattr(SparkContext, "_gateway", jvm)
    with pytest.raises(ConnectionResetError), answering(0.01):
        jvm.stop()
    assert jvm.proc.returncode == -signal.SIGKILL


def test_a_jvm_that_answers_in_time_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = HangingJvm()
    monkeypatch.setattr(SparkContext, "_gateway", jvm)
    with answering(60.0):
        pass
    assert jvm.proc.poll() is None
    jvm.proc.kill()
    jvm.proc.wait()
