"""The driver's knowledge of a flow's partitions. Changed by events (`apply`), read by everybody.

Invariant: nothing else writes to the table or its rows. A component that learns something reports it as an
event, and the resulting work comes back as effects.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from twinlog.errors import KafkaError, TwinlogError
from twinlog.model import TopicPartition
from twinlog.verify.standing import ProofStanding
from twinlog_source.partitions.events import (
    Copied,
    Effect,
    EndsSeen,
    EpochEnded,
    Event,
    FlowStopped,
    Followed,
    GapFound,
    LogReread,
    MovementChecked,
    OpenTransactionsSeen,
    Proven,
    Reported,
    RowsEvent,
    TopicsChosen,
)
from twinlog_source.partitions.orders import PartitionReport, PartitionState
from twinlog_source.partitions.planner import BACKLOG_RECORDS, BEHIND_RECORDS, BEHIND_SECONDS, Load
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.transitions import (
    added_by_lane,
    cut_off,
    end_in_order,
    follow,
    reread,
    see_end,
    take,
)

_MOVING = frozenset((PartitionState.RUNNING, PartitionState.BACKOFF))


@dataclass(slots=True, kw_only=True)
class PartitionTable:
    """All partitions of one flow. Changed on the driver's event loop only; its figures may be read from any
    thread."""

    is_heartbeats: Callable[[str], bool] = lambda topic: False
    """Whether a source topic is one of heartbeats."""
    rows: dict[TopicPartition, PartitionRow] = field(default_factory=dict)
    records: int = 0
    bytes: int = 0
    problem: TwinlogError | None = None
    """Why the flow as a whole does not copy; None while it does."""
    proofs: Mapping[TopicPartition, ProofStanding] = field(default_factory=dict)
    """The latest result of continuous verification for each partition."""
    heard_at: dict[int, float] = field(default_factory=dict)
    """When each slot last reported, in monotonic seconds."""
    source_throttled_at: dict[int, float] = field(default_factory=dict)
    """When each slot last reported that a quota of the source delays it, in monotonic seconds."""
    target_throttled_at: dict[int, float] = field(default_factory=dict)
    followed_at: float | None = None
    """When the positions were read that another process moves; None = this process moves them."""
    news: int = 0
    """Number of reports so far in which a task had news about a partition."""
    last_copied_at_ms: int = 0
    """When records were last acknowledged; 0 = not since the start."""
    last_copied_record_ms: int = 0
    """The timestamp of the newest of these records."""
    _leaving: dict[TopicPartition, PartitionRow] = field(default_factory=dict)
    """Partitions that are no longer to be copied, but are still in the running epoch."""

    def apply(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Apply an event; `now` is in monotonic seconds. Return the effects. An event about a partition that
        the flow does not have changes nothing."""
        match event:
            case Reported():
                return self._report(event, now)
            case FlowStopped(problem=problem):
                self.problem = problem
            case Proven(proofs=proofs):
                self.proofs = dict(proofs)
            case (
                TopicsChosen()
                | EndsSeen()
                | OpenTransactionsSeen()
                | MovementChecked()
                | Followed()
                | LogReread()
                | EpochEnded()
            ):
                self._change_all(event, now)
            case _:
                row = self.rows.get(event.partition)
                if row is not None:
                    event.change(row, now)
        return ()

    def plannable(self) -> frozenset[TopicPartition]:
        """Partitions whose position and kind of copy are known, and that nothing blocks."""
        return frozenset(
            partition
            for partition, row in self.rows.items()
            if row.position is not None and row.copy is not None and row.blocker is None
        )

    @property
    def preserved_at_rest(self) -> bool | None:
        """Whether no preserved copy has a write in flight; None = there are no preserved copies."""
        rows = [row for row in self.rows.values() if row.is_preserved]
        return all(row.knows_former_tasks and row.cut_off_at is None for row in rows) if rows else None

    def rates(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, float | None]:
        """The measured bytes per second of each partition, None where nothing was measured yet."""
        return {partition: self.rows[partition].bytes.per_second for partition in partitions}

    def load(self, partitions: Collection[TopicPartition], *, now: float) -> Load:
        """The load of these partitions; those that are leaving do not count."""
        rows = [self.rows[partition] for partition in partitions if partition in self.rows]
        # Paused and faulted partitions need no slot, however large their backlog is.
        behind = [
            row for row in rows if (row.last_known_lag or 0) > BACKLOG_RECORDS and row.task_state in _MOVING
        ]
        return Load(
            bytes_per_second=sum(row.bytes.current(now) for row in rows),
            has_backlog=bool(behind),
            is_behind=any(
                row.task_state == PartitionState.RUNNING
                and (row.last_known_lag or 0) > BEHIND_RECORDS
                and (row.lag_time.seconds(now) or 0) > BEHIND_SECONDS
                for row in behind
            ),
        )

    # ----------------------------------------------------------------------------- events of the whole flow

    def _change_all(self, event: RowsEvent, now: float) -> None:
        match event:
            case TopicsChosen(targets=targets, owned=owned):
                self._choose(targets, owned)
            case EndsSeen():
                self._see_ends(event)
            case OpenTransactionsSeen(words=words, waiting=waiting):
                self._see_open_transactions(words, waiting)
            case MovementChecked(paused=paused):
                for partition, row in self.rows.items():
                    # The last known end suffices: ends do not go back, so the backlog before it still exists.
                    must_move = bool(row.last_known_lag) and partition not in paused
                    row.stall.observe(row.position, must_move=must_move, now=now)
            case Followed(positions=positions, read_at=read_at):
                for partition, row in self.rows.items():
                    follow(row, positions.get(partition))
                self.followed_at = read_at
            case LogReread(partitions=partitions, positions=positions, leader_epochs=epochs):
                for partition, row in self._found(partitions):
                    reread(
                        row,
                        positions.get(partition),
                        epochs.get(partition, ()),
                        wrote_nothing=partition in event.wrote_nothing,
                    )
                    cut_off(row, now)
            case EpochEnded(partitions=partitions):
                for _, row in self._found(partitions):
                    end_in_order(row, now)
            case _:
                assert_never(event)

    def _found(self, partitions: Collection[TopicPartition]) -> list[tuple[TopicPartition, PartitionRow]]:
        return [(partition, self.rows[partition]) for partition in partitions if partition in self.rows]

    def _choose(self, targets: Mapping[TopicPartition, str], owned: Collection[TopicPartition]) -> None:
        known = {one: row for one, row in self._leaving.items() if one in owned} | self.rows
        self._leaving = {one: known[one] for one in owned if one in known and one not in targets}
        later = bool(self.rows)
        self.rows = {one: known.get(one) or PartitionRow(partition=one, came_later=later) for one in targets}
        for partition, target_topic in targets.items():
            self.rows[partition].target_topic = target_topic
            self.rows[partition].is_heartbeats = self.is_heartbeats(partition.topic)

    def _see_open_transactions(
        self, words: Mapping[TopicPartition, str], waiting: Collection[TopicPartition]
    ) -> None:
        for partition, row in self.rows.items():
            row.open_transaction = words.get(partition, "")
            row.waits_for_transaction = partition in waiting

    def _see_ends(self, event: EndsSeen) -> None:
        for partition, end in event.ends.items():
            row = self.rows.get(partition)
            if row is None:
                continue
            if isinstance(end, KafkaError):
                row.end_problem = end
            else:
                see_end(row, end, event.asked_at)

    # -------------------------------------------------------------------------------------------- reports

    def _report(self, event: Reported, now: float) -> tuple[Effect, ...]:
        report, effects = event.report, list[Effect]()
        self.news += bool(report.partitions)
        self.heard_at[event.slot] = now
        if report.source_throttled:
            self.source_throttled_at[event.slot] = now
        if report.target_throttled:
            self.target_throttled_at[event.slot] = now
        for each in report.partitions:
            row = self.rows.get(each.partition) or self._leaving.get(each.partition)
            if row is not None:
                take(row, each, slot=event.slot, now=now, now_ms=event.now_ms)
                effects.append(self._count(row, each, now=now, now_ms=event.now_ms))
        effects += [GapFound(gap=gap) for gap in report.gaps]
        return tuple(effects)

    def _count(self, row: PartitionRow, report: PartitionReport, *, now: float, now_ms: int) -> Copied:
        records = int(row.records.observe(report.records, now))
        added_bytes = int(row.bytes.observe(report.bytes, now))
        self.records += records
        self.bytes += added_bytes
        if records:
            self._note_copied(row, report, now=now, now_ms=now_ms)
        return Copied(
            row=row,
            records=records,
            bytes=added_bytes,
            latency=report.latency,
            record_age=report.record_age,
            lanes=added_by_lane(row, report),
        )

    def _note_copied(self, row: PartitionRow, report: PartitionReport, *, now: float, now_ms: int) -> None:
        self.last_copied_at_ms = now_ms
        if report.replication_latency_ns is not None:
            latency_ms = report.replication_latency_ns // 1_000_000
            self.last_copied_record_ms = max(self.last_copied_record_ms, now_ms - latency_ms)
            written_at = now - latency_ms / 1000
            row.lag_time.note_written(report.position, written_at)
