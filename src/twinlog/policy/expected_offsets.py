"""Predicts the offsets of copies that do not exist yet, and the cost of filling them. Pure.

The source service decides when a copy begins, by the same rules and the state of both clusters then
(docs/offsets.md).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinlog.config.flow.settings import OffsetsMode
from twinlog.policy.offsets_rule import FILLER_BYTES_PER_OFFSET, OffsetsRule


class ExpectedReason(StrEnum):
    """Why a copy will have its own offsets; the source service uses the same reasons."""

    OFFSETS_CONFIGURED = "OFFSETS_CONFIGURED"
    TRANSACTIONS_DISABLED = "TRANSACTIONS_DISABLED"
    COMPACTED = "COMPACTED"
    FILL_TOO_LARGE = "FILL_TOO_LARGE"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A source topic without a copy."""

    name: str
    cleanup_policy: str
    """As on the source, or as the copy will be created; "" = not known."""
    log_starts: Sequence[int]
    """The first known offset of each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedOffsets:
    preserved: bool
    """Whether all of its partitions will have the source's offsets."""
    must: bool
    """twinlog.offsets=preserved: the topic is not copied unless it can have the source's offsets."""
    filled_offsets: int = 0
    """Filled offsets before the first records, of all partitions. Each takes a little space on the target
    until Kafka deletes it."""
    reason: str = ""
    """Why some partition will have its own offsets; empty when none will."""
    message: str = ""
    """The reason as text."""
    key: str = ""
    """The key that would change this; empty when none does."""

    @property
    def filled_bytes(self) -> int:
        """Bytes that filling takes on each replica."""
        return round(self.filled_offsets * FILLER_BYTES_PER_OFFSET)


def expected_offsets(
    topics: Collection[NewTopic], rule: OffsetsRule, *, exactly_once: bool
) -> dict[str, ExpectedOffsets]:
    """Predictions by topic. The cheapest topics come first, because a flow shares
    `twinlog.offsets.fill.total`."""
    found: dict[str, ExpectedOffsets] = {}
    left = rule.fill_total
    for topic in sorted(topics, key=lambda each: (max(each.log_starts, default=0), each.name)):
        found[topic.name] = expected = _expected(topic, rule, left, exactly_once=exactly_once)
        left -= expected.filled_offsets
    return found


def _expected(topic: NewTopic, rule: OffsetsRule, left: int, *, exactly_once: bool) -> ExpectedOffsets:
    wanted = rule.wanted(topic.name)
    must = wanted is OffsetsMode.PRESERVED
    most, total = max(topic.log_starts, default=0), sum(topic.log_starts)
    objection: tuple[str, str, str] | None = None
    if wanted is OffsetsMode.TRANSLATED:
        objection = ExpectedReason.OFFSETS_CONFIGURED, "it is configured", "twinlog.offsets"
    elif not exactly_once:
        objection = (
            ExpectedReason.TRANSACTIONS_DISABLED,
            "exactly.once.source.support is disabled",
            "exactly.once.source.support",
        )
    elif "compact" in topic.cleanup_policy:
        objection = ExpectedReason.COMPACTED, f"cleanup.policy is {topic.cleanup_policy}", ""
    elif most > rule.fill_max:
        objection = (
            ExpectedReason.FILL_TOO_LARGE,
            f"a partition starts at offset {most}, above twinlog.offsets.fill.max={rule.fill_max}",
            "twinlog.offsets.fill.max",
        )
    elif total > left:
        objection = (
            ExpectedReason.FILL_TOO_LARGE,
            f"{total} offsets would have to be filled, and twinlog.offsets.fill.total leaves {max(0, left)}",
            "twinlog.offsets.fill.total",
        )
    if objection is None:
        return ExpectedOffsets(preserved=True, must=must, filled_offsets=total)
    reason, message, key = objection
    return ExpectedOffsets(preserved=False, must=must, reason=reason, message=message, key=key)
