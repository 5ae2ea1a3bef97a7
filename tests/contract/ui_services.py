"""Four services that say what a test wants, over real gRPC: what the live page is held against."""

import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2_grpc as checkpoint_grpc
from twinlog.api.common.v1.types_pb2 import ClusterStatus, Flow, TopicPartition
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.configsync.v1 import configsync_service_pb2_grpc as configsync_grpc
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2_grpc as heartbeat_grpc
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.api.source.v1 import source_service_pb2_grpc as source_grpc

SERVICES = ("source", "checkpoint", "heartbeat", "configsync")
FLOW = Flow(source="A", target="B")
CLUSTERS = [ClusterStatus(alias=alias, reachable=True) for alias in ("A", "B")]
PARTITIONS_IN_A_TOPIC = 10
PAGE = 1000
START_SECONDS = 120.0


@dataclass(slots=True, kw_only=True)
class UiRig:
    """What the services say. Changes of the flow's figures are told at the next question."""

    partitions: int = 20
    groups: int = 5
    verdict: str = "EXACT"
    """On their offsets, when they were looked at last."""
    faulted: int = 1
    lag: int = 0
    drains: float = 0.0
    """Records by which the lag becomes smaller each second."""
    rate: float = 1234.0
    """Records a second."""
    wave: float = 0.0
    """By which part of it the rate goes up and down, as that of real producers does."""
    more_flows: tuple[str, ...] = ()
    """Beside A->B; nothing is wrong with them."""
    heartbeats: bool = True
    producers: bool = True
    """Somebody writes to the source."""
    different: int = 0
    """Partitions of which the standing proof says that the copy differs."""
    changes_per_second: int = 0
    """Partitions of which the position moves."""
    members: int = 0
    """Groups with members on the source."""
    silent_brokers: tuple[int, ...] = ()
    """Of B."""
    blockers: tuple[str, ...] = ()
    plans: int = 0
    """Plans that were asked for."""
    watches: int = 0
    """Lists of partitions that were asked for."""
    began: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def lag_now(self) -> int:
        return max(0, round(self.lag - self.drains * self.seconds()))

    def rate_now(self) -> float:
        at = self.seconds()
        return self.rate * (1 + self.wave * (math.sin(at / 9) + math.sin(at / 2.3) / 3))


def partition(rig: UiRig, number: int) -> source.PartitionStatus:
    faulted = number < rig.faulted
    return source.PartitionStatus(
        flow=FLOW,
        source=TopicPartition(
            topic=f"topic-{number // PARTITIONS_IN_A_TOPIC:05}", partition=number % PARTITIONS_IN_A_TOPIC
        ),
        state=source.PARTITION_STATE_FAULTED if faulted else source.PARTITION_STATE_RUNNING,
        position=900,
        source_end_offset=1000 if faulted else 900,
        lag_records=100 if faulted else 0,
        records_per_second=0.0 if faulted else 12.5,
        reason="RECORD_TOO_LARGE" if faulted else "",
        message="record at offset 900 has 2097152 bytes" if faulted else "",
        offsets="preserved",
    )


class _Source(source_grpc.SourceServiceServicer):
    def __init__(self, rig: UiRig) -> None:
        self._rig = rig

    async def ListFlows(self, request: Any, context: Any) -> source.ListFlowsResponse:  # noqa: N802
        rig = self._rig
        states = {"RUNNING": rig.partitions - rig.faulted, "FAULTED": rig.faulted}
        lag = rig.lag_now()
        status = source.FlowStatus(
            flow=FLOW,
            partitions_by_state=states,
            records=5000,
            bytes=700_000,
            records_per_second=rig.rate_now(),
            bytes_per_second=rig.rate_now() * 4457,
            lag_records=lag,
            last_known_lag_records=lag,
            clusters=_clusters(rig),
            partitions_by_proof={"EQUAL": rig.partitions - rig.different, "DIFFERENT": rig.different},
            source_ends_as_of=_now(),
            source_grew_at=_now() if rig.producers else None,
            proven_at=_now(),
            last_copied_at=_now(),
            oldest_record_at=_now(before=1 + lag / max(rig.rate, 1.0)) if lag else None,
        )
        return source.ListFlowsResponse(flows=[status, *map(_quiet, rig.more_flows)])

    async def ListPartitions(  # noqa: N802
        self, request: Any, context: Any
    ) -> source.ListPartitionsResponse:
        rig = self._rig
        rig.watches += not request.page_token
        first = int(request.page_token or 0)
        end = min(rig.partitions, first + (request.page_size or PAGE))
        found = [partition(rig, number) for number in range(first, end)]
        for status in found[: max(0, rig.changes_per_second - first)]:
            status.position += round(rig.seconds())
        return source.ListPartitionsResponse(
            partitions=found, next_page_token=str(end) if end < rig.partitions else ""
        )

    async def ListGaps(self, request: Any, context: Any) -> source.ListGapsResponse:  # noqa: N802
        lost = source.LedgerGap(
            flow=FLOW,
            partition=TopicPartition(topic="topic-00001", partition=3),
            from_offset=10,
            to_offset=25,
            lost_offsets=15,
            reason="RETENTION",
        )
        lost.found_at.FromJsonString("2026-01-02T03:04:05Z")
        return source.ListGapsResponse(gaps=[lost] if self._rig.faulted else [])


class _Checkpoint(checkpoint_grpc.CheckpointServiceServicer):
    def __init__(self, rig: UiRig) -> None:
        self._rig = rig

    async def ListGroups(self, request: Any, context: Any) -> checkpoint.ListGroupsResponse:  # noqa: N802
        summary = checkpoint.GroupSummary(
            flow=FLOW,
            group_count=self._rig.groups,
            partitions_by_verdict={self._rig.verdict: self._rig.groups},
        )
        numbers = range(0 if request.summary_only else self._rig.groups)
        rows = [
            checkpoint.GroupPartition(
                flow=FLOW,
                group=f"group-{number:05}",
                source=TopicPartition(topic="topic-00000", partition=0),
                verdict=checkpoint.VERDICT_EXACT,
                source_lag=number,
                target_lag=number,
            )
            for number in numbers
        ]
        return checkpoint.ListGroupsResponse(
            ready_flows=[FLOW],
            clusters=CLUSTERS,
            summaries=[summary],
            flows=[checkpoint.FlowProgress(flow=FLOW, ready=True)],
            groups=rows,
        )

    async def PlanMove(  # noqa: N802
        self, request: Any, context: Any
    ) -> AsyncIterator[checkpoint.PlanMoveResponse]:
        rig = self._rig
        rig.plans += 1
        rows = [
            checkpoint.MovePartition(
                group=f"group-{number:05}",
                from_partition=TopicPartition(topic="topic-00000", partition=0),
                action=(
                    checkpoint.MOVE_ACTION_SKIP_ACTIVE_BEFORE
                    if number < rig.members
                    else checkpoint.MOVE_ACTION_WRITE
                ),
            )
            for number in range(rig.groups)
        ]
        yield checkpoint.PlanMoveResponse(part=checkpoint.MovePlanPart(partitions=rows))
        late = checkpoint.TopicBacklog(
            partition=TopicPartition(topic="topic-00000", partition=0),
            records_not_copied=rig.lag_now(),
            message="paused by root" if rig.blockers else "",
        )
        plan = checkpoint.MovePlan(
            flow=FLOW,
            from_cluster="A",
            to_cluster="B",
            from_reachable=True,
            backlog=[late] if rig.lag else [],
            records_not_copied=rig.lag_now(),
            blockers=rig.blockers,
            fenced_topics=["orders"] if rig.blockers else [],
        )
        yield checkpoint.PlanMoveResponse(plan=plan)

    async def ListMoves(self, request: Any, context: Any) -> checkpoint.ListMovesResponse:  # noqa: N802
        return checkpoint.ListMovesResponse(moves=[checkpoint.FlowMove(flow=FLOW)])


class _Heartbeat(heartbeat_grpc.HeartbeatServiceServicer):
    def __init__(self, rig: UiRig) -> None:
        self._rig = rig

    async def GetTopology(self, request: Any, context: Any) -> heartbeat.GetTopologyResponse:  # noqa: N802
        path = heartbeat.Path(observed_on="B", topic="A.heartbeats", upstream_clusters=["A"])
        return heartbeat.GetTopologyResponse(clusters=_clusters(self._rig), paths=[path])

    async def ListDelays(self, request: Any, context: Any) -> heartbeat.ListDelaysResponse:  # noqa: N802
        alive = self._rig.heartbeats
        delay = heartbeat.FlowDelay(
            flow=FLOW,
            state=heartbeat.PATH_STATE_ALIVE if alive else heartbeat.PATH_STATE_SILENT,
            reason="" if alive else "HEARTBEAT_MISSING",
            message="" if alive else "no heartbeat arrived for 30 s",
        )
        delay.last_delay.FromMilliseconds(250)
        delay.age.FromMilliseconds(500)
        others = [
            heartbeat.FlowDelay(
                flow=_flow(name),
                state=heartbeat.PATH_STATE_ALIVE,
                last_delay=Duration(nanos=80_000_000),
                age=Duration(seconds=1),
            )
            for name in self._rig.more_flows
        ]
        return heartbeat.ListDelaysResponse(delays=[delay, *others])


class _ConfigSync(configsync_grpc.ConfigSyncServiceServicer):
    async def ListFlows(self, request: Any, context: Any) -> configsync.ListFlowsResponse:  # noqa: N802
        return configsync.ListFlowsResponse()


def _now(*, before: float = 0.0) -> Timestamp:
    now = Timestamp()
    now.FromNanoseconds(time.time_ns() - round(before * 1e9))
    return now


def _flow(name: str) -> Flow:
    origin, _, target = name.partition("->")
    return Flow(source=origin, target=target)


def _clusters(rig: UiRig) -> list[ClusterStatus]:
    more = {alias for name in rig.more_flows for alias in name.split("->")} - {"A", "B"}
    b = ClusterStatus(alias="B", reachable=True, silent_brokers=rig.silent_brokers)
    return [CLUSTERS[0], b, *(ClusterStatus(alias=alias, reachable=True) for alias in sorted(more))]


def _quiet(name: str) -> source.FlowStatus:
    """A flow that has copied everything."""
    return source.FlowStatus(
        flow=_flow(name),
        partitions_by_state={"RUNNING": 12},
        records=1,
        lag_records=0,
        source_ends_as_of=_now(),
        partitions_by_proof={"EQUAL": 12},
    )


@dataclass(slots=True)
class Services:
    """Where they are. `stop` ends one, as a crash does."""

    endpoints: dict[str, str] = field(default_factory=dict)
    servers: dict[str, grpc.aio.Server] = field(default_factory=dict)
    page: asyncio.subprocess.Process | None = None
    """The `twinlog ui` that asks them."""

    async def stop(self, name: str) -> None:
        await self.servers.pop(name).stop(0)

    async def stop_page(self) -> None:
        assert self.page is not None
        self.page.terminate()
        async with asyncio.timeout(START_SECONDS):
            await self.page.wait()

    def arguments(self) -> list[str]:
        """How a command is told where they are."""
        return [part for name, at in self.endpoints.items() for part in ("--endpoint", f"{name}={at}")]


@asynccontextmanager
async def serving(rig: UiRig) -> AsyncIterator[Services]:
    """The four, on free ports of this machine."""
    add: dict[str, Callable[[Any, grpc.aio.Server], None]] = {
        "source": source_grpc.add_SourceServiceServicer_to_server,
        "checkpoint": checkpoint_grpc.add_CheckpointServiceServicer_to_server,
        "heartbeat": heartbeat_grpc.add_HeartbeatServiceServicer_to_server,
        "configsync": configsync_grpc.add_ConfigSyncServiceServicer_to_server,
    }
    servicers = {
        "source": _Source(rig),  # type: ignore[abstract]
        "checkpoint": _Checkpoint(rig),  # type: ignore[abstract]
        "heartbeat": _Heartbeat(rig),
        "configsync": _ConfigSync(),  # type: ignore[abstract]
    }
    services = Services()
    try:
        for name in SERVICES:
            server = grpc.aio.server()
            healthy = health.aio.HealthServicer()
            await healthy.set("readiness", health_pb2.HealthCheckResponse.SERVING)
            health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
            add[name](servicers[name], server)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            services.endpoints[name] = f"127.0.0.1:{port}"
            services.servers[name] = server
        yield services
    finally:
        for server in services.servers.values():
            await server.stop(0)


@asynccontextmanager
async def ui(services: Services, *arguments: str) -> AsyncIterator[str]:
    """The URL of a `twinlog ui` process. SIGTERM ends it with exit code 0."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "twinlog", "ui", "--listen", "127.0.0.1:0"),
        *services.arguments(),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    services.page = process
    try:
        async with asyncio.timeout(START_SECONDS):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("ready: http"), line
        yield line.removeprefix("ready: ").strip()
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(START_SECONDS):
            code = await process.wait()
    assert code == 0
