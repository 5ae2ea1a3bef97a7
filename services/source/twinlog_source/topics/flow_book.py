"""What the parts of a flow's state read and write together: its table, and its log on the target."""

from collections.abc import Collection
from dataclasses import dataclass

from twinlog.clock import Clock
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import TopicPartition
from twinlog_source.config import SourceFlow
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import Fact
from twinlog_source.log.journal import Journal, Ledger, TopicIdentities
from twinlog_source.log.positions import PositionsLog
from twinlog_source.partitions.events import Event, SetAside
from twinlog_source.partitions.table import PartitionTable

RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowBook:
    flow: SourceFlow
    source: KafkaCluster
    target: KafkaCluster
    table: PartitionTable
    positions: PositionsLog
    journal: Journal
    ledger: Ledger
    marks: TopicIdentities
    clock: Clock

    @property
    def control(self) -> ControlState:
        return self.marks.control

    def note(self, event: Event) -> None:
        self.table.apply(event, self.clock.monotonic())

    def set_aside(
        self, partition: TopicPartition, reason: str, message: str, *, wait_seconds: float = RETRY_SECONDS
    ) -> None:
        retry_at = self.clock.monotonic() + wait_seconds
        self.note(SetAside(partition=partition, reason=reason, message=message, retry_at=retry_at))

    async def record(self, facts: Collection[Fact]) -> None:
        """Put facts in force once the log has them. Raises KafkaError."""
        await self.journal.record_all(facts)
        for fact in facts:
            self.control.record(fact)
