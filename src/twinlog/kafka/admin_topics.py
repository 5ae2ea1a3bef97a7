"""Topics and brokers of a cluster."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import NewPartitions
from confluent_kafka.admin import NewTopic as LibrdkafkaNewTopic

from twinlog.errors import KafkaError
from twinlog.kafka.admin_client import AdminSession
from twinlog.kafka.deadline import pause
from twinlog.kafka.ports import BrokerDescription, NewTopic, TopicDescription

KAFKA_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""What brokers themselves flag as internal (Kafka's class Topic)."""
_NEW_TOPIC_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 0.05
_URL_SAFE = str.maketrans("+/", "-_")
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class TopicAdminMixin:
    """`TopicAdmin` over confluent-kafka."""

    _admin: AdminSession

    async def cluster_id(self) -> str:
        described = await self._admin.one(
            "read the cluster id", lambda admin, seconds: admin.describe_cluster(request_timeout=seconds)
        )
        return str(described.cluster_id)

    async def brokers(self) -> Sequence[BrokerDescription]:
        described = await self._admin.one(
            "list brokers", lambda admin, seconds: admin.describe_cluster(request_timeout=seconds)
        )
        return [
            BrokerDescription(node_id=node.id, host=node.host, port=node.port, rack=node.rack or None)
            for node in sorted(described.nodes, key=lambda node: node.id)
        ]

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
        if not topics:
            return {}
        wanted = [
            LibrdkafkaNewTopic(
                topic.name,
                num_partitions=topic.partition_count,
                replication_factor=topic.replication_factor,
                config=dict(topic.configs),
            )
            for topic in topics
        ]
        made = await self._admin.each(
            "create topics",
            lambda admin, seconds: admin.create_topics(
                wanted, request_timeout=seconds, operation_timeout=seconds
            ),
        )
        await self._until_seen({name for name, problem in made.items() if problem is None})
        return made

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
        if not counts:
            return {}
        wanted = [NewPartitions(name, count) for name, count in counts.items()]
        return await self._admin.each(
            "add partitions",
            lambda admin, seconds: admin.create_partitions(
                wanted, request_timeout=seconds, operation_timeout=seconds
            ),
        )

    async def delete_topics(self, names: Collection[str]) -> Mapping[str, KafkaError | None]:
        if not names:
            return {}
        return await self._admin.each(
            "delete topics",
            lambda admin, seconds: admin.delete_topics(
                sorted(set(names)), request_timeout=seconds, operation_timeout=seconds
            ),
        )


def _description(topic: Any) -> TopicDescription:
    topic_id = str(topic.topic_id).translate(_URL_SAFE)
    return TopicDescription(
        name=topic.name,
        topic_id="" if topic_id == _NO_TOPIC_ID else topic_id,
        partition_count=len(topic.partitions),
        replication_factor=max((len(partition.replicas) for partition in topic.partitions), default=0),
        internal=topic.is_internal,
    )
