"""What tasks are told of the partitions they copy: where from, where to, and how fast."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.config import OffsetsMode
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog.policy.offsets_rule import OffsetsRule
from twinlog.service.feeds.topics import ReplicatedTopic
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import CopyFact, EpochStart
from twinlog_source.partitions.events import TargetChanged
from twinlog_source.partitions.planner import Plan
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.shares import SlotLimits, share_limit
from twinlog_source.partitions.states import PartitionState
from twinlog_source.partitions.table import PartitionTable

Limits = tuple[str, int, str, str]
"""Which topic the copies go to, and what it takes."""
_Terms = tuple[Limits, bool]
"""The same, and whether the copy keeps its source's offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setback:
    """A back-off or a fault that outlives the task that met it."""

    state: PartitionState
    reason: str
    message: str
    retry_in_ms: int
    failures: int
    """In a row so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One partition, as it is handed to a task."""

    partition: TopicPartition
    topic: ReplicatedTopic
    position: int
    position_stored: bool
    """The log holds it; else a reset chose it."""
    copy: CopyFact
    offsets_required: bool
    """The configuration demands the source's offsets."""
    skip_handed_seconds: float
    """How long ago the range that the copy leaves out was handed to a task first."""
    paused: bool
    setback: Setback | None
    """None also where another limit, or another topic, may let succeed what failed before."""
    epochs: tuple[EpochStart, ...]
    target_end: int | None
    """Target offset after the last record that was written; None = not known."""
    target_end_is_exact: bool
    """Of an exactly-once flow: nothing of it lies behind `target_end` that consumers see."""
    sync_pace: SyncPace | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrders:
    table: PartitionTable
    control: ControlState
    rule: OffsetsRule
    exactly_once: bool
    _terms_before: dict[TopicPartition, _Terms] = field(default_factory=dict)
    """How a partition was handed out last."""

    def assignment(
        self, partition: TopicPartition, topic: ReplicatedTopic, *, now: float, now_ms: int
    ) -> Assignment:
        """What a task is told of a partition whose position and kind of copy are known."""
        row = self.table.rows[partition]
        copy = row.copy
        assert row.position is not None
        assert copy is not None
        terms, before = (limits_of(topic), copy.preserved), self._terms_before.get(partition)
        self._terms_before[partition] = terms
        if before is not None and before[0][0] != terms[0][0]:
            self.table.apply(TargetChanged(partition=partition), now)
        return Assignment(
            partition=partition,
            topic=topic,
            position=row.position,
            position_stored=row.stored,
            copy=copy,
            offsets_required=self.rule.wanted(partition.topic) is OffsetsMode.PRESERVED,
            skip_handed_seconds=_skip_handed_seconds(row, now=now),
            paused=self.control.is_paused(partition),
            setback=_setback(row, now_ms=now_ms) if terms == before else None,
            epochs=row.epochs,
            target_end=row.target_end,
            target_end_is_exact=self.exactly_once and row.target_end_is_exact,
            sync_pace=row.sync_pace,
        )

    def throttles(self, plan: Plan, *, now: float) -> list[SlotLimits]:
        """The limits of each slot; together they are the limits in force."""
        totals: list[int | None] = [None] * len(plan)
        by_topic: list[dict[str, int]] = [{} for _ in plan]
        for topic, limit in self.control.throttles.items():
            scoped = [[p for p in slot if topic in (None, p.topic)] for slot in plan]
            demands = [self.table.load(partitions, now=now).most_bytes_per_second for partitions in scoped]
            for slot, share in enumerate(share_limit(limit.bytes_per_second, demands)):
                if topic is None:
                    totals[slot] = max(1, int(share))
                else:
                    by_topic[slot][topic] = max(1, int(share))
        return [
            SlotLimits(bytes_per_second=total, topic_bytes_per_second=limits)
            for total, limits in zip(totals, by_topic, strict=True)
        ]


def limits_of(topic: ReplicatedTopic) -> Limits:
    return (
        topic.target_topic_id,
        topic.target_max_message_bytes,
        topic.target_compression_type,
        topic.target_timestamp_type,
    )


def limits_differ(before: Mapping[str, ReplicatedTopic], now: Mapping[str, ReplicatedTopic]) -> bool:
    """Whether a topic that is in both takes something else now."""
    return any(limits_of(topic) != limits_of(before.get(name, topic)) for name, topic in now.items())


def _skip_handed_seconds(row: PartitionRow, *, now: float) -> float:
    handed = row.skip_handed
    return 0.0 if handed is None or row.copy is None or handed[0] != row.copy.skip_from else now - handed[1]


def _setback(row: PartitionRow, *, now_ms: int) -> Setback | None:
    """Why the partition stands aside, by its last task's word."""
    report = row.report
    if report is None or report.retry_at_ms is None or report.position != row.position:
        return None
    return Setback(
        state=report.state,
        reason=report.reason,
        message=report.message,
        retry_in_ms=max(0, report.retry_at_ms - now_ms),
        failures=report.failures,
    )
