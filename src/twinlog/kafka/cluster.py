"""One cluster: the admin ports, readers and writers in one object.

Opening checks the properties and does not connect; each client connects when first used, and again after a
failure. Closing takes at most a few seconds, whatever the brokers do.
"""

from collections.abc import Callable, Mapping

from twinlog.kafka.admin.acls import AclAdminMixin
from twinlog.kafka.admin.configs import ConfigAdminMixin
from twinlog.kafka.admin.groups import GroupAdminMixin
from twinlog.kafka.admin.outages import BrokerAdminMixin
from twinlog.kafka.admin.quotas import QuotaAdminMixin
from twinlog.kafka.clients import (
    aiokafka_client_options,
    aiokafka_producer_options,
    call_timeout_seconds,
    fetch_options,
)
from twinlog.kafka.groups.coordinators import GroupCoordinators
from twinlog.kafka.groups.descriptions import GroupDescriptionsClient
from twinlog.kafka.groups.election import KafkaCandidate
from twinlog.kafka.groups.offsets import GroupOffsetsClient
from twinlog.kafka.log import LogAdminMixin
from twinlog.kafka.ports import (
    Candidate,
    Introduce,
    KafkaCluster,
    ManagedReader,
    ManagedWriter,
    never_gone,
)
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.reader import KafkaLogReader
from twinlog.kafka.security.access import ClusterAccess
from twinlog.kafka.writer import KafkaLogWriter, system_ms

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

    def candidate(
        self,
        group_id: str,
        *,
        name: Callable[[], str],
        session_seconds: float,
        mark: str = "",
        is_gone: Callable[[str], bool] = never_gone,
    ) -> Candidate:
        """A candidate with its own connection."""
        return KafkaCandidate(
            self._session(),
            group_id,
            name=name,
            session_seconds=session_seconds,
            mark=mark,
            is_gone=is_gone,
        )

    def _session(self) -> DataClientPool:
        options = aiokafka_client_options(
            self._properties, alias=self._alias, client_id_suffix=self._suffix, access=self._access
        )
        return DataClientPool(self._alias, options, timeout_seconds=self._timeout_seconds)
