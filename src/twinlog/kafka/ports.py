"""The operations that Twinlog needs from a Kafka cluster, as small Protocols.

Every method is bounded: it returns or raises within its client's time-out (`TransientKafkaError` with reason
KAFKA_TIMEOUT). A large number of changes is sent in several requests, each bounded in the same way. Every
other failure is a `TransientKafkaError` (try again) or a `FatalKafkaError` (retrying does not help), with
Kafka's numeric code. Results per resource carry their own error as a value, so one bad topic never hides the
others. `twinlog.kafka.cluster` implements them; `twinlog.testing.fakes.cluster` does so without a wire.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from twinlog.errors import KafkaError
from twinlog.kafka.outage import Outage
from twinlog.model import Headers, Record, TopicPartition

# ------------------------------------------------------------------------------------------------ topics


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: str
    """Kafka's topic id, url-safe base64 as in Kafka's tools; "" if the broker has none."""
    partition_count: int
    replication_factor: int
    internal: bool
    """Kafka's own flag (`__consumer_offsets`), not MM2's notion of internal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    name: str
    partition_count: int
    replication_factor: int
    """-1 = the broker's default."""
    configs: Mapping[str, str] = field(default_factory=dict)


class Presence(NamedTuple):
    """What a broker that answers says of its cluster."""

    cluster_id: str
    brokers: Mapping[int, str]
    """Those that the metadata names, by node id, with their addresses (`host:port`)."""
    told_by: int | None = None
    """The broker that answered; None if it does not matter."""


NO_BROKERS: Final[Mapping[int, str]] = MappingProxyType({})


class TopicAdmin(Protocol):
    async def cluster_id(self) -> str: ...

    async def presence(self) -> Presence: ...

    async def outage(self, present: Presence, whole: Mapping[int, str] = NO_BROKERS) -> Outage:
        """Which brokers do not answer: those of `present` that two requests did not reach, and those that
        metadata does not name but replicas are on.

        The second kind is not looked for (it takes the metadata of all topics) while the metadata names
        exactly the brokers of `whole`, which says where they were. May take as long as two of the client's
        time-outs.
        """
        ...

    async def list_topics(self) -> Collection[str]:
        """The names of all topics that the principal may see, without Kafka's internal ones (as
        Admin.listTopics())."""
        ...

    async def describe_topics(self, names: Collection[str]) -> Mapping[str, TopicDescription | KafkaError]:
        """For each requested name its description, or the error."""
        ...

    async def create_topics(self, topics: Collection[NewTopic]) -> Mapping[str, KafkaError | None]:
        """Create; per topic None, or the error (TOPIC_ALREADY_EXISTS has reason TOPIC_EXISTS)."""
        ...

    async def create_partitions(self, counts: Mapping[str, int]) -> Mapping[str, KafkaError | None]:
        """Increase the number of partitions to this total."""
        ...

    async def delete_topics(self, names: Collection[str]) -> Mapping[str, KafkaError | None]: ...


# ------------------------------------------------------------------------------------------------ configs


class ConfigSource(StrEnum):
    """Where a value comes from, by the names of DescribeConfigs."""

    TOPIC = "DYNAMIC_TOPIC_CONFIG"
    DYNAMIC_BROKER = "DYNAMIC_BROKER_CONFIG"
    DYNAMIC_DEFAULT_BROKER = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    STATIC_BROKER = "STATIC_BROKER_CONFIG"
    DEFAULT = "DEFAULT_CONFIG"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False
    sensitive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One incremental change: SET when `value` is a string, DELETE (back to the default) when it is None."""

    name: str
    value: str | None


class ConfigAdmin(Protocol):
    async def describe_topic_configs(
        self, names: Collection[str], *, keys: Collection[str] = ()
    ) -> Mapping[str, Sequence[ConfigEntry] | KafkaError]:
        """Only these properties; all when `keys` is empty (a topic has about 35)."""
        ...

    async def describe_broker_configs(self) -> Sequence[ConfigEntry]:
        """Those of any broker that can be reached."""
        ...

    async def alter_topic_configs(
        self, changes: Mapping[str, Sequence[ConfigChange]]
    ) -> Mapping[str, KafkaError | None]:
        """IncrementalAlterConfigs: only the named properties change."""
        ...


# ------------------------------------------------------------------------------------------------ ACLs


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AclBinding:
    """One ACL, with Kafka's upper-case names (`TOPIC`, `LITERAL`, `READ`, `ALLOW`)."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class AclAdmin(Protocol):
    async def describe_acls(self, resource_type: str = "ANY") -> Collection[AclBinding] | None:
        """Every ACL of a resource type; None when the cluster has no authorizer."""
        ...

    async def create_acls(
        self, bindings: Collection[AclBinding]
    ) -> Mapping[AclBinding, KafkaError | None]: ...

    async def delete_acls(
        self, bindings: Collection[AclBinding]
    ) -> Mapping[AclBinding, KafkaError | None]: ...


# ------------------------------------------------------------------------------------------------ quotas


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The entity of a client quota: sorted pairs of kind (`user`, `client-id`, `ip`) and name, None = the
    default."""

    parts: tuple[tuple[str, str | None], ...]


class QuotaAdmin(Protocol):
    async def describe_client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Every quota by entity and key (`producer_byte_rate`, `request_percentage`, ...)."""
        ...

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]
    ) -> Mapping[QuotaEntity, KafkaError | None]:
        """Set the quotas that have a value, remove those that are None; others stay."""
        ...

    async def scram_users(self) -> Mapping[str, frozenset[str]]:
        """The users with SCRAM credentials, with their mechanisms. Passwords cannot be read."""
        ...


# ------------------------------------------------------------------------------------------------ groups


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    next_offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    state: str
    """STABLE, EMPTY, DEAD, PREPARING_REBALANCING, COMPLETING_REBALANCING, ASSIGNING, RECONCILING, NOT_READY,
    UNKNOWN; DEAD also means that the group does not exist."""
    group_type: str
    """classic, consumer, share or streams."""
    member_count: int
    """For a share or streams group 1 means any number above 0."""
    members: tuple[bytes, ...] = field(default=(), compare=False)
    """What each member of a classic group says of itself."""


class GroupAdmin(Protocol):
    async def list_groups(self) -> Mapping[str, str]:
        """Group id -> type (classic, consumer, share, streams) of every group of an application that reads
        topics; groups of Kafka Connect and of other protocols are left out."""
        ...

    async def describe_groups(
        self, group_ids: Collection[str]
    ) -> Mapping[str, GroupDescription | KafkaError]: ...

    async def group_offsets(
        self, group_ids: Collection[str]
    ) -> Mapping[str, Mapping[TopicPartition, CommittedOffset] | KafkaError]:
        """All committed offsets of each group; partitions without one are left out."""
        ...

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Commit for a group without members. The coordinator refuses an active group (reason
        GROUP_ACTIVE)."""
        ...

    async def delete_groups(self, group_ids: Collection[str]) -> Mapping[str, KafkaError | None]: ...


# ------------------------------------------------------------------------------------------------ log


class OffsetSpec(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    """The log end (high watermark), read_uncommitted."""
    LAST_STABLE = "last_stable"
    """The end for read_committed readers."""


class LogEnd(NamedTuple):
    """What a leader tells of its log: where it ends for consumers, or the offset of a time."""

    offset: int
    """The high watermark; -1 for a time after the last record."""
    leader_epoch: int
    """The epoch of the leader that answered (KIP-320)."""


class EpochEnd(NamedTuple):
    """The leader's last epoch at or below the requested one, and where its records end."""

    epoch: int
    """-1: the leader knows none; all its records are of earlier epochs than the requested one."""
    end_offset: int


class LogAdmin(Protocol):
    async def list_offsets(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]: ...

    async def log_ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, LogEnd | KafkaError]:
        """The end of each log, and under which leader it ends there."""
        ...

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, EpochEnd | KafkaError]:
        """Where the records of a leader epoch end in the present leader's log (KIP-320). A log that reached
        further under that epoch has lost records."""
        ...

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        """The first offset whose timestamp is at or after the given one; None when there is none."""
        ...

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Delete all records below an offset (for tests and operators; Twinlog itself never does)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRecords:
    """The result of one read. Reading continues at `next_offset`, also past markers and holes without a
    record."""

    records: Sequence[Record]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    """The end for this reader (the last stable offset with read_committed)."""


class LogReader(Protocol):
    """Reads partitions at given offsets. It has no group and no state, and never resets a position."""

    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_seconds: float, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        """Records from `offset` on; waits up to `max_wait_seconds` when there are none yet.

        Raises FatalKafkaError (reason OFFSET_OUT_OF_RANGE, TOPIC_UNKNOWN, TOPIC_UNAUTHORIZED) or
        TransientKafkaError.
        """
        ...


Introduce = Callable[[int], tuple[TopicPartition, bytes, bytes]]
"""For the id of a producer: partition, key and value of the record that it appends before all others."""


class LogWriter(Protocol):
    """Appends single records, idempotent, acks=all."""

    async def append(
        self,
        partition: TopicPartition,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> int:
        """Return the record's offset once all in-sync replicas have it. Records of a partition are sent in
        call order."""
        ...


# ------------------------------------------------------------------------------------------------ membership

Assign = Callable[[Mapping[str, bytes], int], Mapping[str, bytes]]
"""What a leader tells each member, from what all of them say, by member id; and the number of the generation
for which it does. Pure; must not raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A member's place in one generation of its group."""

    member: str
    """Its id."""
    generation: int
    assignment: bytes
    """What the leader tells it."""


class Pulse(Enum):
    """What the coordinator answers to a member's sign of life."""

    SEATED = "SEATED"
    """It has its place in the present generation."""
    WAITED_FOR = "WAITED_FOR"
    """It is a member, and the group is between two generations: it loses its place unless it joins in
    time."""
    JOINS = "JOINS"
    """It is no member, or not of the present generation."""


def never_gone(mark: str) -> bool:
    """For members that cannot tell whether another process has ended."""
    return False


class Member(Protocol):
    """One of several processes, each of which is told its part by the one that leads."""

    async def join(self, about: Callable[[bool], bytes]) -> Seat:
        """Say what this process is; waits until all members have. `about` is asked with each try, and told
        whether this process has been a member without interruption. Raises KafkaError: GROUP_UNAUTHORIZED
        without the right to READ the group."""
        ...

    async def beat(self) -> Pulse:
        """Give a sign of life; several times a session, also while `join` waits. Raises KafkaError."""
        ...

    async def others(self, group_ids: Collection[str]) -> Mapping[str, tuple[bytes, ...]]:
        """What the members of other groups say, of those that this client may see. Also removes members of
        this group that are gone. Raises KafkaError."""
        ...

    async def withdraw(self) -> None:
        """Leave and close, so that the others need not wait for the session. Never raises; takes at most a
        second or two."""
        ...


class KafkaCluster(TopicAdmin, ConfigAdmin, AclAdmin, QuotaAdmin, GroupAdmin, LogAdmin, Protocol):
    """A connection to one cluster: all admin ports, and the factories of readers and writers.

    An async context manager: clients are opened when needed, and closed at exit. `open` never waits for
    brokers, so a service starts while a cluster is down.
    """

    async def __aenter__(self) -> "KafkaCluster": ...

    async def __aexit__(self, *exc: object) -> None: ...

    def reader(self, *, read_committed: bool = True) -> "ManagedReader": ...

    def writer(self, *, introduce: Introduce | None = None) -> "ManagedWriter":
        """A writer. With `introduce`, its producers introduce themselves: no other record of theirs is sent
        before that one is acknowledged."""
        ...

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
        """A member of a group, which counts as gone when silent for a session, or when it does not join again
        within the rebalance. `mark` identifies its process. Members remove those whose marks `is_gone`
        reports as gone, instead of waiting for the end of their sessions."""
        ...


class ManagedReader(LogReader, Protocol):
    async def __aenter__(self) -> "ManagedReader": ...

    async def __aexit__(self, *exc: object) -> None: ...


class ManagedWriter(LogWriter, Protocol):
    async def __aenter__(self) -> "ManagedWriter": ...

    async def __aexit__(self, *exc: object) -> None: ...
