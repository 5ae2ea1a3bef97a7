"""SourceService over gRPC: request, question to the drivers, response."""

from collections.abc import Mapping

from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1 import source_service_pb2_grpc as pb_grpc
from twinlog.clock import Clock
from twinlog.errors import ConfigError, NotFoundError
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import Flow, TopicPartition
from twinlog.service.clusters import Clusters, ClusterStatus
from twinlog.service.grpc_server import Context
from twinlog_source.flow_driver import FlowDriver
from twinlog_source.instruments import state_name
from twinlog_source.operations import Destination, FlowOperations, Move, Subject
from twinlog_source.partition_table import PartitionRow

DEFAULT_PAGE = 1000
LARGEST_PAGE = 10_000


class SourceServicer(pb_grpc.SourceServiceServicer):
    def __init__(self, flows: Mapping[Flow, FlowOperations], clusters: Clusters, clock: Clock) -> None:
        self._operations = flows
        self._drivers = {flow: operations.driver for flow, operations in flows.items()}
        self._clusters = clusters
        self._clock = clock

    async def ListFlows(  # noqa: N802
        self, request: pb.ListFlowsRequest, context: Context
    ) -> pb.ListFlowsResponse:
        return pb.ListFlowsResponse(
            flows=[self._status(self._drivers[flow]) for flow in sorted(self._drivers)]
        )

    async def ListPartitions(  # noqa: N802
        self, request: pb.ListPartitionsRequest, context: Context
    ) -> pb.ListPartitionsResponse:
        flows = [self._named(request.flow).flow] if request.HasField("flow") else sorted(self._drivers)
        size = min(request.page_size or DEFAULT_PAGE, LARGEST_PAGE)
        first = _page_start(request.page_token)
        rows = [
            (flow, row)
            for flow in flows
            for _, row in sorted(self._drivers[flow].estate.table.rows.items())
            if request.source_topic in ("", row.partition.topic)
        ]
        page = rows[first : first + size]
        more = first + size < len(rows)
        return pb.ListPartitionsResponse(
            partitions=[self._partition(flow, row) for flow, row in page],
            next_page_token=str(first + size) if more else "",
        )

    async def PauseReplication(  # noqa: N802
        self, request: pb.PauseReplicationRequest, context: Context
    ) -> pb.PauseReplicationResponse:
        operations = self._operations[self._named(request.scope.flow).flow]
        await operations.pause(_subject(request.scope), by=request.by or context.peer())
        return pb.PauseReplicationResponse(pauses=_pauses(operations.driver))

    async def ResumeReplication(  # noqa: N802
        self, request: pb.ResumeReplicationRequest, context: Context
    ) -> pb.ResumeReplicationResponse:
        operations = self._operations[self._named(request.scope.flow).flow]
        await operations.resume(_subject(request.scope), by=request.by or context.peer())
        return pb.ResumeReplicationResponse(pauses=_pauses(operations.driver))

    async def SetThrottle(  # noqa: N802
        self, request: pb.SetThrottleRequest, context: Context
    ) -> pb.SetThrottleResponse:
        operations = self._operations[self._named(request.scope.flow).flow]
        by = request.by or context.peer()
        await operations.throttle(_subject(request.scope), request.bytes_per_second, by=by)
        return pb.SetThrottleResponse(throttles=_throttles(operations.driver))

    async def SetPositions(  # noqa: N802
        self, request: pb.SetPositionsRequest, context: Context
    ) -> pb.SetPositionsResponse:
        operations = self._operations[self._named(request.scope.flow).flow]
        moves = await operations.plan_moves(_subject(request.scope), _destination(request.target))
        if not request.dry_run:
            await operations.move(moves, by=request.by or context.peer())
        return pb.SetPositionsResponse(changes=map(_change, moves), applied=not request.dry_run)

    async def ListGaps(  # noqa: N802
        self, request: pb.ListGapsRequest, context: Context
    ) -> pb.ListGapsResponse:
        flows = [self._named(request.flow).flow] if request.HasField("flow") else sorted(self._drivers)
        return pb.ListGapsResponse(
            gaps=[
                pb.LedgerGap(
                    flow=_flow(flow),
                    partition=_partition(gap.partition),
                    from_offset=gap.from_offset,
                    to_offset=gap.to_offset,
                    reason=gap.reason,
                    found_at=_timestamp(gap.found_at_ms),
                )
                for flow in flows
                for _, gap in sorted(
                    self._drivers[flow].estate.positions.gaps.items(), key=lambda item: item[0]
                )
                if request.source_topic in ("", gap.partition.topic)
            ]
        )

    def _named(self, flow: types_pb2.Flow) -> FlowDriver:
        driver = self._drivers.get(Flow(flow.source, flow.target))
        if driver is None:
            known = ", ".join(map(str, sorted(self._drivers))) or "none"
            raise NotFoundError(
                f"there is no flow {flow.source}->{flow.target} here; flows: {known}",
                reason="FLOW_UNKNOWN",
                metadata={"flow": f"{flow.source}->{flow.target}"},
            )
        return driver

    def _status(self, driver: FlowDriver) -> pb.FlowStatus:
        table, now = driver.estate.table, self._clock.monotonic()
        states: dict[str, int] = {}
        for row in table.rows.values():
            name = state_name(row.state)
            states[name] = states.get(name, 0) + 1
        reason, message = driver.why_idle()
        return pb.FlowStatus(
            flow=_flow(driver.flow),
            epoch=0 if driver.current is None else driver.current.number,
            slots=0 if driver.current is None else len(driver.current.slots),
            partitions_by_state=states,
            records=table.records,
            bytes=table.bytes,
            records_per_second=sum(row.records.current(now) for row in table.rows.values()),
            bytes_per_second=sum(row.bytes.current(now) for row in table.rows.values()),
            lag_records=sum(row.lag_records for row in table.rows.values()),
            exactly_once=driver.estate.flow.settings.exactly_once,
            reason=reason,
            message=message,
            clusters=[
                _cluster(status)
                for status in self._clusters.statuses((driver.flow.source, driver.flow.target))
            ],
            pauses=_pauses(driver),
            throttles=_throttles(driver),
        )

    def _partition(self, flow: Flow, row: PartitionRow) -> pb.PartitionStatus:
        now = self._clock.monotonic()
        status = pb.PartitionStatus(
            flow=_flow(flow),
            source=_partition(row.partition),
            target_topic=row.target_topic,
            state=row.state,
            position=-1 if row.position is None else row.position,
            source_end_offset=row.source_end_offset,
            lag_records=row.lag_records,
            records_per_second=row.records.current(now),
            bytes_per_second=row.bytes.current(now),
            slot=row.slot,
            reason=row.reason,
            message=row.message,
        )
        if row.report is not None:
            status.lane = row.report.lane
            if row.report.HasField("retry_at"):
                status.retry_at.CopyFrom(row.report.retry_at)
            if row.report.HasField("replication_latency"):
                status.replication_latency.CopyFrom(row.report.replication_latency)
        if row.reported_at_ms:
            status.as_of.CopyFrom(_timestamp(row.reported_at_ms))
        return status


def _page_start(token: str) -> int:
    if not token:
        return 0
    if not token.isdecimal():
        raise ConfigError(f"page_token {token!r} is not one of ours", reason="INVALID_PAGE_TOKEN")
    return int(token)


def _subject(scope: pb.Scope) -> Subject:
    if scope.HasField("partition") and not scope.source_topic:
        raise ConfigError("a partition needs its source_topic", reason="INVALID_SCOPE")
    return Subject(
        topic=scope.source_topic or None, partition=scope.partition if scope.HasField("partition") else None
    )


def _destination(target: pb.PositionTarget) -> Destination:
    match target.WhichOneof("to"):
        case "offset":
            return Destination(offset=target.offset)
        case "earliest":
            return Destination(spec=OffsetSpec.EARLIEST)
        case "latest":
            return Destination(spec=OffsetSpec.LATEST)
        case "timestamp":
            return Destination(timestamp_ms=target.timestamp.ToMilliseconds())
        case _:
            return Destination()


def _change(move: Move) -> pb.PositionChange:
    return pb.PositionChange(
        partition=_partition(move.partition),
        from_offset=move.from_offset,
        to_offset=move.to_offset,
        repeated_offsets=move.repeated_offsets,
        skipped_offsets=move.skipped_offsets,
        reason=move.reason,
        message=move.message,
    )


def _pauses(driver: FlowDriver) -> list[pb.Pause]:
    marks = driver.estate.positions.control.pauses.values()
    return [
        pb.Pause(
            scope=_scope(driver.flow, mark.topic, mark.partition), by=mark.by, since=_timestamp(mark.at_ms)
        )
        for mark in sorted(
            marks, key=lambda mark: (mark.topic or "", -1 if mark.partition is None else mark.partition)
        )
    ]


def _throttles(driver: FlowDriver) -> list[pb.Throttle]:
    limits = driver.estate.positions.control.throttles
    return [
        pb.Throttle(scope=_scope(driver.flow, topic), bytes_per_second=limit)
        for topic, limit in sorted(limits.items(), key=lambda item: item[0] or "")
    ]


def _scope(flow: Flow, topic: str | None, partition: int | None = None) -> pb.Scope:
    return pb.Scope(flow=_flow(flow), source_topic=topic or "", partition=partition)


def _partition(partition: TopicPartition) -> types_pb2.TopicPartition:
    return types_pb2.TopicPartition(topic=partition.topic, partition=partition.partition)


def _flow(flow: Flow) -> types_pb2.Flow:
    return types_pb2.Flow(source=flow.source, target=flow.target)


def _cluster(status: ClusterStatus) -> types_pb2.ClusterStatus:
    return types_pb2.ClusterStatus(
        alias=status.alias,
        reachable=status.reachable,
        reason=status.reason,
        message=status.message,
        as_of=_timestamp(status.as_of_ms) if status.as_of_ms else None,
    )


def _timestamp(wall_ms: int) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromMilliseconds(wall_ms)
    return timestamp
