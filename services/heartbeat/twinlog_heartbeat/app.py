"""The composition root of the heartbeat service: builds emitters, watchers and the gRPC service."""

from contextlib import AsyncExitStack

from twinlog.api.heartbeat.v1.heartbeat_service_pb2 import DESCRIPTOR
from twinlog.api.heartbeat.v1.heartbeat_service_pb2_grpc import add_HeartbeatServiceServicer_to_server
from twinlog.service.app import ServiceContext, ServiceParts
from twinlog.service.grpc_server import GrpcService
from twinlog.service.runtime import Loop
from twinlog_heartbeat.beats import Purpose, planned_beats
from twinlog_heartbeat.config import HeartbeatFlow, heartbeat_flows
from twinlog_heartbeat.emitter import BeatEmitter
from twinlog_heartbeat.servicer import HeartbeatServicer
from twinlog_heartbeat.state import HeartbeatState
from twinlog_heartbeat.topic_keeper import TopicKeeper
from twinlog_heartbeat.watcher import HeartbeatWatcher


async def build(context: ServiceContext, stack: AsyncExitStack) -> ServiceParts:
    """Connect the parts; waits for no broker."""
    flows = heartbeat_flows(context.configuration)
    state = HeartbeatState(
        flows, clock=context.clock, meter=context.meter, statuses=context.clusters.statuses
    )
    loops: dict[str, Loop] = {}
    for emitter in await _emitters(context, flows, state):
        loops[emitter.beat.name] = emitter.run
    for watcher in await _watchers(context, flows, state):
        loops[f"watch heartbeats on {watcher.alias}"] = watcher.run
    for keeper in await _keepers(context, flows):
        loops[keeper.name] = keeper.run
    servicer = HeartbeatServicer(state, context.clusters.statuses)
    service = GrpcService(
        name=DESCRIPTOR.services_by_name["HeartbeatService"].full_name,
        add=add_HeartbeatServiceServicer_to_server,
        servicer=servicer,
    )
    return ServiceParts(loops=loops, grpc=[service])


async def _emitters(
    context: ServiceContext, flows: tuple[HeartbeatFlow, ...], state: HeartbeatState
) -> list[BeatEmitter]:
    by_flow = {entry.flow: entry for entry in flows}
    emitters: list[BeatEmitter] = []
    for beat in planned_beats(flows):
        entry = by_flow[beat.flow]
        clients = entry.clients
        on_target = beat.purpose is Purpose.MM2
        admin = clients.target_admin if on_target else clients.source_admin
        producer = clients.target_producer if on_target else clients.source_producer
        emitters.append(
            BeatEmitter(
                beat=beat,
                admin=await context.clusters.get(admin),
                cluster=await context.clusters.get(producer),
                topic=entry.policy.heartbeats_topic(),
                topic_replication_factor=entry.topic_replication_factor,
                interval_seconds=entry.interval_seconds,
                clock=context.clock,
                on_emitted=state.on_emitted,
                on_error=state.on_emit_error,
                refusal=context.clusters.refusal,
            )
        )
    return emitters


async def _watchers(
    context: ServiceContext, flows: tuple[HeartbeatFlow, ...], state: HeartbeatState
) -> list[HeartbeatWatcher]:
    """One for each target; when flows with other settings share it, the first one's are used."""
    by_target: dict[str, HeartbeatFlow] = {}
    for entry in sorted(flows, key=lambda entry: not entry.replicates):
        by_target.setdefault(entry.flow.target, entry)
    return [
        HeartbeatWatcher(
            alias=alias,
            admin=await context.clusters.get(entry.clients.target_admin),
            cluster=await context.clusters.get(entry.clients.target_consumer),
            policy=entry.policy,
            paths=state.paths,
            clock=context.clock,
            on_heartbeat=state.on_heartbeat,
            on_obstacle=state.on_watch_obstacle,
        )
        for alias, entry in sorted(by_target.items())
    ]


async def _keepers(context: ServiceContext, flows: tuple[HeartbeatFlow, ...]) -> list[TopicKeeper]:
    return [
        TopicKeeper(
            flow=entry.flow,
            admin=await context.clusters.get(entry.clients.target_admin),
            topic=entry.policy.heartbeats_topic(),
            replication_factor=entry.topic_replication_factor,
            clock=context.clock,
            refusal=context.clusters.refusal,
        )
        for entry in flows
        if not entry.emits
    ]
