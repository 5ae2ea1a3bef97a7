"""The composition root of the checkpoint service: for each flow a tail, a checkpointer and a group syncer."""

from contextlib import AsyncExitStack
from functools import partial

from twinlog.api.checkpoint.v1.checkpoint_service_pb2 import DESCRIPTOR
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import add_CheckpointServiceServicer_to_server
from twinlog.config import ClientConfig
from twinlog.kafka.clients import aiokafka_client_options, fetch_options
from twinlog.kafka.connection import DataSession
from twinlog.kafka.raw.reader import BatchReader
from twinlog.offsets import CheckpointHistory, target_partition
from twinlog.service.app import ServiceContext, ServiceParts
from twinlog.service.grpc_server import GrpcService
from twinlog.service.runtime import Loop
from twinlog.service.topics_client import TopicsWatch
from twinlog_checkpoint.alignment_log import BatchLog
from twinlog_checkpoint.checkpoint_log import CheckpointLog
from twinlog_checkpoint.checkpointer import Checkpointer
from twinlog_checkpoint.config import CheckpointFlow, checkpoint_flows
from twinlog_checkpoint.exact import ExactTranslator, LogSide
from twinlog_checkpoint.floor import FloorTranslator
from twinlog_checkpoint.group_syncer import GroupSyncer
from twinlog_checkpoint.groups import GroupDirectory
from twinlog_checkpoint.instruments import CheckpointInstruments
from twinlog_checkpoint.progress import ProgressTable
from twinlog_checkpoint.servicer import CheckpointServicer
from twinlog_checkpoint.sync_tail import SyncTail
from twinlog_checkpoint.topic_choice import TopicChoice
from twinlog_checkpoint.translation import Translator

READ_TIMEOUT_SECONDS = 30.0


async def build(context: ServiceContext, stack: AsyncExitStack) -> ServiceParts:
    """Connect the parts; waits for no broker."""
    topics = TopicsWatch(
        context.peers.channel("configsync"), clock=context.clock, backoff=context.backoff(0.2, 5.0)
    )
    loops: dict[str, Loop] = {"topics of configsync": topics.run}
    checkpointers: list[Checkpointer] = []
    for entry in checkpoint_flows(context.configuration):
        checkpointer = await _checkpointer(context, stack, entry, topics)
        checkpointers.append(checkpointer)
        loops[f"offset syncs {entry.flow}"] = checkpointer.tail.run
        loops[f"checkpoints {entry.flow}"] = checkpointer.run
        if entry.settings.sync_group_offsets_enabled:
            loops[f"group offsets {entry.flow}"] = _group_syncer(context, checkpointer).run
    service = GrpcService(
        name=DESCRIPTOR.services_by_name["CheckpointService"].full_name,
        add=add_CheckpointServiceServicer_to_server,
        servicer=CheckpointServicer(checkpointers, context.clusters.statuses),
    )
    return ServiceParts(loops=loops, grpc=[service])


async def _checkpointer(
    context: ServiceContext, stack: AsyncExitStack, entry: CheckpointFlow, topics: TopicsWatch
) -> Checkpointer:
    clients, settings = entry.clients, entry.settings
    source = await context.clusters.get(clients.source_admin)
    target = await context.clusters.get(clients.target_admin)
    syncs = await context.clusters.get(clients.syncs_reader)
    tail = SyncTail(
        flow=entry.flow,
        cluster=syncs,
        topic=entry.syncs_topic.topic,
        clock=context.clock,
    )
    instruments = CheckpointInstruments(context.meter, entry.flow)
    return Checkpointer(
        entry=entry,
        source=source,
        target=target,
        writer_cluster=await context.clusters.get(clients.checkpoints_writer),
        groups=GroupDirectory(
            admin=source,
            group_filter=entry.groups,
            refresh_enabled=settings.refresh_groups_enabled,
            refresh_interval_seconds=settings.refresh_groups_interval_seconds,
            clock=context.clock,
        ),
        topics=TopicChoice(entry.topics, topics),
        tail=tail,
        log=CheckpointLog(
            flow=entry.flow,
            topic=entry.checkpoints_topic,
            replication_factor=settings.topic_replication_factor,
            admin=target,
            reader_cluster=await context.clusters.get(clients.target_reader),
        ),
        translator=await _translator(context, stack, entry, tail, instruments),
        history=CheckpointHistory(),
        table=ProgressTable(entry.flow),
        instruments=instruments,
        clock=context.clock,
        refusal=context.clusters.refusal,
    )


async def _translator(
    context: ServiceContext,
    stack: AsyncExitStack,
    entry: CheckpointFlow,
    tail: SyncTail,
    instruments: CheckpointInstruments,
) -> Translator:
    """Exact, unless the configuration allows no reading."""
    floor = FloorTranslator(lambda: tail.store)
    if entry.settings.translation_max_bytes == 0:
        return floor
    source_client, target_client = entry.clients.source_reader, entry.clients.target_reader
    # The source is seen as the copy saw it; on the target only what was committed is a copy.
    copied = fetch_options(source_client.properties, alias=source_client.alias).read_committed
    return ExactTranslator(
        flow=entry.flow,
        source=await _log_side(context, stack, source_client, read_committed=copied),
        target=await _log_side(context, stack, target_client, read_committed=True),
        target_partition=partial(target_partition, entry.policy, entry.flow),
        history=lambda: tail.history,
        floor=floor,
        max_bytes=entry.settings.translation_max_bytes,
        on_read_bytes=instruments.on_read_bytes,
    )


async def _log_side(
    context: ServiceContext, stack: AsyncExitStack, client: ClientConfig, *, read_committed: bool
) -> LogSide:
    """Log ends and records of one cluster."""
    options = aiokafka_client_options(client.properties, alias=client.alias)
    session = DataSession(client.alias, options, timeout_seconds=READ_TIMEOUT_SECONDS)
    stack.push_async_callback(session.close)
    return LogSide(
        admin=await context.clusters.get(client),
        log=BatchLog(BatchReader(session, read_committed=read_committed)),
    )


def _group_syncer(context: ServiceContext, checkpointer: Checkpointer) -> GroupSyncer:
    return GroupSyncer(
        flow=checkpointer.entry.flow,
        interval_seconds=checkpointer.entry.settings.sync_group_offsets_interval_seconds,
        target=checkpointer.target,
        history=checkpointer.history,
        table=checkpointer.table,
        clock=context.clock,
        wanted_groups=lambda: checkpointer.groups.groups,
        passes=lambda: checkpointer.passes,
    )
