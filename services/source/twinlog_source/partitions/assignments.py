"""What tasks are told of the partitions they copy: where from, where to, and how fast."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.config import OffsetsMode
from twinlog.model import TopicPartition
from twinlog.policy.offsets_rule import OffsetsRule
from twinlog.service.feeds.topics import ReplicatedTopic
from twinlog_source.log.facts import ControlState
from twinlog_source.partitions.planner import Plan
from twinlog_source.partitions.shares import share_limit
from twinlog_source.partitions.table import PartitionRow, PartitionTable

Limits = tuple[str, int, str, str]
"""Which topic the copies go to, and what it takes."""
_Terms = tuple[Limits, bool]
"""The same, and whether the copy keeps its source's offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrders:
    table: PartitionTable
    control: ControlState
    rule: OffsetsRule
    _terms_before: dict[TopicPartition, _Terms] = field(default_factory=dict)
    """How a partition was handed out last."""

    def assignment(self, partition: TopicPartition, topic: ReplicatedTopic, *, now_ms: int) -> pb.Assignment:
        """What a task is told of a partition whose position and kind of copy are known."""
        row = self.table.rows[partition]
        copy = row.copy
        assert row.position is not None
        assert copy is not None
        terms, before = (limits_of(topic), copy.preserved), self._terms_before.get(partition)
        self._terms_before[partition] = terms
        if before is not None and before[0][0] != terms[0][0]:
            row.target_end = -1
        return pb.Assignment(
            partition=types_pb2.TopicPartition(topic=partition.topic, partition=partition.partition),
            target_topic=topic.target_topic,
            position=row.position,
            max_message_bytes=topic.target_max_message_bytes,
            compression_type=topic.target_compression_type,
            timestamp_type=topic.target_timestamp_type,
            paused=self.control.is_paused(partition),
            position_stored=row.stored,
            # Another limit, or another topic: what failed before may succeed now.
            setback=_setback(row, now_ms=now_ms) if terms == before else None,
            epochs=[pb.EpochStart(leader_epoch=each.leader_epoch, offset=each.offset) for each in row.epochs],
            target_end_offset=row.target_end,
            compacted=topic.source_cleanup_policy != "delete",
            sync_pace=row.sync_pace,
            preserved=(
                pb.PreservedCopy(
                    skip_from=copy.skip_from,
                    skip_to=copy.skip_to,
                    since=copy.since,
                    required=self.rule.wanted(partition.topic) is OffsetsMode.PRESERVED,
                )
                if copy.preserved
                else None
            ),
            target_topic_id=topic.target_topic_id,
        )

    def throttles(self, plan: Plan, *, now: float) -> list[pb.SetThrottle]:
        """The limits of each slot; together they are the limits in force."""
        commands = [pb.SetThrottle() for _ in plan]
        for topic, limit in self.control.throttles.items():
            scoped = [[p for p in slot if topic in (None, p.topic)] for slot in plan]
            demands = [self.table.load(partitions, now=now).most_bytes_per_second for partitions in scoped]
            for command, share in zip(commands, share_limit(limit.bytes_per_second, demands), strict=True):
                if topic is None:
                    command.bytes_per_second = max(1, int(share))
                else:
                    command.topic_bytes_per_second[topic] = max(1, int(share))
        return commands


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


def _setback(row: PartitionRow, *, now_ms: int) -> pb.Setback | None:
    """Why the partition stands aside, by its last task's word."""
    report = row.report
    if report is None or not report.HasField("retry_at") or report.position != row.position:
        return None
    retry_in = Duration()
    retry_in.FromMilliseconds(max(0, report.retry_at.ToMilliseconds() - now_ms))
    return pb.Setback(
        state=report.state,
        reason=report.reason,
        message=report.message,
        retry_in=retry_in,
        failures=report.failures,
    )
