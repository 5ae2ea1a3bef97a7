"""Two processes of source with a core each, real Spark and real brokers: the idle one's core copies, too."""

import json
from collections import Counter
from pathlib import Path

import psutil

from integration.source.source_rig import Rig, open_rig
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.testing.brokers import KafkaPair, eventually
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess

PARTITIONS, RECORDS = 4, 30_000
SLOW, FASTER = 20_000, 500_000
"""Limits, in bytes per second: until the helper copies the flow stays behind, however long that takes."""


def slots_of(owner: ServiceProcess, helper: ServiceProcess) -> set[int]:
    """The slots of the newest epoch whose tasks run below another process than their owner."""
    below = {child.pid for child in psutil.Process(helper.process.pid).children(recursive=True)}
    joined = [
        json.loads(line) for line in owner.log().rpartition("\n")[0].splitlines() if '"task_joined"' in line
    ]
    newest = max((each["epoch"] for each in joined), default=0)
    return {
        each["slot"]
        for each in joined
        if each["epoch"] == newest and int(each["worker"].rpartition(":")[2]) in below
    }


async def test_the_core_of_an_idle_process_copies_its_part_and_may_be_killed(
    kafka_pair: KafkaPair, tmp_path: Path, unique_topic: str
) -> None:
    topic = unique_topic
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        rig.extra |= {
            "topics": topic,
            "twinlog.spark.master": "local[1]",
            "twinlog.log.level": "debug",
            "twinlog.owner.timeout.seconds": "6",
            f"{rig.a}.consumer.max.partition.fetch.bytes": "50000",
        }
        await rig.create(topic, PARTITIONS)
        async with rig.configsync() as configsync, rig.running(configsync) as owner:
            await eventually(lambda: has_slots(rig, owner, 1))
            limit = pb.SetThrottleRequest(scope=pb.Scope(flow=rig.flow), bytes_per_second=SLOW)
            await SourceServiceStub(owner.channel).SetThrottle(limit, timeout=CALL_SECONDS)
            async with rig.running(configsync) as helper:
                for number in range(PARTITIONS):
                    await rig.produce(topic, [b"%050d" % n for n in range(RECORDS)], partition=number)
                await eventually(lambda: slots_of(owner, helper), 120)
                limit.bytes_per_second = FASTER
                await SourceServiceStub(owner.channel).SetThrottle(limit, timeout=CALL_SECONDS)
                share = await measured(rig, owner, helper, topic)
                print(f"copied by the helper: {share:.0%}")  # noqa: T201 (the figure of this test)
                assert 0.2 < share < 0.8
                assert [*(await rig.flow_status(owner)).lent_workers.values()] == [1]
                await helper.kill()
            await eventually(lambda: has_slots(rig, owner, 1), 60)
            limit.bytes_per_second = 0
            await SourceServiceStub(owner.channel).SetThrottle(limit, timeout=CALL_SECONDS)
            await rig.same(topic, PARTITIONS)


async def has_slots(rig: Rig, owner: ServiceProcess, count: int) -> bool:
    return (await rig.flow_status(owner)).slots == count


async def measured(rig: Rig, owner: ServiceProcess, helper: ServiceProcess, topic: str) -> float:
    """The share of records that the helper's tasks copied, of the next so many."""
    found: Counter[bool] = Counter()
    seen: dict[int, int] = {}

    async def copied() -> bool:
        lent = slots_of(owner, helper)
        for each in await rig.partitions(owner, topic):
            found[each.slot in lent] += each.position - seen.get(each.source.partition, each.position)
            seen[each.source.partition] = each.position
        assert found.total() > RECORDS // 2, found
        return True

    await eventually(copied)
    return found[True] / found.total()
