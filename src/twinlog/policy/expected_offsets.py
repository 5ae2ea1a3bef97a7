"""Predicts the offsets of copies that do not exist yet, and the cost of filling them. Pure.

The source service decides when a copy begins, by the same rules and the state of both clusters then
(docs/offsets.md).

The configured offsets of a topic's copy, and their cost. Pure.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinlog.config.flow.settings import FlowConfig, OffsetsMode, OffsetsSettings
from twinlog.filters import PatternList
from twinlog.policy.configured import policy_from_config
from twinlog.policy.transformed import TopicTransforms

FILLER_BYTES_PER_OFFSET = 0.82
"""Size of a filled offset on each replica of the target until Kafka deletes it (zstd)."""
MOST_MARKERS = 128
"""The longest gap filled only with transaction markers, which consumers do not see. Each marker takes a few
round trips of the target."""
MOST_AT_LEADER = 10_000
"""The same limit for markers written by the leader (docs/adr/0014): one request, which occupies a broker for
half a second."""


def fill_words(size_bytes: float) -> str:
    """The size of filled offsets on each replica, as text.

    >>> fill_words(8_200_000), fill_words(16_400)
    ('about 8.2 MB', 'less than 0.1 MB')
    """
    return "less than 0.1 MB" if size_bytes < 100_000 else f"about {size_bytes / 1e6:.1f} MB"


class OffsetsRule:
    """The configured mode of each source topic's offsets."""

    def __init__(
        self,
        settings: OffsetsSettings,
        dropped_by: Callable[[str], str] = lambda _topic: "",
        is_heartbeats: Callable[[str], bool] = lambda _topic: False,
    ) -> None:
        """`dropped_by`: as `TopicTransforms`. Raises ConfigError for a pattern that does not compile."""
        self._dropped_by = dropped_by
        self._is_heartbeats = is_heartbeats
        self.fill_max = settings.fill_max
        self.fill_total = settings.fill_total
        self._mode = settings.mode
        self._preserved = PatternList("twinlog.offsets.preserved.topics", settings.preserved_topics)
        self._translated = PatternList("twinlog.offsets.translated.topics", settings.translated_topics)

    def wanted(self, topic: str) -> OffsetsMode:
        """
        >>> rule = OffsetsRule(OffsetsSettings(mode=OffsetsMode.AUTO, translated_topics=("log-.*",)))
        >>> rule.wanted("orders").value, rule.wanted("log-1").value
        ('auto', 'translated')
        """
        if self.translated_by(topic):
            return OffsetsMode.TRANSLATED
        mode = OffsetsMode.PRESERVED if self._preserved.matches(topic) else self._mode
        if mode is OffsetsMode.PRESERVED and self._is_heartbeats(topic):
            return OffsetsMode.AUTO  # They are compacted.
        return mode

    def translated_by(self, topic: str) -> str:
        """The key that gives the copy of a topic offsets of its own; empty: none does.

        >>> rule = OffsetsRule(OffsetsSettings(translated_topics=("log-.*",)), {"a": "transforms"}.get)
        >>> rule.translated_by("log-1"), rule.translated_by("a")
        ('twinlog.offsets.translated.topics', 'transforms')
        """
        if self._translated.matches(topic):
            return self._translated.key
        if self._mode is OffsetsMode.TRANSLATED and not self._preserved.matches(topic):
            return "twinlog.offsets"
        return self._dropped_by(topic)


def offsets_rule(config: FlowConfig) -> OffsetsRule:
    """The rule of a flow: a copy that lacks records of its topic cannot have the source's offsets. Raises
    ConfigError."""
    transforms = TopicTransforms(config.policy_config, config.flow.source)
    policy = policy_from_config(config.policy_config)
    return OffsetsRule(config.source.offsets, transforms.dropped_by, policy.is_heartbeats_topic)


class ExpectedReason(StrEnum):
    """Why a copy will have its own offsets; the source service uses the same reasons."""

    OFFSETS_CONFIGURED = "OFFSETS_CONFIGURED"
    TRANSACTIONS_DISABLED = "TRANSACTIONS_DISABLED"
    COMPACTED = "COMPACTED"
    FILL_TOO_LARGE = "FILL_TOO_LARGE"


@dataclass(frozen=True, slots=True, kw_only=True)
class UncopiedTopic:
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
    topics: Collection[UncopiedTopic], rule: OffsetsRule, *, exactly_once: bool
) -> dict[str, ExpectedOffsets]:
    """Predictions by topic. The cheapest topics come first, because a flow shares
    `twinlog.offsets.fill.total`."""
    found: dict[str, ExpectedOffsets] = {}
    left = rule.fill_total
    for topic in sorted(topics, key=lambda each: (max(each.log_starts, default=0), each.name)):
        found[topic.name] = expected = _expected(topic, rule, left, exactly_once=exactly_once)
        left -= expected.filled_offsets
    return found


def _expected(topic: UncopiedTopic, rule: OffsetsRule, left: int, *, exactly_once: bool) -> ExpectedOffsets:
    must = rule.wanted(topic.name) is OffsetsMode.PRESERVED
    most, total = max(topic.log_starts, default=0), sum(topic.log_starts)
    objection: tuple[str, str, str] | None = None
    if by := rule.translated_by(topic.name):
        objection = ExpectedReason.OFFSETS_CONFIGURED, f"it is configured by {by}", by
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
