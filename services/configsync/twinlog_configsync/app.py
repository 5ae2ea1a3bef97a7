"""The composition root of the configsync service: one loop per flow, the gRPC services."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from opentelemetry.metrics import Meter

from twinlog.api.common.v1.table_service_pb2 import DESCRIPTOR as TABLES
from twinlog.api.common.v1.table_service_pb2_grpc import add_TableServiceServicer_to_server
from twinlog.api.configsync.v1.configsync_service_pb2 import DESCRIPTOR
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import add_ConfigSyncServiceServicer_to_server
from twinlog.clock import Clock
from twinlog.loops import circle_of
from twinlog.model import Flow
from twinlog.service.app import ServiceContext, ServiceParts
from twinlog.service.feeds.tables import ToldTables
from twinlog.service.grpc_server import GrpcService
from twinlog.service.owner.lease import FlowLease
from twinlog.service.owner.name import STANDS_BY
from twinlog.service.owner.opening import open_lease
from twinlog.service.runtime import Loop
from twinlog.telemetry import instruments
from twinlog.telemetry.instruments import Figures
from twinlog.telemetry.metrics import services as metrics
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog_configsync.api.servicer import ConfigSyncServicer, ServedFlow
from twinlog_configsync.config import ConfigSyncFlow, configsync_flows, flows_of_others
from twinlog_configsync.flow.change_log import ChangeLog
from twinlog_configsync.flow.commands import FlowCommands
from twinlog_configsync.flow.known_flow import OtherFlow
from twinlog_configsync.flow.loop_guard import Partner
from twinlog_configsync.flow.passes import FlowPasses
from twinlog_configsync.flow.sync import FlowSync
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.desired import DesiredBindings

# The gauges of configsync. Scrapes run in another thread, so the callbacks only read.


def observe(meter: Meter, syncs: Sequence[FlowSync], *, clock: Clock) -> None:
    """Publish topics by state, and missing changes by part."""

    def age(sync: FlowSync) -> Figures:
        at = sync.status.last_refresh_ms
        if at is None or sync.status.reason in STANDS_BY:
            return []
        return [(max(0, clock.now_ms() - at) / 1000, {})]

    def topics(sync: FlowSync) -> Figures:
        counts = Counter(entry.state.value for entry in sync.passes.topics)
        return [(count, {"twinlog.state": state}) for state, count in counts.items()]

    def missing(sync: FlowSync) -> Figures:
        return [
            (status.pending_changes, {"twinlog.resource.type": scope})
            for scope, status in sync.status.scopes.items()
        ]

    instruments.observe_each(
        meter,
        lambda: [(flow_attributes(sync.flow.source, sync.flow.target), sync) for sync in syncs],
        {metrics.CONFIGSYNC_AGE: age, metrics.CONFIGSYNC_TOPICS: topics, metrics.CONFIGSYNC_DRIFT: missing},
    )


_RETRY_INITIAL_SECONDS = 0.5
_RETRY_MAX_SECONDS = 15.0
_PASSES_AT_A_TIME = 4
"""Passes mostly wait for brokers; more at the same time would gain little and delay everything else."""


async def build(context: ServiceContext, stack: AsyncExitStack) -> ServiceParts:
    """Connect the parts. Does not wait for any broker. Raises ConfigError for a pattern that does not
    compile."""
    told = ToldTables(context.stop)
    configured = configsync_flows(context.configuration)
    whole = (*configured, *flows_of_others(context.configuration))
    acl_flows, quota_flows = (
        {flow.flow for flow in whole if scope in flow.rules.intervals_seconds}
        for scope in (Scope.ACLS, Scope.QUOTAS)
    )
    claims = DesiredBindings(acl_flows, quota_flows)
    others = await _flows_of_others(context, configured, whole, claims)
    gate = asyncio.Semaphore(_PASSES_AT_A_TIME)
    served: dict[Flow, ServedFlow] = {}
    loops: dict[str, Loop] = {}
    for entry in configured:
        lease = open_lease(context, entry.flow, await context.clusters.get(entry.target_client))
        flow = await _flow(context, entry, told, claims, lease, gate, others)
        served[entry.flow] = flow
        loops[f"flow {entry.flow}"] = lease.guard(flow.sync.run, otherwise=flow.sync.stand_by)
    run_here = {each: flow.sync.passes for each, flow in served.items()}
    for passes in run_here.values():
        passes.loop_guard.partners = _partners(passes, {**others, **run_here})
    observe(context.meter, [flow.sync for flow in served.values()], clock=context.clock)
    servicer = ConfigSyncServicer(
        served,
        clusters=context.clusters,
        stop=context.stop,
    )
    service = GrpcService(
        name=DESCRIPTOR.services_by_name["ConfigSyncService"].full_name,
        add=add_ConfigSyncServiceServicer_to_server,
        servicer=servicer,
    )
    tables = GrpcService(
        name=TABLES.services_by_name["TableService"].full_name,
        add=add_TableServiceServicer_to_server,
        servicer=told,
    )
    return ServiceParts(
        loops=loops,
        grpc=[service, tables],
        first_pass_done=lambda flow: served[flow].sync.status.last_refresh_ms is not None,
    )


async def _flow(
    context: ServiceContext,
    flow: ConfigSyncFlow,
    told: ToldTables,
    claims: DesiredBindings,
    lease: FlowLease,
    gate: asyncio.Semaphore,
    others: Mapping[Flow, OtherFlow],
) -> ServedFlow:
    journal = _journal(context, flow)
    target = await context.clusters.get(flow.target_client)
    passes = FlowPasses(
        flow,
        source=await context.clusters.get(flow.source_client),
        target=target,
        told=told,
        claims=claims,
        clock=context.clock,
        journal=journal,
        gate=gate,
        neighbours=[each for each in others.values() if each.flow.target == flow.flow.target],
    )
    backoff = context.backoff(_RETRY_INITIAL_SECONDS, _RETRY_MAX_SECONDS)
    sync = FlowSync(passes, clock=context.clock, backoff=backoff, journal=journal, refusal=lease.refusal)
    commands = FlowCommands(passes, clock=context.clock, wake=sync.wake, owner=lease)
    return ServedFlow(sync=sync, commands=commands)


async def _flows_of_others(
    context: ServiceContext,
    configured: Sequence[ConfigSyncFlow],
    whole: Sequence[ConfigSyncFlow],
    claims: DesiredBindings,
) -> Mapping[Flow, OtherFlow]:
    """Flows of other processes that concern those of this one: with the same target, or over which a copy may
    come back. Their registries are only read."""
    flows = [each.flow for each in whole]
    own = {each.flow for each in configured}
    targets = {flow.target for flow in own}
    concerned = frozenset().union(*(circle_of(flow, flows) for flow in own))
    found: dict[Flow, OtherFlow] = {}
    for entry in whole:
        if entry.flow in own or (entry.flow.target not in targets and entry.flow not in concerned):
            continue
        target = await context.clusters.get(entry.target_client)
        found[entry.flow] = OtherFlow(
            entry, target=target, claims=claims, clock=context.clock, journal=_journal(context, entry)
        )
    return found


def _partners(passes: Partner, all_flows: Mapping[Flow, Partner]) -> list[Partner]:
    """The flows over which a copy may come back. Where names show origins, none does."""
    keeping = {
        flow: each
        for flow, each in all_flows.items()
        if not each.own_rules.selector.policy.tracks_topic_sources
    }
    if passes.flow not in keeping:
        return []
    return [keeping[flow] for flow in sorted(circle_of(passes.flow, keeping))]


def _journal(context: ServiceContext, flow: ConfigSyncFlow) -> ChangeLog:
    return ChangeLog(
        flow=flow.flow,
        changes=instruments.counter(context.meter, metrics.CONFIGSYNC_CHANGES),
        clock=context.clock,
    )
