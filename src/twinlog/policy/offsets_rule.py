"""The configured offsets of a topic's copy, and their cost. Pure."""

from collections.abc import Callable

from twinlog.config.flow.settings import FlowConfig, OffsetsMode, OffsetsSettings
from twinlog.filters import PatternList
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
        self, settings: OffsetsSettings, drops_records: Callable[[str], bool] = lambda _topic: False
    ) -> None:
        """`drops_records`: whether the transforms of a topic drop records. Raises ConfigError for a pattern
        that does not compile."""
        self._drops_records = drops_records
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
        if self._translated.matches(topic) or self._drops_records(topic):
            return OffsetsMode.TRANSLATED
        return OffsetsMode.PRESERVED if self._preserved.matches(topic) else self._mode


def offsets_rule(config: FlowConfig) -> OffsetsRule:
    """The rule of a flow: a copy that lacks records of its topic cannot have the source's offsets. Raises
    ConfigError."""
    transforms = TopicTransforms(config.policy_config, config.flow.source)
    return OffsetsRule(config.source.offsets, transforms.drops_records)
