"""The positions of a flow that another process copies, read from the target's log, so that a standby knows
the lag as well as the owner. Writes nothing, and changes nothing of a flow that this process owns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twinlog.clock import Clock
from twinlog.kafka.ports import TopicAdmin
from twinlog.model import TopicPartition
from twinlog.selection import TopicSelector
from twinlog.service.feeds.registry import Decisions
from twinlog_source.config import SourceFlow
from twinlog_source.log.positions import PositionsLog
from twinlog_source.partitions.events import Followed, TopicsChosen
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.topics.known import copyable_partitions
from twinlog_source.topics.stored_selection import StoredSelection

FOLLOW_SECONDS = 4.0
PATIENCE_SECONDS = 4.0
"""A process that takes the flow over within this time reads the positions itself."""


@dataclass(slots=True, kw_only=True)
class PositionsFollower:
    flow: SourceFlow
    target: TopicAdmin
    positions: PositionsLog
    decisions: Decisions
    table: PartitionTable
    selection: StoredSelection
    is_owned: Callable[[], bool]
    """Whether this process owns the flow."""
    clock: Clock
    _due_at: float | None = field(default=None)

    @property
    def is_due(self) -> bool:
        now = self.clock.monotonic()
        if self.is_owned():
            self._due_at = None
        elif self._due_at is None:
            self._due_at = now + PATIENCE_SECONDS
        return self._due_at is not None and now >= self._due_at

    async def follow(self) -> None:
        """Update topics and positions to what the owner has committed. Raises KafkaError, and WireFormatError
        as `PositionsLog.refresh`."""
        self._due_at = self.clock.monotonic() + FOLLOW_SECONDS
        topic = self.positions.topic
        if not self.positions.partition_count:
            found = (await self.target.describe_topics([topic]))[topic]
            if isinstance(found, Exception):
                raise found
            self.positions.partition_count = found.partition_count
        read_at = self.clock.monotonic()
        await self.positions.peek()
        settled = self.decisions.settled(self.flow.flow)
        selector = self.flow.selector if settled else await self.selection.selector()
        if self.is_owned():
            return  # This process now owns the flow and knows newer positions.
        stored = self.positions.known()
        now = self.clock.monotonic()
        self.table.apply(TopicsChosen(targets=self._targets(stored, selector)), now)
        self.table.apply(Followed(positions=stored, read_at=read_at), now)

    def _targets(
        self, stored: Mapping[TopicPartition, int], selector: TopicSelector
    ) -> Mapping[TopicPartition, str]:
        """The partitions of the flow with their target topics: from configsync, or else those that have a
        position and are selected."""
        flow = self.flow.flow
        if self.decisions.settled(flow):
            topics = self.decisions.topics(flow)
            return {
                partition: topics[partition.topic].target_topic for partition in copyable_partitions(topics)
            }
        left = {mark.topic for mark in self.positions.control.topics.values() if mark.left}
        selected = {
            name for name in {partition.topic for partition in stored} - left if selector.selects(name)
        }
        return {
            partition: self.flow.policy.format_remote_topic(flow.source, partition.topic)
            for partition in stored
            if partition.topic in selected
        }
