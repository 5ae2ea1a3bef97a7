"""Reads a topic and all its remote copies as one: for applications that treat "local and remote" alike."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from twinlog.client.mirror_client import ADMIN, client_properties, cluster_name, consumer_properties
from twinlog.errors import KafkaError, NotFoundError, StateError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.groups.consumer import ConsumedRecord, GroupConsumer
from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import ClusterAlias, Headers, TopicPartition
from twinlog.policy import ReplicationPolicy, policy_from_config

# Which topics of a cluster form one logical topic. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTopic:
    """A topic that is part of a logical topic."""

    topic: str
    """Its name on the cluster that is read."""
    logical_topic: str
    upstream: tuple[ClusterAlias, ...]
    """The clusters its records passed, origin first; empty for the cluster's own topic."""

    @property
    def origin(self) -> ClusterAlias | None:
        """Where the records were first written; None = this cluster."""
        return self.upstream[0] if self.upstream else None


def members(
    policy: ReplicationPolicy,
    topics: Collection[str],
    logical_topics: Collection[str],
    clusters: Collection[ClusterAlias] | None = None,
) -> dict[str, MemberTopic]:
    """The topics that together have every record of `logical_topics` once, by their names on the cluster.

    Of several copies of one origin (in a mesh `A.orders` and `C.A.orders`) the one with the fewest hops is
    taken, or the first by name among equals, so that every member of a group chooses the same. An ordinary
    topic whose name looks like a copy (`v1.orders`) counts as one, because only names can tell, unless
    `clusters` lists the aliases.
    """
    wanted = set(logical_topics)
    nearest: dict[tuple[str, ClusterAlias | None], MemberTopic] = {}
    for member in _candidates(policy, sorted(topics), wanted):
        if clusters is not None and not set(clusters).issuperset(member.upstream):
            continue
        key = (member.logical_topic, member.origin)
        if key not in nearest or len(member.upstream) < len(nearest[key].upstream):
            nearest[key] = member
    return {member.topic: member for member in nearest.values()}


def _candidates(policy: ReplicationPolicy, topics: Iterable[str], wanted: set[str]) -> Iterable[MemberTopic]:
    """Each topic that is requested, or a copy of one over any number of hops."""
    for topic in topics:
        logical, upstream = topic, tuple[ClusterAlias, ...]()
        while logical not in wanted:
            source, above = policy.topic_source(logical), policy.upstream_topic(logical)
            if source is None or above is None or above == logical:
                break
            logical, upstream = above, (source, *upstream)
        if logical in wanted:
            yield MemberTopic(topic=topic, logical_topic=logical, upstream=upstream)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalRecord:
    """One record of a logical topic."""

    topic: str
    """The logical topic, by its producers' name."""
    origin: ClusterAlias | None
    """The cluster where it was first written; None = the cluster that is read."""
    partition: TopicPartition
    """Its partition on the cluster that is read."""
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class LogicalConsumer:
    """A member of a consumer group over `orders` and `*.orders`. An async context manager, for one task.

    - The order holds within each origin's partition, as usual; there is none between origins.
    - Each origin is read once, from the copy with the fewest hops. When a nearer copy appears, the group
      switches to it and reads it from its beginning.
    - Copies that appear later are included within `refresh_seconds`, at the first `poll` after a `commit`.
    - Only `commit` commits, namely everything that `poll` returned before. After a crash records are returned
      again, and after a rebalance those that were returned and not committed.
    - A group's offsets on `A.orders` and on `orders` are separate, so a group that failed over continues with
      each origin where it stopped.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        group: str,
        topic: str | Collection[str],
        clusters: Collection[ClusterAlias] | None = None,
        refresh_seconds: float = 30.0,
    ) -> None:
        """`properties` as for `MirrorClient`, and the client's own (`client.id`, `request.timeout.ms`, …).
        `topic`: one logical topic or several. `clusters`: the aliases whose copies are read; None = all.

        Raises ConfigError for invalid settings.
        """
        self._group = group
        self._logical_topics = [topic] if isinstance(topic, str) else sorted(topic)
        self._clusters = clusters
        self._refresh_seconds = refresh_seconds
        self._policy = policy_from_config(properties)
        self._consumer_properties = consumer_properties(properties)
        self._alias = cluster_name(properties)
        self._cluster: KafkaCluster = open_cluster(self._alias, client_properties(properties, ADMIN))
        self._members: Mapping[str, MemberTopic] = {}
        self._origins: dict[str, MemberTopic] = {}
        """Also of topics that are no longer read, whose last records may still arrive."""
        self._consumer: GroupConsumer | None = None
        self._refresh_at = 0.0
        self._handed_out: dict[TopicPartition, int] = {}
        self._rebalances = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Join the group. Raises NotFoundError when the cluster has no topic to read yet, KafkaError."""
        async with AsyncExitStack() as opening:
            await opening.enter_async_context(self._cluster)
            self._take(await self._look())
            if not self._members:
                names = ", ".join(self._logical_topics)
                raise NotFoundError(
                    f"there is no topic {names} and no remote copy of it on this cluster",
                    reason="TOPIC_UNKNOWN",
                    metadata={"topics": names},
                )
            consumer = GroupConsumer(
                self._alias, self._consumer_properties, group=self._group, topics=sorted(self._members)
            )
            self._consumer = await opening.enter_async_context(consumer)
            self._refresh_at = asyncio.get_running_loop().time() + self._refresh_seconds
            self._stack = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the group. Records that were returned and not committed will be returned again."""
        self._consumer = None
        await self._stack.__aexit__(kind, error, trace)

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are read now, by their names on the cluster."""
        return frozenset(self._members)

    async def poll(self, *, max_wait_seconds: float, max_records: int = 500) -> Sequence[LogicalRecord]:
        """Return up to `max_records`; empty when none arrive in time. Raises KafkaError."""
        consumer = self._open()
        await self._refresh_if_due(consumer)
        records = await consumer.poll(max_wait_seconds=max_wait_seconds, max_records=max_records)
        self._forget_reassigned(consumer)
        for record in records:
            self._handed_out[record.partition] = record.offset + 1
        return [self._logical(record) for record in records]

    async def commit(self) -> None:
        """Commit everything that `poll` has returned so far. Raises KafkaError; then call it again.

        What a rebalance has taken away meanwhile is not committed, which is not an error: it is returned
        again, here or at another member.
        """
        consumer = self._open()
        self._forget_reassigned(consumer)
        if not self._handed_out:
            return
        try:
            await consumer.commit(self._handed_out)
        except KafkaError as error:
            if error.reason != KafkaReason.GROUP_REBALANCED:
                raise
        self._handed_out = {}

    def _open(self) -> GroupConsumer:
        if self._consumer is None:
            raise StateError("use it as `async with LogicalConsumer(...) as consumer`", reason="NOT_OPEN")
        return self._consumer

    def _logical(self, record: ConsumedRecord) -> LogicalRecord:
        member = self._origins[record.partition.topic]
        return LogicalRecord(
            topic=member.logical_topic,
            origin=member.origin,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )

    def _forget_reassigned(self, consumer: GroupConsumer) -> None:
        """Committing these later could set a partition back that another member has read further
        meanwhile."""
        if consumer.rebalances != self._rebalances:
            self._rebalances = consumer.rebalances
            self._handed_out = {}

    async def _look(self) -> Mapping[str, MemberTopic]:
        topics = await self._cluster.list_topics()
        return members(self._policy, topics, self._logical_topics, self._clusters)

    def _take(self, found: Mapping[str, MemberTopic]) -> None:
        self._members = found
        self._origins.update(found)

    async def _refresh_if_due(self, consumer: GroupConsumer) -> None:
        """Check for new and removed copies between a commit and the next records, because a rebalance forgets
        positions that are not committed."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._refresh_at or self._handed_out:
            return
        self._refresh_at = loop.time() + self._refresh_seconds
        found = await self._look()
        if not found or found.keys() == self._members.keys():
            return
        self._take(found)
        consumer.subscribe(sorted(found))
