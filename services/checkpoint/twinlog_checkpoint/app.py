"""The composition root of the checkpoint service: connects clusters, assembles flows, names the loops."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from twinlog.api.checkpoint.v1.checkpoint_service_pb2 import DESCRIPTOR
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import add_CheckpointServiceServicer_to_server
from twinlog.batches.transformed import ChangeRecords
from twinlog.config import ClientConfig
from twinlog.errors import ConfigError
from twinlog.kafka.clients import aiokafka_client_options, fetch_options
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw.fetch.reader import BatchReader
from twinlog.kafka.raw.transactions.open_transactions import open_transactions
from twinlog.model import ClusterAlias, Flow
from twinlog.service.app import ServiceContext, ServiceParts
from twinlog.service.feeds.rules import RulesWatch
from twinlog.service.feeds.topics import TopicsWatch
from twinlog.service.grpc_server import GrpcService
from twinlog.service.owner.opening import open_lease
from twinlog.service.runtime import Loop
from twinlog_checkpoint.api.board import CheckpointBoard
from twinlog_checkpoint.api.servicer import CheckpointServicer
from twinlog_checkpoint.api.source_copy_states import SourceCopyStates
from twinlog_checkpoint.assembly import (
    FlowClusters,
    SharedDependencies,
    assemble_flow,
    assemble_flow_elsewhere,
    assemble_group_syncer,
    assemble_moves,
    watch_fences,
)
from twinlog_checkpoint.config import CheckpointFlow, checkpoint_flow, checkpoint_flows, with_flow
from twinlog_checkpoint.flow.live_rules import RulesFollower
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.groups.instruments import observe_flows
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.log_sides import BatchLog

READ_TIMEOUT_SECONDS = 30.0


async def build(context: ServiceContext, stack: AsyncExitStack) -> ServiceParts:
    """Connect the parts. Does not wait for any broker."""
    topics = TopicsWatch(
        context.peers.channel("configsync"), clock=context.clock, backoff=context.backoff(0.2, 5.0)
    )
    rules = RulesWatch(
        context.peers.channel("configsync"), clock=context.clock, backoff=context.backoff(0.2, 5.0)
    )
    around = SharedDependencies(
        known_topics=topics,
        clock=context.clock,
        meter=context.meter,
        stop=context.stop,
        refusal=context.clusters.refusal,
        away=lambda alias: _away(context, alias),
        aliases=tuple(context.configuration.clusters),
        copy_states=SourceCopyStates(
            context.peers.channel("source"), endpoint=context.peers.endpoint("source")
        ),
    )
    flows: dict[Flow, FlowParts] = {}
    loops: dict[str, Loop] = {"topics of configsync": topics.run, "rules of configsync": rules.run}
    for entry in checkpoint_flows(context.configuration):
        parts = assemble_flow(entry, await _clusters(context, stack, entry), around)
        loops[f"offset syncs {entry.flow}"] = parts.checkpointer.tail.run
        lease = open_lease(context, entry.flow, parts.target)
        loops[f"owner of {entry.flow}"] = lease.run
        loops[f"checkpoints {entry.flow}"] = lease.guard(parts.checkpointer.run)
        loops[f"fences {entry.flow}"] = lease.guard(partial(watch_fences, parts=parts, around=around))
        syncer = assemble_group_syncer(parts, around)
        loops[f"group offsets {entry.flow}"] = lease.guard(syncer.run)
        follower = RulesFollower(
            configuration=context.configuration,
            rules=rules,
            checkpointer=parts.checkpointer,
            syncer=syncer,
            is_owner=lease.is_owner,
        )
        parts.checkpointer.learn_rules = follower.learn
        flows[entry.flow] = replace(parts, duty=lease, rules=follower)
        loops[f"rules {entry.flow}"] = follower.run
    elsewhere: dict[Flow, FlowParts] = {}
    unknown: dict[Flow, str] = {}
    for back in sorted({Flow(flow.target, flow.source) for flow in flows} - flows.keys()):
        try:
            found = await asyncio.to_thread(with_flow, context.configuration, back)
            if found is None:
                continue
            entry = checkpoint_flow(found.flow(back))
        except ConfigError as error:
            unknown[back] = f"this process cannot read flow {back} of the file: {error}"
            continue
        parts = assemble_flow_elsewhere(entry, await _clusters(context, stack, entry), around)
        follower = RulesFollower(
            configuration=found,
            rules=rules,
            checkpointer=parts.checkpointer,
            syncer=assemble_group_syncer(parts, around),
            is_owner=lambda: False,
        )
        parts.checkpointer.learn_rules = follower.learn
        elsewhere[back] = replace(parts, rules=follower)
        loops[f"offset syncs {back}"] = parts.checkpointer.tail.run
        loops[f"rules {back}"] = follower.run
    around.parts.update({**elsewhere, **flows})
    board = CheckpointBoard(flows.values(), history_id=context.instance_id, meter=context.meter)
    loops["watched groups"] = board.run
    moves = assemble_moves(flows, around, elsewhere=elsewhere, unknown=unknown)
    for flow, served in moves.items():
        loops[f"moves of {flow}"] = served.host.run
    service = GrpcService(
        name=DESCRIPTOR.services_by_name["CheckpointService"].full_name,
        add=add_CheckpointServiceServicer_to_server,
        servicer=CheckpointServicer(
            moves,
            board=board,
            statuses=context.clusters.statuses,
            clock=context.clock,
            stop=context.stop,
        ),
    )
    observe_flows(context.meter, list(flows.values()), clock=context.clock)
    return ServiceParts(
        loops=loops,
        grpc=[service],
        first_pass_done=lambda flow: flows[flow].checkpointer.passes > 0,
    )


def _away(context: ServiceContext, alias: ClusterAlias) -> str:
    """Why the last probe did not reach the cluster; empty if it did, and before the first probe."""
    statuses = context.clusters.statuses([alias])
    return next((each.reason for each in statuses if each.as_of_ms and not each.reachable), "")


async def _clusters(context: ServiceContext, stack: AsyncExitStack, entry: CheckpointFlow) -> FlowClusters:
    clients = entry.clients
    source, target = clients.source_reader, clients.target_reader
    # On the source, use the isolation level of the copy. On the target, only committed records count as
    # copied.
    copied = fetch_options(source.properties, alias=source.alias).read_committed
    return FlowClusters(
        source=await context.clusters.get(clients.source_admin),
        target=await context.clusters.get(clients.target_admin),
        syncs=await context.clusters.get(clients.syncs_reader),
        checkpoints_reader=await context.clusters.get(target),
        checkpoints_writer=await context.clusters.get(clients.checkpoints_writer),
        source_log=await _log_side(
            context, stack, source, read_committed=copied, changes=entry.transforms.changes
        ),
        target_log=await _log_side(context, stack, target, read_committed=True),
    )


async def _log_side(
    context: ServiceContext,
    stack: AsyncExitStack,
    client: ClientConfig,
    *,
    read_committed: bool,
    changes: Callable[[str], ChangeRecords | None] = lambda _topic: None,
) -> LogSide:
    """Log ends and records of one cluster. `changes`: as for `BatchLog`."""
    options = aiokafka_client_options(client.properties, alias=client.alias)
    session = DataClientPool(client.alias, options, timeout_seconds=READ_TIMEOUT_SECONDS)
    stack.push_async_callback(session.close)
    return LogSide(
        admin=await context.clusters.get(client),
        log=BatchLog(BatchReader(session, read_committed=read_committed), changes),
        end=OffsetSpec.LAST_STABLE if read_committed else OffsetSpec.LATEST,
        open_transactions=partial(open_transactions, session),
    )
