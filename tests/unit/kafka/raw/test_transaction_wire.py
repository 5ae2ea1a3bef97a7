"""The requests around transactions, byte for byte: old versions against aiokafka's classes, new ones against
Kafka's message definitions."""

from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol import transaction as theirs
from aiokafka.protocol.admin import ApiVersionResponse_v0

from twinlog.kafka.protocol.frames import compact_length, take_varint
from twinlog.kafka.raw.transactions.coordinator import BrokerFeatures, broker_features_request
from twinlog.kafka.raw.transactions.wire import (
    EndAnswer,
    ProducerIdentity,
    add_partitions_request,
    end_request,
)
from twinlog.model import TopicPartition

_ID = "twinlog-A-B-0-1"
_IDENTITY = ProducerIdentity(1 << 40, 7)


def _body(request: Any, api_key: int, version: int) -> bytes:
    return b"".join(request.prepare({api_key: (0, version)}).pieces)


@pytest.mark.parametrize("version", range(3))
def test_adding_partitions_is_theirs(version: int) -> None:
    partitions = [TopicPartition("a", 0), TopicPartition("ä", 3), TopicPartition("a", 2)]
    ours = add_partitions_request(_ID, _IDENTITY, partitions)
    expected = theirs.AddPartitionsToTxnRequest(_ID, *_IDENTITY, [("a", [0, 2]), ("ä", [3])])
    assert _body(ours, 24, version) == expected.prepare({24: (0, min(version, 1))}).encode()
    answer = theirs.AddPartitionsToTxnResponse_v0(5, [("a", [(0, 0), (2, 55)]), ("ä", [(3, 29)])])
    codes = ours.prepare({24: (0, version)}).read(answer.encode(), 0)
    assert codes == dict(zip([partitions[0], partitions[2], partitions[1]], [0, 55, 29], strict=True))


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(3))
def test_ending_is_theirs(version: int, commit: bool) -> None:
    ours = end_request(_ID, _IDENTITY, commit=commit, gives_identity=False)
    expected = theirs.EndTxnRequest(_ID, *_IDENTITY, commit).prepare({26: (0, min(version, 1))})
    assert _body(ours, 26, version) == expected.encode()
    answer = ours.prepare({26: (0, version)}).read(theirs.EndTxnResponse_v0(0, 51).encode(), 0)
    assert answer == EndAnswer(51, None)


def test_brokers_of_today_are_asked_in_the_old_version_unless_a_new_identity_is_wanted() -> None:
    old = end_request(_ID, _IDENTITY, commit=True, gives_identity=False).prepare({26: (0, 5)})
    assert old.header(1, b"")[:4] == b"\x00\x1a\x00\x02"
    with pytest.raises(IncompatibleBrokerVersion, match="5 to 5 are needed"):
        end_request(_ID, _IDENTITY, commit=True, gives_identity=True).prepare({26: (0, 4)})


def test_ending_with_a_new_identity_is_version_5() -> None:
    """Bytes after EndTxnRequest.json and EndTxnResponse.json."""
    agreed = end_request("id", _IDENTITY, commit=True, gives_identity=True).prepare({26: (0, 5)})
    assert agreed.header(7, b"c") == b"\x00\x1a\x00\x05\x00\x00\x00\x07\x00\x01c\x00"
    assert b"".join(agreed.pieces) == b"\x03id" + (1 << 40).to_bytes(8) + b"\x00\x07" + b"\x01" + b"\x00"
    given = b"\x00" + b"\x00\x00\x00\x05" + b"\x00\x00" + (9).to_bytes(8) + b"\x00\x08" + b"\x00"
    assert agreed.read(b"\x00\x00\x00\x07" + given, 4) == EndAnswer(0, ProducerIdentity(9, 8))
    none = b"\x00" + b"\x00\x00\x00\x00" + b"\x00\x00" + b"\xff" * 10 + b"\x00"
    assert agreed.read(none, 0) == EndAnswer(0, None)
    refused = b"\x00" + b"\x00\x00\x00\x00" + b"\x00\x5a" + b"\xff" * 10 + b"\x00"
    assert agreed.read(refused, 0) == EndAnswer(90, None)


def test_features_of_the_cluster_are_read() -> None:
    """Bytes after ApiVersionsRequest.json and ApiVersionsResponse.json, whose header has no tagged fields."""
    agreed = broker_features_request().prepare({18: (0, 4)})
    assert agreed.header(1, b"c") == b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x01c\x00"
    assert b"".join(agreed.pieces).startswith(b"\x08twinlog")
    frame = (
        b"\x00\x00\x00\x01"  # correlation id
        b"\x00\x00"
        b"\x03"  # two requests
        b"\x00\x00\x00\x03\x00\x0d\x00"
        b"\x00\x1a\x00\x00\x00\x05\x00"
        b"\x00\x00\x00\x00"  # throttle time
        b"\x03"  # three tagged fields
        b"\x00\x0a\x02\x04abc\x00\x00\x00\x02\x00"  # supported features
        b"\x01\x08\x00\x00\x00\x00\x00\x00\x00\x2a"  # epoch of the features
        b"\x02\x25"  # features in force
        b"\x03\x14transaction.version\x00\x02\x00\x00\x00"
        b"\x06kraft\x00\x01\x00\x01\x00"
    )
    assert agreed.read(frame, 4) == BrokerFeatures(
        {0: (3, 13), 26: (0, 5)}, {"transaction.version": 2, "kraft": 1}
    )


def test_an_old_or_unwilling_broker_has_no_features() -> None:
    old = broker_features_request().prepare({18: (0, 2)})
    assert old.pieces == [b""]
    assert old.read(ApiVersionResponse_v0(0, [(0, 0, 8)]).encode() + bytes(4), 0) == ({}, {})
    refused = b"\x00\x23\x01" + bytes(5)
    assert broker_features_request().prepare({18: (0, 3)}).read(refused, 0) == ({}, {})


@pytest.mark.parametrize("length", [0, 126, 127, 128, 16_382, 16_383, 300_000_000])
def test_lengths_are_varints_plus_one(length: int) -> None:
    packed = compact_length(length)
    assert take_varint(b"?" + packed, 1) == (length + 1, len(packed) + 1)
    assert len(packed) == max(1, -(-(length + 1).bit_length() // 7))
