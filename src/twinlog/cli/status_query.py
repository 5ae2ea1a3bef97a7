"""Asks all services at once what `twinlog status` shows. A service that does not answer is a row, not an
error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

import grpc
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.heartbeat.v1.heartbeat_service_pb2_grpc import HeartbeatServiceStub
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.interceptors import VERSION_METADATA_KEY
from twinlog.service.peers import open_channel

DOWN = "DOWN"
SERVING = "SERVING"
NOT_LOOKED_YET = "UNKNOWN"


@dataclass(slots=True, kw_only=True)
class ServiceRow:
    name: str
    endpoint: str
    health: str = DOWN
    """SERVING, NOT_SERVING, or DOWN when it does not answer."""
    version: str = ""
    reason: str = ""
    message: str = ""


@dataclass(slots=True, kw_only=True)
class Note:
    service: str
    reason: str
    message: str


@dataclass(slots=True, kw_only=True)
class FlowRow:
    """None and empty = the service that knows did not say."""

    flow: str
    topics: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    records: int | None = None
    bytes: int | None = None
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    lag_records: int | None = None
    exactly_once: bool | None = None
    path: str | None = None
    """ALIVE, SILENT or UNKNOWN: what heartbeats say."""
    delay_seconds: float | None = None
    heartbeat_age_seconds: float | None = None
    groups: dict[str, int] = field(default_factory=dict)
    """Partitions of groups by the verdict on their offsets."""
    group_count: int | None = None
    notes: list[Note] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ClusterRow:
    alias: str
    seen_by: dict[str, bool | None] = field(default_factory=dict)
    """By service; None when it has not looked yet."""
    notes: list[Note] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Status:
    services: list[ServiceRow]
    flows: dict[str, FlowRow] = field(default_factory=dict)
    clusters: dict[str, ClusterRow] = field(default_factory=dict)

    @property
    def all_serving(self) -> bool:
        return all(row.health == SERVING for row in self.services)

    def flow(self, message: types_pb2.Flow) -> FlowRow:
        name = f"{message.source}->{message.target}"
        return self.flows.setdefault(name, FlowRow(flow=name))

    def add_clusters(self, service: str, statuses: Iterable[types_pb2.ClusterStatus]) -> None:
        for status in statuses:
            row = self.clusters.setdefault(status.alias, ClusterRow(alias=status.alias))
            if status.reason == NOT_LOOKED_YET:
                row.seen_by.setdefault(service, None)
                continue
            row.seen_by[service] = status.reachable
            if not status.reachable and not any(note.service == service for note in row.notes):
                row.notes.append(Note(service=service, reason=status.reason, message=status.message))


Details = Callable[[grpc.aio.Channel, Status, float], Awaitable[None]]


async def query_status(endpoints: Mapping[str, str], *, timeout_seconds: float) -> Status:
    """Ask health and details of every service at the same time. Each answer may take `timeout_seconds`."""
    status = Status(
        services=[ServiceRow(name=name, endpoint=endpoint) for name, endpoint in endpoints.items()]
    )
    async with asyncio.TaskGroup() as group:
        for row in status.services:
            group.create_task(_ask(row, status, timeout_seconds), name=row.name)
    return status


async def _ask(row: ServiceRow, status: Status, timeout_seconds: float) -> None:
    async with open_channel(row.endpoint) as channel:
        try:
            call = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service="readiness"), timeout=timeout_seconds
            )
            answer = await call
            metadata = await call.initial_metadata()
            row.version = str(dict(metadata or ()).get(VERSION_METADATA_KEY, ""))
            row.health = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
            if row.health == SERVING:
                await _DETAILS[row.name](channel, status, timeout_seconds)
        except grpc.aio.AioRpcError as failure:
            error = error_from_rpc(failure, peer=row.name)
            row.reason, row.message = error.reason, str(error)


async def _source(channel: grpc.aio.Channel, status: Status, timeout_seconds: float) -> None:
    answer = await SourceServiceStub(channel).ListFlows(source.ListFlowsRequest(), timeout=timeout_seconds)
    for flow in answer.flows:
        row = status.flow(flow.flow)
        row.partitions = dict(flow.partitions_by_state)
        row.records, row.bytes = flow.records, flow.bytes
        row.records_per_second, row.bytes_per_second = flow.records_per_second, flow.bytes_per_second
        row.lag_records = flow.lag_records if flow.HasField("lag_records") else None
        row.exactly_once = flow.exactly_once
        _add_note(row, "source", flow.reason, flow.message)
        status.add_clusters("source", flow.clusters)


async def _checkpoint(channel: grpc.aio.Channel, status: Status, timeout_seconds: float) -> None:
    answer = await CheckpointServiceStub(channel).ListGroups(
        checkpoint.ListGroupsRequest(), timeout=timeout_seconds
    )
    status.add_clusters("checkpoint", answer.clusters)
    for flow in answer.ready_flows:
        status.flow(flow).group_count = 0
    for progress in answer.flows:
        if progress.obstacle:
            row = status.flow(progress.flow)
            _add_note(row, "checkpoint", reason="GROUPS_NOT_TRANSLATED", message=progress.obstacle)
    names: dict[str, set[str]] = {}
    for entry in answer.groups:
        row = status.flow(entry.flow)
        verdict = checkpoint.Verdict.Name(entry.verdict).removeprefix("VERDICT_")
        row.groups[verdict] = row.groups.get(verdict, 0) + 1
        names.setdefault(row.flow, set()).add(entry.group)
        row.group_count = len(names[row.flow])


async def _heartbeat(channel: grpc.aio.Channel, status: Status, timeout_seconds: float) -> None:
    stub = HeartbeatServiceStub(channel)
    topology = await stub.GetTopology(heartbeat.GetTopologyRequest(), timeout=timeout_seconds)
    status.add_clusters("heartbeat", topology.clusters)
    answer = await stub.ListDelays(heartbeat.ListDelaysRequest(), timeout=timeout_seconds)
    for delay in answer.delays:
        row = status.flow(delay.flow)
        row.path = heartbeat.PathState.Name(delay.state).removeprefix("PATH_STATE_")
        row.delay_seconds = _seconds(delay.last_delay) if delay.HasField("last_delay") else None
        row.heartbeat_age_seconds = _seconds(delay.age) if delay.HasField("age") else None
        _add_note(row, "heartbeat", delay.reason, delay.message)


async def _configsync(channel: grpc.aio.Channel, status: Status, timeout_seconds: float) -> None:
    answer = await ConfigSyncServiceStub(channel).ListFlows(
        configsync.ListFlowsRequest(), timeout=timeout_seconds
    )
    for flow in answer.flows:
        row = status.flow(flow.flow)
        row.topics = dict(flow.topics_by_state)
        _add_note(row, "configsync", flow.reason, flow.message)
        status.add_clusters("configsync", flow.clusters)


_DETAILS: dict[str, Details] = {
    "source": _source,
    "checkpoint": _checkpoint,
    "heartbeat": _heartbeat,
    "configsync": _configsync,
}


def _add_note(row: FlowRow, service: str, reason: str, message: str) -> None:
    if reason:
        row.notes.append(Note(service=service, reason=reason, message=message))


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
