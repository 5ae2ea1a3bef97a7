"""What to do when the source does not hold the next offset: find the exact gap, apply the policy. Pure.

The sound test for loss is the stored position against the log's start and end (reset policies of clients
hide it, and "the next offset must be last + 1" is a false alarm on compacted and transactional topics).
"""

from dataclasses import dataclass
from enum import StrEnum


class LossReason(StrEnum):
    RETENTION = "RETENTION"
    """The log starts behind the position: retention or DeleteRecords overtook the copy. The range is lost."""
    TRUNCATION = "TRUNCATION"
    """The log ends before the position: what was copied from there on no longer exists on the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    reason: LossReason
    from_offset: int
    to_offset: int
    """First offset after the gap."""
    resume_at: int

    @property
    def lost_records(self) -> int:
        """Offsets that will never be copied; 0 for a truncation: the target has what the source lost."""
        return self.to_offset - self.from_offset if self.reason is LossReason.RETENTION else 0


def find_loss(*, position: int, log_start_offset: int, log_end_offset: int) -> Loss | None:
    """Compare a position with the log's bounds. None when the log holds it (also exactly at its end)."""
    if position < log_start_offset:
        return Loss(
            reason=LossReason.RETENTION,
            from_offset=position,
            to_offset=log_start_offset,
            resume_at=log_start_offset,
        )
    if position > log_end_offset:
        return Loss(
            reason=LossReason.TRUNCATION,
            from_offset=log_end_offset,
            to_offset=position,
            resume_at=log_end_offset,
        )
    return None
