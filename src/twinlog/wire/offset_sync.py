"""OffsetSync, the record of `mm2-offset-syncs.<alias>.internal`: "record u of A is record d of B".

Key and value have no version header (reference: MM2's OffsetSync).
"""

from dataclasses import dataclass

from twinlog.model import TopicPartition
from twinlog.wire.schema import FieldType, Schema, present

KEY_SCHEMA = Schema("OffsetSync key", ("topic", FieldType.STRING), ("partition", FieldType.INT32))
VALUE_SCHEMA = Schema("OffsetSync value", ("upstreamOffset", FieldType.INT64), ("offset", FieldType.INT64))
OFFSET_SYNCS_PARTITION = 0
"""All syncs of a flow are in this partition of their topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSync:
    partition: TopicPartition
    """Topic partition on the source, by its source name."""
    upstream_offset: int
    """Offset of a record in the source partition."""
    downstream_offset: int
    """Offset of the very same record in the target partition."""


def encode_offset_sync(sync: OffsetSync) -> tuple[bytes, bytes]:
    """Return key and value. Raises WireFormatError when a field does not fit its type."""
    key = KEY_SCHEMA.write({"topic": sync.partition.topic, "partition": sync.partition.partition})
    value = VALUE_SCHEMA.write({"upstreamOffset": sync.upstream_offset, "offset": sync.downstream_offset})
    return key, value


def decode_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync:
    """Read one record. Raises WireFormatError for anything else, including tombstones."""
    name, _ = KEY_SCHEMA.read(present(key, KEY_SCHEMA.name))
    offsets, _ = VALUE_SCHEMA.read(present(value, VALUE_SCHEMA.name))
    return OffsetSync(
        partition=TopicPartition(name["topic"], name["partition"]),
        upstream_offset=offsets["upstreamOffset"],
        downstream_offset=offsets["offset"],
    )
