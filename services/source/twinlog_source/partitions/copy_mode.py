"""Whether the copy of a partition keeps its source's offsets: decided once, when the copy begins. Pure.

A copy can keep them only from its first record on, so a copy that has begun with offsets of its own stays
as it is (docs/adr/0008). A copy whose target holds the source's records already, at their offsets, continues
behind them: so a topic comes back to the cluster that it was copied from.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from twinlog.config import OffsetsMode
from twinlog.model import TopicPartition


class OffsetsReason(StrEnum):
    """Why a copy has offsets of its own."""

    OFFSETS_CONFIGURED = "OFFSETS_CONFIGURED"
    TRANSACTIONS_DISABLED = "TRANSACTIONS_DISABLED"
    COMPACTED = "COMPACTED"
    POSITION_STORED = "POSITION_STORED"
    TARGET_NOT_EMPTY = "TARGET_NOT_EMPTY"
    TARGET_TOO_OLD = "TARGET_TOO_OLD"
    RIGHTS_MISSING = "RIGHTS_MISSING"
    FILL_TOO_LARGE = "FILL_TOO_LARGE"
    SOURCE_RECREATED = "SOURCE_RECREATED"
    TARGET_DIFFERS = "TARGET_DIFFERS"
    """The target holds the source's records up to an offset, and others behind it."""


@dataclass(frozen=True, slots=True)
class CommonLog:
    """Both logs show the same records at the same offsets between two of them."""

    begin: int
    """Where the one of them begins that begins later."""
    end: int
    """The first offset that differs, or where one of the logs ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCopy:
    """What is known of a copy that is about to begin."""

    partition: TopicPartition
    wanted: OffsetsMode
    begins_at: int
    """Source offset of the first record to copy: as many offsets before it have to be filled."""
    exactly_once: bool
    cleanup_policies: frozenset[str]
    """`cleanup.policy` of the source and of the target topic."""
    position_stored: bool
    """MirrorMaker 2 or an earlier version has copied into this target topic."""
    target_end: int
    """Offset of the next record on the target."""
    common: CommonLog | None = None
    """What the target holds of the source already, of a copy without a position; None = nothing."""
    not_before: int = 0
    """Where somebody said that it begins (`twinlog.start.group`, `twinlog.start.time`): what lies before was
    copied by another mirror, at whatever offset of the target. 0 = nobody did."""
    has_topic_id: bool = True
    """The target's brokers give ids to topics, so that another topic of the same name is told from it."""
    refusal: tuple[str, str] | None = None
    """TARGET_TOO_OLD or RIGHTS_MISSING and why, when the target refuses what a preserved copy needs."""

    @property
    def is_there(self) -> bool:
        """All that the target holds are the source's records, at their offsets."""
        return self.common is not None and self.common.end == self.target_end

    @property
    def continues_at(self) -> int:
        """Source offset of the first record to copy, behind all that the target is known to hold."""
        return self.begins_at if self.common is None else max(self.common.end, self.not_before)

    @property
    def filled_offsets(self) -> int:
        """As many have to be filled before the first record."""
        return 0 if self.is_there else self.begins_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    preserved: bool
    reason: str = ""
    """Why not; empty when preserved."""
    message: str = ""


PRESERVED = Decision(preserved=True)


def decide(copy: NewCopy, *, fill_max: int, fill_left: int) -> Decision:
    """Whether the copy keeps the offsets; `fill_left` offsets of the flow's total may still be filled."""
    objection = next(_objections(copy, fill_max, fill_left), None)
    if objection is None:
        return PRESERVED
    reason, message = objection
    return Decision(preserved=False, reason=reason, message=message)


def _objections(copy: NewCopy, fill_max: int, fill_left: int) -> Iterator[tuple[str, str]]:
    if copy.wanted is OffsetsMode.TRANSLATED:
        yield OffsetsReason.OFFSETS_CONFIGURED, "twinlog.offsets says so"
    if not copy.exactly_once:
        yield (
            OffsetsReason.TRANSACTIONS_DISABLED,
            "exactly.once.source.support is disabled, and holes are filled by transactions",
        )
    if any("compact" in policy for policy in copy.cleanup_policies):
        yield OffsetsReason.COMPACTED, "the source or the target topic is compacted"
    if copy.position_stored:
        yield OffsetsReason.POSITION_STORED, "the copy began with offsets of its own"
    if copy.common is not None and not copy.is_there:
        yield (
            OffsetsReason.TARGET_DIFFERS,
            f"from offset {copy.common.end} to {copy.target_end} the target holds other records",
        )
    elif copy.target_end > 0 and not copy.is_there:
        # Also what we wrote: it was on its way to an earlier topic of this name, and may lie anywhere.
        yield OffsetsReason.TARGET_NOT_EMPTY, f"the target's log ends at offset {copy.target_end} already"
    if not copy.has_topic_id:
        yield OffsetsReason.TARGET_TOO_OLD, "the target's brokers give topics no id (Kafka 2.8 does)"
    if copy.refusal is not None:
        yield copy.refusal
    cost = f"{copy.filled_offsets} offsets would have to be filled before the first record"
    if copy.filled_offsets > fill_max:
        yield OffsetsReason.FILL_TOO_LARGE, f"{cost}, above twinlog.offsets.fill.max={fill_max}"
    if copy.filled_offsets > fill_left:
        yield (
            OffsetsReason.FILL_TOO_LARGE,
            f"{cost}, and twinlog.offsets.fill.total leaves {max(0, fill_left)}",
        )


def decide_all(copies: Iterable[NewCopy], *, fill_max: int, fill_left: int) -> dict[TopicPartition, Decision]:
    """Decide about copies that begin together: those that cost least come first."""
    decisions: dict[TopicPartition, Decision] = {}
    for copy in sorted(copies, key=lambda each: (each.filled_offsets, each.partition)):
        decisions[copy.partition] = decision = decide(copy, fill_max=fill_max, fill_left=fill_left)
        if decision.preserved:
            fill_left -= copy.filled_offsets
    return decisions


_ALLOW = "set twinlog.offsets=auto, or name the topic in twinlog.offsets.translated.topics"
_COPY_AGAIN = f"delete the target topic, and it is copied again with the source's offsets; or {_ALLOW}"
_REMEDIES: dict[str, str] = {
    OffsetsReason.TRANSACTIONS_DISABLED: f"remove exactly.once.source.support=disabled; or {_ALLOW}",
    OffsetsReason.COMPACTED: _ALLOW,
    OffsetsReason.TARGET_TOO_OLD: f"upgrade the target to Kafka 2.8 or later; or {_ALLOW}",
    OffsetsReason.RIGHTS_MISSING: f"grant the rights on the target that docs/running.md lists; or {_ALLOW}",
    OffsetsReason.FILL_TOO_LARGE: f"raise the key; or {_ALLOW}",
}


def refused(reason: str, message: str) -> str:
    """What is said of a partition whose copy must keep its source's offsets and cannot."""
    remedy = _REMEDIES.get(reason, _COPY_AGAIN)
    return f"the copy cannot keep the source's offsets, as is configured: {message}; {remedy}"
