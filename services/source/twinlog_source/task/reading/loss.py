"""What to do when the source does not have the next offset: finds the exact gap and applies the policy. Pure.

A loss is found by comparing the stored position with the log's start and end. (Reset policies of clients hide
it, and "the next offset must be last + 1" fails on compacted and transactional topics.) If a log lost its
tail and has grown past the position since, the leader epochs of the copied records show it: the leader knows
where the records of an epoch end.

A compacted log may have no record of an epoch that was copied, and a replica that was built from such a log
does not know the epoch: it answers with an earlier one that ends where the next one begins. So in compacted
topics only an end before the position is a loss, as in Java's consumer
(SubscriptionState.maybeCompleteValidation); in other topics also an epoch that the leader should know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinlog_source.log.facts import EpochStart

KEPT_EPOCHS = 8
"""The limit for each partition. In a log with more changes of leaders since, everything from the oldest kept
epoch on counts as lost."""


class LossReason(StrEnum):
    RETENTION = "RETENTION"
    """The log starts behind the position: retention or DeleteRecords overtook the copy. The range is lost."""
    TRUNCATION = "TRUNCATION"
    """The log ended before the position: what was copied from there on no longer exists on the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    reason: LossReason
    from_offset: int
    to_offset: int
    """First offset after the gap."""
    resume_at: int


def goes_on(position: int, leader_epoch: int, end: tuple[int, int], *, compacted: bool) -> bool:
    """Whether the log at `position` continues a record of `leader_epoch`; `end` is the leader's last epoch at
    or below that one, and where it ends."""
    epoch, end_offset = end
    return settles(leader_epoch, epoch, compacted=compacted) and end_offset >= position


def settles(asked: int, answered: int, *, compacted: bool) -> bool:
    """Whether the answer tells how far the log agrees with what was copied under the requested epoch."""
    return answered == asked or (compacted and answered >= 0)


def find_divergence(
    position: int,
    epochs: Sequence[EpochStart],
    ends: Mapping[int, tuple[int, int]],
    *,
    compacted: bool,
) -> int | None:
    """The first offset at which the log may differ from the copied records; None when it continues them.

    `epochs`: those of the copied records, oldest first; the last one is that of the record before `position`.
    `ends`: for each of them (newest first, as many as were requested) the leader's last epoch at or below it
    and where that one ends; (-1, -1) when it knows none.
    """
    diverged = position
    for start in reversed(epochs):
        if start.leader_epoch not in ends:
            break
        epoch, end_offset = ends[start.leader_epoch]
        if settles(start.leader_epoch, epoch, compacted=compacted):
            diverged = min(diverged, end_offset)
            break
        # The leader never had records of this epoch: they are lost from their first on.
        diverged = min(diverged, start.offset, end_offset if epoch >= 0 else start.offset)
    return diverged if diverged < position else None


def extended(epochs: tuple[EpochStart, ...], newer: Sequence[tuple[int, int]]) -> tuple[EpochStart, ...]:
    """The epochs of the copied records after more was copied; the same object when no leader changed."""
    for epoch, offset in newer:
        if not epochs or epochs[-1].leader_epoch != epoch:
            epochs = (*epochs, EpochStart(epoch, offset))[-KEPT_EPOCHS:]
    return epochs


def find_loss(
    *, position: int, log_start_offset: int, log_end_offset: int, diverged_at: int | None = None
) -> Loss | None:
    """Compare a position with the log's bounds. None when the log has it (also exactly at its end).

    From `diverged_at` on, the log differs from the copied records.
    """
    if position < log_start_offset:
        return Loss(
            reason=LossReason.RETENTION,
            from_offset=position,
            to_offset=log_start_offset,
            resume_at=log_start_offset,
        )
    ends_at = log_end_offset if diverged_at is None else min(diverged_at, log_end_offset)
    if position > ends_at:
        return Loss(
            reason=LossReason.TRUNCATION,
            from_offset=ends_at,
            to_offset=position,
            resume_at=max(ends_at, log_start_offset),
        )
    return None
