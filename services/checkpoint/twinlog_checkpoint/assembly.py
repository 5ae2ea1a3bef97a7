"""Assembles the parts of one flow for given clusters. No I/O."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from twinlog.errors import KafkaError, TransientKafkaError, TwinlogError
from twinlog.kafka.errors import UNAVAILABLE
from twinlog.model import Flow
from twinlog.moves.record import MoveKind, Moves
from twinlog.offsets import CheckpointHistory
from twinlog.policy.internal_topics import sync_history_topic
from twinlog.write_blocks import OtherFence, holder_name, other_fences
from twinlog_checkpoint.api.moves_servicer import ServedFlow
from twinlog_checkpoint.config import CheckpointFlow
from twinlog_checkpoint.flow.deletes import GroupDeleter
from twinlog_checkpoint.flow.parts import (
    Duty,
    FlowParts,
    ServedElsewhere,
)
from twinlog_checkpoint.flow.syncer import GroupSyncer
from twinlog_checkpoint.groups.checkpoint_log import CheckpointLog
from twinlog_checkpoint.groups.checkpointer import Checkpointer
from twinlog_checkpoint.groups.directory import GroupDirectory, TopicChoice
from twinlog_checkpoint.groups.instruments import CheckpointInstruments
from twinlog_checkpoint.groups.progress import ProgressTable
from twinlog_checkpoint.journal import MoveJournal, moves_table, source_table
from twinlog_checkpoint.moves.planning.planner import MovePlanner
from twinlog_checkpoint.moves.routes.route import Route
from twinlog_checkpoint.moves.running.host import MoveHost
from twinlog_checkpoint.moves.running.runner import MoveRunner
from twinlog_checkpoint.moves.write_block import tend_fences
from twinlog_checkpoint.translation.sync_history_log import SyncHistoryLog
from twinlog_checkpoint.translation.sync_tail import SyncTail
from twinlog_checkpoint.translators import FlowClusters, SharedDependencies, assemble_translators


def assemble_flow(
    entry: CheckpointFlow, clusters: FlowClusters, around: SharedDependencies, duty: Duty
) -> FlowParts:
    """Assemble the parts of one flow; starts nothing. `entry` has the rules of the file."""
    settings = entry.settings

    topics = TopicChoice(lambda: checkpointer.entry.topics, around.known_topics)
    tail = SyncTail(
        flow=entry.flow,
        cluster=clusters.syncs,
        topic=entry.syncs_topic.topic,
        kept=SyncHistoryLog(
            flow=entry.flow,
            topic=sync_history_topic(entry.flow.source),
            replication_factor=settings.topic_replication_factor,
            admin=clusters.target,
            reader_cluster=clusters.checkpoints_reader,
        ),
        clock=around.clock,
    )
    if entry.policy.tracks_topic_sources:
        # Where names are kept, only the sync itself says in time of which logs it is.
        tail.ids_of = topics.topic_ids
    instruments = CheckpointInstruments(around.meter, entry.flow)

    translators = assemble_translators(
        entry, clusters, around, topics=topics, tail=tail, on_read_bytes=instruments.on_read_bytes
    )
    checkpointer = Checkpointer(
        entry=entry,
        source=clusters.source,
        target=clusters.target,
        writer_cluster=clusters.checkpoints_writer,
        groups=GroupDirectory(
            admin=clusters.source,
            group_filter=entry.groups,
            refresh_enabled=settings.refresh_groups_enabled,
            refresh_interval_seconds=settings.refresh_groups_interval_seconds,
            clock=around.clock,
        ),
        topics=topics,
        tail=tail,
        log=CheckpointLog(
            flow=entry.flow,
            topic=entry.checkpoints_topic,
            replication_factor=settings.topic_replication_factor,
            admin=clusters.target,
            reader_cluster=clusters.checkpoints_reader,
        ),
        translator=translators.forward,
        history=CheckpointHistory(),
        table=ProgressTable(entry.flow),
        instruments=instruments,
        clock=around.clock,
        refusal=around.refusal,
        away=partial(_away, entry.flow, around),
        is_both_ways=translators.is_both_ways,
    )
    return FlowParts(
        checkpointer=checkpointer,
        forward=translators.forward,
        back=translators.back,
        shared=translators.shared,
        source_log=clusters.source_log,
        target_log=clusters.target_log,
        moves=moves_table(entry.flow, clusters.target, replication_factor=settings.topic_replication_factor),
        duty=duty,
    )


def _away(flow: Flow, around: SharedDependencies) -> TwinlogError | None:
    """Return the cluster of the flow that did not answer the last probe, if any."""
    for alias in (flow.source, flow.target):
        if (outage := around.outage(alias)).reason:
            words = f"cluster {outage.told(alias)}"
            return TransientKafkaError(words, reason=UNAVAILABLE.name, metadata={"cluster": alias})
    return None


def assemble_group_syncer(parts: FlowParts) -> GroupSyncer:
    factor = parts.entry.settings.topic_replication_factor
    record = source_table(parts.flow, parts.target, replication_factor=factor)
    syncer = GroupSyncer(
        parts=parts,
        deleter=GroupDeleter(parts=parts, journal=_journal(parts), record=record),
        journal=_journal(parts),
    )
    # What the move has put in force, or ended, is told at once.
    parts.moving.on_end = syncer.look_again
    return syncer


def assemble_flow_elsewhere(
    entry: CheckpointFlow, clusters: FlowClusters, around: SharedDependencies
) -> FlowParts:
    """Assemble the parts of a flow that this process does not run, for the moves of the flow in the other
    direction: offset syncs, rules and checkpoints can be read by any process."""
    parts = assemble_flow(entry, clusters, around, ServedElsewhere(entry.flow))
    parts.checkpointer.tail.may_be_absent = True
    return parts


def assemble_moves(
    flows: Mapping[Flow, FlowParts],
    around: SharedDependencies,
    *,
    elsewhere: Mapping[Flow, FlowParts] = MappingProxyType({}),
    unknown: Mapping[Flow, str] = MappingProxyType({}),
) -> dict[Flow, ServedFlow]:
    """Assemble what moves the groups of each flow in both directions, also by the flow in the other direction
    if the file has it. `elsewhere`: flows that this process does not run; `unknown`: why such a flow cannot
    be read."""
    served: dict[Flow, ServedFlow] = {}
    for flow, parts in flows.items():
        back = Flow(flow.target, flow.source)
        reverse, why = flows.get(back) or elsewhere.get(back), unknown.get(back, "")
        runners = {
            kind: _runner(Route(kind=kind, parts=parts, reverse=reverse, unknown=why), parts, around)
            for kind in MoveKind
        }
        served[flow] = ServedFlow(
            parts=parts,
            failover=runners[MoveKind.FAILOVER],
            failback=runners[MoveKind.FAILBACK],
            host=MoveHost(
                flow,
                runners,
                duty=parts.duty,
                clock=around.clock,
                after_run=parts.checkpointer.look_again,
            ),
        )
    return served


def _runner(route: Route, parts: FlowParts, around: SharedDependencies) -> MoveRunner:
    return MoveRunner(
        planner=MovePlanner(
            route=route,
            clock=around.clock,
            outage=around.outage,
            others=around.aliases,
            stop=around.stop,
            copy_states=around.copy_states,
        ),
        journal=_journal(parts),
        reverse_journal=MoveJournal(
            flow=(back := Flow(parts.flow.target, parts.flow.source)),
            table=moves_table(back, parts.source, replication_factor=-1),
            is_owner=lambda: False,
        ),
        duty=parts.duty,
        lock=parts.moving,
    )


def _journal(parts: FlowParts) -> MoveJournal:
    return MoveJournal(
        flow=parts.flow,
        table=parts.moves,
        is_owner=lambda: parts.duty.refusal() is None,
        on_moves=parts.fences.on_moves,
    )


async def watch_fences(stop: asyncio.Event, *, parts: FlowParts, around: SharedDependencies) -> None:
    """Loop of the process that owns the flow: watch the fences."""

    async def tend(moves: Moves) -> Sequence[OtherFence]:
        if parts.moving.locked():
            return parts.fences.others  # The run changes them itself, and wakes this loop.
        try:
            return await told(moves)
        except KafkaError as error:
            if error.retriable:
                raise
            return ()  # Without the right to read ACLs there is nothing to look after.

    async def told(moves: Moves) -> Sequence[OtherFence]:
        holder = holder_name(parts.flow, await parts.target.cluster_id())
        if moves.fences.get(parts.flow.target):
            await tend_fences(parts.target, moves.fenced(parts.flow.target), holder)
        recorded = moves.fenced(parts.flow.source)
        kept = await tend_fences(parts.source, recorded, holder)
        kept = {fence: names for fence, names in kept.items() if parts.has_had(fence.resource_name)}
        servers = parts.entry.clients.source_admin.properties.get("bootstrap.servers", parts.flow.source)
        return other_fences(kept, recorded, servers)

    await parts.fences.run(stop, load=_journal(parts).load, tend=tend, clock=around.clock)
