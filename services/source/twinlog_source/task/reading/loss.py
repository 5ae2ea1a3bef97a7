"""What to do when the source does not hold the next offset: find the exact gap, apply the policy. Pure.

The sound test for loss is the stored position against the log's start and end (reset policies of clients
hide it, and "the next offset must be last + 1" is a false alarm on compacted and transactional topics). A log
that lost its tail and has grown past the position since is known by the leader epochs of what was copied:
the leader says where the records of an epoch end.

A compacted log may hold no record of an epoch that was copied. A replica that was built from such a log does
not know the epoch, and answers with an earlier one that ends where the next one begins. So of compacted
topics only an end before the position is a loss, as for Java's consumer
(SubscriptionState.maybeCompleteValidation); of others also an epoch that the leader should know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinlog_source.log.facts import EpochStart

KEPT_EPOCHS = 8
"""The limit for each partition: a log that lost more leader changes than these counts as lost from the oldest
on."""


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
    """Whether the log holds at `position` what comes after a record of `leader_epoch`; `end` is the leader's
    last epoch at or below that one, and where it ends."""
    epoch, end_offset = end
    return settles(leader_epoch, epoch, compacted=compacted) and end_offset >= position


def settles(asked: int, answered: int, *, compacted: bool) -> bool:
    """Whether an answer says how far the log goes with what was copied under the epoch that was asked for."""
    return answered == asked or (compacted and answered >= 0)


def find_divergence(
    position: int,
    epochs: Sequence[EpochStart],
    ends: Mapping[int, tuple[int, int]],
    *,
    compacted: bool,
) -> int | None:
    """The first offset at which the log may hold other records than were copied; None when it continues.

    `epochs`: of what was copied, oldest first, the last one that of the record before `position`. `ends`: for
    each of them (newest first, as many as were asked) the leader's last epoch at or below it and where that
    one ends; (-1, -1) when it knows none.
    """
    diverged = position
    for start in reversed(epochs):
        if start.leader_epoch not in ends:
            break
        epoch, end_offset = ends[start.leader_epoch]
        if settles(start.leader_epoch, epoch, compacted=compacted):
            diverged = min(diverged, end_offset)
            break
        # The leader never had records of this epoch: they are gone from their first on.
        diverged = min(diverged, start.offset, end_offset if epoch >= 0 else start.offset)
    return diverged if diverged < position else None


def extended(epochs: tuple[EpochStart, ...], newer: Sequence[tuple[int, int]]) -> tuple[EpochStart, ...]:
    """The epochs of what was copied after more was copied; the same object when no leader changed."""
    for epoch, offset in newer:
        if not epochs or epochs[-1].leader_epoch != epoch:
            epochs = (*epochs, EpochStart(epoch, offset))[-KEPT_EPOCHS:]
    return epochs


def find_loss(
    *, position: int, log_start_offset: int, log_end_offset: int, diverged_at: int | None = None
) -> Loss | None:
    """Compare a position with the log's bounds. None when the log holds it (also exactly at its end).

    `diverged_at`: from there on the log holds other records than were copied.
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
