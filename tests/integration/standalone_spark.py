"""A Spark standalone cluster of three workers, started from the wheel."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from chaos.played import kill
from twinlog.local.port_lease import PortLease
from twinlog.local.processes.process import GuardedProcess
from twinlog.machine import spark_environment

WORKERS = 3
SECRET = "sesame-of-the-cluster"


QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k"
"""For JVMs that live for seconds. Their java.io.tmpdir stays short: Spark makes sockets for Python workers
there, whose paths may have 107 bytes, and a directory of a test beside others is longer."""


@dataclass(slots=True)
class StandaloneSpark:
    master: str
    start_worker: Callable[[int], GuardedProcess]
    workers: list[GuardedProcess] = field(default_factory=list)

    def add_worker(self) -> GuardedProcess:
        """One more, with two cores."""
        worker = self.start_worker(len(self.workers))
        self.workers.append(worker)
        return worker


@contextmanager
def standalone_spark(tmp_path: Path) -> Iterator[StandaloneSpark]:
    home = Path(pyspark.__file__).parent
    lease = PortLease(1)
    port = str(lease.ports[0])
    environment = {**spark_environment(), "PATH": "/usr/bin:/bin", "SPARK_HOME": str(home)}
    environment |= {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JVM} -Dcommons.crypto.lib.tempdir={tmp_path}",
    }
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
        spark = StandaloneSpark(
            master,
            lambda number: start(
                f"worker-{number}",
                *(f"{package}.worker.Worker", "--host", "127.0.0.1", *no_page),
                *("--cores", "2", "--memory", "600m", "--work-dir", str(tmp_path / f"work-{number}"), master),
            ),
        )
        for _ in range(WORKERS):
            spark.add_worker()
        yield spark


def executors(workers: Sequence[GuardedProcess]) -> list[psutil.Process]:
    alive = [psutil.Process(worker.pid) for worker in workers if psutil.pid_exists(worker.pid)]
    children = [child for worker in alive for child in worker.children(recursive=True)]
    return [child for child in children if "CoarseGrainedExecutorBackend" in command_line(child)]


def kill_with_executor(worker: GuardedProcess) -> None:
    """As a machine that is gone."""
    for process in (psutil.Process(worker.pid), *executors([worker])) if worker.running else ():
        kill(process)


def command_line(process: psutil.Process) -> str:
    """Empty for one that has just ended: workers start and reap helpers all the time."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""
