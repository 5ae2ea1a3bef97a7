"""What the parts of a flow's state read and write together: its table, and its log on the target."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from twinlog.clock import Clock
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import TopicPartition
from twinlog_source.config import SourceFlow
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import Fact
from twinlog_source.log.gaps import Gap
from twinlog_source.log.journal import Journal, Ledger, TopicIdentities
from twinlog_source.log.positions import PositionsLog
from twinlog_source.partitions.events import Event, SetAside
from twinlog_source.partitions.table import PartitionTable

RETRY_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class FlowBook:
    flow: SourceFlow
    source: KafkaCluster
    target: KafkaCluster
    positions: PositionsLog
    journal: Journal
    clock: Clock
    on_gap: Callable[[Gap], None]
    table: PartitionTable = field(default_factory=PartitionTable)
    ledger: Ledger = field(init=False)
    marks: TopicIdentities = field(init=False)

    def __post_init__(self) -> None:
        flow, journal = self.flow.flow, self.journal
        self.ledger = Ledger(flow=flow, journal=journal, positions=self.positions, on_gap=self.on_gap)
        self.marks = TopicIdentities(flow=flow, control=self.control, journal=journal)

    @property
    def control(self) -> ControlState:
        """The facts in force: the owner, operators' commands, the kind of each copy."""
        return self.positions.control

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
