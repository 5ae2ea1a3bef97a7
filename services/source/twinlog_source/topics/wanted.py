"""The topics that are to be copied now: configsync's list, corrected by what the clusters report."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.model import Flow
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog.service.feeds.topics import TopicsWatch
from twinlog_source.log.positions import PositionsLog
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.reasons import PartitionReason
from twinlog_source.topics.known import KnownTopics
from twinlog_source.topics.target_limits import TargetLimits

CONFIGSYNC_PATIENCE_SECONDS = 5.0
"""How long to wait for configsync before topics with positions are copied without it."""
LOOK_AGAIN_SECONDS = 10.0
IDS_SECONDS = 1.0
IDS_TOPICS_PER_SECOND = 200
IDS_FLOWS_PER_SECOND = 10
"""How often all flows of a process together ask at most, so that a hundred idle ones stay cheap."""


@dataclass(slots=True, kw_only=True)
class WantedTopics:
    flow: Flow
    watch: TopicsWatch
    known: KnownTopics
    positions: PositionsLog
    table: PartitionTable
    limits: TargetLimits
    clock: Clock
    flows: int = 1
    """The number of flows in the process."""
    _began: float | None = None
    _looked_at: float | None = None
    _ids: dict[str, str] = field(default_factory=dict)
    """The ids of the source topics, as the source last reported them: an answer that fails changes none."""
    _ids_due_at: float = 0.0

    async def now(self) -> dict[str, ReplicatedTopic]:
        """The topics that may be copied, by source topic. Raises KafkaError."""
        now = self.clock.monotonic()
        if self._began is None:
            self._began = now
        topics = dict(self.watch.topics(self.flow))
        if not self.watch.settled(self.flow) and now - self._began >= CONFIGSYNC_PATIENCE_SECONDS:
            if self._looked_at is None or now - self._looked_at >= LOOK_AGAIN_SECONDS:
                positions = list(await self.positions.refresh())
                left = {mark.topic for mark in self.positions.control.topics.values() if mark.left}
                await self.known.look(positions, without=left)
                self._looked_at = now
            topics = {**self.known.topics, **topics}
        topics = await self.limits.corrected(topics, now)
        await self._look_at_ids(topics, now)
        return {
            # What the source reports is newer than what configsync has seen.
            name: self._with_id(name, topic)
            for name, topic in topics.items()
            if topic.copyable_partition_count > 0
        }

    def _with_id(self, name: str, topic: ReplicatedTopic) -> ReplicatedTopic:
        topic_id = self._ids.get(name, topic.source_topic_id)
        # Mostly they agree, and copying all topics every second would be a large part of a flow's cost.
        return topic if topic_id == topic.source_topic_id else replace(topic, source_topic_id=topic_id)

    async def _look_at_ids(self, topics: Mapping[str, ReplicatedTopic], now: float) -> None:
        """Ask the source for the ids of its topics: a topic that was recreated within a moment must not be
        read from the old position for long."""
        due = now >= self._ids_due_at
        if due:
            self._ids_due_at = now + max(
                IDS_SECONDS, len(topics) / IDS_TOPICS_PER_SECOND, self.flows / IDS_FLOWS_PER_SECOND
            )
            # Ids of topics that leave are dropped. The others stay also while the source does not answer:
            # configsync may still report the id of the deleted topic.
            self._ids = {name: topic_id for name, topic_id in self._ids.items() if name in topics}
        suspected = {
            row.partition.topic
            for row in self.table.rows.values()
            if row.task_reason == PartitionReason.TRUNCATION_SUSPECTED
        }
        asked = list(topics) if due else sorted(suspected & topics.keys())
        if not asked:
            return
        described = await self.known.source.describe_topics(asked)
        for name, found in described.items():
            if not isinstance(found, KafkaError) and found.topic_id:
                self._ids[name] = found.topic_id
