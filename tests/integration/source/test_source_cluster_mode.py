"""The same service on a Spark standalone cluster with two workers, started from the wheel."""

from pathlib import Path

import psutil

from chaos.source_chaos import kill
from integration.source.source_rig import open_rig
from integration.standalone_spark import QUICK_JVM, SECRET, WORKERS, command_line
from twinlog.local.processes.process import GuardedProcess
from twinlog.testing.brokers import KafkaPair, eventually


def executors(workers: list[GuardedProcess]) -> list[psutil.Process]:
    children = [child for w in workers for child in psutil.Process(w.pid).children(recursive=True)]
    return [child for child in children if "CoarseGrainedExecutorBackend" in command_line(child)]


def with_tasks(workers: list[GuardedProcess]) -> psutil.Process | None:
    return next((executor for executor in executors(workers) if executor.children()), None)


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
            "twinlog.spark.conf.spark.executor.extraJavaOptions": QUICK_JVM,
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
            # What encryption unpacks lies where Spark cleans up, also after the kill below.
            unpacked = {Path(each.cwd()) for each in executors(workers)}
            await eventually(lambda: all(list(each.glob("*commons-crypto*.so")) for each in unpacked))
            # Which of them Spark gave tasks to is its own business: only those have a Python below them.
            kill(await eventually(lambda: with_tasks(workers)))
            for partition in range(4):
                await rig.produce(topic, [b"later %d" % number for number in range(300)], partition=partition)
            await rig.same(topic, 4)
            await eventually(lambda: "task_rejoined" in service.log() or "slots_fenced" in service.log())
