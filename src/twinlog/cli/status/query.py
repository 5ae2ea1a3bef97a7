"""Asks all services at once what `twinlog status` shows. A service that does not answer is a row, not an
error.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping

import grpc
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.heartbeat.v1.heartbeat_service_pb2_grpc import HeartbeatServiceStub
from twinlog.cli.common.fields import value_of
from twinlog.cli.status.checkpoint import ask_checkpoint
from twinlog.cli.status.configsync import ask_configsync
from twinlog.cli.status.rows import HEARTBEAT_MISSING, SERVING, FlowRow, Note, ServiceRow, Status
from twinlog.cli.status.source import ask_source
from twinlog.service.answering_process import PROCESS_METADATA_KEY, AnsweringProcess
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.interceptors import SECURITY_METADATA_KEY, VERSION_METADATA_KEY

Details = Callable[[grpc.aio.Channel, Status, float], Awaitable[None]]


Open = Callable[[str, str], grpc.aio.Channel]


async def query_status(endpoints: Mapping[str, str], open_to: Open, *, timeout_seconds: float) -> Status:
    """Ask health and details of every service at the same time. Each answer may take `timeout_seconds`.
    `open_to` opens a channel to a service by its name and endpoint, and may raise ConfigError."""
    status = Status(
        services=[ServiceRow(name=name, endpoint=endpoint) for name, endpoint in endpoints.items()]
    )
    async with asyncio.TaskGroup() as group:
        for row in status.services:
            group.create_task(
                _ask(row, open_to(row.name, row.endpoint), status, timeout_seconds), name=row.name
            )
    for flow in status.flows.values():
        explain_silence(flow)
    return status


def explain_silence(row: FlowRow) -> None:
    """Heartbeats of a flow that is paused rest with it: nothing else is wrong."""
    if row.is_paused:
        row.notes = [
            Note(
                service=note.service,
                reason=note.reason,
                message="heartbeats are not copied while the flow is paused:"
                f" `twinlog resume {shlex.quote(row.flow)}`",
            )
            if note.reason == HEARTBEAT_MISSING
            else note
            for note in row.notes
        ]


async def _ask(row: ServiceRow, channel: grpc.aio.Channel, status: Status, timeout_seconds: float) -> None:
    async with channel:
        try:
            call = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=""), timeout=timeout_seconds
            )
            answer = await call
            metadata = dict(await call.initial_metadata() or ())
            row.version = str(metadata.get(VERSION_METADATA_KEY, ""))
            row.security = str(metadata.get(SECURITY_METADATA_KEY, ""))
            if process := AnsweringProcess.of_metadata(str(metadata.get(PROCESS_METADATA_KEY, ""))):
                row.host, row.pid, row.config = process.host, process.pid, process.config
            row.health = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
            if row.health == SERVING:
                row.ready = await _is_ready(channel, timeout_seconds)
                await _DETAILS[row.name](channel, status, timeout_seconds)
        except grpc.aio.AioRpcError as failure:
            error = error_from_rpc(failure, peer=row.name)
            row.reason, row.message = error.reason, str(error)


async def _is_ready(channel: grpc.aio.Channel, timeout_seconds: float) -> bool | None:
    """None of a service that has no such health."""
    request = health_pb2.HealthCheckRequest(service="readiness")
    try:
        answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout_seconds)
    except grpc.aio.AioRpcError as failure:
        if failure.code() == grpc.StatusCode.NOT_FOUND:
            return None
        raise
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def _heartbeat(channel: grpc.aio.Channel, status: Status, timeout_seconds: float) -> None:
    stub = HeartbeatServiceStub(channel)
    topology = await stub.GetTopology(heartbeat.GetTopologyRequest(), timeout=timeout_seconds)
    status.add_clusters("heartbeat", topology.clusters)
    answer = await stub.ListDelays(heartbeat.ListDelaysRequest(), timeout=timeout_seconds)
    for delay in answer.delays:
        row = status.flow(delay.flow)
        row.path = value_of(delay, "state")
        row.delay_seconds = _seconds(delay.last_delay) if delay.HasField("last_delay") else None
        row.delay_basis = value_of(delay, "basis")
        row.heartbeat_age_seconds = _seconds(delay.age) if delay.HasField("age") else None
        row.add_note("heartbeat", delay.reason, delay.message)


_DETAILS: dict[str, Details] = {
    "source": ask_source,
    "checkpoint": ask_checkpoint,
    "heartbeat": _heartbeat,
    "configsync": ask_configsync,
}


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
