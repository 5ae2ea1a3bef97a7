"""MM2's MirrorClient, asynchronous: what a cluster knows about the clusters that replicate to it."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from twinlog.config.keys.client import CLUSTER_CLIENT_KEYS
from twinlog.errors import ConfigError, StateError, WireFormatError, required
from twinlog.filters import compile_java
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, LogReader, OffsetSpec
from twinlog.model import ClusterAlias, TopicPartition
from twinlog.policy import (
    ReplicationPolicy,
    checkpoint_topics,
    heartbeat_topics,
    policy_from_config,
    remote_topics,
    replication_hops,
    upstream_clusters,
)
from twinlog.wire import Checkpoint, decode_checkpoint
from twinlog.wire.checkpoint import CHECKPOINTS_PARTITION

# Converts a client's properties into connections: MM2's MirrorClientConfig, and Twinlog's own for
# consumers. Pure.

ADMIN = "admin"
CONSUMER = "consumer"

_FIXED = {"auto.offset.reset": "earliest", "enable.auto.commit": "false", "isolation.level": "read_committed"}
"""What a logical consumer relies on: copies that appear later are read from their beginning, only `commit`
commits, and aborted records are not read."""


def client_properties(properties: Mapping[str, str], client: str) -> dict[str, str]:
    """The settings of one client: the client keys, overridden by `<client>.<key>`, and nothing else.

    Like MM2, this drops keys that are not client keys (`consumer.client.id`, …).
    """
    return {key: value for key, value in _overlaid(properties, client).items() if key in CLUSTER_CLIENT_KEYS}


def consumer_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """All settings, overridden by `consumer.<key>`.

    Raises ConfigError for a setting that a logical consumer cannot follow.
    """
    found = _overlaid(properties, CONSUMER)
    for key, fixed in _FIXED.items():
        if found.get(key, fixed).strip().lower() != fixed:
            raise ConfigError(
                f"{key} = {found[key]}: a logical consumer always has {fixed}; leave the key out", key=key
            )
    return found


def _overlaid(properties: Mapping[str, str], client: str) -> dict[str, str]:
    prefix = f"{client}."
    own = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    return {**properties, **own}


def cluster_name(properties: Mapping[str, str]) -> str:
    """The cluster's name in errors: a client has no alias for it, only addresses."""
    return f"at {properties.get('bootstrap.servers', '?')}"


_FETCH_WAIT_SECONDS = 0.5

OpenCluster = Callable[[str, Mapping[str, str]], KafkaCluster]
Offsets = Mapping[TopicPartition, CommittedOffset]


class MirrorClient:
    """Connected to one cluster, usually the *target* of replication. An async context manager.

    Topic names are read at every call, never cached. Every call raises KafkaError when the cluster does not
    answer in time, or refuses.
    """

    def __init__(self, properties: Mapping[str, str], *, open_cluster: OpenCluster = open_cluster) -> None:
        """`properties` with Kafka's Java names: bootstrap.servers, security.*, `replication.policy.*`.
        `admin.<key>` and `consumer.<key>` take precedence for one client. Raises ConfigError for invalid
        properties."""
        self._policy = policy_from_config(properties)
        alias = cluster_name(properties)
        self._admin = open_cluster(alias, client_properties(properties, ADMIN))
        self._reading = open_cluster(alias, client_properties(properties, CONSUMER))
        self._opened = False
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Does not connect yet; the first call does."""
        await self._stack.enter_async_context(self._admin)
        await self._stack.enter_async_context(self._reading)
        self._opened = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened = False
        await self._stack.__aexit__(kind, error, trace)

    def replication_policy(self) -> ReplicationPolicy:
        """The configured replication policy."""
        return self._policy

    async def heartbeat_topics(self) -> frozenset[str]:
        """`heartbeats` and its copies, over any number of hops."""
        return heartbeat_topics(self._policy, await self._topics())

    async def checkpoint_topics(self) -> frozenset[str]:
        return checkpoint_topics(self._policy, await self._topics())

    async def upstream_clusters(self) -> frozenset[ClusterAlias]:
        """Every cluster whose heartbeats reach this one."""
        return upstream_clusters(self._policy, await self._topics())

    async def replication_hops(self, upstream: ClusterAlias) -> int | None:
        """The fewest hops from cluster `upstream`; 1 = directly. None when its records do not reach this
        cluster (MM2: -1)."""
        return replication_hops(self._policy, await self._topics(), upstream)

    async def remote_topics(self, source: ClusterAlias | None = None) -> frozenset[str]:
        """The copies on this cluster, including `A.heartbeats`; with `source` only those copied directly from
        it."""
        return remote_topics(self._policy, await self._topics(), source)

    async def remote_consumer_offsets(
        self, group: str, remote: ClusterAlias, *, timeout_seconds: float
    ) -> Offsets:
        """The offsets at which group `group` of cluster `remote` continues here, by the latest checkpoints.

        Seek to these or commit them to move the group (MM2's RemoteClusterUtils.translateOffsets). Unreadable
        records are skipped. When the time is up, returns what was read so far, without an error. Raises
        KafkaError (TOPIC_UNKNOWN when `remote` is not replicated to this cluster with checkpoints).
        """
        offsets: dict[TopicPartition, CommittedOffset] = {}
        async for checkpoint in self._checkpoints(remote, timeout_seconds):
            if checkpoint.group == group:
                offsets[checkpoint.partition] = _offset(checkpoint)
        return offsets

    async def remote_consumer_offsets_matching(
        self, pattern: str | re.Pattern[str], remote: ClusterAlias, *, timeout_seconds: float
    ) -> Mapping[str, Offsets]:
        """The same for every group whose whole id matches (KIP-1239). A string is a Java regular expression.
        Raises RegexSyntaxError for one that does not compile."""
        matcher = compile_java(pattern) if isinstance(pattern, str) else pattern
        offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        async for checkpoint in self._checkpoints(remote, timeout_seconds):
            if matcher.fullmatch(checkpoint.group):
                offsets.setdefault(checkpoint.group, {})[checkpoint.partition] = _offset(checkpoint)
        return offsets

    async def _topics(self) -> frozenset[str]:
        self._require_open()
        return frozenset(await self._admin.list_topics())

    async def _checkpoints(self, remote: ClusterAlias, timeout_seconds: float) -> AsyncIterator[Checkpoint]:
        """The checkpoints in order, from the first to the end (looked up again for each fetch) or until the
        deadline."""
        self._require_open()
        partition = TopicPartition(self._policy.checkpoints_topic(remote), CHECKPOINTS_PARTITION)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_seconds
        position = await self._bound(partition, OffsetSpec.EARLIEST)
        async with self._reading.reader() as reader:
            while loop.time() < give_up_at:
                if position >= await self._bound(partition, OffsetSpec.LAST_STABLE):
                    return
                wait_seconds = min(_FETCH_WAIT_SECONDS, max(0.0, give_up_at - loop.time()))
                found, position = await _read(reader, partition, position, wait_seconds)
                for checkpoint in found:
                    yield checkpoint

    async def _bound(self, partition: TopicPartition, spec: OffsetSpec) -> int:
        return required((await self._reading.list_offsets(spec, [partition]))[partition])

    def _require_open(self) -> None:
        if not self._opened:
            raise StateError("use it as `async with MirrorClient(...) as client`", reason="NOT_OPEN")


async def _read(
    reader: LogReader, partition: TopicPartition, position: int, wait_seconds: float
) -> tuple[list[Checkpoint], int]:
    """The checkpoints of one fetch, and where to continue."""
    fetched = await reader.fetch(partition, position, max_wait_seconds=wait_seconds)
    found: list[Checkpoint] = []
    for record in fetched.records:
        try:
            found.append(decode_checkpoint(record.key, record.value))
        except WireFormatError:
            continue
    return found, fetched.next_offset


def _offset(checkpoint: Checkpoint) -> CommittedOffset:
    return CommittedOffset(next_offset=checkpoint.downstream_offset, metadata=checkpoint.metadata)
