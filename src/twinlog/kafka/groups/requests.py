"""Requests about many groups at once: OffsetFetch 8 (KIP-709) and FindCoordinator 4 (KIP-699).

Brokers support them from 3.0 on. For older ones `HandWrittenRequest` raises UNSUPPORTED_VERSION, and the
caller asks for each group. Source: OffsetFetchRequest.json, FindCoordinatorRequest.json.
"""

import struct
from collections.abc import Collection, Mapping
from typing import NamedTuple

from twinlog.kafka.ports import CommittedOffset
from twinlog.kafka.protocol.encoding import (
    INT16,
    NO_TAGS,
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

_OFFSET_FETCH = 9
_FIND_COORDINATOR = 10
_OFFSET_FETCH_VERSION = 8
_FIND_COORDINATOR_VERSION = 4
_GROUP_KEY = b"\0"
_ALL_TOPICS = b"\0"
_NOT_STABLE_ONLY = b"\0"
"""The last committed offset, also while a transaction that commits another one is open."""
_COMMITTED = struct.Struct(">iqi")
"""Partition, offset, leader epoch."""
_THROTTLE_BYTES = 4


class FetchedGroup(NamedTuple):
    """A coordinator's answer about one group."""

    error_code: int
    """The error code of the group, or of its first partition with one; 0 = none."""
    offsets: Mapping[TopicPartition, CommittedOffset]
    """Partitions without a committed offset are left out."""


class FoundCoordinator(NamedTuple):
    error_code: int
    node_id: int


def fetch_offsets_request(group_ids: Collection[str]) -> HandWrittenRequest[Mapping[str, FetchedGroup]]:
    """All committed offsets of groups that one broker coordinates."""

    def encode(version: int) -> Pieces:
        groups = [compact_string(group_id) + _ALL_TOPICS + NO_TAGS for group_id in group_ids]
        return [b"".join((compact_length(len(groups)), *groups, _NOT_STABLE_ONLY, NO_TAGS))]

    versions = range(_OFFSET_FETCH_VERSION, _OFFSET_FETCH_VERSION + 1)
    return HandWrittenRequest(_OFFSET_FETCH, versions, encode, read_group_offsets, flexible_from=versions[0])


def find_coordinators_request(
    group_ids: Collection[str],
) -> HandWrittenRequest[Mapping[str, FoundCoordinator]]:
    """The broker that coordinates each group."""

    def encode(version: int) -> Pieces:
        keys = [compact_string(group_id) for group_id in group_ids]
        return [b"".join((_GROUP_KEY, compact_length(len(keys)), *keys, NO_TAGS))]

    versions = range(_FIND_COORDINATOR_VERSION, _FIND_COORDINATOR_VERSION + 1)
    return HandWrittenRequest(
        _FIND_COORDINATOR, versions, encode, read_coordinators, flexible_from=versions[0]
    )


def read_group_offsets(data: Frame, position: int, version: int) -> Mapping[str, FetchedGroup]:
    groups: dict[str, FetchedGroup] = {}
    count, position = take_compact_length(data, position + _THROTTLE_BYTES)
    for _ in range(count):
        group_id, position = take_compact_string(data, position)
        offsets: dict[TopicPartition, CommittedOffset] = {}
        refusal = 0
        topic_count, position = take_compact_length(data, position)
        for _ in range(topic_count):
            topic, position = take_compact_string(data, position)
            partition_count, position = take_compact_length(data, position)
            for _ in range(partition_count):
                number, offset, _ = _COMMITTED.unpack_from(data, position)
                metadata, position = take_compact_string(data, position + _COMMITTED.size)
                (code,) = INT16.unpack_from(data, position)
                position = skip_tags(data, position + INT16.size)
                refusal = refusal or code
                if offset >= 0:
                    offsets[TopicPartition(topic, number)] = CommittedOffset(
                        next_offset=offset, metadata=metadata
                    )
            position = skip_tags(data, position)
        (code,) = INT16.unpack_from(data, position)
        position = skip_tags(data, position + INT16.size)
        groups[group_id] = FetchedGroup(code or refusal, offsets)
    return groups


def read_coordinators(data: Frame, position: int, version: int) -> Mapping[str, FoundCoordinator]:
    found: dict[str, FoundCoordinator] = {}
    count, position = take_compact_length(data, position + _THROTTLE_BYTES)
    for _ in range(count):
        group_id, position = take_compact_string(data, position)
        node_id, position = take_int32(data, position)
        _, position = take_compact_string(data, position)  # host
        _, position = take_int32(data, position)  # port
        (code,) = INT16.unpack_from(data, position)
        _, position = take_compact_string(data, position + INT16.size)  # message
        position = skip_tags(data, position)
        found[group_id] = FoundCoordinator(code, node_id)
    return found
