"""Metadata, versions 9 (Kafka 2.4) to 12 (3.0): the topics of a cluster as a broker sees them.

Read in place: fields that a description does not need are skipped, because services read all topics of their
flows again and again.
"""

import base64
import struct
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

from twinlog.kafka.protocol.frames import (
    INT16,
    NO_TAGS,
    TOPIC_ID_BYTES,
    Frame,
    compact_length,
    compact_string,
    skip_tags,
    take_compact_length,
    take_compact_string,
    take_int32,
)
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces
from twinlog.model import TopicPartition

T = TypeVar("T")

METADATA: Final = 3
"""API key."""
_OLDEST, _NEWEST = 9, 12
_WITH_TOPIC_ID = 10
_WITHOUT_CLUSTER_RIGHTS = 11
_ALL_TOPICS: Final = -1
_NO_ID = bytes(TOPIC_ID_BYTES)
_RIGHTS_BYTES = 4


class TopicMetadata(NamedTuple):
    """A broker's answer about one topic."""

    error_code: int
    name: str
    topic_id: str
    """URL-safe base64 as in Kafka's tools; "" if the broker has none (before Kafka 2.8)."""
    is_internal: bool
    partition_count: int
    replication_factor: int
    """The replicas of the partition with the most; 0 without partitions."""


@dataclass(slots=True)
class Replicas:
    """What the partitions of an answer lack."""

    silent: Collection[int] = ()
    """Brokers that do not answer: they lead nothing, and none of their replicas is in sync."""
    offline: set[int] = field(default_factory=set)
    """Node ids of brokers, or of disks of theirs, that are down."""
    without_leader: int = 0
    in_sync: Counter[int] = field(default_factory=Counter)
    """Of partitions with a leader that lack replicas, how many have so many in sync."""

    @property
    def under_replicated(self) -> int:
        return self.without_leader + self.in_sync.total()

    def take_partition(self, data: Frame, position: int) -> tuple[int, int]:
        """The number of its replicas, and the position after it."""
        leader, _ = take_int32(data, position + 2 + 4)
        replicas, position = take_compact_length(data, position + 2 + 4 + 4 + 4)
        in_sync, position = take_compact_length(data, position + 4 * replicas)
        after = position + 4 * in_sync
        if self.silent:
            leader = -1 if leader in self.silent else leader
            answering = struct.unpack_from(f">{in_sync}i", data, position)
            in_sync = sum(each not in self.silent for each in answering)
        offline, position = take_compact_length(data, after)
        self.offline.update(struct.unpack_from(f">{offline}i", data, position))
        if leader < 0:
            self.without_leader += 1
        elif in_sync < replicas:
            self.in_sync[in_sync] += 1
        return replicas, skip_tags(data, position + 4 * offline)


class Metadata(NamedTuple):
    cluster_id: str
    brokers: dict[int, str]
    """`host:port` by node id; empty while the broker that answers knows of no broker that is up."""
    topics: list[TopicMetadata]
    replicas: Replicas


def metadata_request(
    topics: Collection[str] | None, silent: Collection[int] = ()
) -> HandWrittenRequest[Metadata]:
    """The metadata of these topics, or of all that the principal may see (None). Creates no topic."""
    return _request(topics, partial(read_metadata, silent=silent))


def topic_ids_request(
    partitions: Collection[TopicPartition],
) -> HandWrittenRequest[list[tuple[TopicPartition, int, str]]]:
    """The topic id of each partition, as the broker that answers knows it: error code and id ("" if the
    broker has none, before Kafka 2.8)."""

    def decode(data: Frame, position: int, version: int) -> list[tuple[TopicPartition, int, str]]:
        topics = {topic.name: topic for topic in read_metadata(data, position, version).topics}
        return [
            (each, topics[each.topic].error_code, topics[each.topic].topic_id)
            for each in partitions
            if each.topic in topics
        ]

    return _request(sorted({each.topic for each in partitions}), decode)


def _request(topics: Collection[str] | None, decode: Callable[[Frame, int, int], T]) -> HandWrittenRequest[T]:
    def encode(version: int) -> Pieces:
        topic_id = _NO_ID if version >= _WITH_TOPIC_ID else b""
        count = compact_length(_ALL_TOPICS if topics is None else len(topics))
        asked = [topic_id + compact_string(name) + NO_TAGS for name in topics or ()]
        # Create no topic, and leave out the principal's rights.
        flags = bytes(2 if version >= _WITHOUT_CLUSTER_RIGHTS else 3)
        return [count, *asked, flags, NO_TAGS]

    return HandWrittenRequest(METADATA, range(_OLDEST, _NEWEST + 1), encode, decode, flexible_from=_OLDEST)


def read_metadata(data: Frame, position: int, version: int, silent: Collection[int] = ()) -> Metadata:
    broker_count, position = take_compact_length(data, position + 4)  # after the throttle time
    brokers = {}
    for _ in range(broker_count):
        node_id, position = take_int32(data, position)
        host, position = take_compact_string(data, position)
        port, position = take_int32(data, position)
        brokers[node_id] = f"{host}:{port}"
        _, position = take_compact_string(data, position)  # rack
        position = skip_tags(data, position)
    cluster_id, position = take_compact_string(data, position)
    position += 4  # controller
    topics, replicas = [], Replicas(silent)
    count, position = take_compact_length(data, position)
    for _ in range(count):
        (code,) = INT16.unpack_from(data, position)
        name, position = take_compact_string(data, position + INT16.size)
        topic_id = ""
        if version >= _WITH_TOPIC_ID:
            raw_id = data[position : position + TOPIC_ID_BYTES]
            position += TOPIC_ID_BYTES
            if raw_id != _NO_ID:
                topic_id = base64.urlsafe_b64encode(raw_id).decode().rstrip("=")
        is_internal = bool(data[position])
        partition_count, position = take_compact_length(data, position + 1)
        most_replicas = 0
        for _ in range(partition_count):
            replica_count, position = replicas.take_partition(data, position)
            most_replicas = max(most_replicas, replica_count)
        position = skip_tags(data, position + _RIGHTS_BYTES)
        topics.append(TopicMetadata(code, name, topic_id, is_internal, partition_count, most_replicas))
    return Metadata(cluster_id, brokers, topics, replicas)
