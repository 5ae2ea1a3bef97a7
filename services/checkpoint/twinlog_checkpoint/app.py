"""The composition root of the checkpoint service: connects clusters, assembles flows, names the loops."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import grpc

from twinlog.api.checkpoint.v1.checkpoint_service_pb2 import DESCRIPTOR
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import add_CheckpointServiceServicer_to_server
from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.batches.transformed import ChangeRecords
from twinlog.config import ClientConfig, OffsetSyncsLocation
from twinlog.errors import ConfigError
from twinlog.kafka.clients import aiokafka_client_options, fetch_options
from twinlog.kafka.outage import NO_OUTAGE, Outage
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw.fetch.reader import BatchReader
from twinlog.kafka.raw.lookups import open_transactions
from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog.policy import offset_syncs_topic
from twinlog.policy.internal_topics import sync_history_topic
from twinlog.service.app import ServiceContext, ServiceParts
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.feeds.pages import every
from twinlog.service.feeds.registry import Decisions
from twinlog.service.grpc_server import GrpcService
from twinlog.service.owner.name import OwnerReason
from twinlog.service.owner.opening import open_lease
from twinlog.service.runtime import Loop
from twinlog.wire import TopicIds
from twinlog_checkpoint.api.servicer import CheckpointServicer
from twinlog_checkpoint.assembly import (
    assemble_flow,
    assemble_flow_elsewhere,
    assemble_group_syncer,
    assemble_moves,
    watch_fences,
)
from twinlog_checkpoint.config import CheckpointFlow, checkpoint_flow, checkpoint_flows, with_flow
from twinlog_checkpoint.flow.gauges import observe_flows
from twinlog_checkpoint.flow.live_rules import RulesFollower
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.moves.planning.decision import CopyReport, CopyState, ForeignStretch, LostRange
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.log_sides import BatchLog
from twinlog_checkpoint.translation.sync_history_log import SyncHistoryLog
from twinlog_checkpoint.translation.sync_tail import SyncTail
from twinlog_checkpoint.translation.translation import Verdict
from twinlog_checkpoint.translators import FlowClusters, SharedDependencies

# Asks the source service for the state of each partition's copy.

_PAGE = 5000
_LOST = ("TARGET_TRUNCATED", "TARGET_RECREATED")
"""Reasons of gaps whose records the copy had."""
_CALL_SECONDS = 10.0
"""For one page, which the source service answers from memory."""


class _OnlyStandby(Exception):  # noqa: N818 - no error: the answer of another process is taken
    """The owner of a flow cannot be reached; only a process on standby answered."""


class SourceCopyStates:
    """Asks the source service. Implements `CopyStates`."""

    def __init__(self, channel: grpc.aio.Channel, *, endpoint: str) -> None:
        self._stub = SourceServiceStub(channel)
        self._endpoint = endpoint

    async def of(self, flow: Flow, *, with_losses: bool = False) -> CopyReport:
        """Return what the flow's owner reports. If the owner cannot be reached, ask a process on standby."""
        try:
            report = await self._told(flow, from_owner=True)
        except _OnlyStandby:
            report = await self._told(flow, from_owner=False)
        return await self._with_losses(flow, report) if with_losses and not report.away else report

    async def _with_losses(self, flow: Flow, report: CopyReport) -> CopyReport:
        request = pb2.ListGapsRequest(flow=types_pb2.Flow(source=flow.source, target=flow.target))
        try:
            answer = await every(self._stub.ListGaps, request, "gaps", timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            why = error_from_rpc(error, peer="source")
            return CopyReport(away=f"the source service at {self._endpoint} does not tell its gaps: {why}")
        for unknown in answer.unknown:
            return CopyReport(away=f"the gaps of {flow} cannot be read: {unknown.message}")
        lost: dict[TopicPartition, list[LostRange]] = {}
        for gap in answer.gaps:
            if gap.reason in _LOST and not gap.acknowledged_by:
                partition = TopicPartition(gap.partition.topic, gap.partition.partition)
                lost.setdefault(partition, []).append(LostRange(gap.from_offset, gap.to_offset, gap.reason))
        return replace(report, lost=lost)

    async def _told(self, flow: Flow, *, from_owner: bool) -> CopyReport:
        """Raises _OnlyStandby if the owner has to answer and cannot be reached."""
        request = pb2.ListPartitionsRequest(
            flow=types_pb2.Flow(source=flow.source, target=flow.target),
            page_size=_PAGE,
            from_owner=from_owner,
        )
        try:
            answer = await every(self._stub.ListPartitions, request, "partitions", timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            why = error_from_rpc(error, peer="source")
            if why.reason == OwnerReason.OWNED_ELSEWHERE and from_owner:
                raise _OnlyStandby from error
            return CopyReport(
                away=f"the source service at {self._endpoint} does not report its positions: {why}"
            )
        return CopyReport(
            partitions={
                TopicPartition(status.source.topic, status.source.partition): copy_state(status)
                for status in answer.partitions
            }
        )


def copy_state(status: pb2.PartitionStatus) -> CopyState:
    return CopyState(
        state=pb2.PartitionState.Name(status.state).removeprefix("PARTITION_STATE_"),
        position=None if status.position < 0 else status.position,
        reason=status.reason,
        message=status.message,
        equal_below=_equal_below(status),
        topic_ids=TopicIds(status.source_topic_id, status.target_topic_id),
        target_end=status.target_end if status.HasField("target_end") else None,
        foreign=[
            ForeignStretch(each.from_offset, each.to_offset, each.records) for each in status.foreign_writes
        ],
    )


def _equal_below(status: pb2.PartitionStatus) -> int | None:
    """Return nothing for an answer from standby: it may be out of date."""
    if status.reason == OwnerReason.OWNED_ELSEWHERE:
        return 0
    return None if status.offsets == "preserved" else status.offsets_since


READ_TIMEOUT_SECONDS = 30.0


async def build(context: ServiceContext, stack: AsyncExitStack) -> ServiceParts:
    """Connect the parts. Does not wait for any broker."""
    decisions = Decisions(
        context.peers.channel("configsync"), clock=context.clock, backoff=context.backoff(0.2, 5.0)
    )
    around = SharedDependencies(
        known_topics=decisions,
        clock=context.clock,
        meter=context.meter,
        stop=context.stop,
        refusal=context.clusters.refusal,
        outage=lambda alias: _outage(context, alias),
        aliases=tuple(context.configuration.clusters),
        copy_states=SourceCopyStates(
            context.peers.channel("source"), endpoint=context.peers.endpoint("source")
        ),
    )
    flows: dict[Flow, FlowParts] = {}
    loops: dict[str, Loop] = {"decisions of configsync": decisions.run}
    for entry in checkpoint_flows(context.configuration):
        clusters = await _clusters(context, stack, entry)
        lease = open_lease(context, entry.flow, clusters.target)
        parts = assemble_flow(entry, clusters, around, lease)
        loops[f"offset syncs {entry.flow}"] = parts.checkpointer.tail.run
        decisions.add(entry.flow, parts.target)
        loops[f"checkpoints {entry.flow}"] = lease.guard(
            parts.checkpointer.run, otherwise=partial(parts.checkpointer.stand_by, why=lease.refusal)
        )
        loops[f"fences {entry.flow}"] = lease.guard(partial(watch_fences, parts=parts, around=around))
        syncer = assemble_group_syncer(parts)
        loops[f"group offsets {entry.flow}"] = lease.guard(syncer.run)
        follower = RulesFollower(
            configuration=context.configuration,
            decisions=decisions,
            checkpointer=parts.checkpointer,
            syncer=syncer,
            is_owner=lease.is_owner,
        )
        parts.checkpointer.learn_rules = follower.learn
        flows[entry.flow] = replace(parts, rules=follower)
        loops[f"rules {entry.flow}"] = follower.run
    elsewhere: dict[Flow, FlowParts] = {}
    unknown: dict[Flow, str] = {}
    for back in sorted({Flow(flow.target, flow.source) for flow in flows} - flows.keys()):
        try:
            found = await asyncio.to_thread(with_flow, context.configuration, back)
            if found is None:
                entry = flows[Flow(back.target, back.source)].entry
                if not entry.policy.tracks_topic_sources:
                    around.tails[back] = tail = await _syncs_of_other_file(context, entry)
                    loops[f"offset syncs {back}"] = tail.run
                continue
            entry = checkpoint_flow(found.flow(back))
        except ConfigError as error:
            unknown[back] = f"this process cannot read flow {back} of the file: {error}"
            continue
        parts = assemble_flow_elsewhere(entry, await _clusters(context, stack, entry), around)
        decisions.add(back, parts.target)
        follower = RulesFollower(
            configuration=found,
            decisions=decisions,
            checkpointer=parts.checkpointer,
            syncer=assemble_group_syncer(parts),
            is_owner=lambda: False,
        )
        parts.checkpointer.learn_rules = follower.learn
        elsewhere[back] = replace(parts, rules=follower)
        loops[f"offset syncs {back}"] = parts.checkpointer.tail.run
        loops[f"rules {back}"] = follower.run
    around.tails.update({flow: each.checkpointer.tail for flow, each in (elsewhere | flows).items()})
    around.copies.update({flow: each.checkpointer.copies for flow, each in (elsewhere | flows).items()})
    for flow, parts in flows.items():
        # Whether the flow back copies a topic, too, is asked from the first pass on.
        back_parts = (elsewhere | flows).get(Flow(flow.target, flow.source))
        if back_parts is not None and not parts.entry.policy.tracks_topic_sources:
            assert isinstance(back_parts.rules, RulesFollower)
            parts.checkpointer.learn_rules_back = back_parts.rules.learn
    moves = assemble_moves(flows, around, elsewhere=elsewhere, unknown=unknown)
    for flow, served in moves.items():
        loops[f"moves of {flow}"] = served.host.run
    service = GrpcService(
        name=DESCRIPTOR.services_by_name["CheckpointService"].full_name,
        add=add_CheckpointServiceServicer_to_server,
        servicer=CheckpointServicer(
            moves,
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


async def _syncs_of_other_file(context: ServiceContext, entry: CheckpointFlow) -> SyncTail:
    """Of a flow back that this file does not have: where this file would put them."""
    back, clients = Flow(entry.flow.target, entry.flow.source), entry.clients
    on_source = entry.settings.offset_syncs_location is OffsetSyncsLocation.SOURCE
    target = await context.clusters.get(clients.source_reader)
    return SyncTail(
        flow=back,
        cluster=await context.clusters.get(clients.target_reader) if on_source else target,
        topic=offset_syncs_topic(entry.policy, back, entry.settings.offset_syncs_location).topic,
        kept=SyncHistoryLog(
            flow=back,
            topic=sync_history_topic(back.source),
            replication_factor=entry.settings.topic_replication_factor,
            admin=target,
            reader_cluster=target,
        ),
        may_be_absent=True,
        is_wanted=asyncio.Event(),
        clock=context.clock,
    )


def _outage(context: ServiceContext, alias: ClusterAlias) -> Outage:
    return next((each.outage for each in context.clusters.statuses([alias])), NO_OUTAGE)


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
            context,
            stack,
            source,
            Verdict.SOURCE_UNREADABLE,
            read_committed=copied,
            changes=entry.transforms.changes,
        ),
        target_log=await _log_side(context, stack, target, Verdict.TARGET_UNREADABLE, read_committed=True),
    )


async def _log_side(
    context: ServiceContext,
    stack: AsyncExitStack,
    client: ClientConfig,
    unreadable: Verdict,
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
        unreadable=unreadable,
        end=OffsetSpec.LAST_STABLE if read_committed else OffsetSpec.LATEST,
        open_transactions=partial(open_transactions, session),
    )
