"""Where the source's logs end, asked by the driver itself, whether anything is copied or not.

All partitions of a flow are asked for in one request to each broker. A broker that does not answer costs its
own partitions their answer and no others (`look_up_offsets`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError, TwinlogError
from twinlog.kafka.ports import LogAdmin, LogReader, OffsetSpec
from twinlog.model import TopicPartition
from twinlog_source.partitions.events import EndsSeen, RecordDated
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.table import PartitionTable

TIMEOUT_SECONDS = 5.0
"""The timeout of one look; build it into the clients that are passed here."""
LOOK_SECONDS = 2.0
PARTITIONS_PER_SECOND = 2000
"""Many partitions are looked at less often, so that looking stays a small share of a core."""
FLOWS_PER_SECOND = 10
"""All flows of a process together look so often at most."""
TIMESTAMPS_AT_ONCE = 20
"""A look reads the timestamps of so many partitions at most: each takes a fetch of its own."""


@dataclass(slots=True, kw_only=True)
class SourceEnds:
    source: LogAdmin
    reader: LogReader
    table: PartitionTable
    read_committed: bool
    clock: Clock
    flows: int = 1
    """How many flows the process has."""
    _due_at: float = field(default=float("-inf"))

    @property
    def is_due(self) -> bool:
        return self.clock.monotonic() >= self._due_at

    @property
    def due_in_seconds(self) -> float:
        """0 when a look is due."""
        return max(0.0, self._due_at - self.clock.monotonic())

    async def look(self) -> None:
        """Read all ends, then the age of what is behind where that is not known. Never raises KafkaError:
        what could not be read is known of the rows."""
        partitions = list(self.table.rows)
        if not partitions:
            return
        self._due_at = self.clock.monotonic() + max(
            LOOK_SECONDS, len(partitions) / PARTITIONS_PER_SECOND, self.flows / FLOWS_PER_SECOND
        )
        spec = OffsetSpec.LAST_STABLE if self.read_committed else OffsetSpec.LATEST
        asked_at = self.clock.monotonic()
        try:
            ends: Mapping[TopicPartition, int | KafkaError] = await self.source.list_offsets(spec, partitions)
        except KafkaError as error:
            ends = dict.fromkeys(partitions, error)
        # As of the question: what came after it may be younger, never older, than it is told to be.
        self.table.apply(EndsSeen(ends=ends, asked_at=asked_at), self.clock.monotonic())
        await self._read_timestamps([row for row in self.table.rows.values() if row.lag_time.needs_timestamp])

    async def _read_timestamps(self, rows: Sequence[PartitionRow]) -> None:
        for row in rows[:TIMESTAMPS_AT_ONCE]:
            position = row.position
            if position is None or row.end_problem is not None:
                continue
            try:
                fetched = await self.reader.fetch(row.partition, position, max_wait_seconds=0.1, max_bytes=1)
            except TransientKafkaError:
                return  # the next look tries again
            except TwinlogError:
                continue  # a batch that cannot be read has no age; the copy says what is wrong with it
            timestamp_ms = next((record.timestamp_ms for record in fetched.records), -1)
            if timestamp_ms >= 0:
                age_seconds = (self.clock.now_ms() - timestamp_ms) / 1000
                now = self.clock.monotonic()
                written_at = now - max(0.0, age_seconds)
                self.table.apply(
                    RecordDated(partition=row.partition, offset=position, written_at=written_at), now
                )
