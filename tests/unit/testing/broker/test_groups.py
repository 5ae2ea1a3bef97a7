"""Groups of aiokafka's consumers on the fake cluster, under virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition

from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.classic_group import ClassicGroup, ClassicState
from twinlog.testing.brokers import eventually

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@asynccontextmanager
async def consumer(kafka: FakeKafka, **options: object) -> AsyncIterator[AIOKafkaConsumer]:
    options = {"group_id": "readers", "auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    made = AIOKafkaConsumer("orders", bootstrap_servers=kafka.bootstrap, **options)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def classic(kafka: FakeKafka) -> ClassicGroup:
    group = kafka.cluster.groups.classic("readers", create=False)
    assert group is not None
    return group


async def settled(kafka: FakeKafka, member_count: int) -> None:
    def is_settled() -> bool:
        group = classic(kafka)
        return group.state is ClassicState.STABLE and len(group.members) == member_count

    assert await eventually(is_settled)


async def _share_and_take_over() -> tuple[set[TopicPartition], set[TopicPartition]]:
    async with FakeKafka(node_count=3) as kafka:
        kafka.cluster.create_topic("orders", partition_count=2)
        async with consumer(kafka) as first:
            async with consumer(kafka) as second:
                await settled(kafka, 2)
                assert await eventually(lambda: len(first.assignment()) == len(second.assignment()) == 1)
                shared = first.assignment() | second.assignment()
            assert await eventually(lambda: len(first.assignment()) == 2)
            return shared, first.assignment()


async def test_members_share_partitions_and_one_takes_over_when_the_other_leaves() -> None:
    assert await _share_and_take_over() == ({P0, P1}, {P0, P1})


async def test_a_group_without_members_is_empty_and_keeps_its_offsets() -> None:
    async with FakeKafka() as kafka:
        kafka.cluster.create_topic("orders", partition_count=2)
        async with consumer(kafka) as first:
            await first.commit({P0: 7})
        assert classic(kafka).state is ClassicState.EMPTY
        async with consumer(kafka) as second:
            assert await second.committed(P0) == 7
            assert await second.committed(P1) is None


async def test_a_silent_member_is_out_after_its_session() -> None:
    async with FakeKafka() as kafka:
        kafka.cluster.create_topic("orders", partition_count=2)
        async with consumer(kafka, session_timeout_ms=10_000, heartbeat_interval_ms=60_000):
            loop = asyncio.get_running_loop()
            await settled(kafka, 1)
            began = loop.time()
            assert await eventually(lambda: not classic(kafka).members)
            assert 9 < loop.time() - began < 11
