"""HeartbeatService over gRPC: converts requests, asks the state, converts the answers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from google.protobuf.duration_pb2 import Duration

from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as pb2
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2_grpc as pb2_grpc
from twinlog.model import Flow
from twinlog.service.api_values import cluster_message, duration, message_of
from twinlog.service.clusters import ClusterStatus
from twinlog.service.grpc_server import Context
from twinlog.service.runtime import wait_or_stop
from twinlog_heartbeat.model.delays import FlowDelay
from twinlog_heartbeat.model.state import HeartbeatState
from twinlog_heartbeat.model.topology import Path

WATCH_SECONDS = 1.0


class HeartbeatServicer(pb2_grpc.HeartbeatServiceServicer):
    def __init__(
        self,
        state: HeartbeatState,
        statuses: Callable[[], Sequence[ClusterStatus]],
        *,
        stop: asyncio.Event,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        """Watches end by `stop`; `watch_seconds` is the time between two updates of a watch."""
        self._state = state
        self._statuses = statuses
        self._stop = stop
        self._watch_seconds = watch_seconds

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

    async def WatchDelays(  # noqa: N802
        self, request: pb2.WatchDelaysRequest, context: Context
    ) -> AsyncIterator[pb2.WatchDelaysResponse]:
        flow, shown = _flow_of(request), None
        while not self._stop.is_set():
            response = pb2.WatchDelaysResponse(delays=self._delays(flow))
            if response != shown:
                shown = response
                yield response
            await wait_or_stop(self._stop, self._watch_seconds)

    def _delays(self, flow: Flow | None) -> list[pb2.FlowDelay]:
        return [_delay(delay) for delay in self._state.delays(flow)]


def _flow_of(request: pb2.ListDelaysRequest | pb2.WatchDelaysRequest) -> Flow | None:
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
