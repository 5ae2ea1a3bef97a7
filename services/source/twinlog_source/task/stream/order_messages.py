"""Converts messages of the control stream into the driver's orders."""

from google.protobuf.duration_pb2 import Duration

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.batches import TargetTopicLimits
from twinlog.batches.header import HIGHEST_OFFSET
from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.model import TopicPartition
from twinlog_source.log.facts import EpochStart, WriterFact
from twinlog_source.log.gaps import LogBounds
from twinlog_source.partitions.assignments import PriorFailure
from twinlog_source.partitions.shares import LimitDebt, SlotLimits
from twinlog_source.partitions.states import PartitionState
from twinlog_source.records.pipe import TransformFailedError
from twinlog_source.task.orders import (
    PreservedTerms,
    Reposition,
    SetPaused,
    TaskAssignment,
    TaskSetup,
    TaskStart,
    WithdrawReposition,
)
from twinlog_source.task.stream.hole_cost_messages import hole_costs_of
from twinlog_source.task.stream.sync_paces import pace_of


def setup_of(told: pb.Prepare) -> TaskSetup:
    return TaskSetup(
        clients={role: dict(properties.values) for role, properties in told.clients.items()},
        settings=dict(told.settings),
        transactional_ids=tuple(told.transactional_ids),
        positions_topic=told.positions_topic,
        positions_partition_count=told.positions_partition_count,
        connector_name=told.connector_name,
        offset_syncs_topic=told.offset_syncs_topic,
        offset_syncs_on_source=told.offset_syncs_on_source,
        read_committed=told.read_committed,
        lease_seconds=_seconds(told.lease),
        report_seconds=_seconds(told.report_interval),
        source_topics=tuple(told.source_topics),
        target_topics=tuple(told.target_topics),
        preserved_writer=_writer(told.preserved_writer) if told.HasField("preserved_writer") else None,
        filler_transactional_id=told.filler_transactional_id,
        marker_transactional_id=told.marker_transactional_id,
        traceparent=told.traceparent,
    )


def job_failure(told: pb.PipeEnded) -> TwinlogError | None:
    """Why the job of a pipe failed; None if it ended in order."""
    if not told.reason:
        return None
    if told.reason == TransformFailedError.default_reason:
        return TransformFailedError(told.message)
    return TransientKafkaError(told.message, reason=told.reason)


def start_of(told: pb.Start) -> TaskStart:
    return TaskStart(
        assignments=tuple(map(assignment_of, told.assignments)),
        limits=limits_of(told.throttle),
        debt=LimitDebt(bytes=told.debt.bytes, topic_bytes=dict(told.debt.topic_bytes)),
    )


def assignment_of(told: pb.Assignment) -> TaskAssignment:
    return TaskAssignment(
        partition=_partition(told.partition),
        target_topic=told.target_topic,
        target_topic_id=told.target_topic_id,
        source_topic_id=told.source_topic_id,
        max_message_bytes=told.max_message_bytes or TargetTopicLimits().max_message_bytes,
        compression_type=told.compression_type,
        position=told.position,
        position_stored=told.position_stored,
        leader_epochs=tuple(EpochStart(each.leader_epoch, each.offset) for each in told.leader_epochs),
        target_end=None if told.target_end_offset < 0 else told.target_end_offset,
        target_end_is_exact=told.target_end_is_exact,
        compacted=told.compacted,
        asks_origins=told.asks_origins,
        shared=told.shared,
        paused=told.paused,
        preserved=_preserved(told.preserved) if told.HasField("preserved") else None,
        hole_costs=hole_costs_of(told.hole_costs),
        sync_pace=pace_of(told.sync_pace) if told.HasField("sync_pace") else None,
        prior_failure=_prior_failure(told.prior_failure) if told.HasField("prior_failure") else None,
    )


def limits_of(told: pb.SetThrottle) -> SlotLimits:
    return SlotLimits(
        bytes_per_second=told.bytes_per_second or None,
        topic_bytes_per_second=dict(told.topic_bytes_per_second),
    )


def pause_of(told: pb.SetPaused) -> SetPaused:
    return SetPaused(partitions=tuple(map(_partition, told.partitions)), paused=told.paused)


def reposition_of(told: pb.Reposition) -> Reposition:
    start, end = told.log_start_offset, told.log_end_offset
    return Reposition(
        partition=_partition(told.partition),
        position=told.position,
        number=told.id,
        bounds=None if min(start, end) < 0 else LogBounds(start=start, end=end),
    )


def positions_of(told: pb.Resume) -> dict[TopicPartition, int]:
    """The stored positions of the task's partitions."""
    return {_partition(each.partition): each.position for each in told.positions}


def echoes_of(told: pb.Origins) -> dict[TopicPartition, dict[int, tuple[int, int]]]:
    """By source partition and producer id, as in `CopyPolicy.echoes`."""
    echoes: dict[TopicPartition, dict[int, tuple[int, int]]] = {}
    for each in told.echoes:
        end = HIGHEST_OFFSET if each.to_offset < 0 else each.to_offset
        echoes.setdefault(_partition(each.partition), {})[each.producer_id] = each.from_offset, end
    return echoes


def withdrawal_of(told: pb.WithdrawReposition) -> WithdrawReposition:
    return WithdrawReposition(partition=_partition(told.partition), number=told.id)


def _writer(told: pb.WriterIdentity) -> WriterFact:
    return WriterFact(producer_id=told.producer_id, producer_epoch=told.producer_epoch)


def _preserved(told: pb.PreservedCopy) -> PreservedTerms:
    return PreservedTerms(
        skip_from=told.skip_from,
        skip_to=told.skip_to,
        since=told.since,
        required=told.required,
        former_task_seconds=_seconds(told.former_task_ago) if told.HasField("former_task_ago") else None,
        skip_former_task_seconds=(
            _seconds(told.skip_former_task_ago) if told.HasField("skip_former_task_ago") else None
        ),
        leader_epoch=told.leader_epoch if told.HasField("leader_epoch") else None,
        common_until=told.common_until,
        end_reason=told.end_reason,
        end_message=told.end_message,
    )


def _prior_failure(told: pb.PriorFailure) -> PriorFailure:
    is_faulted = told.state == source_pb.PARTITION_STATE_FAULTED
    return PriorFailure(
        state=PartitionState.FAULTED if is_faulted else PartitionState.BACKOFF,
        reason=told.reason,
        message=told.message,
        retry_in_seconds=_seconds(told.retry_in),
        failures=told.failures,
        source_lost_from=told.source_lost_from if told.HasField("source_lost_from") else None,
    )


def _partition(named: types_pb2.TopicPartition) -> TopicPartition:
    return TopicPartition(named.topic, named.partition)


def _seconds(duration: Duration) -> float:
    return duration.ToTimedelta().total_seconds()
