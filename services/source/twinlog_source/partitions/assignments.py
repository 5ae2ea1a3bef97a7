"""Assignments: from which offset, to which topic, and how fast a task copies a partition."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from twinlog.config import OffsetsMode
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog.policy.offsets_rule import OffsetsRule
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import CopyFact, EpochStart
from twinlog_source.partitions.copy_mode import OffsetsReason
from twinlog_source.partitions.events import TargetChanged
from twinlog_source.partitions.planner import Plan
from twinlog_source.partitions.reports import HoleCostAgo
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.shares import SlotLimits, share_limit
from twinlog_source.partitions.states import PartitionState
from twinlog_source.partitions.table import PartitionTable

Limits = tuple[str, int, str, str]
"""The topic of the copies, and its limits."""
_Terms = tuple[Limits, bool]
"""`Limits`, and whether the copy keeps the source's offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorFailure:
    """A back-off or a fault that outlives the task in which it occurred."""

    state: PartitionState
    reason: str
    message: str
    retry_in_seconds: float
    failures: int
    """The number of failures in a row."""
    source_lost_from: int | None = None
    """The source lost the copied records from here on; None = it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One partition, as a task gets it."""

    partition: TopicPartition
    topic: ReplicatedTopic
    position: int
    position_stored: bool
    """The log has the position; otherwise auto.offset.reset chose it."""
    copy: CopyFact
    offsets_required: bool
    """The configuration requires the source's offsets."""
    former_task_seconds: float | None
    """How long ago the last task lost the partition that may still have writes to the copy in flight; None =
    there is none."""
    skip_former_task_seconds: float | None
    """The same for tasks that did not know about the range which the copy leaves out."""
    end_reason: str
    """Why a preserved copy has to end where it is; empty = it continues."""
    hole_costs: tuple[HoleCostAgo, ...]
    """The recent costs of filling its holes."""
    paused: bool
    prior_failure: PriorFailure | None
    """None also if another limit, or another topic, may remove the cause of the failure."""
    leader_epochs: tuple[EpochStart, ...]
    target_end: int | None
    """The target offset after the last record that was written; None = unknown."""
    target_end_is_exact: bool
    """In an exactly-once flow: nothing that consumers see was written after `target_end`."""
    sync_pace: SyncPace | None
    asks_origins: bool
    """Batches of the source may be copies of what the target has already."""
    shared: bool
    """The topic is copied both ways: others write to the copy, and are meant to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrders:
    table: PartitionTable
    control: ControlState
    rule: OffsetsRule
    exactly_once: bool
    keeps_names: bool
    is_both_ways: Callable[[ReplicatedTopic], bool]
    _terms_before: dict[TopicPartition, _Terms] = field(default_factory=dict)
    """How each partition was last assigned."""

    def assignment(self, partition: TopicPartition, topic: ReplicatedTopic, *, now: float) -> Assignment:
        """The assignment of a partition whose position and kind of copy are known."""
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
            former_task_seconds=_since(row.cut_off_at, now) if row.knows_former_tasks else 0.0,
            skip_former_task_seconds=_skip_former_task_seconds(row, now=now),
            end_reason=self._end_reason(copy, topic),
            hole_costs=_hole_costs(row, now=now),
            paused=self.control.is_paused(partition),
            prior_failure=_prior_failure(row, now=now) if terms == before else None,
            leader_epochs=row.leader_epochs,
            target_end=row.target_end,
            target_end_is_exact=self.exactly_once and row.target_end_is_exact,
            sync_pace=row.sync_pace,
            asks_origins=self.keeps_names,
            shared=self.is_both_ways(topic),
        )

    def _end_reason(self, copy: CopyFact, topic: ReplicatedTopic) -> str:
        """Why the configuration no longer allows a preserved copy to stay preserved."""
        if not copy.preserved:
            return ""
        if self.rule.wanted(copy.partition.topic) is OffsetsMode.TRANSLATED:
            return OffsetsReason.OFFSETS_CONFIGURED
        if self.is_both_ways(topic):
            return OffsetsReason.BOTH_WAYS
        return "" if self.exactly_once else OffsetsReason.TRANSACTIONS_DISABLED

    def throttles(self, plan: Plan, *, now: float) -> list[SlotLimits]:
        """Divide the limits among the slots; the shares of a limit add up to it."""
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
    """Whether a topic that is in both has other limits now."""
    return any(limits_of(topic) != limits_of(before.get(name, topic)) for name, topic in now.items())


def _since(at: float | None, now: float) -> float | None:
    return None if at is None else now - at


def _skip_former_task_seconds(row: PartitionRow, *, now: float) -> float | None:
    told, copy = row.skip_cut_off, row.copy
    if told is None or copy is None or told[0] != copy.skip_from:
        return _since(row.cut_off_at, now) if row.knows_former_tasks else 0.0
    return _since(told[1], now)


def _hole_costs(row: PartitionRow, *, now: float) -> tuple[HoleCostAgo, ...]:
    if row.report is None:
        return ()
    return tuple(
        replace(each, ago_seconds=each.ago_seconds + now - row.reported_at) for each in row.report.hole_costs
    )


def _prior_failure(row: PartitionRow, *, now: float) -> PriorFailure | None:
    """Why the partition is in back-off or faulted, according to its last task."""
    report = row.report
    retry_at = row.retry_at
    if report is None or retry_at is None or report.position != row.position:
        return None
    return PriorFailure(
        state=report.state,
        reason=report.reason,
        message=report.message,
        retry_in_seconds=max(0.0, retry_at - now),
        failures=report.failures,
        source_lost_from=report.source_lost_from,
    )
