"""HeartbeatService over gRPC: converts requests, asks the state, converts the answers; and what it asks the
service of source."""

from collections.abc import Callable, Mapping, Sequence

import grpc
from google.protobuf.duration_pb2 import Duration

from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as pb2
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2_grpc as pb2_grpc
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.model import Flow
from twinlog.service.api_values import cluster_message, duration, message_of, named
from twinlog.service.clusters import ClusterStatus
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.grpc_server import Context
from twinlog_heartbeat.model.delays import FlowDelay, LogEnds
from twinlog_heartbeat.model.state import HeartbeatState, Path

_CALL_SECONDS = 10.0


class HeartbeatServicer(pb2_grpc.HeartbeatServiceServicer):
    def __init__(
        self,
        state: HeartbeatState,
        statuses: Callable[[], Sequence[ClusterStatus]],
    ) -> None:
        self._state = state
        self._statuses = statuses

    async def GetTopology(  # noqa: N802
        self, request: pb2.GetTopologyRequest, context: Context
    ) -> pb2.GetTopologyResponse:
        return pb2.GetTopologyResponse(
            clusters=[cluster_message(status) for status in self._statuses()],
            paths=[_path(path) for path in self._state.paths.paths()],
        )

    async def ListDelays(  # noqa: N802
        self, request: pb2.ListDelaysRequest, context: Context
    ) -> pb2.ListDelaysResponse:
        delays = {each.flow: each for each in self._state.delays()}
        chosen = [named(delays, request.flow)] if request.HasField("flow") else delays.values()
        return pb2.ListDelaysResponse(delays=map(_delay, chosen))


def _path(path: Path) -> pb2.Path:
    return message_of(pb2.Path, path)


def _delay(delay: FlowDelay) -> pb2.FlowDelay:
    return message_of(
        pb2.FlowDelay,
        delay,
        last_delay=_duration(delay.last_delay_ms),
        max_delay=_duration(delay.max_delay_ms),
        age=_duration(delay.age_ms),
        clock_skew=_duration(delay.clock_skew_ms),
    )


def _duration(milliseconds: int | None) -> Duration | None:
    return None if milliseconds is None else duration(milliseconds / 1000)


class SourceLogEnds:
    """Implements `EndsOfLogs`: asks the source service."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = SourceServiceStub(channel)

    async def of_flows(self) -> Mapping[Flow, LogEnds]:
        try:
            answer = await self._stub.ListFlows(source_pb.ListFlowsRequest(), timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, peer="source") from error
        found = {Flow(status.flow.source, status.flow.target): _ends(status) for status in answer.flows}
        return {flow: ends for flow, ends in found.items() if ends is not None}


def _ends(status: source_pb.FlowStatus) -> LogEnds | None:
    if not status.HasField("lag_records") or not status.HasField("source_ends_as_of"):
        return None
    waits = status.lag_records > 0
    if waits and not status.HasField("oldest_record_at"):
        return None
    copied = status.HasField("last_copied_at") and status.HasField("last_copied_record_time")
    return LogEnds(
        read_ms=status.source_ends_as_of.ToMilliseconds(),
        waiting_since_ms=status.oldest_record_at.ToMilliseconds() if waits else None,
        copied_delay_ms=max(
            0, status.last_copied_at.ToMilliseconds() - status.last_copied_record_time.ToMilliseconds()
        )
        if copied
        else None,
    )
