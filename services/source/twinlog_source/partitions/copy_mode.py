"""Whether the copy of a partition keeps the source's offsets: decided once, when the copy begins. Pure.

A copy can keep them only from its first record on, so a copy that began as translated stays translated
(docs/adr/0008). If the target already has the source's records at their offsets, the copy continues behind
them: this happens when a topic returns to the cluster from which it was copied.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from twinlog.config import OffsetsMode
from twinlog.model import TopicPartition


class OffsetsReason(StrEnum):
    """Why a copy is translated."""

    OFFSETS_CONFIGURED = "OFFSETS_CONFIGURED"
    TRANSACTIONS_DISABLED = "TRANSACTIONS_DISABLED"
    COMPACTED = "COMPACTED"
    POSITION_STORED = "POSITION_STORED"
    TARGET_NOT_EMPTY = "TARGET_NOT_EMPTY"
    TARGET_TOO_OLD = "TARGET_TOO_OLD"
    RIGHTS_MISSING = "RIGHTS_MISSING"
    FILL_TOO_LARGE = "FILL_TOO_LARGE"
    SOURCE_RECREATED = "SOURCE_RECREATED"
    BOTH_WAYS = "BOTH_WAYS"
    TARGET_DIFFERS = "TARGET_DIFFERS"
    """The target has the source's records up to an offset, and other records behind it."""


@dataclass(frozen=True, slots=True)
class CommonLog:
    """Both logs have the same records at the same offsets between two offsets."""

    begin: int
    """The start of the log that begins later."""
    end: int
    """The first offset that differs, or where one of the logs ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCopy:
    """The facts about a copy that is about to begin."""

    partition: TopicPartition
    wanted: OffsetsMode
    begins_at: int
    """The source offset of the first record to copy; as many offsets before it have to be filled."""
    exactly_once: bool
    cleanup_policies: frozenset[str]
    """`cleanup.policy` of the source and of the target topic."""
    position_stored: bool
    """MirrorMaker 2 or an earlier version has written this copy."""
    target_end: int
    """The offset of the next record on the target."""
    common: CommonLog | None = None
    """What the target already has of the source, for a copy without a position; None = nothing."""
    not_before: int = 0
    """A start position from `twinlog.start.group` or `twinlog.start.time`: another replicator copied what
    lies before, to other offsets of the target. 0 = there is none."""
    has_topic_id: bool = True
    """The target's brokers have topic ids, so a recreated topic can be recognised."""
    both_ways: bool = False
    """Another flow copies the target topic back under the source's name."""
    refusal: tuple[str, str] | None = None
    """TARGET_TOO_OLD or RIGHTS_MISSING with a message, when the target refuses what a preserved copy
    needs."""

    @property
    def is_there(self) -> bool:
        """Whether everything on the target is the source's records at their offsets."""
        return self.common is not None and self.common.end == self.target_end

    @property
    def continues_at(self) -> int:
        """The source offset of the first record to copy, behind everything that the target is known to
        have."""
        return self.begins_at if self.common is None else max(self.common.end, self.not_before)

    @property
    def filled_offsets(self) -> int:
        """How many offsets have to be filled before the first record."""
        return 0 if self.is_there else self.begins_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    preserved: bool
    reason: str = ""
    """Why the copy is translated; empty when it is preserved."""
    message: str = ""


PRESERVED = Decision(preserved=True)


def decide(copy: NewCopy, *, fill_max: int, fill_left: int) -> Decision:
    """Decide whether the copy keeps the offsets; `fill_left` is what remains of the flow's limit for filled
    offsets."""
    objection = next(_objections(copy, fill_max, fill_left), None)
    if objection is None:
        return PRESERVED
    reason, message = objection
    return Decision(preserved=False, reason=reason, message=message)


def _objections(copy: NewCopy, fill_max: int, fill_left: int) -> Iterator[tuple[str, str]]:
    if copy.wanted is OffsetsMode.TRANSLATED:
        yield OffsetsReason.OFFSETS_CONFIGURED, "it is configured"
    if not copy.exactly_once:
        yield (
            OffsetsReason.TRANSACTIONS_DISABLED,
            "exactly.once.source.support is disabled, but holes are filled by transactions",
        )
    if any("compact" in policy for policy in copy.cleanup_policies):
        yield OffsetsReason.COMPACTED, "the source or the target topic is compacted"
    if copy.both_ways and copy.target_end > 0:
        # While only one side writes, its copies keep its offsets; the other side's first record ends that.
        yield OffsetsReason.BOTH_WAYS, "the topic is copied both ways under the same name"
    if copy.position_stored:
        yield OffsetsReason.POSITION_STORED, "the copy began as a translated one"
    if copy.common is not None and not copy.is_there:
        yield (
            OffsetsReason.TARGET_DIFFERS,
            f"from offset {copy.common.end} to {copy.target_end} the target has other records",
        )
    elif copy.target_end > 0 and not copy.is_there:
        # This includes Twinlog's own records: they belonged to an earlier topic of this name, and may be
        # anywhere.
        yield OffsetsReason.TARGET_NOT_EMPTY, f"the target's log already ends at offset {copy.target_end}"
    if not copy.has_topic_id:
        yield (
            OffsetsReason.TARGET_TOO_OLD,
            "the target's brokers are older than Kafka 2.8 and have no topic ids",
        )
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
    """Decide about copies that begin together; those with the fewest offsets to fill come first."""
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
    OffsetsReason.RIGHTS_MISSING: f"grant the rights on the target that docs/rights.md lists; or {_ALLOW}",
    OffsetsReason.FILL_TOO_LARGE: f"raise the key; or {_ALLOW}",
}


def refused(reason: str, message: str) -> str:
    """The fault of a partition whose copy must keep the source's offsets, but cannot."""
    remedy = _REMEDIES.get(reason, _COPY_AGAIN)
    return f"the copy cannot keep the source's offsets, as is configured: {message}; {remedy}"
