"""The bytes of records that MM2 and Twinlog share: declared schemas, exact readers and writers, no I/O."""

from twinlog.wire.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from twinlog.wire.formatters import RecordKind, format_record
from twinlog.wire.heartbeat import Heartbeat, decode_heartbeat, encode_heartbeat
from twinlog.wire.murmur2 import murmur2, partition_for_key
from twinlog.wire.offset_sync import OffsetSync, decode_offset_sync, encode_offset_sync
from twinlog.wire.source_offset import (
    decode_source_offset,
    decode_source_offset_key,
    encode_source_offset,
    source_offset_key,
)

__all__ = [
    "Checkpoint",
    "Heartbeat",
    "OffsetSync",
    "RecordKind",
    "decode_checkpoint",
    "decode_heartbeat",
    "decode_offset_sync",
    "decode_source_offset",
    "decode_source_offset_key",
    "encode_checkpoint",
    "encode_heartbeat",
    "encode_offset_sync",
    "encode_source_offset",
    "format_record",
    "murmur2",
    "partition_for_key",
    "source_offset_key",
]
