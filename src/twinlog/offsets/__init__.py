"""Offset syncs, checkpoints and group offsets: what MM2 decides about them, without I/O."""

from twinlog.offsets.checkpoints import (
    CheckpointHistory,
    CheckpointPlanner,
    CommittedPosition,
    is_progress,
    target_partition,
)
from twinlog.offsets.group_sync import offsets_to_write
from twinlog.offsets.sync_store import OffsetSyncStore, Translation, TranslationOutcome
from twinlog.offsets.sync_writer import OffsetSyncWriter, PartitionSyncState

__all__ = [
    "CheckpointHistory",
    "CheckpointPlanner",
    "CommittedPosition",
    "OffsetSyncStore",
    "OffsetSyncWriter",
    "PartitionSyncState",
    "Translation",
    "TranslationOutcome",
    "is_progress",
    "offsets_to_write",
    "target_partition",
]
