"""MirrorMaker 2's rules for offset syncs and checkpoints, without I/O."""

from twinlog.offsets.checkpoints import CheckpointHistory as CheckpointHistory
from twinlog.offsets.checkpoints import is_progress as is_progress
from twinlog.offsets.checkpoints import target_partition as target_partition
from twinlog.offsets.sync_pacing import PacedSyncs as PacedSyncs
from twinlog.offsets.sync_pacing import SyncPace as SyncPace
from twinlog.offsets.sync_store import OffsetSyncStore as OffsetSyncStore
from twinlog.offsets.sync_store import SyncTranslation as SyncTranslation
from twinlog.offsets.sync_store import TranslationOutcome as TranslationOutcome
from twinlog.offsets.sync_writer import OffsetSyncWriter as OffsetSyncWriter
from twinlog.offsets.sync_writer import PartitionSyncState as PartitionSyncState
