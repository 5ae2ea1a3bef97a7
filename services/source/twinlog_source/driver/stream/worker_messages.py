"""Converts between the driver's values and messages of WorkerService.

This is the only place where -1 means unknown.
"""

from google.protobuf.duration_pb2 import Duration

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.batches import Lane
from twinlog.batches.header import HIGHEST_OFFSET
from twinlog.model import TopicPartition
from twinlog.service.api_values import partition_message
from twinlog_source.driver.stream.task_commands import (
    End,
    Limit,
    Origins,
    PipeEnded,
    ProducerStored,
    Resume,
    Start,
    TaskCommand,
)
from twinlog_source.log.facts import EpochStart
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.assignments import Assignment, PriorFailure
from twinlog_source.partitions.copy_mode import OffsetsReason
from twinlog_source.partitions.reports import (
    PartitionReport,
    SkippedRange,
    TaskCounters,
    TaskReport,
)
from twinlog_source.partitions.shares import LimitDebt, SlotLimits
from twinlog_source.partitions.states import PartitionState
from twinlog_source.task.orders import Reposition, SetPaused, WithdrawReposition
from twinlog_source.task.stream.foreign_write_messages import foreign_write_of
from twinlog_source.task.stream.hole_cost_messages import hole_costs_of
from twinlog_source.task.stream.latency_messages import latency_of
from twinlog_source.task.stream.sync_paces import pace_message, pace_of

_STATES = {state: source_pb.PartitionState.Value(f"PARTITION_STATE_{state}") for state in PartitionState}
_STATE_OF = {number: state for state, number in _STATES.items()}
_LANES = {Lane.RAW: source_pb.LANE_RAW, Lane.RECODE: source_pb.LANE_RECODE}
_END_WORDS: dict[str, str] = {
    OffsetsReason.OFFSETS_CONFIGURED: "the configuration no longer allows the source's offsets",
    OffsetsReason.BOTH_WAYS: "the topic is copied both ways under the same name",
    OffsetsReason.TRANSACTIONS_DISABLED: "exactly.once.source.support is disabled, and holes are filled by"
    " transactions",
}
_LANE_OF = {number: lane for lane, number in _LANES.items()}


def task_report(reports: pb.PartitionReports) -> TaskReport:
    return TaskReport(
        partitions=tuple(map(_partition_report, reports.partitions)),
        gaps=tuple(_gap(report.partition, gap) for report in reports.partitions for gap in report.gaps),
        counters=TaskCounters(
            transactions_committed=reports.transactions_committed,
            transactions_aborted=reports.transactions_aborted,
            offset_syncs=reports.offset_syncs,
            failures=dict(reports.failures),
        ),
        source_throttled=reports.source_throttled,
        target_throttled=reports.target_throttled,
    )


def assignment_message(assignment: Assignment) -> pb.Assignment:
    topic, copy, pace = assignment.topic, assignment.copy, assignment.sync_pace
    return pb.Assignment(
        partition=partition_message(assignment.partition),
        target_topic=topic.target_topic,
        position=assignment.position,
        max_message_bytes=topic.target_max_message_bytes,
        compression_type=topic.target_compression_type,
        paused=assignment.paused,
        asks_origins=assignment.asks_origins,
        shared=assignment.shared,
        position_stored=assignment.position_stored,
        prior_failure=None if assignment.prior_failure is None else _prior_failure(assignment.prior_failure),
        leader_epochs=[
            pb.LeaderEpochStart(leader_epoch=each.leader_epoch, offset=each.offset)
            for each in assignment.leader_epochs
        ],
        target_end_offset=-1 if assignment.target_end is None else assignment.target_end,
        target_end_is_exact=assignment.target_end_is_exact,
        compacted=topic.source_cleanup_policy != "delete",
        sync_pace=None if pace is None else pace_message(pace),
        preserved=(
            pb.PreservedCopy(
                skip_from=copy.skip_from,
                skip_to=copy.skip_to,
                since=copy.since,
                required=assignment.offsets_required,
                former_task_ago=_optional_duration(assignment.former_task_seconds),
                skip_former_task_ago=_optional_duration(assignment.skip_former_task_seconds),
                leader_epoch=copy.leader_epoch,
                end_reason=assignment.end_reason,
                end_message=_END_WORDS.get(assignment.end_reason, ""),
                common_until=copy.common_until,
            )
            if copy.preserved
            else None
        ),
        target_topic_id=topic.target_topic_id,
        source_topic_id=topic.source_topic_id,
        hole_costs=[
            pb.HoleCost(
                ago=_duration(each.ago_seconds), holes=each.holes, spent=_duration(each.spent_seconds)
            )
            for each in assignment.hole_costs
        ],
    )


def _optional_duration(seconds: float | None) -> Duration | None:
    return None if seconds is None else _duration(seconds)


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromMilliseconds(int(seconds * 1000))
    return duration


def limits_message(limits: SlotLimits) -> pb.SetThrottle:
    return pb.SetThrottle(
        bytes_per_second=limits.bytes_per_second or 0, topic_bytes_per_second=limits.topic_bytes_per_second
    )


def debt_message(debt: LimitDebt) -> pb.LimitDebt:
    return pb.LimitDebt(bytes=debt.bytes, topic_bytes=debt.topic_bytes)


def debt_of(told: pb.LimitDebt) -> LimitDebt:
    return LimitDebt(bytes=told.bytes, topic_bytes=dict(told.topic_bytes))


def command_message(command: TaskCommand) -> pb.WorkerCommand:
    match command:
        case Start():
            start = pb.Start(
                assignments=map(assignment_message, command.assignments),
                throttle=limits_message(command.limits),
                debt=debt_message(command.debt),
            )
            return pb.WorkerCommand(start=start)
        case Resume():
            positions = (
                pb.StoredPosition(partition=partition_message(partition), position=position)
                for partition, position in command.positions.items()
            )
            return pb.WorkerCommand(
                resume=pb.Resume(reason=command.reason, message=command.message, positions=positions)
            )
        case ProducerStored():
            stored = pb.ProducerStored(
                producer_id=command.producer_id, reason=command.reason, message=command.message
            )
            return pb.WorkerCommand(producer_stored=stored)
        case Origins():
            return pb.WorkerCommand(origins=_origins(command))
        case PipeEnded():
            ended = pb.PipeEnded(port=command.port, reason=command.reason, message=command.message)
            return pb.WorkerCommand(pipe_ended=ended)
        case SetPaused():
            named = map(partition_message, command.partitions)
            return pb.WorkerCommand(set_paused=pb.SetPaused(partitions=named, paused=command.paused))
        case Limit():
            return pb.WorkerCommand(set_throttle=limits_message(command.limits))
        case Reposition():
            return pb.WorkerCommand(reposition=_reposition(command))
        case WithdrawReposition():
            withdrawal = pb.WithdrawReposition(
                partition=partition_message(command.partition), id=command.number
            )
            return pb.WorkerCommand(withdraw_reposition=withdrawal)
        case End():
            return pb.WorkerCommand(end=pb.End(reason=command.reason))


def _origins(command: Origins) -> pb.Origins:
    return pb.Origins(
        number=command.number,
        echoes=[
            pb.Echo(
                partition=partition_message(partition),
                producer_id=producer_id,
                from_offset=begin,
                to_offset=-1 if end == HIGHEST_OFFSET else end,
            )
            for (partition, producer_id), (begin, end) in command.echoes.items()
        ],
        reason=command.reason,
        message=command.message,
    )


def writers_of(asked: pb.WhoWrote) -> dict[TopicPartition, list[int]]:
    return {_partition(each.partition): list(each.producer_ids) for each in asked.writers}


def _reposition(command: Reposition) -> pb.Reposition:
    bounds = command.bounds
    return pb.Reposition(
        partition=partition_message(command.partition),
        position=command.position,
        id=command.number,
        log_start_offset=-1 if bounds is None else bounds.start,
        log_end_offset=-1 if bounds is None else bounds.end,
    )


def state_message(state: PartitionState) -> source_pb.PartitionState.ValueType:
    return _STATES[state]


def lane_message(lane: Lane | None) -> source_pb.Lane.ValueType:
    return source_pb.LANE_UNSPECIFIED if lane is None else _LANES[lane]


def _partition_report(report: pb.PartitionReport) -> PartitionReport:
    skip = report.preserved if report.HasField("preserved") else None
    return PartitionReport(
        partition=_partition(report.partition),
        position=report.position,
        state=_STATE_OF.get(report.state, PartitionState.UNSPECIFIED),
        reason=report.reason,
        message=report.message,
        source_end=_known(report.source_end_offset),
        retry_in_seconds=(
            report.retry_in.ToTimedelta().total_seconds() if report.HasField("retry_in") else None
        ),
        failures=report.failures,
        records=report.records,
        bytes=report.bytes,
        raw_records=report.raw_records,
        recoded_records=dict(report.recoded_records),
        echoes=report.echoes,
        lane=_LANE_OF.get(report.lane),
        replication_latency_ns=(
            report.replication_latency.ToNanoseconds() if report.HasField("replication_latency") else None
        ),
        latency=latency_of(report.latency) if report.HasField("latency") else None,
        record_age=latency_of(report.record_age) if report.HasField("record_age") else None,
        target_end=_known(report.target_end_offset),
        target_end_is_old=report.target_end_is_old,
        target_shortened_to=_known(report.target_shortened_to),
        target_shortened_at=report.target_shortened_at if report.HasField("target_shortened_at") else None,
        target_shortened_times=report.target_shortened_times,
        leader_epochs=tuple(EpochStart(each.leader_epoch, each.offset) for each in report.leader_epochs),
        sync_pace=pace_of(report.sync_pace) if report.HasField("sync_pace") else None,
        skipped=None if skip is None else SkippedRange(first=skip.skip_from, end=skip.skip_to),
        leader_epoch=skip.leader_epoch if skip is not None and skip.HasField("leader_epoch") else None,
        needs_translation=report.needs_translation,
        preserved_until=report.preserved_until,
        source_lost_from=report.source_lost_from if report.HasField("source_lost_from") else None,
        repositioned=report.repositioned,
        withdrawn=report.withdrawn,
        foreign_writes=tuple(foreign_write_of(each) for each in report.foreign_writes),
        at_rest=report.at_rest,
        is_quiet=report.quiet,
        hole_costs=hole_costs_of(report.hole_costs),
    )


def _gap(partition: types_pb2.TopicPartition, found: pb.Gap) -> Gap:
    return Gap(
        partition=_partition(partition),
        from_offset=found.from_offset,
        to_offset=found.to_offset,
        reason=found.reason,
        found_at_ms=found.found_at.ToMilliseconds(),
    )


def _prior_failure(prior_failure: PriorFailure) -> pb.PriorFailure:
    return pb.PriorFailure(
        state=state_message(prior_failure.state),
        reason=prior_failure.reason,
        message=prior_failure.message,
        retry_in=_duration(prior_failure.retry_in_seconds),
        failures=prior_failure.failures,
        source_lost_from=prior_failure.source_lost_from,
    )


def _partition(named: types_pb2.TopicPartition) -> TopicPartition:
    return TopicPartition(named.topic, named.partition)


def _known(number: int) -> int | None:
    return None if number < 0 else number
