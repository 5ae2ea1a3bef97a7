"""HeartbeatService over gRPC: converts requests, asks the state, converts the answers."""

from collections.abc import Callable, Sequence

from google.protobuf.duration_pb2 import Duration

from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as pb2
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2_grpc as pb2_grpc
from twinlog.model import Flow
from twinlog.service.api_values import cluster_message, duration, message_of
from twinlog.service.clusters import ClusterStatus
from twinlog.service.grpc_server import Context
from twinlog_heartbeat.model.delays import FlowDelay
from twinlog_heartbeat.model.state import HeartbeatState, Path


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
        return pb2.ListDelaysResponse(delays=self._delays(_flow_of(request)))

    def _delays(self, flow: Flow | None) -> list[pb2.FlowDelay]:
        return [_delay(delay) for delay in self._state.delays(flow)]


def _flow_of(request: pb2.ListDelaysRequest) -> Flow | None:
    return Flow(request.flow.source, request.flow.target) if request.HasField("flow") else None


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
