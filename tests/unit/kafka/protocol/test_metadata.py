"""Metadata as bytes, in every version that is spoken."""

import base64
import struct
from collections import Counter

import pytest

from twinlog.kafka.protocol.frames import INT16, INT32, compact_length, compact_string
from twinlog.kafka.protocol.metadata import (
    METADATA,
    Metadata,
    Replicas,
    TopicMetadata,
    metadata_request,
    topic_ids_request,
)
from twinlog.model import TopicPartition

VERSIONS = range(9, 13)
ORDERS_ID = bytes(range(16))
NO_ID = bytes(16)
TAG = b"\x01\x05\x02hi"
"""One tagged field that we do not know."""


def nodes(ids: list[int]) -> bytes:
    return compact_length(len(ids)) + b"".join(map(INT32.pack, ids))


def partition(index: int, replicas: list[int], leader: int = 1) -> bytes:
    packed = struct.pack(">hii", 0, index, leader)
    packed += INT32.pack(7)
    packed += nodes(replicas) + nodes(replicas[:1])
    return packed + nodes(replicas[1:]) + TAG


def topic(name: str, version: int, *partitions: bytes, code: int = 0, topic_id: bytes = NO_ID) -> bytes:
    packed = INT16.pack(code) + compact_string(name) + (topic_id if version >= 10 else b"")
    packed += bytes((name.startswith("__"),)) + compact_length(len(partitions)) + b"".join(partitions)
    return packed + INT32.pack(-(1 << 31)) + TAG


def answer(version: int, *topics: bytes, brokers: int = 2) -> bytes:
    packed = INT32.pack(250) + compact_length(brokers)
    for node in range(brokers):
        packed += INT32.pack(node) + compact_string("host") + INT32.pack(9092)
        packed += (b"\x00" if node else compact_string("a rack")) + TAG
    packed += compact_string("cluster-id") + INT32.pack(1)
    packed += compact_length(len(topics)) + b"".join(topics)
    packed += INT32.pack(-(1 << 31)) if version <= 10 else b""
    return packed + TAG


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_read_with_what_a_description_needs(version: int) -> None:
    agreed = metadata_request(None).prepare({METADATA: (0, version)})
    body = answer(
        version,
        topic(
            "orders",
            version,
            partition(0, [1, 2, 3]),
            partition(1, [2], leader=-1),
            topic_id=ORDERS_ID,
        ),
        topic("no-such-topic", version, code=3),
        topic("__consumer_offsets", version, partition(0, [1])),
    )
    frame = b"\x00" + body
    orders_id = base64.urlsafe_b64encode(ORDERS_ID).decode().rstrip("=") if version >= 10 else ""
    assert agreed.read(frame, 0) == Metadata(
        cluster_id="cluster-id",
        brokers={0: "host:9092", 1: "host:9092"},
        topics=[
            TopicMetadata(0, "orders", orders_id, False, 2, 3),
            TopicMetadata(3, "no-such-topic", "", False, 0, 0),
            TopicMetadata(0, "__consumer_offsets", "", True, 1, 1),
        ],
        replicas=Replicas(offline={2, 3}, without_leader=1, in_sync=Counter({1: 1})),
    )
    assert agreed.throttle_ms == 250


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_knows_of_none_that_is_up_says_so(version: int) -> None:
    agreed = metadata_request([]).prepare({METADATA: (0, version)})
    frame = b"\x00" + answer(version, brokers=0)
    assert agreed.read(frame, 0) == Metadata("cluster-id", brokers={}, topics=[], replicas=Replicas())


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (9, b"\x02\x07orders\x00" + b"\x00\x00\x00" + b"\x00"),
        (10, b"\x02" + NO_ID + b"\x07orders\x00" + b"\x00\x00\x00" + b"\x00"),
        (11, b"\x02" + NO_ID + b"\x07orders\x00" + b"\x00\x00" + b"\x00"),
        (12, b"\x02" + NO_ID + b"\x07orders\x00" + b"\x00\x00" + b"\x00"),
    ],
)
def test_a_request_names_topics_and_creates_none(version: int, expected: bytes) -> None:
    agreed = metadata_request(["orders"]).prepare({METADATA: (0, version)})
    assert b"".join(agreed.pieces) == expected


@pytest.mark.parametrize(("version", "expected"), [(9, b"\x00\x00\x00\x00\x00"), (12, b"\x00\x00\x00\x00")])
def test_a_request_for_all_topics_is_not_one_for_none(version: int, expected: bytes) -> None:
    agreed = metadata_request(None).prepare({METADATA: (0, version)})
    assert b"".join(agreed.pieces) == expected


def test_a_broker_that_is_newer_is_asked_in_our_newest_version() -> None:
    agreed = metadata_request(["orders"]).prepare({METADATA: (0, 99)})
    assert agreed.header(1, b"me")[:4] == struct.pack(">hh", METADATA, VERSIONS[-1])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_is_asked_for_the_ids_of_the_topics_of_its_partitions(version: int) -> None:
    partitions = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("gone", 0)]
    agreed = topic_ids_request(partitions).prepare({METADATA: (0, version)})
    body = answer(version, topic("gone", version, code=3), topic("orders", version, topic_id=ORDERS_ID))
    frame = b"\x00" + body
    orders_id = base64.urlsafe_b64encode(ORDERS_ID).decode().rstrip("=") if version >= 10 else ""
    assert agreed.read(frame, 0) == [
        (TopicPartition("orders", 0), 0, orders_id),
        (TopicPartition("orders", 1), 0, orders_id),
        (TopicPartition("gone", 0), 3, ""),
    ]
