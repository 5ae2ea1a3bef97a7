"""Topics and brokers of a cluster.

confluent-kafka's `describe_cluster` cannot be used: asked while no broker is up in the eyes of the controller
(each start of a single broker has such a moment), librdkafka (2.16.0) takes the empty answer for a success
without a result and aborts the whole process (`rd_kafka_admin_response_parse`: Assertion `rko_result'
failed).
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aiokafka.protocol.metadata import MetadataRequest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import NewPartitions
from confluent_kafka.admin import NewTopic as LibrdkafkaNewTopic

from twinlog.errors import KafkaError
from twinlog.kafka.admin.batches import in_batches
from twinlog.kafka.admin.client import AdminSession
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import UNAVAILABLE, from_reason
from twinlog.kafka.ports import BrokerDescription, NewTopic, TopicDescription
from twinlog.kafka.protocol.connection import DataClientPool

KAFKA_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""What brokers themselves flag as internal (Kafka's class Topic)."""
_NEW_TOPIC_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 0.05
_URL_SAFE = str.maketrans("+/", "-_")
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class TopicAdminMixin:
    """`TopicAdmin` over confluent-kafka."""

    _admin: AdminSession
    _wire: DataClientPool

    async def cluster_id(self) -> str:
        return str((await self._metadata("read the cluster id")).cluster_id)

    async def brokers(self) -> Sequence[BrokerDescription]:
        metadata = await self._metadata("list brokers")
        return [
            BrokerDescription(node_id=node_id, host=host, port=port, rack=rack or None)
            for node_id, host, port, rack in sorted(metadata.brokers)
        ]

    async def _metadata(self, doing: str) -> Any:
        """Metadata without topics."""
        request = MetadataRequest([], allow_auto_topic_creation=False)
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            answer = await self._wire.send(await self._wire.any_node(doing), request, doing)
        if not answer.brokers:
            detail = "the broker that answers knows of none that is up, itself included"
            raise from_reason(UNAVAILABLE, doing, alias=self._wire.alias, detail=detail)
        return answer

    async def list_topics(self) -> Collection[str]:
        metadata = await self._admin.in_thread(
            "list topics", lambda admin, seconds: admin.list_topics(timeout=seconds)
        )
        return sorted(set(metadata.topics) - KAFKA_INTERNAL_TOPICS)

    async def describe_topics(self, names: Collection[str]) -> Mapping[str, TopicDescription | KafkaError]:
        if not names:
            return {}
        described = await self._admin.each(
            "describe topics",
            lambda admin, seconds: admin.describe_topics(
                TopicCollection(sorted(set(names))), request_timeout=seconds
            ),
        )
        return {
            name: answer if isinstance(answer, KafkaError) else _description(answer)
            for name, answer in described.items()
        }

    async def create_topics(self, topics: Collection[NewTopic]) -> Mapping[str, KafkaError | None]:
        made = await in_batches(topics, self._create, key=lambda topic: topic.name, records=_records_of)
        await self._until_seen({name for name, problem in made.items() if problem is None})
        return made

    async def _create(self, topics: Collection[NewTopic]) -> Mapping[str, KafkaError | None]:
        wanted = [
            LibrdkafkaNewTopic(
                topic.name,
                num_partitions=topic.partition_count,
                replication_factor=topic.replication_factor,
                config=dict(topic.configs),
            )
            for topic in topics
        ]
        return await self._admin.each(
            "create topics",
            lambda admin, seconds: admin.create_topics(
                wanted, request_timeout=seconds, operation_timeout=seconds
            ),
        )

    async def _until_seen(self, names: set[str]) -> None:
        """Brokers learn of a topic a moment after the controller said that it exists. Gives up in silence."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NEW_TOPIC_SECONDS):
                while names:
                    described = await self.describe_topics(names)
                    names = {name for name, answer in described.items() if isinstance(answer, KafkaError)}
                    if names:
                        await pause(_LOOK_AGAIN_SECONDS)

    async def create_partitions(self, counts: Mapping[str, int]) -> Mapping[str, KafkaError | None]:
        return await in_batches(
            counts.items(), self._grow, key=lambda each: each[0], records=lambda each: each[1]
        )

    async def _grow(self, counts: Collection[tuple[str, int]]) -> Mapping[str, KafkaError | None]:
        wanted = [NewPartitions(name, count) for name, count in counts]
        return await self._admin.each(
            "add partitions",
            lambda admin, seconds: admin.create_partitions(
                wanted, request_timeout=seconds, operation_timeout=seconds
            ),
        )

    async def delete_topics(self, names: Collection[str]) -> Mapping[str, KafkaError | None]:
        return await in_batches(sorted(set(names)), self._delete, key=lambda name: name)

    async def _delete(self, names: list[str]) -> Mapping[str, KafkaError | None]:
        return await self._admin.each(
            "delete topics",
            lambda admin, seconds: admin.delete_topics(
                names, request_timeout=seconds, operation_timeout=seconds
            ),
        )


def _records_of(topic: NewTopic) -> int:
    """Metadata records that creating it makes."""
    return 1 + max(topic.partition_count, 1) + len(topic.configs)


def _description(topic: Any) -> TopicDescription:
    topic_id = str(topic.topic_id).translate(_URL_SAFE)
    return TopicDescription(
        name=topic.name,
        topic_id="" if topic_id == _NO_TOPIC_ID else topic_id,
        partition_count=len(topic.partitions),
        replication_factor=max((len(partition.replicas) for partition in topic.partitions), default=0),
        internal=topic.is_internal,
    )
