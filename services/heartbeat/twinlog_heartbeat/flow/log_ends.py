"""Asks the source service for the ends of the logs, as long as a flow cannot be proven by beats."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from random import random
from typing import Protocol

import grpc

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.clock import Clock
from twinlog.model import Flow
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog_heartbeat.model.log_ends import LogEnds
from twinlog_heartbeat.model.state import HeartbeatState

LOOK_SECONDS = 5.0
_CALL_SECONDS = 10.0


class EndsOfLogs(Protocol):
    async def of_flows(self) -> Mapping[Flow, LogEnds]:
        """Of every flow whose lag is known. Raises TwinlogError."""
        ...


class SourceLogEnds:
    """As the source service knows them."""

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


@dataclass(slots=True, kw_only=True)
class LogEndsWatch:
    ends: EndsOfLogs
    state: HeartbeatState
    clock: Clock

    async def run(self, stop: asyncio.Event) -> None:
        """Loop. Nobody is asked while beats prove every flow."""
        await retrying_loop(
            "ends of logs",
            self.look,
            stop=stop,
            interval_seconds=LOOK_SECONDS,
            backoff=Backoff(initial_seconds=LOOK_SECONDS, max_seconds=60.0, random=random),
            clock=self.clock,
        )

    async def look(self) -> None:
        if self.state.without_beats():
            for flow, ends in (await self.ends.of_flows()).items():
                self.state.on_log_ends(flow, ends)
