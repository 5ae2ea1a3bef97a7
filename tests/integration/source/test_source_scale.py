"""Many topics of one partition beside a topic of many; what 2,000 cost is for `python -m bench.scale`."""

from pathlib import Path

import pytest

from integration.source.source_rig import Rig, open_rig, producer
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.kafka.ports import NewTopic
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin
from twinlog.testing.service_process import ServiceProcess

NARROW = [f"narrow-{number:03d}" for number in range(60)]
BROAD, BROAD_PARTITIONS = "broad", 20
PARTITIONS = len(NARROW) + BROAD_PARTITIONS


async def test_many_topics_and_a_broad_one_are_copied_by_a_plan_that_stays(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        rig.extra |= {"topics": "narrow-.*,broad", "twinlog.epoch.seconds": "1"}
        new = [NewTopic(name=name, partition_count=1, replication_factor=1) for name in NARROW]
        new.append(NewTopic(name=BROAD, partition_count=BROAD_PARTITIONS, replication_factor=1))
        await retry_admin(lambda: rig.source.create_topics(new))
        await one_record_each(rig)
        async with rig.configsync() as configsync, rig.running(configsync) as service:

            async def copied(records: int) -> pb.FlowStatus:
                status = await rig.flow_status(service)
                assert status.records == records, status
                assert dict(status.partitions_by_state) == {"RUNNING": PARTITIONS}
                return status

            async def once() -> pb.FlowStatus:
                status = await copied(PARTITIONS)
                # 0 between two epochs; a quiet flow needs no more than one.
                assert status.slots == 1, status
                return status

            status = await eventually(once)
            planned = await slots(rig, service)
            first_epoch = status.epoch

            async def epochs_later() -> bool:
                return (await rig.flow_status(service)).epoch >= first_epoch + 2

            await eventually(epochs_later)
            assert await slots(rig, service) == planned
            await one_record_each(rig)

            async def twice() -> pb.FlowStatus:
                return await copied(2 * PARTITIONS)

            await eventually(twice)
            await rig.same(NARROW[-1])
            await rig.same(BROAD, 2)
        # Other tests share the brokers.
        await retry_admin(lambda: rig.source.delete_topics([*NARROW, BROAD]))
        await retry_admin(lambda: rig.target.delete_topics([rig.remote(name) for name in (*NARROW, BROAD)]))


@pytest.mark.parametrize("offsets", ["auto", "translated"])
async def test_tasks_stay_while_their_plan_holds_and_are_replaced_when_it_does_not(
    kafka_pair: KafkaPair, tmp_path: Path, unique_topic: str, offsets: str
) -> None:
    """A copy that is created again is noticed beside running tasks, not at the next hand-over."""
    topic, later = unique_topic, f"{unique_topic}-later"
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        rig.extra |= {
            "topics": f"{topic}.*",
            "twinlog.epoch.seconds": "0.2",
            "twinlog.epoch.max.seconds": "600",
            "twinlog.offsets": offsets,
        }
        await rig.create(topic)
        async with rig.configsync() as configsync, rig.running(configsync) as service:
            await rig.produce(topic, [b"first"])
            await rig.same(topic)
            first_epoch = (await rig.flow_status(service)).epoch
            for number in range(20):
                await rig.produce(topic, [b"%d" % number])
                await rig.same(topic)
            assert (await rig.flow_status(service)).epoch == first_epoch

            await rig.create(later)
            await rig.produce(later, [b"first"])
            await rig.same(later)
            with_topic = (await rig.flow_status(service)).epoch
            assert with_topic > first_epoch

            await retry_admin(lambda: rig.target.delete_topics([rig.remote(topic)]))
            await rig.produce(topic, [b"after"])

            async def copied_again() -> bool:
                """Only what came after; where offsets are the source's, all that the source holds."""
                there = [value for _, _, value, _ in await rig.target_content(topic)]
                if offsets == "translated":
                    return there == [b"after"]
                return {value for _, _, value, _ in await rig.source_content(topic)} == set(there)

            await eventually(copied_again)

            async def with_the_new_copy() -> bool:
                return (await rig.flow_status(service)).epoch > with_topic

            await eventually(with_the_new_copy)


async def slots(rig: Rig, service: ServiceProcess) -> dict[tuple[str, int], int]:
    """Who copies what."""
    return {(each.source.topic, each.source.partition): each.slot for each in await rig.partitions(service)}


async def one_record_each(rig: Rig) -> None:
    targets = [*((name, 0) for name in NARROW), *((BROAD, number) for number in range(BROAD_PARTITIONS))]
    async with producer(rig.source_servers, None, 16_384) as sender:
        sent = [await sender.send(topic, b"x", partition=partition) for topic, partition in targets]
        for each in sent:
            await each
