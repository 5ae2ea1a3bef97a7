"""A reason to delete nothing on the target."""

from dataclasses import dataclass

from twinlog_configsync.model.reasons import SyncReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why nothing is deleted on the target now."""

    reason: SyncReason
    message: str
