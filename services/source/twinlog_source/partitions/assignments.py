"""Assignments: from which offset, to which topic, and how fast a task copies a partition."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from twinlog.config import OffsetsMode
from twinlog.model import TopicPartition
from twinlog.policy.expected_offsets import OffsetsRule
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicLimits
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import CopyFact
from twinlog_source.partitions.copy_mode import OffsetsReason
from twinlog_source.partitions.events import TargetChanged
from twinlog_source.partitions.orders import PartitionState, PreservedTerms, PriorFailure, TaskAssignment
from twinlog_source.partitions.planner import Plan, SlotLimits, share_limit
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.reasons import PartitionReason

Limits = tuple[str, TopicLimits]
"""The topic of the copies, and its limits."""
_Terms = tuple[Limits, bool]
"""`Limits`, and whether the copy keeps the source's offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrders:
    table: PartitionTable
    control: ControlState
    rule: OffsetsRule
    exactly_once: bool
    keeps_names: bool
    is_both_ways: Callable[[ReplicatedTopic], bool]
    weight: Callable[[str], float] | None = None
    """Of a source topic, in a limit of the flow; None = all weigh the same."""
    _terms_before: dict[TopicPartition, _Terms] = field(default_factory=dict)
    """How each partition was last assigned."""

    def assignment(self, partition: TopicPartition, topic: ReplicatedTopic, *, now: float) -> TaskAssignment:
        """The assignment of a partition whose position and kind of copy are known."""
        row = self.table.rows[partition]
        copy = row.copy
        assert row.position is not None
        assert copy is not None
        terms, before = (limits_of(topic), copy.preserved), self._terms_before.get(partition)
        self._terms_before[partition] = terms
        if before is not None and before[0][0] != terms[0][0]:
            self.table.apply(TargetChanged(partition=partition), now)
        return TaskAssignment(
            partition=partition,
            target_topic=topic.target_topic,
            target_topic_id=topic.target_topic_id,
            source_topic_id=topic.source_topic_id,
            max_message_bytes=topic.limits.max_message_bytes,
            compression_type=topic.limits.compression_type,
            position=row.position,
            position_stored=row.stored,
            leader_epochs=row.leader_epochs,
            target_end=row.target_end,
            target_end_is_exact=self.exactly_once and row.target_end_is_exact,
            wrote_nothing=self.keeps_names and self.exactly_once and row.wrote_nothing,
            compacted=topic.source_cleanup_policy != "delete",
            paused=self.control.is_paused(partition),
            preserved=self._preserved(row, copy, topic, now=now) if copy.preserved else None,
            asks_origins=self.keeps_names,
            shared=self.is_both_ways(topic),
            sync_pace=row.sync_pace,
            prior_failure=_prior_failure(row, now=now) if terms == before else None,
        )

    def _preserved(
        self, row: PartitionRow, copy: CopyFact, topic: ReplicatedTopic, *, now: float
    ) -> PreservedTerms:
        end_reason, end_message = self._end(copy)
        return PreservedTerms(
            skip_from=copy.skip_from,
            skip_to=copy.skip_to,
            since=copy.since,
            required=self.rule.wanted(row.partition.topic) is OffsetsMode.PRESERVED,
            former_task_seconds=_since(row.cut_off_at, now) if row.knows_former_tasks else 0.0,
            skip_former_task_seconds=_skip_former_task_seconds(row, now=now),
            leader_epoch=copy.leader_epoch,
            common_until=copy.common_until,
            end_reason=end_reason,
            end_message=end_message,
        )

    def _end(self, copy: CopyFact) -> tuple[str, str]:
        """Why the configuration no longer allows a preserved copy to stay preserved: reason and message."""
        if key := self.rule.translated_by(copy.partition.topic):
            return OffsetsReason.OFFSETS_CONFIGURED, f"{key} no longer allows the source's offsets"
        words = "exactly.once.source.support is disabled, and holes are filled by transactions"
        return ("", "") if self.exactly_once else (OffsetsReason.TRANSACTIONS_DISABLED, words)

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
        whole = self.control.throttles.get(None)
        if whole is not None and self.weight is not None:
            totals = self._weigh(plan, whole.bytes_per_second, by_topic, now=now)
        return [
            SlotLimits(bytes_per_second=total, topic_bytes_per_second=limits)
            for total, limits in zip(totals, by_topic, strict=True)
        ]

    def _weigh(
        self, plan: Plan, limit: float, by_topic: list[dict[str, int]], *, now: float
    ) -> list[int | None]:
        """Divide the limit of the flow among the topics of each slot by their weights. Topics that would
        take more than their share get a limit of their own. Returns the shares of the slots."""
        assert self.weight is not None
        parts = [
            (slot, topic, self.table.load([*partitions], now=now).most_bytes_per_second)
            for slot, own in enumerate(plan)
            for topic, partitions in groupby(sorted(own), lambda partition: partition.topic)
        ]
        spread = Counter(topic for _, topic, _ in parts)
        # A topic may have a limit of its own.
        demands = [by_topic[slot].get(topic, demand) for slot, topic, demand in parts]
        shares = share_limit(limit, demands, [self.weight(topic) / spread[topic] for _, topic, _ in parts])
        totals = [0.0] * len(plan)
        for (slot, topic, demand), share in zip(parts, shares, strict=True):
            totals[slot] += share
            if demand is None:
                by_topic[slot].setdefault(topic, max(1, int(share)))
        return [max(1, int(total)) for total in totals]


def limits_of(topic: ReplicatedTopic) -> Limits:
    return topic.target_topic_id, topic.limits


def limits_differ(before: Mapping[str, ReplicatedTopic], now: Mapping[str, ReplicatedTopic]) -> bool:
    """Whether a topic that is in both has other limits now."""
    return any(limits_of(topic) != limits_of(before.get(name, topic)) for name, topic in now.items())


def _since(at: float | None, now: float) -> float | None:
    return None if at is None else now - at


def _skip_former_task_seconds(row: PartitionRow, *, now: float) -> float | None:
    told, copy = row.skip_cut_off, row.copy
    if told is None or copy is None or told[0] != (copy.skip_from, copy.skip_to):
        return _since(row.cut_off_at, now) if row.knows_former_tasks else 0.0
    return _since(told[1], now)


def _prior_failure(row: PartitionRow, *, now: float) -> PriorFailure | None:
    """Why the partition is in back-off or faulted, according to its last task."""
    report = row.report
    retry_at = row.retry_at
    if report is None or report.position != row.position:
        return None
    if retry_at is None and (report.state, report.reason) != (PartitionState.FAULTED, PartitionReason.LOOP):
        return None
    return PriorFailure(
        state=report.state,
        reason=report.reason,
        message=report.message,
        retry_in_seconds=None if retry_at is None else max(0.0, retry_at - now),
        failures=report.failures,
        source_lost_from=report.source_lost_from,
    )
