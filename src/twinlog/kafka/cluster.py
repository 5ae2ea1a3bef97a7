"""One cluster: the admin ports, readers and writers in one object.

Opening checks the properties and does not connect; each client connects when first used, and again after a
failure. Closing takes at most a few seconds, whatever the brokers do.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

from twinlog.errors import KafkaError, required
from twinlog.kafka.admin.changes import change, error_of, in_batches
from twinlog.kafka.admin.settings import AclAdminMixin, ConfigAdminMixin
from twinlog.kafka.admin.topics import TopicAdminMixin
from twinlog.kafka.clients import (
    aiokafka_client_options,
    aiokafka_producer_options,
    call_timeout_seconds,
    fetch_options,
)
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import UNAVAILABLE, from_reason
from twinlog.kafka.groups.coordinators import GroupCoordinators
from twinlog.kafka.groups.membership import KafkaMember
from twinlog.kafka.groups.offsets import (
    DescribedGroup,
    GroupDescriptionsClient,
    GroupOffsetsClient,
    ListedGroup,
    list_groups,
)
from twinlog.kafka.outage import Outage
from twinlog.kafka.ports import (
    NO_BROKERS,
    Assign,
    CommittedOffset,
    GroupDescription,
    Introduce,
    KafkaCluster,
    ManagedReader,
    ManagedWriter,
    Member,
    Presence,
    QuotaEntity,
    never_gone,
)
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.metadata import METADATA, metadata_request
from twinlog.kafka.protocol.reach import Attempt, first_answer
from twinlog.kafka.protocol.requests import SchemaRequest
from twinlog.kafka.reader import KafkaLogReader, LogAdminMixin
from twinlog.kafka.security.access import ClusterAccess
from twinlog.kafka.writer import KafkaLogWriter, system_ms
from twinlog.model import TopicPartition

# Which brokers of a cluster do not answer while others do.
#
# The metadata names no broker that has died, but partitions name it for as long as they have replicas on
# it: one that was removed for good is not missed. One whose packets vanish only on the way to this client
# is in the metadata, and has to be asked.

_DOING: Final = "ask each broker"
_AT_ONCE: Final = 16


class BrokerAdminMixin(TopicAdminMixin):
    """Implements `TopicAdmin`, `outage` included."""

    async def outage(self, present: Presence, whole: Mapping[int, str] = NO_BROKERS) -> Outage:
        named = present.brokers
        silent = await self._silent(frozenset(named).difference((present.told_by,)))
        if silent >= named.keys():
            raise from_reason(UNAVAILABLE, _DOING, alias=self._wire.alias, detail="no broker answers")
        if not silent and named.keys() == whole.keys():
            return Outage()
        told = await self._topics(None, _DOING, silent)
        missing = told.replicas.offline.difference(told.brokers)
        if not silent and not missing:
            return Outage()
        places = {**whole, **named}
        if not places.keys() >= missing:
            places = await self._registered() | places
        return Outage(
            brokers={each: places.get(each, "") for each in sorted(silent | missing)},
            without_leader=told.replicas.without_leader,
            under_replicated=told.replicas.under_replicated,
            in_sync=told.replicas.in_sync,
        )

    async def _registered(self) -> dict[int, str]:
        """Where brokers are that the cluster knows, also those that have left the metadata; empty where no
        broker tells (before Kafka 4.0)."""
        asked = {"include_cluster_authorized_operations": False, "include_fenced_brokers": True}
        try:
            async with deadline(self._wire.timeout_seconds, _DOING, alias=self._wire.alias):
                answer = await self._wire.send_any(
                    SchemaRequest("describe_cluster", range(2, 3), asked), _DOING
                )
        except KafkaError:
            return {}
        return {int(each.broker_id): f"{each.host}:{each.port}" for each in answer.brokers}

    async def _silent(self, node_ids: frozenset[int]) -> frozenset[int]:
        """Those that do not answer within three quarters of a call's time. Each is asked twice, on two
        connections: again after a quarter, or a failure."""
        if not node_ids:
            return node_ids
        await self._wire.make_known(node_ids, _DOING)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def is_silent(node_id: int) -> bool:
            async with turns:
                if self._wire.throttled_seconds(node_id, METADATA):
                    return False
                ask = partial(self._wire.send, node_id, metadata_request(()), _DOING)
                attempts = [Attempt(f"ask broker {node_id}", ask)] * 2
                quarter = self._wire.timeout_seconds / 4
                try:
                    async with deadline(3 * quarter, _DOING, alias=self._wire.alias):
                        await first_answer(attempts, slow_seconds=quarter)
                except KafkaError:
                    return True  # Also while a new connection is refused: this is told of all brokers then.
                return False

        async with asyncio.TaskGroup() as group:
            asked = {
                node_id: group.create_task(is_silent(node_id), name=f"ask broker {node_id}")
                for node_id in node_ids
            }
        return frozenset(node_id for node_id, task in asked.items() if task.result())


# Client quotas and SCRAM users of a cluster.

_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class QuotaAdminMixin:
    """Implements `QuotaAdmin`."""

    _wire: DataClientPool

    async def describe_client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        asked = {"components": (), "strict": False}
        answer = await self._answer(
            SchemaRequest("describe_client_quotas", range(1), asked), "describe client quotas"
        )
        return {
            _entity(entry.entity): {str(each.key): float(each.value) for each in entry.values}
            for entry in answer.entries
        }

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]
    ) -> Mapping[QuotaEntity, KafkaError | None]:
        return await in_batches(
            changes.items(), self._alter_quotas, key=lambda each: each[0], records=lambda each: len(each[1])
        )

    async def _alter_quotas(
        self, changes: Collection[tuple[QuotaEntity, Mapping[str, float | None]]]
    ) -> Mapping[QuotaEntity, KafkaError | None]:
        entries = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.parts],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in values.items()
                ],
            }
            for entity, values in changes
        ]
        asked = {"entries": entries, "validate_only": False}
        return await change(
            self._wire,
            SchemaRequest("alter_client_quotas", range(1), asked),
            "alter client quotas",
            [entity for entity, _ in changes],
            lambda answer: (
                (_entity(entry.entity), entry.error_code, entry.error_message) for entry in answer.entries
            ),
        )

    async def scram_users(self) -> Mapping[str, frozenset[str]]:
        answer = await self._answer(
            SchemaRequest("describe_user_scram_credentials", range(1), {"users": None}), "list SCRAM users"
        )
        return {
            str(result.user): frozenset(
                _MECHANISMS.get(each.mechanism, "UNKNOWN") for each in result.credential_infos
            )
            for result in answer.results
        }

    async def _answer(self, request: SchemaRequest, doing: str) -> Any:
        """An answer with one error code. Raises KafkaError."""
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            answer = await self._wire.send_any(request, doing)
        required(error_of(self._wire, answer.error_code, answer.error_message, doing))
        return answer


def _entity(parts: Iterable[Any]) -> QuotaEntity:
    return QuotaEntity(tuple(sorted((str(each.entity_type), each.entity_name) for each in parts)))


# The consumer groups of a cluster and their committed offsets.

_CLASSIC = "classic"
_DEAD = "DEAD"
_WITHOUT_MEMBERS = frozenset({"EMPTY", _DEAD})


class GroupAdminMixin:
    """Implements `GroupAdmin`."""

    _descriptions: GroupDescriptionsClient
    _offsets: GroupOffsetsClient
    _wire: DataClientPool

    async def list_groups(self) -> Mapping[str, str]:
        listed = await list_groups(self._wire, "list groups")
        return {group_id: group.group_type for group_id, group in listed.items()}

    async def describe_groups(
        self, group_ids: Collection[str]
    ) -> Mapping[str, GroupDescription | KafkaError]:
        if not group_ids:
            return {}
        described = await self._descriptions.describe(group_ids)
        descriptions = {group_id: _description(group_id, answer) for group_id, answer in described.items()}
        # To the request of classic groups all others do not exist.
        dead = [group_id for group_id, answer in descriptions.items() if _is_dead(answer)]
        for group_id, listed in (await self._descriptions.listed(dead)).items():
            if isinstance(listed, KafkaError):
                descriptions[group_id] = listed
            elif listed is not None and listed.group_type != _CLASSIC:
                descriptions[group_id] = _listed_description(group_id, listed)
        return descriptions

    async def group_offsets(
        self, group_ids: Collection[str]
    ) -> Mapping[str, Mapping[TopicPartition, CommittedOffset] | KafkaError]:
        return await self._offsets.read(group_ids)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        return await self._offsets.commit(group_id, offsets) if offsets else {}

    async def delete_groups(self, group_ids: Collection[str]) -> Mapping[str, KafkaError | None]:
        return await self._offsets.delete(group_ids) if group_ids else {}


def _is_dead(answer: GroupDescription | KafkaError) -> bool:
    return not isinstance(answer, KafkaError) and answer.state == _DEAD


def _listed_description(group_id: str, group: ListedGroup) -> GroupDescription:
    return GroupDescription(
        group_id=group_id,
        state=group.state,
        group_type=group.group_type,
        member_count=0 if group.state in _WITHOUT_MEMBERS else 1,
    )


def _description(group_id: str, answer: DescribedGroup | KafkaError) -> GroupDescription | KafkaError:
    if isinstance(answer, KafkaError):
        return answer
    return GroupDescription(
        group_id=group_id,
        state=answer.state,
        group_type=_CLASSIC,
        member_count=len(answer.members),
        members=tuple(about for _, about in answer.members),
    )


DEFAULT_TIMEOUT_SECONDS = 30.0


def open_cluster(
    alias: str,
    properties: Mapping[str, str],
    *,
    timeout_seconds: float | None = None,
    client_id_suffix: str = "",
    now_ms: Callable[[], int] = system_ms,
) -> KafkaCluster:
    """A connection to the cluster `alias` with Java client `properties` (without prefixes). Never waits for
    brokers.

    `timeout_seconds` bounds every call; None = `default.api.timeout.ms`, else 30 s. Readers and writers that
    are not closed live until the process ends: use them as context managers. Raises ConfigError for invalid
    properties. `now_ms` gives records their time.
    """
    if timeout_seconds is None:
        timeout_seconds = call_timeout_seconds(properties, alias=alias, default=DEFAULT_TIMEOUT_SECONDS)
    return _Cluster(
        alias,
        dict(properties),
        timeout_seconds=timeout_seconds,
        client_id_suffix=client_id_suffix,
        now_ms=now_ms,
    )


class _Cluster(
    BrokerAdminMixin, ConfigAdminMixin, AclAdminMixin, QuotaAdminMixin, GroupAdminMixin, LogAdminMixin
):
    def __init__(
        self,
        alias: str,
        properties: Mapping[str, str],
        *,
        timeout_seconds: float,
        client_id_suffix: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._now_ms = now_ms
        self._alias = alias
        self._properties = properties
        self._timeout_seconds = timeout_seconds
        self._suffix = client_id_suffix
        self._fetch_options = fetch_options(properties, alias=alias)
        # One for all clients: where files cannot be used, a new one would fail, and this one has the earlier
        # credentials.
        self._access = ClusterAccess(properties, alias=alias)
        self._wire = self._session()
        coordinators = GroupCoordinators(self._wire)
        self._offsets = GroupOffsetsClient(self._wire, coordinators)
        self._descriptions = GroupDescriptionsClient(self._wire, coordinators)
        aiokafka_producer_options(properties, alias=alias, access=self._access)

    def __repr__(self) -> str:
        return f"<KafkaCluster {self._alias}>"

    async def __aenter__(self) -> KafkaCluster:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._wire.close()

    def reader(self, *, read_committed: bool = True) -> ManagedReader:
        """A reader with its own connection."""
        return KafkaLogReader(
            self._session(),
            self._fetch_options,
            read_committed=read_committed,
            timeout_seconds=self._timeout_seconds,
        )

    def writer(self, *, introduce: Introduce | None = None) -> ManagedWriter:
        """A writer with its own producer."""
        options = aiokafka_producer_options(
            self._properties, alias=self._alias, client_id_suffix=self._suffix, access=self._access
        )
        return KafkaLogWriter(
            self._alias,
            options,
            timeout_seconds=self._timeout_seconds,
            now_ms=self._now_ms,
            introduce=introduce,
        )

    def member(
        self,
        group_id: str,
        *,
        assign: Assign,
        session_seconds: float,
        rebalance_seconds: float,
        mark: str = "",
        is_gone: Callable[[str], bool] = never_gone,
    ) -> Member:
        """A member with its own connections."""
        return KafkaMember(
            self._session(),
            group_id,
            assign=assign,
            session_seconds=session_seconds,
            rebalance_seconds=rebalance_seconds,
            mark=mark,
            is_gone=is_gone,
        )

    def _session(self) -> DataClientPool:
        options = aiokafka_client_options(
            self._properties, alias=self._alias, client_id_suffix=self._suffix, access=self._access
        )
        return DataClientPool(self._alias, options, timeout_seconds=self._timeout_seconds)
