"""The positions of a flow that another process copies, read from the target's log, so that a standby knows
the lag as well as the owner. Writes nothing, and changes nothing of a flow that this process owns."""

from collections.abc import Callable
from dataclasses import dataclass, field

from twinlog.clock import Clock
from twinlog.kafka.ports import TopicAdmin
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.replicated_topics import copyable_partitions
from twinlog_source.config import SourceFlow
from twinlog_source.log.positions import PositionsLog
from twinlog_source.partitions.events import Followed, TopicsChosen
from twinlog_source.partitions.table import PartitionTable

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
        if self.is_owned():
            return  # This process now owns the flow and knows newer positions.
        stored, topics = self.positions.known(), self.decisions.topics(self.flow.flow)
        targets = {
            partition: topics[partition.topic].target_topic for partition in copyable_partitions(topics)
        }
        now = self.clock.monotonic()
        self.table.apply(TopicsChosen(targets=targets), now)
        self.table.apply(Followed(positions=stored, read_at=read_at), now)
