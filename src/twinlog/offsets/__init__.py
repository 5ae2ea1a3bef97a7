"""MirrorMaker 2's rules for offset syncs and checkpoints, without I/O."""

from twinlog.offsets.checkpoints import CheckpointHistory, is_progress, target_partition
from twinlog.offsets.sync_pacing import ENOUGH_RECORDS, PacedSyncs, SyncPace
from twinlog.offsets.sync_store import OffsetSyncStore, Translation, TranslationOutcome
from twinlog.offsets.sync_writer import OffsetSyncWriter, PartitionSyncState

__all__ = [
    "ENOUGH_RECORDS",
    "CheckpointHistory",
    "OffsetSyncStore",
    "OffsetSyncWriter",
    "PacedSyncs",
    "PartitionSyncState",
    "SyncPace",
    "Translation",
    "TranslationOutcome",
    "is_progress",
    "target_partition",
]
