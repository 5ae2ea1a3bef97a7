"""Topics and brokers of a cluster: read with requests of our own, changed with confluent-kafka.

Services read all topics of their flows every few seconds; with librdkafka that was half of the cost of a
hundred idle flows. Its `describe_cluster` is not usable either: if the controller knows of no broker that is
up (as in each start of a single broker), librdkafka (2.16.0) takes the empty answer for a success without a
result and aborts the whole process (`rd_kafka_admin_response_parse`: Assertion `rko_result' failed).
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from aiokafka.protocol.metadata import MetadataRequest
from confluent_kafka.admin import NewPartitions
from confluent_kafka.admin import NewTopic as LibrdkafkaNewTopic

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.admin.batches import batches, in_batches
from twinlog.kafka.admin.client import AdminSession
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import UNAVAILABLE, from_code, from_reason
from twinlog.kafka.ports import BrokerDescription, NewTopic, TopicDescription
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.metadata import Metadata, TopicMetadata, metadata_request

KAFKA_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that brokers mark as internal (Kafka's class Topic)."""
_NEW_TOPIC_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 0.05
TOPICS_A_REQUEST: Final = 1_000
"""An answer is decoded in one go: a topic of a hundred partitions takes about 0.1 ms."""
_SLOW_SHARE: Final = 0.25
"""The share of the time-out after which another broker is asked, too: an answer about many topics is long."""


def librdkafka_topics(topics: Collection[NewTopic]) -> list[LibrdkafkaNewTopic]:
    return [
        LibrdkafkaNewTopic(
            topic.name,
            num_partitions=topic.partition_count,
            replication_factor=topic.replication_factor,
            config=dict(topic.configs),
        )
        for topic in topics
    ]


class TopicAdminMixin:
    """Implements `TopicAdmin` with confluent-kafka, but for `outage`."""

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
        """The metadata without topics."""
        request = MetadataRequest([], allow_auto_topic_creation=False)

        def check(answer: Any) -> None:
            self._refuse_fenced(not answer.brokers, doing)

        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            return await self._wire.send_any(request, doing, check=check)

    async def list_topics(self) -> Collection[str]:
        metadata = await self._topics(None, "list topics")
        return sorted({topic.name for topic in metadata.topics} - KAFKA_INTERNAL_TOPICS)

    async def describe_topics(self, names: Collection[str]) -> Mapping[str, TopicDescription | KafkaError]:
        doing = "describe topics"
        described: dict[str, TopicDescription | KafkaError] = {}
        silence: KafkaError | None = None
        for page in batches(sorted(set(names)), most=TOPICS_A_REQUEST):
            if silence is not None:
                described |= dict.fromkeys(page, silence)
                continue
            try:
                answered = {topic.name: topic for topic in (await self._topics(page, doing)).topics}
            except TransientKafkaError as error:
                # A cluster that is down is an error of each topic, and is waited for once.
                silence = error
                described |= dict.fromkeys(page, error)
                continue
            described |= {name: self._description(name, answered.get(name), doing) for name in page}
        return described

    def _description(
        self, name: str, topic: TopicMetadata | None, doing: str
    ) -> TopicDescription | KafkaError:
        if topic is None:
            return from_reason(UNAVAILABLE, doing, alias=self._wire.alias, detail=f"no answer about {name}")
        if topic.error_code:
            return from_code(topic.error_code, doing, alias=self._wire.alias, detail=name)
        return TopicDescription(
            name=name,
            topic_id=topic.topic_id,
            partition_count=topic.partition_count,
            replication_factor=topic.replication_factor,
            internal=topic.is_internal,
        )

    async def _topics(self, names: Collection[str] | None, doing: str) -> Metadata:
        """Raises KafkaError."""

        def check(answer: Metadata) -> None:
            self._refuse_fenced(not answer.brokers, doing)

        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            answer: Metadata = await self._wire.send_any(
                metadata_request(names),
                doing,
                check=check,
                slow_seconds=self._wire.timeout_seconds * _SLOW_SHARE,
            )
        return answer

    def _refuse_fenced(self, is_fenced: bool, doing: str) -> None:
        if is_fenced:
            detail = "the broker that answers knows of none that is up, itself included"
            raise from_reason(UNAVAILABLE, doing, alias=self._wire.alias, detail=detail)

    async def create_topics(self, topics: Collection[NewTopic]) -> Mapping[str, KafkaError | None]:
        made = await in_batches(topics, self._create, key=lambda topic: topic.name, records=_records_of)
        await self._until_seen({name for name, problem in made.items() if problem is None})
        return made

    async def _create(self, topics: Collection[NewTopic]) -> Mapping[str, KafkaError | None]:
        wanted = librdkafka_topics(topics)
        return await self._admin.each(
            f"create topic {wanted[0].topic}" if len(wanted) == 1 else "create topics",
            lambda admin, seconds: admin.create_topics(
                wanted, request_timeout=seconds, operation_timeout=seconds
            ),
        )

    async def _until_seen(self, names: set[str]) -> None:
        """Brokers know a topic a moment after the controller has created it. Gives up silently."""
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
    """The number of metadata records that creating it takes."""
    return 1 + max(topic.partition_count, 1) + len(topic.configs)
