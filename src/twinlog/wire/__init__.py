"""The bytes of records that MM2 and Twinlog share: declared schemas, exact readers and writers, no I/O."""

from twinlog.wire.checkpoint import Checkpoint as Checkpoint
from twinlog.wire.checkpoint import decode_checkpoint as decode_checkpoint
from twinlog.wire.checkpoint import encode_checkpoint as encode_checkpoint
from twinlog.wire.formatters import RecordKind as RecordKind
from twinlog.wire.heartbeat import Heartbeat as Heartbeat
from twinlog.wire.heartbeat import decode_heartbeat as decode_heartbeat
from twinlog.wire.heartbeat import encode_heartbeat as encode_heartbeat
from twinlog.wire.murmur2 import murmur2 as murmur2
from twinlog.wire.murmur2 import partition_for_key as partition_for_key
from twinlog.wire.offset_sync import OffsetSync as OffsetSync
from twinlog.wire.offset_sync import decode_offset_sync as decode_offset_sync
from twinlog.wire.offset_sync import encode_offset_sync as encode_offset_sync
from twinlog.wire.source_offset import decode_source_offset as decode_source_offset
from twinlog.wire.source_offset import decode_source_offset_key as decode_source_offset_key
from twinlog.wire.source_offset import encode_source_offset as encode_source_offset
from twinlog.wire.source_offset import source_offset_key as source_offset_key
from twinlog.wire.topic_ids import TopicIds as TopicIds
