"""The registry's bytes: golden examples, roundtrip, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import WireFormatError
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicLimits, TopicState
from twinlog_configsync.model.records import (
    FlowRecord,
    RecordKey,
    StoredKind,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

names = st.text(min_size=1, max_size=20)
counts = st.integers(min_value=0, max_value=2**31 - 1)
entries = st.builds(
    ReplicatedTopic,
    source_topic=names,
    target_topic=names,
    partition_count=counts,
    target_partition_count=counts,
    source_topic_id=st.text(max_size=22),
    target_topic_id=st.text(max_size=22),
    generation=counts,
    created_after_start=st.booleans(),
    state=st.sampled_from(TopicState),
    reason=st.text(max_size=10),
    message=st.text(max_size=30),
    limits=st.builds(TopicLimits, max_message_bytes=counts, compression_type=names, timestamp_type=names),
    source_cleanup_policy=st.text(max_size=10),
    selected=st.booleans(),
    deleted_at_ms=st.none() | counts,
)


def test_the_bytes_of_a_flow_record() -> None:
    assert encode_key(RecordKey(StoredKind.FLOW)) == b'["flow"]'
    assert encode_value(FlowRecord(settled_at_ms=1_700_000_000_000)) == (
        b'{"version":1,"settled_at_ms":1700000000000,"deleted_at_ms":[],"source_cluster_id":"",'
        b'"forgotten_generation":0}'
    )


def test_the_bytes_of_a_topic_record() -> None:
    entry = ReplicatedTopic(source_topic="bestellungen-ü", target_topic="A.bestellungen-ü", partition_count=3)
    assert encode_key(RecordKey(StoredKind.TOPIC, "bestellungen-ü")) == '["topic","bestellungen-ü"]'.encode()
    assert (
        encode_value(entry)
        == (
            '{"version":1,"source_topic":"bestellungen-ü","target_topic":"A.bestellungen-ü","partition_count":3,'
            '"target_partition_count":0,"source_topic_id":"","target_topic_id":"","generation":1,'
            '"created_after_start":false,"state":"WAITING","reason":"","message":"",'
            '"limits":{"max_message_bytes":1048588,"compression_type":"producer","timestamp_type":"CreateTime"},'
            '"source_cleanup_policy":"","selected":true,"deleted_at_ms":null,"kept":""}'
        ).encode()
    )


@given(entry=entries)
def test_what_is_written_is_read_back(entry: ReplicatedTopic) -> None:
    key = RecordKey(StoredKind.TOPIC, entry.source_topic)
    assert decode_key(encode_key(key)) == key
    assert decode_value(key, encode_value(entry)) == entry


def test_a_field_of_a_later_minor_version_is_dropped() -> None:
    raw = b'{"version":1,"settled_at_ms":5,"later":"yes"}'
    assert decode_value(RecordKey(StoredKind.FLOW), raw) == FlowRecord(settled_at_ms=5)


def test_a_kind_of_a_later_version_is_left_alone() -> None:
    assert decode_key(b'["shadow","orders"]') is None


@pytest.mark.parametrize("raw", [None, b"", b"{}", b"[]", b'["topic",3]', b'["topic","a","b"]', b"\xff"])
def test_what_is_no_key_is_refused(raw: bytes | None) -> None:
    with pytest.raises(WireFormatError):
        decode_key(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"version":2,"settled_at_ms":5}',
        b'{"settled_at_ms":5}',
        b'{"version":1}',
        b'{"version":1,"settled_at_ms":"soon"}',
        b"[]",
        b"\x00\x01",
    ],
)
def test_a_value_that_cannot_be_understood_is_refused(raw: bytes) -> None:
    with pytest.raises(WireFormatError):
        decode_value(RecordKey(StoredKind.FLOW), raw)


def test_every_truncation_of_a_value_is_refused() -> None:
    raw = encode_value(ReplicatedTopic(source_topic="orders", target_topic="A.orders", partition_count=3))
    for length in range(len(raw)):
        with pytest.raises(WireFormatError):
            decode_value(RecordKey(StoredKind.TOPIC, "orders"), raw[:length])
