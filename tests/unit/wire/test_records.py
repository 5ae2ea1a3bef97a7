"""Heartbeats, checkpoints and offset syncs: MM2's bytes, round trips, truncation, versions."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import WireFormatError
from twinlog.model import TopicPartition
from twinlog.wire import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    decode_checkpoint,
    decode_heartbeat,
    decode_offset_sync,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
)
from twinlog.wire.formatters import format_checkpoint, format_heartbeat, format_offset_sync

Golden = Callable[[str], list[dict[str, Any]]]
Record = Heartbeat | Checkpoint | OffsetSync

_INT64 = st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(max_size=40)
_PARTITIONS = st.builds(TopicPartition, _TEXT, st.integers(0, 2**31 - 1))
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(Heartbeat, source=_TEXT, target=_TEXT, timestamp_ms=_INT64),
    st.builds(
        Checkpoint,
        group=_TEXT,
        partition=_PARTITIONS,
        upstream_offset=_INT64,
        downstream_offset=_INT64,
        metadata=_TEXT,
    ),
    st.builds(OffsetSync, partition=_PARTITIONS, upstream_offset=_INT64, downstream_offset=_INT64),
)


def encode(record: Record) -> tuple[bytes, bytes]:
    match record:
        case Heartbeat():
            return encode_heartbeat(record)
        case Checkpoint():
            return encode_checkpoint(record)
        case OffsetSync():
            return encode_offset_sync(record)


def decode(kind: type[Record], key: bytes | None, value: bytes | None) -> Record:
    if kind is Heartbeat:
        return decode_heartbeat(key, value)
    return decode_checkpoint(key, value) if kind is Checkpoint else decode_offset_sync(key, value)


def _bytes_of(vector: dict[str, Any]) -> tuple[bytes, bytes]:
    return bytes.fromhex(vector["key"]), bytes.fromhex(vector["value"])


def test_heartbeats_are_mm2s(golden: Golden) -> None:
    for vector in golden("heartbeats"):
        heartbeat = Heartbeat(
            source=vector["source"], target=vector["target"], timestamp_ms=vector["timestamp_ms"]
        )
        assert encode_heartbeat(heartbeat) == _bytes_of(vector)
        assert decode_heartbeat(*_bytes_of(vector)) == heartbeat
        assert format_heartbeat(heartbeat) == vector["line"]


def test_checkpoints_are_mm2s(golden: Golden) -> None:
    for vector in golden("checkpoints"):
        checkpoint = Checkpoint(
            group=vector["group"],
            partition=TopicPartition(vector["topic"], vector["partition"]),
            upstream_offset=vector["upstream_offset"],
            downstream_offset=vector["downstream_offset"],
            metadata=vector["metadata"],
        )
        assert encode_checkpoint(checkpoint) == _bytes_of(vector)
        assert decode_checkpoint(*_bytes_of(vector)) == checkpoint
        assert format_checkpoint(checkpoint) == vector["line"]


def test_offset_syncs_are_mm2s(golden: Golden) -> None:
    for vector in golden("offset_syncs"):
        sync = OffsetSync(
            partition=TopicPartition(vector["topic"], vector["partition"]),
            upstream_offset=vector["upstream_offset"],
            downstream_offset=vector["downstream_offset"],
        )
        assert encode_offset_sync(sync) == _bytes_of(vector)
        assert decode_offset_sync(*_bytes_of(vector)) == sync
        assert format_offset_sync(sync) == vector["line"]


@given(RECORDS)
def test_round_trip(record: Record) -> None:
    assert decode(type(record), *encode(record)) == record


@given(RECORDS, st.binary(min_size=1, max_size=5))
def test_bytes_after_the_schema_are_ignored(record: Record, trailing: bytes) -> None:
    key, value = encode(record)
    assert decode(type(record), key + trailing, value + trailing) == record


@given(RECORDS)
def test_truncation_at_every_byte_is_refused(record: Record) -> None:
    key, value = encode(record)
    for end in range(len(key)):
        with pytest.raises(WireFormatError):
            decode(type(record), key[:end], value)
    for end in range(len(value)):
        with pytest.raises(WireFormatError):
            decode(type(record), key, value[:end])


@given(st.sampled_from([Heartbeat, Checkpoint, OffsetSync]), st.binary(max_size=60), st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused(kind: type[Record], key: bytes, value: bytes) -> None:
    try:
        record = decode(kind, key, value)
    except WireFormatError:
        return
    again_key, again_value = encode(record)
    assert key.startswith(again_key)
    assert value.startswith(again_value)


@pytest.mark.parametrize("version", [1, -1, 256])
@pytest.mark.parametrize(
    "record",
    [
        Heartbeat(source="A", target="B", timestamp_ms=0),
        Checkpoint(group="g", partition=TopicPartition("t", 0), upstream_offset=1, downstream_offset=1),
    ],
)
def test_unknown_version_is_refused(record: Record, version: int) -> None:
    key, value = encode(record)
    with pytest.raises(WireFormatError, match=f"version {version} is unknown") as caught:
        decode(type(record), key, struct.pack(">h", version) + value[2:])
    assert caught.value.reason == "WIRE_VERSION"
    assert caught.value.metadata["version"] == str(version)


@pytest.mark.parametrize("kind", [Heartbeat, Checkpoint, OffsetSync])
def test_a_tombstone_is_refused(kind: type[Record]) -> None:
    with pytest.raises(WireFormatError, match="is null"):
        decode(kind, b"\x00\x00\x00\x00\x00\x00\x00\x00", None)
    with pytest.raises(WireFormatError, match="is null"):
        decode(kind, None, b"")


def test_a_negative_string_length_is_refused() -> None:
    with pytest.raises(WireFormatError, match="negative string length -1"):
        decode_offset_sync(b"\xff\xff\x00\x00\x00\x00", b"\x00" * 16)


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(WireFormatError, match="topic: not UTF-8"):
        decode_offset_sync(b"\x00\x01\xff\x00\x00\x00\x00", b"\x00" * 16)


@pytest.mark.parametrize(
    "sync",
    [
        OffsetSync(partition=TopicPartition("é" * 16384, 0), upstream_offset=0, downstream_offset=0),
        OffsetSync(partition=TopicPartition("t", 1 << 31), upstream_offset=0, downstream_offset=0),
        OffsetSync(partition=TopicPartition("t", 0), upstream_offset=1 << 63, downstream_offset=0),
        OffsetSync(partition=TopicPartition("\ud800", 0), upstream_offset=0, downstream_offset=0),
    ],
)
def test_values_that_do_not_fit_are_refused(sync: OffsetSync) -> None:
    with pytest.raises(WireFormatError):
        encode_offset_sync(sync)


def test_a_string_may_have_32767_bytes() -> None:
    sync = OffsetSync(partition=TopicPartition("t" * 32767, 0), upstream_offset=0, downstream_offset=0)
    assert decode_offset_sync(*encode_offset_sync(sync)) == sync
