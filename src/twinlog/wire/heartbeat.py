"""Heartbeat, the record of the topic `heartbeats`: "the flow source->target was alive at this time"."""

from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.model import ClusterAlias
from twinlog.wire.schema import FieldType, Schema, present, read_versioned, write_versioned

KEY_SCHEMA = Schema(
    "Heartbeat key", ("sourceClusterAlias", FieldType.STRING), ("targetClusterAlias", FieldType.STRING)
)
VALUE_SCHEMAS: Mapping[int, Schema] = {0: Schema("Heartbeat value v0", ("timestamp", FieldType.INT64))}
LATEST_VERSION = 0
HEARTBEATS_PARTITION = 0
"""MM2 writes every beat to this partition of `heartbeats`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    source: ClusterAlias
    target: ClusterAlias
    timestamp_ms: int
    """When the beat was emitted, by its emitter's clock; the record's own timestamp is the same."""


def encode_heartbeat(heartbeat: Heartbeat) -> tuple[bytes, bytes]:
    """Return key and value. Raises WireFormatError when a field does not fit its type."""
    key = KEY_SCHEMA.write({"sourceClusterAlias": heartbeat.source, "targetClusterAlias": heartbeat.target})
    value = write_versioned(VALUE_SCHEMAS, LATEST_VERSION, {"timestamp": heartbeat.timestamp_ms})
    return key, value


def decode_heartbeat(key: bytes | None, value: bytes | None) -> Heartbeat:
    """Read one record. Raises WireFormatError for anything else, including tombstones and unknown
    versions."""
    name, _ = KEY_SCHEMA.read(present(key, KEY_SCHEMA.name))
    _, fields = read_versioned(VALUE_SCHEMAS, "Heartbeat value", present(value, "Heartbeat value"))
    return Heartbeat(
        source=name["sourceClusterAlias"],
        target=name["targetClusterAlias"],
        timestamp_ms=fields["timestamp"],
    )
