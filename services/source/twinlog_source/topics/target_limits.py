"""The largest batch that the target accepts, read by the source service itself while a topic's batches are
refused.

configsync reads the limit when it creates or changes a topic. If somebody lowers or raises it later, it is
seen here: batches are split, or a record that was too large is copied, without a command.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from twinlog.batches import largest_batch_bytes
from twinlog.errors import KafkaError
from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.reasons import KafkaReason
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog_source.partitions.table import PartitionTable

LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    said: int
    """As configsync read it."""
    found: int
    """As read on the target."""


@dataclass(slots=True, kw_only=True)
class TargetLimits:
    target: KafkaCluster
    table: PartitionTable
    _seen: dict[str, _Seen] = field(default_factory=dict)
    """By source topic; a later value of configsync takes precedence."""
    _due_at: float = 0.0

    async def corrected(
        self, topics: Mapping[str, ReplicatedTopic], now: float
    ) -> dict[str, ReplicatedTopic]:
        """The topics with their present limits. Raises KafkaError."""
        if now >= self._due_at:
            self._due_at = now + LOOK_SECONDS
            await self._look(topics)
        return {name: self._correct(topic) for name, topic in topics.items()}

    async def _look(self, topics: Mapping[str, ReplicatedTopic]) -> None:
        refused = {
            row.partition.topic: row.target_topic
            for row in self.table.rows.values()
            if row.task_reason == KafkaReason.RECORD_TOO_LARGE and row.partition.topic in topics
        }
        if not refused:
            return
        configs = await self.target.describe_topic_configs(sorted(refused.values()))
        for name, target_topic in refused.items():
            entries = configs[target_topic]
            if isinstance(entries, KafkaError):
                continue
            found = largest_batch_bytes({entry.name: entry.value for entry in entries})
            if found is not None:
                said = topics[name].limits.max_message_bytes
                self._seen[name] = _Seen(said=said, found=found)

    def _correct(self, topic: ReplicatedTopic) -> ReplicatedTopic:
        seen = self._seen.get(topic.source_topic)
        if seen is None or seen.said != topic.limits.max_message_bytes:
            return topic
        return replace(topic, limits=replace(topic.limits, max_message_bytes=seen.found))
