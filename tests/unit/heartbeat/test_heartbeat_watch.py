"""WatchDelays: the delays at once, again when they have changed, and an end with the service."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as pb2
from twinlog.config import load
from twinlog.errors import NotFoundError
from twinlog.model import Flow
from twinlog.service.grpc_server import Context
from twinlog.testing.fakes.clock import FakeClock
from twinlog.wire import Heartbeat
from twinlog_heartbeat.api.servicer import HeartbeatServicer
from twinlog_heartbeat.config import heartbeat_flows
from twinlog_heartbeat.flow.instruments import HeartbeatInstruments
from twinlog_heartbeat.model.beats import Beat, Purpose
from twinlog_heartbeat.model.state import HeartbeatState

FLOW = Flow("A", "B")
NO_CONTEXT = cast("Context", None)


def state_of(directory: Path, clock: FakeClock) -> HeartbeatState:
    file = directory / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"
    )
    flows = heartbeat_flows(load(file, environ={}))
    return HeartbeatState(
        flows, clock=clock, meter=HeartbeatInstruments(NoOpMeterProvider().get_meter("test")), statuses=list
    )


async def next_of(stream: AsyncIterator[pb2.WatchDelaysResponse]) -> pb2.WatchDelaysResponse:
    async with asyncio.timeout(30.0):
        return await anext(stream)


async def test_delays_are_told_at_once_when_they_change_and_until_the_service_stops(tmp_path: Path) -> None:
    clock, stop = FakeClock(), asyncio.Event()
    state = state_of(tmp_path, clock)
    servicer = HeartbeatServicer(state, list, stop=stop, watch_seconds=0.001)
    stream = servicer.WatchDelays(pb2.WatchDelaysRequest(), NO_CONTEXT)
    first = await next_of(stream)
    assert [delay.state for delay in first.delays] == [pb2.PATH_STATE_UNKNOWN]

    state.on_emitted(Beat(flow=FLOW, purpose=Purpose.PROOF, cluster="A"))
    state.on_heartbeat(
        "B", "A.heartbeats", Heartbeat(source="A", target="B", timestamp_ms=clock.now_ms()), clock.now_ms()
    )
    second = await next_of(stream)
    assert [delay.state for delay in second.delays] == [pb2.PATH_STATE_ALIVE]

    stop.set()
    with pytest.raises(StopAsyncIteration):
        await next_of(stream)


async def test_a_flow_that_is_not_there_is_refused(tmp_path: Path) -> None:
    state = state_of(tmp_path, FakeClock())
    servicer = HeartbeatServicer(state, list, stop=asyncio.Event())
    request = pb2.WatchDelaysRequest()
    request.flow.source, request.flow.target = "X", "Y"
    with pytest.raises(NotFoundError):
        await next_of(servicer.WatchDelays(request, NO_CONTEXT))
