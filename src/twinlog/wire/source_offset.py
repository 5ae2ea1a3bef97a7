"""Records of `mm2-offsets.<A>.internal`: MM2's progress, and our own records beside it.

A key is `[connector name, {partition}]`, a value `{"offset":n}`, both JSON in Connect's exact bytes. MM2
finds its offsets by the key's bytes, so the order of the fields is part of the format: it is that of Java's
HashMap for these names (cluster, partition, topic · partition, topic, group · sourceClusterAlias,
targetClusterAlias).

MM2 stores the offset of the *last record delivered*; everywhere else Twinlog holds the *next* one. Only this
module converts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinlog.errors import WireFormatError
from twinlog.model import ClusterAlias, TopicPartition
from twinlog.wire import connect_json
from twinlog.wire.connect_json import JsonValue

SOURCE_CONNECTOR = "MirrorSourceConnector"
"""Names in dedicated mode; on a plain Connect cluster the user chose the first key element."""
GAP_CONNECTOR = "TwinlogGap"
CONTROL_CONNECTOR = "TwinlogControl"
"""Names of our own records, which Connect ignores."""

NOTHING_WRITTEN = "twinlog.nothing.written"
"""A header of a position: up to it the flow has written nothing to the copy. Connect reads no headers."""

DOCUMENT_FORMAT = 1
"""The format of our own records. New fields need no new format; older records lack this field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectKey:
    """A key of the offsets topic: the record's connector and subject."""

    connector: str
    partition: Mapping[str, JsonValue]
    """Connect's "source partition": the fields in the order in which they were written."""


def encode_connect_key(key: ConnectKey) -> bytes:
    """Return the key's exact bytes, fields in their given order."""
    return connect_json.dumps([key.connector, key.partition])


def decode_connect_key(key: bytes | None) -> ConnectKey | None:
    """Read any key of the offsets topic; None unless it has the form `["name",{...}]`."""
    if key is None:
        return None
    try:
        parsed = connect_json.loads(key, "offset key")
    except WireFormatError:
        return None
    match parsed:
        case [str(connector), dict(partition)]:
            return ConnectKey(connector=connector, partition=partition)
        case _:
            return None


def encode_document(document: Mapping[str, JsonValue]) -> bytes:
    """Return the value of a record of our own (gap, control): a JSON object in Connect's bytes."""
    return connect_json.dumps({"format": DOCUMENT_FORMAT, **document})


def decode_document(value: bytes | None) -> dict[str, Any] | None:
    """Read such a value, without its format; None for a tombstone.

    Raises WireFormatError when it is not a JSON object, and with the reason WIRE_VERSION for the format of a
    later release: ignoring a part of it would misread it.
    """
    if value is None:
        return None
    document = connect_json.loads(value, "offset value")
    if not isinstance(document, dict):
        raise WireFormatError("offset value: expected a JSON object", metadata={"schema": "offset value"})
    written_as = document.pop("format", DOCUMENT_FORMAT)
    if written_as != DOCUMENT_FORMAT:
        raise WireFormatError(
            f"a record of Twinlog's own has format {written_as}, this release reads {DOCUMENT_FORMAT}",
            reason="WIRE_VERSION",
            metadata={"schema": "offset value", "version": str(written_as)},
        )
    return document


def source_offset_key(
    cluster: ClusterAlias, partition: TopicPartition, *, connector: str = SOURCE_CONNECTOR
) -> bytes:
    """Return the key of a source partition's progress; topic and partition are the source's own."""
    return encode_connect_key(
        ConnectKey(
            connector=connector,
            partition={"cluster": cluster, "partition": partition.partition, "topic": partition.topic},
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffsetKey:
    cluster: ClusterAlias
    partition: TopicPartition


def decode_source_offset_key(
    key: bytes | None, *, connector: str = SOURCE_CONNECTOR
) -> SourceOffsetKey | None:
    """Read the key of a source partition's progress.

    None for every other record, and for a key whose bytes differ from MM2's: MM2 does not find such a key
    either, and two keys of one partition must not compete.
    """
    decoded = decode_connect_key(key)
    if decoded is None or decoded.connector != connector:
        return None
    match decoded.partition:
        case {"cluster": str(cluster), "topic": str(topic), "partition": int(number)} if number >= 0:
            found = SourceOffsetKey(cluster=cluster, partition=TopicPartition(topic, number))
        case _:
            return None
    canonical = source_offset_key(found.cluster, found.partition, connector=connector)
    return found if canonical == key and not isinstance(number, bool) else None


def encode_source_offset(next_offset: int) -> bytes | None:
    """Return the value that lets MM2 and us resume at `next_offset`; None, a tombstone, for 0.

    MM2 cannot express "resume at 0": without a stored offset its reset policy decides. Raises ValueError when
    negative.
    """
    if next_offset < 0:
        raise ValueError(f"a position is never negative, got {next_offset}")
    return connect_json.dumps({"offset": next_offset - 1}) if next_offset else None


def decode_source_offset(value: bytes | None) -> int | None:
    """Return the next offset to read, or None when nothing is stored.

    As in Connect, nothing is stored when the value is null, empty, without an "offset", or negative. Raises
    WireFormatError for any other invalid offset: starting again because of a broken record would copy
    everything twice.
    """
    if not value:
        return None
    parsed = connect_json.loads(value, "offset value")
    match parsed:
        case None:
            return None
        case dict():
            offset = parsed.get("offset")
        case _:
            raise WireFormatError("offset value: expected a JSON object", metadata={"schema": "offset value"})
    if offset is None:
        return None
    if isinstance(offset, bool) or not isinstance(offset, int) or offset >= 1 << 63:
        raise WireFormatError(
            f"offset value: {offset!r} is not an offset", metadata={"schema": "offset value"}
        )
    return offset + 1 if offset >= 0 else None
