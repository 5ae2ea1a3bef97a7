"""How far a flow of another file copies back, as its positions topic on the source says.

Invariant: no position is ahead of the copy of which it is told. Facts say of which topics a position is, and
are written behind it where these are others: so positions are read once more after the facts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.kafka.deadline import deadline
from twinlog.kafka.ports import LogReader
from twinlog.model import TopicPartition
from twinlog_source.log.facts import CopyFact, TopicFact
from twinlog_source.log.positions import PositionsLog
from twinlog_source.topics.id_tables import IdTable, IdTables

READ_SECONDS: Final = 8.0
"""For one answer. A transaction may be open for longer, and hide what is committed behind it."""


class CopiedBack(NamedTuple):
    partition: TopicPartition
    """Of the flow's own source."""
    position: int
    """The next offset to copy."""
    target_end: int | None
    """The copy had records up to here; 0 = the flow has written nothing; None = not known."""
    topic_id: str
    target_topic_id: str


@dataclass(slots=True, kw_only=True)
class FlowBack:
    ids: IdTables
    reader: LogReader
    """Reads the source with read_committed: a position of an aborted transaction is none."""
    _logs: dict[str, PositionsLog] = field(default_factory=dict)
    """By Kafka's id of the topic."""

    async def told(self) -> list[CopiedBack]:
        """Every partition of which its topics are known, sorted; none that two flows copy. Raises KafkaError
        and WireFormatError."""
        async with deadline(READ_SECONDS, "read the positions of the flow back"):
            await self.ids.read()
            tables = [each for each in self.ids.tables.values() if self.ids.is_back(each)]
            for failure in (each.failure for each in tables if each.failure is not None):
                raise failure
            known, self._logs = self._logs, {}
            found: dict[TopicPartition, list[CopiedBack]] = {}
            for table in tables:
                log = known.get(table.topic_id) or self._log(table)
                log.partition_count = table.log.partition_count
                for copied in await self._read(log):
                    found.setdefault(copied.partition, []).append(copied)
                if not log.has_lost:
                    self._logs[table.topic_id] = log
        return [each[0] for _, each in sorted(found.items()) if len(each) == 1]

    async def _read(self, log: PositionsLog) -> list[CopiedBack]:
        await log.forget_if_stale()
        await log.refresh()
        topics, copies = dict(log.control.topics), dict(log.control.copies)
        await log.refresh()
        return list(_copied(log, topics, copies))

    def _log(self, table: IdTable) -> PositionsLog:
        return PositionsLog(
            list_offsets=self.ids.source.list_offsets,
            reader=self.reader,
            topic=table.log.topic,
            partition_count=0,
            source_alias=table.log.source_alias,
            clock=self.ids.clock,
        )


def _copied(
    log: PositionsLog, topics: Mapping[str, TopicFact], copies: Mapping[TopicPartition, CopyFact]
) -> Iterator[CopiedBack]:
    for partition, position in log.known().items():
        topic, copy = topics.get(partition.topic), copies.get(partition)
        if topic is None or copy is None or partition in log.unreadable:
            continue
        mark = log.control.targets.get(partition)
        end = mark.end_offset if mark is not None and mark.topic_id == copy.target_topic_id else 0
        target_end = 0 if partition in log.nothing_written else end or None
        yield CopiedBack(partition, position, target_end, topic.topic_id, copy.target_topic_id)
