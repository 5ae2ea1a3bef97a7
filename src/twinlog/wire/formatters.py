"""The text lines of MM2's formatters for its internal topics.

Equal to `org.apache.kafka.connect.mirror.formatters.{Heartbeat,Checkpoint,OffsetSync}Formatter`, so scripts
that parse the console consumer's output keep working.
"""

from enum import StrEnum

from twinlog.wire.checkpoint import Checkpoint
from twinlog.wire.heartbeat import Heartbeat
from twinlog.wire.offset_sync import OffsetSync


class RecordKind(StrEnum):
    """The three binary record formats that MM2 and Twinlog share."""

    HEARTBEAT = "heartbeat"
    CHECKPOINT = "checkpoint"
    OFFSET_SYNC = "offset_sync"


def format_heartbeat(heartbeat: Heartbeat) -> str:
    return (
        f"Heartbeat{{sourceClusterAlias={heartbeat.source}, targetClusterAlias={heartbeat.target}, "
        f"timestamp={heartbeat.timestamp_ms}}}"
    )


def format_checkpoint(checkpoint: Checkpoint) -> str:
    return (
        f"Checkpoint{{consumerGroupId={checkpoint.group}, topicPartition={checkpoint.partition}, "
        f"upstreamOffset={checkpoint.upstream_offset}, downstreamOffset={checkpoint.downstream_offset}, "
        f"metadata={checkpoint.metadata}}}"
    )


def format_offset_sync(sync: OffsetSync) -> str:
    return (
        f"OffsetSync{{topicPartition={sync.partition}, upstreamOffset={sync.upstream_offset}, "
        f"downstreamOffset={sync.downstream_offset}}}"
    )
