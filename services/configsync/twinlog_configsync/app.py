"""The composition root of the configsync service: one loop per flow, one board, the gRPC service."""

from contextlib import AsyncExitStack

from twinlog.api.configsync.v1.configsync_service_pb2 import DESCRIPTOR
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import add_ConfigSyncServiceServicer_to_server
from twinlog.service.app import ServiceContext, ServiceParts
from twinlog.service.grpc_server import GrpcService
from twinlog.telemetry import metrics
from twinlog_configsync.boards import Boards
from twinlog_configsync.claims import Claims
from twinlog_configsync.config import ConfigSyncFlow, configsync_flows
from twinlog_configsync.flow_commands import FlowCommands
from twinlog_configsync.flow_passes import FlowPasses
from twinlog_configsync.flow_sync import FlowSync
from twinlog_configsync.instruments import observe
from twinlog_configsync.journal import Journal
from twinlog_configsync.rules_board import RulesBoard
from twinlog_configsync.schedule import Scope
from twinlog_configsync.servicer import ConfigSyncServicer, ServedFlow
from twinlog_configsync.topic_board import TopicBoard

_RETRY_INITIAL_SECONDS = 0.5
_RETRY_MAX_SECONDS = 15.0


async def build(context: ServiceContext, stack: AsyncExitStack) -> ServiceParts:
    """Connect the parts; waits for no broker. Raises ConfigError for a pattern that does not compile."""
    boards = Boards(
        topics=TopicBoard(history_id=context.instance_id, meter=context.meter),
        rules=RulesBoard(history_id=context.instance_id, meter=context.meter),
    )
    configured = configsync_flows(context.configuration)
    claims = Claims([flow.flow for flow in configured if Scope.ACLS in flow.rules.intervals_seconds])
    syncs = [await _sync(context, flow, boards, claims) for flow in configured]

    observe(context.meter, boards.topics, syncs)
    servicer = ConfigSyncServicer(
        {
            sync.flow: ServedFlow(
                sync=sync, commands=FlowCommands(sync.passes, clock=context.clock, wake=sync.wake)
            )
            for sync in syncs
        },
        boards=boards,
        clusters=context.clusters,
        clock=context.clock,
        stop=context.stop,
    )
    service = GrpcService(
        name=DESCRIPTOR.services_by_name["ConfigSyncService"].full_name,
        add=add_ConfigSyncServiceServicer_to_server,
        servicer=servicer,
    )
    return ServiceParts(loops={f"flow {sync.flow}": sync.run for sync in syncs}, grpc=[service])


async def _sync(context: ServiceContext, flow: ConfigSyncFlow, boards: Boards, claims: Claims) -> FlowSync:
    journal = Journal(
        flow=flow.flow,
        changes=metrics.counter(context.meter, metrics.CONFIGSYNC_CHANGES),
        clock=context.clock,
    )
    passes = FlowPasses(
        flow,
        source=await context.clusters.get(flow.source_client),
        target=await context.clusters.get(flow.target_client),
        boards=boards,
        claims=claims,
        clock=context.clock,
        journal=journal,
    )
    backoff = context.backoff(_RETRY_INITIAL_SECONDS, _RETRY_MAX_SECONDS)
    return FlowSync(passes, clock=context.clock, backoff=backoff, journal=journal)
