"""The ends of the source's logs, read by the driver itself, whether or not anything is copied.

All partitions of a flow are requested with one request to each broker. A broker that does not answer affects
only its own partitions (`look_up_offsets`).

Handles recreated source topics: they are copied from their beginning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError, TwinlogError
from twinlog.kafka.ports import LogAdmin, LogReader, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.service.feeds.replicated_topics import Topics
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.events import EndsSeen, RecordDated, SourceRecreated, TargetRecreated
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.topics.flow_book import FlowBook

TIMEOUT_SECONDS = 5.0
"""The time-out of one read; build it into the clients that are passed here."""
LOOK_SECONDS = 2.0
PARTITIONS_PER_SECOND = 2000
"""Many partitions are read less often, so that reading stays a small share of a core."""
FLOWS_PER_SECOND = 10
"""How often all flows of a process together read."""
LONGEST_LOOK_SECONDS = 10.0
"""However many partitions and flows there are: an end that was read is valid for little longer
(`END_VALID_SECONDS`), and without it the lag would be unknown."""
TIMESTAMPS_AT_ONCE = 20
"""The most timestamps that one call reads: each takes a fetch of its own."""


def look_seconds(partitions: int, flows: int) -> float:
    """The time between two reads of a flow's partitions, in a process of so many flows.

    >>> [look_seconds(*each) for each in ((100, 1), (10_000, 1), (100_000, 1), (100, 50), (100, 1_000))]
    [2.0, 5.0, 10.0, 5.0, 10.0]
    """
    wanted_seconds = max(partitions / PARTITIONS_PER_SECOND, flows / FLOWS_PER_SECOND)
    return min(LONGEST_LOOK_SECONDS, max(LOOK_SECONDS, wanted_seconds))


@dataclass(slots=True, kw_only=True)
class SourceEnds:
    source: LogAdmin
    reader: LogReader
    table: PartitionTable
    read_committed: bool
    clock: Clock
    flows: int = 1
    """The number of flows in the process."""
    _due_at: float = field(default=float("-inf"))
    _turn: int = 0
    """Where the next read of timestamps begins: rows whose next record cannot be read keep nobody waiting."""

    @property
    def is_due(self) -> bool:
        return self.clock.monotonic() >= self._due_at

    @property
    def due_in_seconds(self) -> float:
        """0 when a read is due."""
        return max(0.0, self._due_at - self.clock.monotonic())

    async def look(self) -> None:
        """Read all ends, then the missing ages of partitions that are behind. Never raises KafkaError: the
        rows show what could not be read."""
        partitions = list(self.table.rows)
        if not partitions:
            return
        self._due_at = self.clock.monotonic() + look_seconds(len(partitions), self.flows)
        spec = OffsetSpec.LAST_STABLE if self.read_committed else OffsetSpec.LATEST
        asked_at = self.clock.monotonic()
        try:
            ends: Mapping[TopicPartition, int | KafkaError] = await self.source.list_offsets(spec, partitions)
        except KafkaError as error:
            ends = dict.fromkeys(partitions, error)
        # As of the request: later records may be younger than the reported age, never older.
        self.table.apply(EndsSeen(ends=ends, asked_at=asked_at), self.clock.monotonic())
        await self._read_timestamps([row for row in self.table.rows.values() if row.lag_time.needs_timestamp])

    async def _read_timestamps(self, rows: Sequence[PartitionRow]) -> None:
        first = self._turn % max(1, len(rows))
        self._turn = first + TIMESTAMPS_AT_ONCE
        for row in [*rows[first:], *rows[:first]][:TIMESTAMPS_AT_ONCE]:
            position = row.position
            if position is None or row.end_problem is not None:
                continue
            try:
                fetched = await self.reader.fetch(row.partition, position, max_wait_seconds=0.1, max_bytes=1)
            except TransientKafkaError:
                return  # The next call tries again.
            except TwinlogError:
                continue  # An unreadable batch has no age; the copy reports what is wrong with it.
            timestamp_ms = next((record.timestamp_ms for record in fetched.records), -1)
            if timestamp_ms >= 0:
                age_seconds = (self.clock.now_ms() - timestamp_ms) / 1000
                now = self.clock.monotonic()
                written_at = now - max(0.0, age_seconds)
                self.table.apply(
                    RecordDated(partition=row.partition, offset=position, written_at=written_at), now
                )


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLogs:
    book: FlowBook

    def was_recreated(self, topics: Topics) -> bool:
        """Whether a topic is another one than that of its positions."""
        return any(map(self.book.marks.source_was_recreated, topics.values()))

    async def restart_recreated(self, topics: Topics) -> None:
        """Begin recreated topics at 0, or at their first record if no position of the old topic was stored;
        records of the old topic that were not copied are a gap. Call it while nothing copies them. Raises
        KafkaError."""
        for topic in topics.values():
            if not self.book.marks.source_was_recreated(topic):
                continue
            name = topic.source_topic
            log.warning("topic_recreated", flow=str(self.book.marks.flow), topic=name)
            stored = await self.book.positions.refresh()
            known = {*stored, *self.book.table.rows}
            for partition in sorted(each for each in known if each.topic == name):
                await self._restart(partition, stored.get(partition))
                if self.book.marks.target_was_recreated(topic):
                    self.book.note(TargetRecreated(partition=partition))
            # From now on every partition counts as newer than the flow.
            await self.book.marks.record(topic, known_partitions=0)

    async def _restart(self, partition: TopicPartition, stored: int | None) -> None:
        row = self.book.table.rows.get(partition)
        # The position of a preserved copy is only stored at an interval, and a first one not at once.
        positions = (stored, None if row is None else row.position)
        known = [position for position in positions if position is not None]
        if row is not None and row.task_end is not None and known:
            gap = Gap(
                partition=partition,
                from_offset=max(known),
                to_offset=row.task_end,
                reason="TOPIC_RECREATED",
                found_at_ms=self.book.clock.now_ms(),
            )
            await self.book.ledger.write(gap)
        if stored is not None:
            await self.book.journal.position(partition, 0)
        # Without a stored position it begins as a new partition does, and not where the old topic began.
        self.book.note(SourceRecreated(partition=partition))
