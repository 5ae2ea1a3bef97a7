"""Flows with little to copy share a Python worker: one that dies costs no record, and none is there twice."""

import contextlib
import json
import signal
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import psutil

from chaos.played import signal_to
from integration.source.source_rig import Rig, open_rig
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.service_process import ServiceProcess
from twinlog_source.driver.epoch_rules import FLOWS_OF_THEIR_OWN


def flows_by_worker(service: ServiceProcess) -> dict[int, set[str]]:
    """By the process id of a worker: the flows whose newest tasks it runs."""
    newest: dict[str, int] = {}
    # What is behind the last end of a line is half written.
    for line in service.log().rpartition("\n")[0].splitlines():
        if '"task_joined"' in line:
            entry = json.loads(line)
            newest[entry["flow"]] = int(entry["worker"].rpartition(":")[2])
    found: dict[int, set[str]] = defaultdict(set)
    for flow, pid in newest.items():
        found[pid].add(flow)
    return found


def a_shared_worker(service: ServiceProcess) -> psutil.Process | None:
    """One that lives and runs the tasks of several flows."""
    for pid, flows in flows_by_worker(service).items():
        if len(flows) > 1:
            with contextlib.suppress(psutil.NoSuchProcess):
                return psutil.Process(pid)
    return None


async def test_a_shared_worker_that_is_killed_costs_its_flows_nothing(
    kafka_pair: KafkaPair, tmp_path: Path, unique_topic: str
) -> None:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        await rig.create(unique_topic, 2)
        aliases = [rig.a, *(unique_name("more") for _ in range(FLOWS_OF_THEIR_OWN))]
        rig.extra |= {"topics": unique_topic, "clusters": ", ".join([*aliases, rig.b])}
        rig.extra |= {"twinlog.log.level": "debug"}
        for alias in aliases[1:]:
            rig.extra[f"{alias}.bootstrap.servers"] = rig.source_servers
            rig.extra[f"{alias}->{rig.b}.enabled"] = "true"
        flows = [replace(rig, a=alias) for alias in aliases]
        async with rig.configsync() as configsync, rig.running(configsync) as service:
            await put(rig, unique_topic, "before")
            await all_same(flows, unique_topic)
            worker = await eventually(lambda: a_shared_worker(service))
            signal_to(worker, signal.SIGKILL)
            await put(rig, unique_topic, "after")
            await all_same(flows, unique_topic)


async def put(rig: Rig, topic: str, word: str) -> None:
    for number in range(2):
        await rig.produce(topic, [f"{word} {n}".encode() for n in range(300)], partition=number)


async def all_same(flows: list[Rig], topic: str) -> None:
    for each in flows:
        await each.same(topic, 2)
