"""What a client may do on a cluster, and what the cluster supports; checked before the start."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from twinlog.errors import KafkaError
from twinlog.kafka.admin.acls import AclOperation
from twinlog.kafka.admin.changes import batches, error_of
from twinlog.kafka.admin.topics import TOPICS_A_REQUEST, create_topics
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline
from twinlog.kafka.groups.coordinators import GroupCoordinators
from twinlog.kafka.groups.descriptions import GroupDescriptionsClient
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.schemas import SchemaRequest
from twinlog.kafka.raw.transactions.wire import ProducerIdentity, end_request

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
        """The operations that the principal may do on these topics, or an error. Raises KafkaError."""
        if not names:
            return {}
        doing = "ask for rights on topics"
        told: dict[str, frozenset[str] | KafkaError] = {}
        for page in batches(sorted(set(names)), most=TOPICS_A_REQUEST):
            told |= {
                topic.name: error_of(self._wire, topic.error_code, topic.name, doing)
                or _words(topic.topic_authorized_operations)
                for topic in (await self._metadata_with_rights(page, doing)).topics
            }
        return told

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
        return bool(answer.error_code != ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

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
