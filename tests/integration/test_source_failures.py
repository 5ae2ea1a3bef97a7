"""What can go wrong around a flow, and that each of it is said and healed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.source_chaos import kill, processes
from integration.source_rig import Rig, open_rig
from twinlog.kafka.ports import NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import encode_source_offset, source_offset_key


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as opened:
        yield opened


async def reason_is(rig: Rig, service: object, reason: str, *words: str) -> None:
    async def told() -> bool:
        status = await rig.flow_status(service)  # type: ignore[arg-type]
        assert status.reason == reason, status
        assert all(word in status.message for word in words), status.message
        return True

    await eventually(told, 40)


async def test_a_killed_task_joins_again_and_a_killed_jvm_is_replaced(rig: Rig, unique_topic: str) -> None:
    topic = unique_topic
    rig.extra |= {"topics": topic, "twinlog.epoch.seconds": "60"}
    await rig.create(topic, 2)
    async with rig.configsync() as configsync, rig.running(configsync) as service:
        for number in range(2):
            await rig.produce(topic, [b"before %d" % n for n in range(500)], partition=number)
        await rig.same(topic, 2)
        _, tasks = processes(service.process.pid)
        assert tasks
        for task in tasks:
            kill(task)
        for number in range(2):
            await rig.produce(topic, [b"after the tasks %d" % n for n in range(500)], partition=number)
        await rig.same(topic, 2)
        jvms, _ = processes(service.process.pid)
        kill(jvms[0])
        for number in range(2):
            await rig.produce(topic, [b"after the jvm %d" % n for n in range(500)], partition=number)
        await rig.same(topic, 2, seconds=60)
    assert "task_rejoined" in service.log()


async def test_nothing_of_spark_outlives_a_killed_service(rig: Rig, unique_topic: str) -> None:
    rig.extra["topics"] = unique_topic
    await rig.create(unique_topic)
    await rig.produce(unique_topic, [b"x"])
    async with rig.configsync() as configsync, rig.running(configsync) as service:
        await rig.same(unique_topic)
        jvms, tasks = processes(service.process.pid)
        await service.kill()
        await eventually(lambda: not any(member.is_running() for member in (*jvms, *tasks)))


async def test_one_cluster_on_both_ends_is_refused(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    async with open_rig(kafka_pair.a, kafka_pair.a, tmp_path) as rig, rig.running(None) as service:
        await reason_is(rig, service, "SAME_CLUSTER", rig.a, rig.b)


async def test_too_few_brokers_for_the_replication_factor_names_the_key(rig: Rig) -> None:
    more = {"offset.storage.replication.factor": "3"}
    async with rig.running(None, **more) as service:
        key = "offset.storage.replication.factor"
        await reason_is(rig, service, "REPLICATION_FACTOR_INVALID", key, "at most 1")


async def test_a_target_that_is_away_is_a_status(rig: Rig) -> None:
    async with rig.running(None, **{f"{rig.b}.bootstrap.servers": "127.0.0.1:1"}) as service:
        await reason_is(rig, service, "KAFKA_UNAVAILABLE", rig.b)


async def test_without_configsync_topics_with_positions_go_on_where_mm2_left_them(
    rig: Rig, unique_topic: str
) -> None:
    """MM2 has copied three records, and its position says so; at-least-once, as MM2 by default."""
    topic = unique_topic
    rig.extra |= {"topics": topic, f"{rig.b}.exactly.once.source.support": "disabled"}
    await rig.create(topic)
    await rig.produce(topic, [b"%d" % number for number in range(10)])
    new = [
        NewTopic(name=rig.remote(topic), partition_count=1, replication_factor=1),
        NewTopic(name=rig.positions_topic, partition_count=25, replication_factor=1),
    ]
    assert set((await rig.target.create_topics(new)).values()) == {None}
    key = source_offset_key(rig.a, TopicPartition(topic, 0))
    async with rig.target.writer() as writer:
        at = TopicPartition(rig.positions_topic, partition_for_key(key, 25))
        await writer.append(at, key=key, value=encode_source_offset(3))
    async with rig.running(None) as service:

        async def the_rest() -> bool:
            return [value for _, _, value, _ in await rig.target_content(topic)] == [
                b"%d" % number for number in range(3, 10)
            ]

        await eventually(the_rest, 40)
        assert not (await rig.flow_status(service)).exactly_once


async def test_the_newest_owner_copies_and_the_one_before_steps_back(rig: Rig, unique_topic: str) -> None:
    topic = unique_topic
    rig.extra["topics"] = topic
    await rig.create(topic)
    await rig.produce(topic, [b"one"])
    async with rig.configsync() as configsync, rig.running(configsync) as first:
        await rig.same(topic)
        async with rig.running(configsync):
            await reason_is(rig, first, "OWNED_ELSEWHERE")
            await rig.produce(topic, [b"two %d" % number for number in range(100)])
            await rig.same(topic)


async def test_a_deleted_copy_is_a_gap_and_the_copy_goes_on(rig: Rig) -> None:
    topic = unique_name("gone")
    rig.extra["topics"] = topic
    await rig.create(topic)
    await rig.produce(topic, [b"%d" % number for number in range(20)])
    async with rig.configsync() as configsync, rig.running(configsync) as service:
        await rig.same(topic)
        await rig.target.delete_topics([rig.remote(topic)])
        await rig.produce(topic, [b"after"])

        async def only_what_came_after() -> bool:
            return [value for _, _, value, _ in await rig.target_content(topic)] == [b"after"]

        await eventually(only_what_came_after, 80)
        await eventually(lambda: "TARGET_RECREATED" in service.log())
