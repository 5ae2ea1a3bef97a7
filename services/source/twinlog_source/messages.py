"""What the driver knows, as messages of SourceService. Pure."""

from collections import Counter
from collections.abc import Iterable

from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.model import Flow, TopicPartition
from twinlog.service.clusters import ClusterStatus
from twinlog_source.flow_driver import FlowDriver
from twinlog_source.gaps import Gap
from twinlog_source.instruments import state_name
from twinlog_source.operations import Move
from twinlog_source.partition_table import PartitionRow


def flow_status(driver: FlowDriver, clusters: Iterable[ClusterStatus], *, now: float) -> pb.FlowStatus:
    """`now` in monotonic seconds."""
    rows = list(driver.estate.table.rows.values())
    reason, message = driver.why_idle()
    if not reason:
        reason, message = _most_frequent_trouble(driver, rows)
    return pb.FlowStatus(
        flow=flow_message(driver.flow),
        epoch=0 if driver.current is None else driver.current.number,
        slots=0 if driver.current is None else len(driver.current.slots),
        partitions_by_state=Counter(state_name(row.state) for row in rows),
        records=driver.estate.table.records,
        bytes=driver.estate.table.bytes,
        records_per_second=sum(row.records.shown(now) for row in rows),
        bytes_per_second=sum(row.bytes.shown(now) for row in rows),
        lag_records=sum(row.lag_records for row in rows),
        exactly_once=driver.estate.flow.settings.exactly_once,
        reason=reason,
        message=message,
        clusters=[_cluster(status) for status in clusters],
        pauses=pauses(driver),
        throttles=throttles(driver),
    )


def partition_status(driver: FlowDriver, row: PartitionRow, *, now: float) -> pb.PartitionStatus:
    """`now` in monotonic seconds."""
    status = pb.PartitionStatus(
        flow=flow_message(driver.flow),
        source=partition_message(row.partition),
        target_topic=row.target_topic,
        state=row.state,
        position=-1 if row.position is None else row.position,
        source_end_offset=row.source_end_offset,
        lag_records=row.lag_records,
        records_per_second=row.records.shown(now),
        bytes_per_second=row.bytes.shown(now),
        slot=row.slot,
        reason=row.reason,
        message=_words(driver, row),
    )
    pause = driver.estate.positions.control.pause_of(row.partition)
    if row.state == pb.PARTITION_STATE_PAUSED and pause is not None:
        status.message = f"by {pause.by} since {timestamp(pause.at_ms).ToJsonString()}"
    if row.report is not None:
        status.lane = row.report.lane
        if row.report.HasField("retry_at"):
            status.retry_at.CopyFrom(row.report.retry_at)
        if row.report.HasField("replication_latency"):
            status.replication_latency.CopyFrom(row.report.replication_latency)
    if row.reported_at_ms:
        status.as_of.CopyFrom(timestamp(row.reported_at_ms))
    return status


def gap_message(flow: Flow, gap: Gap) -> pb.LedgerGap:
    return pb.LedgerGap(
        flow=flow_message(flow),
        partition=partition_message(gap.partition),
        from_offset=gap.from_offset,
        to_offset=gap.to_offset,
        reason=gap.reason,
        found_at=timestamp(gap.found_at_ms),
        lost_offsets=gap.lost_offsets,
    )


def change_message(move: Move) -> pb.PositionChange:
    return pb.PositionChange(
        partition=partition_message(move.partition),
        from_offset=move.from_offset,
        to_offset=move.to_offset,
        repeated_offsets=move.repeated_offsets,
        skipped_offsets=move.skipped_offsets,
        reason=move.reason,
        message=move.message,
    )


def pauses(driver: FlowDriver) -> list[pb.Pause]:
    marks = driver.estate.positions.control.pauses.values()
    return [
        pb.Pause(
            scope=_scope(driver.flow, mark.topic, mark.partition), by=mark.by, since=timestamp(mark.at_ms)
        )
        for mark in sorted(
            marks, key=lambda mark: (mark.topic or "", -1 if mark.partition is None else mark.partition)
        )
    ]


def throttles(driver: FlowDriver) -> list[pb.Throttle]:
    marks = driver.estate.positions.control.throttles.values()
    return [
        pb.Throttle(
            scope=_scope(driver.flow, mark.topic),
            bytes_per_second=mark.bytes_per_second,
            by=mark.by,
            since=timestamp(mark.at_ms) if mark.at_ms else None,
        )
        for mark in sorted(marks, key=lambda mark: mark.topic or "")
    ]


def flow_message(flow: Flow) -> types_pb2.Flow:
    return types_pb2.Flow(source=flow.source, target=flow.target)


def partition_message(partition: TopicPartition) -> types_pb2.TopicPartition:
    return types_pb2.TopicPartition(topic=partition.topic, partition=partition.partition)


def timestamp(wall_ms: int) -> Timestamp:
    message = Timestamp()
    message.FromMilliseconds(wall_ms)
    return message


def _words(driver: FlowDriver, row: PartitionRow) -> str:
    """Why a partition stands, and who would help if they could."""
    if row.reason == "TOPIC_UNKNOWN" and not driver.estate.watch.connected:
        return f"{row.message}; configsync, which would see to it, is away"
    return row.message


def _most_frequent_trouble(driver: FlowDriver, rows: Iterable[PartitionRow]) -> tuple[str, str]:
    """What most of the partitions that stand suffer from; empty when all copy, or rest as somebody wished."""
    troubled = [row for row in rows if row.reason and row.state != pb.PARTITION_STATE_PAUSED]
    if not troubled:
        return "", ""
    ((reason, count),) = Counter(row.reason for row in troubled).most_common(1)
    example = next(row for row in troubled if row.reason == reason)
    others = "" if count == len(troubled) else f" ({len(troubled) - count} more for other reasons)"
    partitions = "1 partition" if count == 1 else f"{count} partitions"
    return reason, f"{partitions}{others}: {example.partition}: {_words(driver, example)}"


def _scope(flow: Flow, topic: str | None, partition: int | None = None) -> pb.Scope:
    return pb.Scope(flow=flow_message(flow), source_topic=topic or "", partition=partition)


def _cluster(status: ClusterStatus) -> types_pb2.ClusterStatus:
    return types_pb2.ClusterStatus(
        alias=status.alias,
        reachable=status.reachable,
        reason=status.reason,
        message=status.message,
        as_of=timestamp(status.as_of_ms) if status.as_of_ms else None,
    )
