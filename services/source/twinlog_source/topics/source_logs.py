"""Handles recreated source topics: they are copied from their beginning."""

from dataclasses import dataclass

import structlog

from twinlog.clock import Clock
from twinlog.model import TopicPartition
from twinlog.service.feeds.replicated_topics import Topics
from twinlog_source.log.gaps import Gap
from twinlog_source.log.journal import Journal
from twinlog_source.log.ledger import Ledger
from twinlog_source.log.positions import PositionsLog
from twinlog_source.log.topic_facts import TopicFacts
from twinlog_source.partitions.events import SourceRecreated
from twinlog_source.partitions.table import PartitionTable

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLogs:
    table: PartitionTable
    marks: TopicFacts
    positions: PositionsLog
    journal: Journal
    ledger: Ledger
    clock: Clock

    def was_recreated(self, topics: Topics) -> bool:
        """Whether a topic is another one than that of its positions."""
        return any(map(self.marks.source_was_recreated, topics.values()))

    async def restart_recreated(self, topics: Topics) -> None:
        """Begin recreated topics at 0, or at their first record if no position of the old topic was stored;
        records of the old topic that were not copied are a gap. Call it while nothing copies them. Raises
        KafkaError."""
        for topic in topics.values():
            if not self.marks.source_was_recreated(topic):
                continue
            name = topic.source_topic
            log.warning("topic_recreated", flow=str(self.marks.flow), topic=name)
            stored = await self.positions.refresh()
            known = {*stored, *self.table.rows}
            for partition in sorted(each for each in known if each.topic == name):
                await self._restart(partition, stored.get(partition))
            # From now on every partition counts as newer than the flow.
            await self.marks.record(topic, known_partitions=0)

    async def _restart(self, partition: TopicPartition, stored: int | None) -> None:
        row = self.table.rows.get(partition)
        # The position of a preserved copy is only stored at an interval, and a first one not at once.
        positions = (stored, None if row is None else row.position)
        known = [position for position in positions if position is not None]
        if row is not None and row.task_end is not None and known:
            gap = Gap(
                partition=partition,
                from_offset=max(known),
                to_offset=row.task_end,
                reason="TOPIC_RECREATED",
                found_at_ms=self.clock.now_ms(),
            )
            await self.ledger.write(gap)
        if stored is not None:
            await self.journal.position(partition, 0)
        # Without a stored position it begins as a new partition does, and not where the old topic began.
        self.table.apply(SourceRecreated(partition=partition), self.clock.monotonic())
