"""A JVM that neither answers nor ends holds nothing up for ever."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from twinlog.clock import SystemClock
from twinlog.machine import WorkDirectory
from twinlog_source.pipeline.launch import DIRECTORY_PREFIX, SparkUnavailableError, launch_jvm
from twinlog_source.pipeline.runner import SparkRunner


@dataclass(frozen=True, slots=True)
class SilentJava:
    """A JAVA_HOME whose java, told to start Spark by its scripts, prints a line and sleeps."""

    home: Path

    def __post_init__(self) -> None:
        (self.home / "bin").mkdir(parents=True)
        java = self.home / "bin" / "java"
        pid_file = self.home / "pid"
        java.write_text(
            "#!/bin/sh\n"
            # Spark's scripts ask it for the command that they become: itself again.
            'case "$*" in *launcher.Main*) printf "\\0\\n%s\\0spark\\0" "$0"; exit ;; esac\n'
            "echo 'WARNING: slow'\n"
            f"echo $$ > {pid_file}.draft\n"
            f"mv {pid_file}.draft {pid_file}\n"
            "exec sleep 600\n"
        )
        java.chmod(0o755)

    def await_start(self) -> None:
        """Blocks."""
        clock, pause = SystemClock(), threading.Event()
        give_up_at = clock.monotonic() + 60
        while not (self.home / "pid").exists():
            assert clock.monotonic() < give_up_at
            pause.wait(0.01)

    @property
    def runs(self) -> bool:
        try:
            os.kill(int((self.home / "pid").read_text()), 0)
        except ProcessLookupError:
            return False
        return True

    def directories(self) -> list[Path]:
        """Those of starts of Spark."""
        return list(Path(tempfile.gettempdir()).glob(f"{DIRECTORY_PREFIX}*"))


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SilentJava:
    silent = SilentJava(tmp_path / "java")
    monkeypatch.setenv("JAVA_HOME", str(silent.home))
    for name in list(os.environ):
        if name.startswith(("HADOOP_", "PYSPARK_", "SPARK_", "YARN_")):
            monkeypatch.delenv(name)
    # A start of Spark sets them for the whole process.
    for name in ("PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return silent


def test_a_jvm_that_does_not_answer_is_killed_after_a_time(java: SilentJava) -> None:
    directory = WorkDirectory(DIRECTORY_PREFIX)
    with pytest.raises(SparkUnavailableError) as raised:
        launch_jvm({"spark.driver.memory": "1g"}, directory, master="local[1]", answer_within_seconds=5)
    assert "did not start: the JVM gave no answer within 5 s" in str(raised.value)
    assert not java.runs
    assert not java.directories()


@pytest.mark.parametrize(("version", "is_used"), [(pyspark.__version__, True), ("3.5.6", False)])
def test_the_users_spark_is_started_if_it_is_of_the_same_version(
    java: SilentJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_used: bool
) -> None:
    home = tmp_path / "its spark"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_2.13-{version}.jar").touch()
    submit = home / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text("#!/bin/sh\necho the users\n")
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    with pytest.raises(SparkUnavailableError) as raised:
        launch_jvm({}, WorkDirectory(DIRECTORY_PREFIX), master="local[1]", answer_within_seconds=2)
    assert ("did not start: the users" in str(raised.value)) is is_used


def runner_on(master: str, *, with_sql: bool = False) -> SparkRunner:
    return SparkRunner(
        master=master,
        threads=1,
        conf={},
        environment=dict,
        driver_endpoint=lambda: "127.0.0.1:1",
        driver_certificate="",
        log_level="INFO",
        clock=SystemClock(),
        with_sql=with_sql,
    )


@pytest.mark.parametrize(
    ("with_sql", "is_owner", "starts"), [(True, False, False), (False, False, True), (True, True, True)]
)
async def test_a_process_on_standby_holds_no_cores_of_a_standalone_cluster(
    java: SilentJava, *, with_sql: bool, is_owner: bool, starts: bool
) -> None:
    """With expressions executors stay: the owner would wait for those of a process that only stands by."""
    runner, before = runner_on("spark://127.0.0.1:1", with_sql=with_sql), asyncio.all_tasks()
    runner.warm_up(is_owner=is_owner)
    assert bool(asyncio.all_tasks() - before) is starts
    if starts:
        await asyncio.to_thread(java.await_start)
    await runner.close()
    assert not starts or not java.runs


async def test_a_runner_that_is_closed_kills_the_jvm_that_is_being_started(
    java: SilentJava,
) -> None:
    clock = SystemClock()
    runner = runner_on("local[1]")
    runner.warm_up()
    await asyncio.to_thread(java.await_start)
    began = clock.monotonic()
    await runner.close()
    assert clock.monotonic() - began < 10, "a JVM would get four minutes to answer"
    assert not java.runs
    assert not java.directories()


def test_an_argument_for_java_loads_neither_numpy_nor_pyarrow() -> None:
    program = (
        "import sys, twinlog_source.pipeline.launch\n"
        "from py4j.protocol import INPUT_CONVERTER\n"
        "assert not any(each.can_convert(1) for each in INPUT_CONVERTER)\n"
        "print(sorted({'numpy', 'pandas', 'pyarrow', 'pyspark.testing'} & set(sys.modules)))\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
