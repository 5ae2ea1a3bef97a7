"""The composition root of the heartbeat service: builds emitters, watchers and the gRPC service."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from twinlog.api.heartbeat.v1.heartbeat_service_pb2 import DESCRIPTOR
from twinlog.api.heartbeat.v1.heartbeat_service_pb2_grpc import add_HeartbeatServiceServicer_to_server
from twinlog.kafka.ports import KafkaCluster, LogWriter
from twinlog.service.app import ServiceContext, ServiceParts
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.rules import AppliedRules
from twinlog.service.grpc_server import GrpcService
from twinlog.service.owner.opening import open_lease
from twinlog.service.runtime import Loop
from twinlog_heartbeat.api.servicer import HeartbeatServicer, SourceLogEnds
from twinlog_heartbeat.config import HeartbeatFlow, expected_topics, heartbeat_flows
from twinlog_heartbeat.flow.emitter import BeatEmitter, FlowBeats, HeartbeatInstruments, TopicKeeper
from twinlog_heartbeat.flow.watcher import HeartbeatWatcher, LogEndsWatch
from twinlog_heartbeat.model.state import HeartbeatState, Purpose, planned_beats


async def build(context: ServiceContext, stack: AsyncExitStack) -> ServiceParts:
    """Connect the parts. Waits neither for brokers nor for other services."""
    flows = heartbeat_flows(context.configuration)
    instruments = HeartbeatInstruments(context.meter)
    state = HeartbeatState(flows, clock=context.clock, meter=instruments, statuses=context.clusters.statuses)
    instruments.show(state.delays)
    decisions = Decisions(
        context.peers.channel("configsync"), clock=context.clock, backoff=context.backoff(0.2, 5.0)
    )
    loops: dict[str, Loop] = {"decisions of configsync": decisions.run}
    writers = SharedWriters(stack)
    for entry in flows:
        beats = FlowBeats(entry=entry, state=state, loops_of=await _loops_of(context, entry, state, writers))
        target = await context.clusters.get(entry.clients.target_admin)
        decisions.add(entry.flow, target)
        lease = open_lease(context, entry.flow, target)
        # When the owner is unknown, two processes may write: an extra heartbeat does no harm, and a missing
        # one would look like a broken path.
        loops[f"beats {entry.flow}"] = lease.guard(beats.run, in_doubt=True)
        applied = AppliedRules(
            decisions, context.configuration, entry.flow, beats.follow, is_owner=lease.is_owner
        )
        loops[f"rules {entry.flow}"] = applied.run
    for watcher in await _watchers(context, flows, state):
        loops[f"watch heartbeats on {watcher.alias}"] = watcher.run
    ends = SourceLogEnds(context.peers.channel("source"))
    loops["ends of logs"] = LogEndsWatch(ends=ends, state=state, clock=context.clock).run
    servicer = HeartbeatServicer(state, context.clusters.statuses)
    service = GrpcService(
        name=DESCRIPTOR.services_by_name["HeartbeatService"].full_name,
        add=add_HeartbeatServiceServicer_to_server,
        servicer=servicer,
    )
    return ServiceParts(loops=loops, grpc=[service])


class SharedWriters:
    """One writer for each connection: flows share it as they share the connection."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._writers: dict[KafkaCluster, LogWriter] = {}

    async def of(self, cluster: KafkaCluster) -> LogWriter:
        """A writer that stays open until the service ends."""
        writer = self._writers.get(cluster)
        if writer is None:
            writer = self._writers[cluster] = await self._stack.enter_async_context(cluster.writer())
        return writer


async def _loops_of(
    context: ServiceContext, entry: HeartbeatFlow, state: HeartbeatState, writers: SharedWriters
) -> Callable[[HeartbeatFlow], Mapping[str, Loop]]:
    """The writing loops of a flow, under any rules."""
    clients = entry.clients
    on_source = (
        await context.clusters.get(clients.source_admin),
        await writers.of(await context.clusters.get(clients.source_producer)),
    )
    on_target = (
        await context.clusters.get(clients.target_admin),
        await writers.of(await context.clusters.get(clients.target_producer)),
    )

    def loops_of(now: HeartbeatFlow) -> Mapping[str, Loop]:
        loops: dict[str, Loop] = {}
        for beat in planned_beats([now]):
            admin, writer = on_target if beat.purpose is Purpose.MM2 else on_source
            loops[beat.name] = BeatEmitter(
                beat=beat,
                entry=now,
                state=state,
                admin=admin,
                writer=writer,
                clock=context.clock,
                refusal=context.clusters.refusal,
            ).run
        if not loops:
            keeper = TopicKeeper(
                entry=now, admin=on_target[0], clock=context.clock, refusal=context.clusters.refusal
            )
            loops[keeper.name] = keeper.run
        return loops

    return loops_of


async def _watchers(
    context: ServiceContext, flows: tuple[HeartbeatFlow, ...], state: HeartbeatState
) -> list[HeartbeatWatcher]:
    """One watcher for each target. If flows with other settings share a target, the first one's settings are
    used."""
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
            on_blocker=state.on_watch_blocker,
            on_read_blocker=state.on_read_blocker,
            expected=expected_topics(flows, alias),
        )
        for alias, entry in sorted(by_target.items())
    ]
