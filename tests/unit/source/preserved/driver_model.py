"""The driver of one preserved copy in the model, and what is on the log about it."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from twinlog.batches import NewRecord
from twinlog.config import OffsetsMode, OffsetsSettings
from twinlog.model import Flow, TopicPartition
from twinlog.policy.expected_offsets import OffsetsRule
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.log.control import ControlState
from twinlog_source.log.fact_records import parse_control
from twinlog_source.log.facts import CopyFact
from twinlog_source.partitions.events import CopyChanged, LogReread, Reported
from twinlog_source.partitions.orders import PartitionReport, PreservedTerms, TaskAssignment, TaskReport
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.topics.flow_book import FlowBook
from twinlog_source.topics.new_copies import CopyChanges

P = TopicPartition("t", 0)


@dataclass(eq=False)
class PositionsLog:
    """What is on the log about the partition."""

    position: int = 0
    control: ControlState = field(default_factory=ControlState)

    def commit(self, position: int, records: list[NewRecord]) -> None:
        """One transaction."""
        self.position = position
        for record in records:
            parsed = parse_control("A", record.key, record.value)
            assert parsed is not None
            self.control.apply(parsed)

    @property
    def copy(self) -> CopyFact:
        return self.control.copies[P]


@dataclass(eq=False)
class Driver:
    """What a driver makes of the log, and of the words of its task."""

    log: PositionsLog
    mode: OffsetsMode
    table: PartitionTable = field(init=False)
    changes: CopyChanges = field(init=False)

    def __post_init__(self) -> None:
        nothing: Any = None
        self.table = PartitionTable(rows={P: PartitionRow(partition=P, target_topic="t")})
        # In memory of its own: the log is read only when the driver reads it.
        positions: Any = PositionsLog(control=ControlState(copies=dict(self.log.control.copies)))
        flow: Any = SimpleNamespace(flow=Flow("A", "B"))
        self.changes = CopyChanges(
            rule=OffsetsRule(OffsetsSettings(mode=self.mode)),
            book=FlowBook(
                flow=flow,
                source=nothing,
                target=nothing,
                positions=positions,
                journal=nothing,
                clock=FakeClock(),
                on_gap=nothing,
                table=self.table,
            ),
        )
        demanded = self.mode is OffsetsMode.PRESERVED and not self.log.copy.preserved
        copy = None if demanded else self.log.copy
        self.table.apply(CopyChanged(partition=P, copy=copy), 0.0)

    @property
    def row(self) -> PartitionRow:
        return self.table.rows[P]

    def hear(self, report: PartitionReport) -> None:
        """A word of the task."""
        said = TaskReport(partitions=(report,))
        self.table.apply(Reported(slot=0, report=said, now_ms=1), 1.0)
        self.changes.take_ended()
        self.changes.take_skips()

    def read_log(self) -> None:
        """The task is gone without last words, and fenced."""
        self.changes.book.control.copies.update(self.log.control.copies)
        self.table.apply(LogReread(partitions=[P], positions={P: self.log.position}, leader_epochs={}), 1.0)
        self.changes.take_from_log([P])

    @property
    def assignment(self) -> TaskAssignment | None:
        """None when the copy is not preserved any more."""
        copy = self.row.copy
        if copy is None or not copy.preserved:
            return None
        assert self.row.position is not None
        return TaskAssignment(
            partition=P,
            target_topic="t",
            position=self.row.position,
            position_stored=True,
            preserved=PreservedTerms(
                skip_from=copy.skip_from,
                skip_to=copy.skip_to,
                since=copy.since,
                required=self.mode is OffsetsMode.PRESERVED,
                leader_epoch=copy.leader_epoch,
            ),
            target_topic_id=copy.target_topic_id,
        )


def begin(log: PositionsLog, topic_id: str = "id") -> None:
    """A copy that is decided to be preserved, from offset 0 on."""
    fact = CopyFact(partition=P, preserved=True, since=0, reason="", target_topic_id=topic_id)
    log.position = 0
    log.control.copies[P] = replace(fact)
