"""Records of mm2-offsets: Connect's exact bytes, its tolerance, and where the next offset becomes the last
one.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import WireFormatError
from twinlog.model import TopicPartition
from twinlog.wire.connect_json import JsonValue, dumps, loads
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import (
    CONTROL_CONNECTOR,
    GAP_CONNECTOR,
    ConnectKey,
    SourceOffsetKey,
    decode_connect_key,
    decode_document,
    decode_source_offset,
    decode_source_offset_key,
    encode_connect_key,
    encode_document,
    encode_source_offset,
    source_offset_key,
)
from unit.cases import about

Golden = Callable[[str], list[dict[str, Any]]]


def _key_of(connector: str, fields: dict[str, Any]) -> bytes:
    match connector:
        case "MirrorSourceConnector":
            return source_offset_key(fields["cluster"], TopicPartition(fields["topic"], fields["partition"]))
        case "MirrorCheckpointConnector":
            named = {key: fields[key] for key in ("partition", "topic", "group")}
        case _:
            named = {"sourceClusterAlias": fields["source"], "targetClusterAlias": fields["target"]}
    return encode_connect_key(ConnectKey(connector=connector, partition=named))


def test_keys_are_connects(golden: Golden) -> None:
    for vector in golden("source_offset_keys"):
        key = _key_of(vector["connector"], vector["fields"])
        assert key == bytes.fromhex(vector["key"]), vector["fields"]
        assert partition_for_key(key, 25) == vector["partition_of_25"], vector["fields"]


def test_source_keys_are_read_back(golden: Golden) -> None:
    for vector in golden("source_offset_keys"):
        decoded = decode_source_offset_key(bytes.fromhex(vector["key"]))
        fields = vector["fields"]
        if vector["connector"] == "MirrorSourceConnector":
            partition = TopicPartition(fields["topic"], fields["partition"])
            assert decoded == SourceOffsetKey(cluster=fields["cluster"], partition=partition)
        else:
            assert decoded is None


def test_values_are_connects_and_hold_the_last_offset(golden: Golden) -> None:
    for vector in golden("source_offset_values"):
        value = bytes.fromhex(vector["value"])
        assert encode_source_offset(vector["offset"] + 1) == value
        assert decode_source_offset(value) == vector["offset"] + 1


def test_a_connect_cluster_may_call_the_connector_otherwise() -> None:
    key = source_offset_key("A", TopicPartition("t1", 0), connector="my-mirror")
    assert key.startswith(b'["my-mirror",')
    assert decode_source_offset_key(key) is None
    assert decode_source_offset_key(key, connector="my-mirror") is not None


def test_other_keys_are_not_positions() -> None:
    for key in [
        None,
        b"",
        b"\xff",
        b"{}",
        b'["MirrorSourceConnector"]',
        b'["MirrorSourceConnector",{"topic":"t1","partition":0,"cluster":"A"}]',
        b'["MirrorSourceConnector", {"cluster":"A","partition":0,"topic":"t1"}]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t1","x":1}]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":"0","topic":"t1"}]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":true,"topic":"t1"}]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":-1,"topic":"t1"}]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t\\u0031"}]',
        b'["TwinlogGap",{"cluster":"A","partition":0,"topic":"t1"}]',
    ]:
        with about(key):
            assert decode_source_offset_key(key) is None


@pytest.mark.parametrize(
    "value", [None, b"", b"null", b"{}", b'{"offset":null}', b'{"offset":-1}', b'{"other":5}']
)
def test_nothing_stored(value: bytes | None) -> None:
    assert decode_source_offset(value) is None


@pytest.mark.parametrize(
    "value",
    [b"x", b"\xff", b"[]", b"41", b'{"offset":"41"}', b'{"offset":1.0}', b'{"offset":true}', b'{"offset":1'],
)
def test_a_broken_value_never_means_start_anew(value: bytes) -> None:
    with pytest.raises(WireFormatError):
        decode_source_offset(value)


def test_an_offset_beyond_64_bits_is_refused() -> None:
    with pytest.raises(WireFormatError):
        decode_source_offset(b'{"offset":9223372036854775808}')


@given(st.integers(1, 2**63 - 1))
def test_a_position_is_read_back(next_offset: int) -> None:
    assert decode_source_offset(encode_source_offset(next_offset)) == next_offset


def test_position_0_is_a_tombstone() -> None:
    assert encode_source_offset(0) is None
    with pytest.raises(ValueError, match="never negative"):
        encode_source_offset(-1)


def test_own_records_live_under_their_own_connector_names() -> None:
    gap = ConnectKey(
        connector=GAP_CONNECTOR, partition={"cluster": "A", "topic": "t", "partition": 0, "from": 5}
    )
    encoded = encode_connect_key(gap)
    assert encoded == b'["TwinlogGap",{"cluster":"A","topic":"t","partition":0,"from":5}]'
    assert decode_connect_key(encoded) == gap
    control = ConnectKey(connector=CONTROL_CONNECTOR, partition={"flow": "A->B"})
    assert encode_connect_key(control) == b'["TwinlogControl",{"flow":"A->B"}]'


def test_own_documents() -> None:
    document: dict[str, JsonValue] = {
        "to": 9,
        "reason": "RETENTION",
        "by": None,
        "done": False,
        "list": [1, "a"],
        "map": {"k": 1},
    }
    encoded = encode_document(document)
    fields = b'"to":9,"reason":"RETENTION","by":null,"done":false,"list":[1,"a"],"map":{"k":1}}'
    assert encoded == b'{"format":1,' + fields
    assert decode_document(encoded) == document
    assert decode_document(b"{" + fields) == document, "written before records said their format"
    assert decode_document(None) is None
    for broken in (b"[]", b"{", b"null"):
        with pytest.raises(WireFormatError):
            decode_document(broken)


@pytest.mark.parametrize("value", [b'{"format":2,"to":9}', b'{"format":"next","to":9}'])
def test_a_document_of_a_later_release_is_refused_with_its_reason(value: bytes) -> None:
    with pytest.raises(WireFormatError, match="this release reads 1") as refused:
        decode_document(value)
    assert refused.value.reason == "WIRE_VERSION"


@pytest.mark.parametrize("key", [None, b"", b"x", b"[]", b'["a"]', b"[1,{}]", b'["a",[]]', b'["a",{},1]'])
def test_keys_of_another_form_are_none(key: bytes | None) -> None:
    assert decode_connect_key(key) is None


def test_floats_have_no_place() -> None:
    with pytest.raises(TypeError, match="float"):
        dumps([1.5])  # type: ignore[list-item]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(_JSON)
def test_json_round_trip(value: Any) -> None:
    assert loads(dumps(value), "test") == value
