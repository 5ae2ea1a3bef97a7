"""Handles recreated source topics: they are copied from their beginning."""

from dataclasses import dataclass

import structlog

from twinlog.clock import Clock
from twinlog.model import TopicPartition
from twinlog_source.log.gaps import Gap
from twinlog_source.log.journal import Journal
from twinlog_source.log.ledger import Ledger
from twinlog_source.log.positions import PositionsLog
from twinlog_source.log.topic_facts import TopicFacts
from twinlog_source.partitions.events import SourceRecreated
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.topics.known import Topics

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
        """Begin recreated topics at 0; records of the old topic that were not copied are a gap. Call it while
        nothing copies them. Raises KafkaError."""
        for topic in topics.values():
            if not self.marks.source_was_recreated(topic):
                continue
            log.warning("topic_recreated", flow=str(self.marks.flow), topic=topic.source_topic)
            for partition, position in list((await self.positions.refresh()).items()):
                if partition.topic == topic.source_topic:
                    await self._restart(partition, position)
            # From now on every partition counts as newer than the flow.
            await self.marks.record(topic, known_partitions=0)

    async def _restart(self, partition: TopicPartition, position: int) -> None:
        row = self.table.rows.get(partition)
        if row is not None:
            # The position of a preserved copy is only stored at an interval.
            position = max(position, row.position or 0)
        end = max(position, 0 if row is None else row.task_end or 0)
        gap = Gap(
            partition=partition,
            from_offset=position,
            to_offset=end,
            reason="TOPIC_RECREATED",
            found_at_ms=self.clock.now_ms(),
        )
        await self.ledger.write(gap)
        await self.journal.position(partition, 0)
        self.table.apply(SourceRecreated(partition=partition), self.clock.monotonic())
