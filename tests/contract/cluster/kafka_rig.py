"""A rig on a cluster that speaks Kafka's protocol, with clients as users have them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from contract.cluster.cluster_rig import Ending, success
from contract.cluster.modern_members import modern_member
from twinlog.kafka.clients import aiokafka_producer_options
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.kafka.writer import close_producer, new_producer
from twinlog.model import TopicPartition
from twinlog.testing.broker.calls import Release
from twinlog.testing.brokers import eventually, unique_name


class KafkaRig:
    def __init__(self, cluster: KafkaCluster, properties: dict[str, str], release: Release) -> None:
        self.cluster = cluster
        self.release = release
        self._properties = properties

    async def transaction(self, partition: TopicPartition, values: Sequence[bytes], ending: Ending) -> None:
        async with self._producer() as producer:
            last_offset = await self._write(producer, partition, values)
            if ending is Ending.COMMIT:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
            await self._until_marked(partition, last_offset)

    def open_transaction(
        self, partition: TopicPartition, values: Sequence[bytes]
    ) -> AbstractAsyncContextManager[None]:
        return self._open(partition, values)

    def active_group(
        self, group_id: str, topic: str, *, group_type: str
    ) -> AbstractAsyncContextManager[None]:
        if group_type not in self.release.group_types:
            pytest.skip(f"{self.release.name} has no {group_type} groups")
        if group_type == "classic":
            return self._classic(group_id, topic)
        return modern_member(self._properties, group_id, topic, group_type=group_type)

    @asynccontextmanager
    async def _producer(self) -> AsyncIterator[AIOKafkaProducer]:
        options = aiokafka_producer_options(self._properties)
        producer = new_producer({**options, "transactional_id": unique_name("contract")})
        try:
            await producer.start()
            yield producer
        finally:
            await close_producer(producer)

    async def _write(
        self, producer: AIOKafkaProducer, partition: TopicPartition, values: Sequence[bytes]
    ) -> int:
        await producer.begin_transaction()
        last_offset = -1
        for value in values:
            sent = await producer.send(
                partition.topic, partition=partition.partition, key=b"key", value=value, timestamp_ms=1
            )
            last_offset = int((await sent).offset)
        return last_offset

    async def _until_marked(self, partition: TopicPartition, last_offset: int) -> None:
        """Coordinators write markers after they have told the producer that its transaction is over."""

        async def marked() -> bool:
            stable = await self.cluster.list_offsets(OffsetSpec.LAST_STABLE, [partition])
            return success(stable[partition]) > last_offset + 1

        assert await eventually(marked)

    @asynccontextmanager
    async def _open(self, partition: TopicPartition, values: Sequence[bytes]) -> AsyncIterator[None]:
        async with self._producer() as producer:
            last_offset = await self._write(producer, partition, values)
            yield
            await producer.abort_transaction()
            await self._until_marked(partition, last_offset)

    @asynccontextmanager
    async def _classic(self, group_id: str, topic: str) -> AsyncIterator[None]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self._properties["bootstrap.servers"],
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        try:
            await consumer.start()
            assert await eventually(consumer.assignment)
            yield
        finally:
            await consumer.stop()
