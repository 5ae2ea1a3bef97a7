"""Checkpoint, the record of `<A>.checkpoints.internal` on the target: "group at u on A continues at d
here"."""

from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.model import TopicPartition
from twinlog.wire.schema import FieldType, Schema, present, read_versioned, write_versioned
from twinlog.wire.topic_ids import TopicIds

KEY_SCHEMA = Schema(
    "Checkpoint key",
    ("group", FieldType.STRING),
    ("topic", FieldType.STRING),
    ("partition", FieldType.INT32),
)
VALUE_SCHEMAS: Mapping[int, Schema] = {
    0: Schema(
        "Checkpoint value v0",
        ("upstreamOffset", FieldType.INT64),
        ("offset", FieldType.INT64),
        ("metadata", FieldType.STRING),
    )
}
LATEST_VERSION = 0
CHECKPOINTS_PARTITION = 0
"""All checkpoints of a flow are in this partition of their topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    group: str
    partition: TopicPartition
    """Topic partition on the target, by its target name."""
    upstream_offset: int
    """The group's committed (next) offset on the source."""
    downstream_offset: int
    """The next offset to read on the target."""
    metadata: str = ""
    """The group's metadata beside its offset; "" without any."""
    topic_ids: TopicIds | None = None
    """Of the topic and its copy, in a header; None = not told."""


def encode_checkpoint(checkpoint: Checkpoint) -> tuple[bytes, bytes]:
    """Return key and value. Raises WireFormatError when a field does not fit its type."""
    key = KEY_SCHEMA.write(
        {
            "group": checkpoint.group,
            "topic": checkpoint.partition.topic,
            "partition": checkpoint.partition.partition,
        }
    )
    value = write_versioned(
        VALUE_SCHEMAS,
        LATEST_VERSION,
        {
            "upstreamOffset": checkpoint.upstream_offset,
            "offset": checkpoint.downstream_offset,
            "metadata": checkpoint.metadata,
        },
    )
    return key, value


def decode_checkpoint(key: bytes | None, value: bytes | None) -> Checkpoint:
    """Read one record. Raises WireFormatError for anything else, including tombstones and unknown
    versions."""
    name, _ = KEY_SCHEMA.read(present(key, KEY_SCHEMA.name))
    _, fields = read_versioned(VALUE_SCHEMAS, "Checkpoint value", present(value, "Checkpoint value"))
    return Checkpoint(
        group=name["group"],
        partition=TopicPartition(name["topic"], name["partition"]),
        upstream_offset=fields["upstreamOffset"],
        downstream_offset=fields["offset"],
        metadata=fields["metadata"],
    )
