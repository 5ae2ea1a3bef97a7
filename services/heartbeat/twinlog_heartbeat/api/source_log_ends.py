"""Asks the source service for the ends of the logs."""

from collections.abc import Mapping

import grpc

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.model import Flow
from twinlog.service.errors_wire import error_from_rpc
from twinlog_heartbeat.model.delays import LogEnds

_CALL_SECONDS = 10.0


class SourceLogEnds:
    """Implements `EndsOfLogs`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = SourceServiceStub(channel)

    async def of_flows(self) -> Mapping[Flow, LogEnds]:
        try:
            answer = await self._stub.ListFlows(pb2.ListFlowsRequest(), timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, peer="source") from error
        found = {Flow(status.flow.source, status.flow.target): _ends(status) for status in answer.flows}
        return {flow: ends for flow, ends in found.items() if ends is not None}


def _ends(status: pb2.FlowStatus) -> LogEnds | None:
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
