"""The same service on a Spark standalone cluster with two workers, started from the wheel."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pyspark
import pytest

from chaos.source_chaos import kill
from integration.source_rig import open_rig
from twinlog.local.java import spark_environment
from twinlog.local.port_lease import PortLease
from twinlog.local.processes.process import GuardedProcess
from twinlog.testing.brokers import KafkaPair, eventually

WORKERS = 2
SECRET = "sesame-of-the-cluster"


def quick_jvm(directory: Path) -> str:
    """For JVMs that live for seconds and are killed: what they leave behind lies in the test's directory."""
    return f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k -Djava.io.tmpdir={directory}"


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[tuple[str, list[GuardedProcess]]]:
    """The master's URL and the workers."""
    home = Path(pyspark.__file__).parent
    lease = PortLease(1)
    port = str(lease.ports[0])
    environment = {**spark_environment(), "PATH": "/usr/bin:/bin", "SPARK_HOME": str(home)}
    environment |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": quick_jvm(tmp_path)}
    environment |= {"SPARK_LOCAL_DIRS": str(tmp_path)}
    master = f"spark://127.0.0.1:{port}"
    conf = tmp_path / "spark-daemons.properties"
    conf.write_text(
        f"spark.authenticate true\nspark.authenticate.secret {SECRET}\nspark.network.crypto.enabled true\n"
    )
    launcher, package = home / "bin" / "spark-class", "org.apache.spark.deploy"
    no_page = ("--webui-port", "0", "--properties-file", str(conf))
    with ExitStack() as stack:
        stack.callback(lease.release)

        def start(name: str, *arguments: str) -> GuardedProcess:
            process = GuardedProcess(
                [launcher, *arguments], env=environment, cwd=tmp_path, output=tmp_path / f"{name}.log"
            )
            return stack.enter_context(process)

        start("master", f"{package}.master.Master", "--host", "127.0.0.1", "--port", port, *no_page)
        workers = [
            start(
                f"worker-{number}",
                *(f"{package}.worker.Worker", "--host", "127.0.0.1", *no_page),
                *("--cores", "2", "--memory", "600m", "--work-dir", str(tmp_path / f"work-{number}"), master),
            )
            for number in range(WORKERS)
        ]
        yield master, workers


def executors(workers: list[GuardedProcess]) -> list[psutil.Process]:
    children = [child for w in workers for child in psutil.Process(w.pid).children(recursive=True)]
    return [child for child in children if "CoarseGrainedExecutorBackend" in command_line(child)]


def with_tasks(workers: list[GuardedProcess]) -> psutil.Process | None:
    return next((executor for executor in executors(workers) if executor.children()), None)


def command_line(process: psutil.Process) -> str:
    """Empty for one that has just ended: workers start and reap helpers all the time."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


async def test_a_killed_executor_loses_and_repeats_nothing(
    kafka_pair: KafkaPair, tmp_path: Path, unique_topic: str, standalone: tuple[str, list[GuardedProcess]]
) -> None:
    master, workers = standalone
    topic = unique_topic
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        rig.extra |= {
            "topics": topic,
            "twinlog.spark.master": master,
            "twinlog.spark.conf.spark.authenticate.secret": SECRET,
            "twinlog.spark.conf.spark.executor.memory": "512m",
            "twinlog.spark.conf.spark.executor.extraJavaOptions": quick_jvm(tmp_path),
            "twinlog.spark.conf.spark.driver.host": "127.0.0.1",
            "twinlog.epoch.seconds": "60",
        }
        await rig.create(topic, 4)
        for partition in range(4):
            await rig.produce(topic, [b"%d" % number for number in range(300)], partition=partition)
        async with rig.configsync() as configsync, rig.running(configsync) as service:
            await rig.same(topic, 4)
            # One of them is enough to copy everything, and the other may still be starting.
            await eventually(lambda: len(executors(workers)) == WORKERS)
            assert not [each for each in psutil.process_iter() if SECRET in command_line(each)]
            # Which of them Spark gave tasks to is its own business: only those have a Python below them.
            kill(await eventually(lambda: with_tasks(workers)))
            for partition in range(4):
                await rig.produce(topic, [b"later %d" % number for number in range(300)], partition=partition)
            await rig.same(topic, 4)
            await eventually(lambda: "task_rejoined" in service.log() or "slots_fenced" in service.log())
