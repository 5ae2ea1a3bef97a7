"""Topics and brokers of a cluster, and what a client may do with them.

Topics are changed with the last versions before those that tell a client of an exhausted quota
(`controller_mutation_rate`, KIP-599): to these, brokers do the work and throttle the connection.
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.admin.changes import change, error_of, in_batches, share_ms
from twinlog.kafka.admin.settings import AclOperation
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import bounded, deadline, pause
from twinlog.kafka.errors import UNAVAILABLE, from_code, from_reason
from twinlog.kafka.groups.coordinators import GroupCoordinators
from twinlog.kafka.groups.offsets import GroupDescriptionsClient
from twinlog.kafka.ports import NewTopic, Presence, TopicDescription
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.metadata import Metadata, TopicMetadata, metadata_request
from twinlog.kafka.protocol.reach import SLOW_SECONDS
from twinlog.kafka.protocol.requests import SchemaRequest
from twinlog.kafka.raw.transactions.wire import ProducerIdentity, end_request

KAFKA_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that brokers mark as internal (Kafka's class Topic)."""
_NEW_TOPIC_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 0.05
TOPICS_A_REQUEST: Final = 1_000
"""An answer is decoded in one go: a topic of a hundred partitions takes about 0.1 ms."""
_SLOW_SHARE: Final = 0.25
"""The share of the time-out after which another broker is asked, too: an answer about many topics is long."""


class TopicAdminMixin:
    """Implements `TopicAdmin` but for `outage`."""

    _wire: DataClientPool

    async def cluster_id(self) -> str:
        return (await self.presence()).cluster_id

    async def presence(self) -> Presence:
        told = await self._topics((), "read the cluster id", slow_seconds=SLOW_SECONDS)
        return Presence(told.cluster_id, told.brokers, self._wire.told_last)

    async def list_topics(self) -> Collection[str]:
        metadata = await self._topics(None, "list topics")
        return sorted({topic.name for topic in metadata.topics} - KAFKA_INTERNAL_TOPICS)

    async def describe_topics(self, names: Collection[str]) -> Mapping[str, TopicDescription | KafkaError]:
        return await in_batches(sorted(set(names)), self._described, key=str, most=TOPICS_A_REQUEST)

    async def _described(self, names: Sequence[str]) -> Mapping[str, TopicDescription | KafkaError]:
        doing = "describe topics"
        try:
            answered = {topic.name: topic for topic in (await self._topics(names, doing)).topics}
        except TransientKafkaError as error:
            # A cluster that is down is an error of each topic.
            return dict.fromkeys(names, error)
        return {name: self._description(name, answered.get(name), doing) for name in names}

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

    async def _topics(
        self,
        names: Collection[str] | None,
        doing: str,
        silent: Collection[int] = (),
        *,
        slow_seconds: float | None = None,
    ) -> Metadata:
        """Raises KafkaError."""

        def check(answer: Metadata) -> None:
            if not answer.brokers:
                detail = "the broker that answers knows of none that is up, itself included"
                raise from_reason(UNAVAILABLE, doing, alias=self._wire.alias, detail=detail)

        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            answer: Metadata = await self._wire.send_any(
                metadata_request(names, silent),
                doing,
                check=check,
                slow_seconds=slow_seconds or bounded(self._wire.timeout_seconds) * _SLOW_SHARE,
            )
        return answer

    async def create_topics(self, topics: Collection[NewTopic]) -> Mapping[str, KafkaError | None]:
        made = await in_batches(topics, self._create, key=lambda topic: topic.name, records=_records_of)
        await self._until_seen({name for name, problem in made.items() if problem is None})
        return made

    async def _create(self, topics: Collection[NewTopic]) -> Mapping[str, KafkaError | None]:
        names = [topic.name for topic in topics]
        doing = f"create topic {names[0]}" if len(names) == 1 else "create topics"
        return await create_topics(self._wire, topics, doing)

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
        topics = [{"name": name, "count": count, "assignments": None} for name, count in counts]
        asked = {"topics": topics, "timeout": share_ms(self._wire), "validate_only": False}
        return await change(
            self._wire,
            SchemaRequest("create_partitions", range(2), asked),
            "add partitions",
            [name for name, _ in counts],
            lambda answer: ((each.name, each.error_code, each.error_message) for each in answer.results),
        )

    async def delete_topics(self, names: Collection[str]) -> Mapping[str, KafkaError | None]:
        return await in_batches(sorted(set(names)), self._delete, key=lambda name: name)

    async def _delete(self, names: list[str]) -> Mapping[str, KafkaError | None]:
        asked = {"topic_names": names, "timeout": share_ms(self._wire)}
        return await change(
            self._wire,
            SchemaRequest("delete_topics", range(1, 4), asked),
            "delete topics",
            names,
            lambda answer: ((each.name, each.error_code, "") for each in answer.responses),
        )


async def create_topics(
    session: DataClientPool, topics: Collection[NewTopic], doing: str, *, validate_only: bool = False
) -> dict[str, KafkaError | None]:
    """Create topics, or only say whether they could be; see `change`."""
    wanted = [
        {
            "name": topic.name,
            "num_partitions": topic.partition_count,
            "replication_factor": topic.replication_factor,
            "assignments": (),
            "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
        }
        for topic in topics
    ]
    asked = {"topics": wanted, "timeout": share_ms(session), "validate_only": validate_only}
    return await change(
        session,
        SchemaRequest("create_topics", range(2, 5), asked),
        doing,
        [topic.name for topic in topics],
        lambda answer: ((each.name, each.error_code, each.error_message) for each in answer.topics),
    )


def _records_of(topic: NewTopic) -> int:
    """The number of metadata records that creating it takes."""
    return 1 + max(topic.partition_count, 1) + len(topic.configs)


# What a client may do on a cluster, and what the cluster supports; checked before the start.

_FETCH: Final = 1
_METADATA_WITH_RIGHTS: Final = range(8, 9)
"""It tells the rights on the cluster, too; brokers from 2.3 to 4.x know them."""
_NOBODY: Final = ProducerIdentity(producer_id=0, producer_epoch=0)

_RELEASES: Final = (
    (80, "3.9"),  # AddRaftVoter
    (75, "3.8"),  # DescribeTopicPartitions
    (71, "3.7"),  # GetTelemetrySubscriptions
    (65, "3.0"),  # DescribeTransactions
    (60, "2.8"),  # DescribeCluster
    (50, "2.7"),  # DescribeUserScramCredentials
    (48, "2.6"),  # DescribeClientQuotas
    (44, "2.3"),  # IncrementalAlterConfigs
)
"""The request that distinguishes a release from earlier ones, newest first."""


class ClusterInspector:
    """Asks with the properties of one client. An async context manager; connects with the first question."""

    def __init__(self, alias: str, properties: Mapping[str, str], *, timeout_seconds: float) -> None:
        """Raises ConfigError for invalid properties."""
        options = aiokafka_client_options(properties, alias=alias)
        self._wire = DataClientPool(alias, options, timeout_seconds=timeout_seconds)
        self._descriptions = GroupDescriptionsClient(self._wire, GroupCoordinators(self._wire))

    async def __aenter__(self) -> "ClusterInspector":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._wire.close()

    async def release(self) -> str:
        """The oldest Kafka release the cluster can be: "4.0", "3.9", ... Raises KafkaError."""
        doing = "ask for the broker's version"
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            answer = await self._wire.send_any(SchemaRequest("api_versions", range(1), {}), doing)
        return release_of({each.api_key: (each.min_version, each.max_version) for each in answer.api_keys})

    async def cluster_operations(self) -> frozenset[str]:
        """The operations that the principal may do on the cluster itself. Raises KafkaError."""
        answer = await self._metadata_with_rights((), "ask for rights on the cluster")
        return _words(answer.cluster_authorized_operations)

    async def topic_operations(self, names: Collection[str]) -> Mapping[str, frozenset[str] | KafkaError]:
        """The operations that the principal may do on these topics, or an error."""
        return await in_batches(sorted(set(names)), self._may, key=str, most=TOPICS_A_REQUEST)

    async def _may(self, names: Collection[str]) -> Mapping[str, frozenset[str] | KafkaError]:
        doing = "ask for rights on topics"
        try:
            answer = await self._metadata_with_rights(names, doing)
        except KafkaError as error:
            return dict.fromkeys(names, error)
        return {
            topic.name: error_of(self._wire, topic.error_code, topic.name, doing)
            or _words(topic.topic_authorized_operations)
            for topic in answer.topics
        }

    async def _metadata_with_rights(self, topics: Collection[str], doing: str) -> Any:
        """Of the cluster and of these topics. Raises KafkaError."""
        asked = {
            "topics": [{"topic_id": None, "name": name} for name in topics],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        }
        request = SchemaRequest("metadata", _METADATA_WITH_RIGHTS, asked)
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            return await self._wire.send_any(request, doing)

    async def group_operations(self, names: Collection[str]) -> Mapping[str, frozenset[str] | KafkaError]:
        """The operations that the principal may do on these groups, existing or not; GROUP_UNAUTHORIZED when
        it may not even DESCRIBE one. Raises KafkaError.

        Waits one time-out for missing coordinators, because a cluster creates the topic of its groups with
        the first request. Works for all group protocols.
        """
        described = await self._descriptions.describe(names, with_rights=True)
        return {
            name: answer if isinstance(answer, KafkaError) else _words(answer.operations)
            for name, answer in described.items()
        }

    async def may_write_transactions(self, transactional_id: str) -> bool:
        """Whether the principal may WRITE with a transactional id that nobody uses.

        The request ends a transaction that does not exist: brokers check the right first, and answer anything
        but TRANSACTION_UNAUTHORIZED if it is granted. Nothing is changed. Raises KafkaError when no broker
        answers.
        """
        doing = "ask for the right to write transactions"
        request = end_request(transactional_id, _NOBODY, commit=False, gives_identity=False)
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            answer = await self._wire.send_any(request, doing)
        return bool(answer.error_code != ErrorCode.transactional_id_authorization_failed)

    async def try_creating(self, topics: Collection[NewTopic]) -> Mapping[str, KafkaError | None]:
        """Whether these topics could be created; none is created. Raises KafkaError."""
        if not topics:
            return {}
        return await create_topics(self._wire, topics, "try creating topics", validate_only=True)


def _words(bits: int) -> frozenset[str]:
    """The names of the operations whose bits are set."""
    return frozenset(operation.name for operation in AclOperation if bits & 1 << operation)


def release_of(versions: Mapping[int, tuple[int, int]]) -> str:
    """The oldest release with these requests (lowest and highest version by API key)."""
    if versions.get(_FETCH, (0, 0))[0] >= 4:  # KIP-896: releases from 4.0 on dropped the oldest versions.
        return "4.0"
    return next((release for key, release in _RELEASES if key in versions), "2.2")
