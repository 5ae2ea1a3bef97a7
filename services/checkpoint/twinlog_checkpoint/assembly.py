"""Assembles the parts of one flow for given clusters. No I/O."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from opentelemetry.metrics import Meter

from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError, TwinlogError
from twinlog.kafka.errors import UNAVAILABLE
from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.reasons import no_answer
from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog.moves.record import MoveKind, Moves
from twinlog.offsets import CheckpointHistory, target_partition
from twinlog.policy import ReplicationPolicy
from twinlog.policy.internal_topics import sync_history_topic
from twinlog.write_blocks import OtherFence, holder_name, other_fences
from twinlog_checkpoint.api.moves_servicer import ServedFlow
from twinlog_checkpoint.config import CheckpointFlow
from twinlog_checkpoint.flow.parts import (
    FlowParts,
    ServedElsewhere,
    named_origin,
    original_of,
    pairs_of_copy,
    pairs_of_source,
)
from twinlog_checkpoint.groups.checkpoint_log import CheckpointLog
from twinlog_checkpoint.groups.checkpointer import Checkpointer
from twinlog_checkpoint.groups.deletes import GroupDeleter, GroupDeleteRules
from twinlog_checkpoint.groups.directory import GroupDirectory, KnownTopics, TopicChoice
from twinlog_checkpoint.groups.instruments import CheckpointInstruments
from twinlog_checkpoint.groups.progress import ProgressTable
from twinlog_checkpoint.groups.syncer import GroupSyncer
from twinlog_checkpoint.journal import MoveJournal, source_table
from twinlog_checkpoint.moves.planning.decision import CopyStates
from twinlog_checkpoint.moves.planning.planner import MovePlanner
from twinlog_checkpoint.moves.routes.route import Route
from twinlog_checkpoint.moves.running.host import MoveHost
from twinlog_checkpoint.moves.running.runner import MoveRunner
from twinlog_checkpoint.moves.write_block import tend_fences
from twinlog_checkpoint.translation.both_ways import BothWaysTranslator, Copied
from twinlog_checkpoint.translation.exact import ExactTranslator, LogSide
from twinlog_checkpoint.translation.routed import ApartTranslator, NoWayBack, RoutedTranslator
from twinlog_checkpoint.translation.shared_copies import PreservedTranslator, SharedCopies, UnsharedTranslator
from twinlog_checkpoint.translation.sync_history_log import SyncHistoryLog
from twinlog_checkpoint.translation.sync_tail import SyncTail
from twinlog_checkpoint.translation.translation import FloorRule, FloorTranslator, PairsFloor, Translator


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowClusters:
    """The connections of one flow, each with the client settings for its purpose."""

    source: KafkaCluster
    target: KafkaCluster
    syncs: KafkaCluster
    """The cluster that hosts the offset syncs."""
    checkpoints_reader: KafkaCluster
    checkpoints_writer: KafkaCluster
    source_log: LogSide
    target_log: LogSide


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDependencies:
    """What all flows of the process share."""

    known_topics: KnownTopics
    clock: Clock
    meter: Meter
    stop: asyncio.Event
    refusal: Callable[[Flow], TwinlogError | None]
    away: Callable[[ClusterAlias], str]
    """Why the last probe did not reach the cluster; empty if it did."""
    aliases: Collection[ClusterAlias]
    """Every cluster of the configuration."""
    copy_states: CopyStates
    """Asks the source service for the state of the copies."""
    parts: dict[Flow, FlowParts] = field(default_factory=dict)
    """Of all flows that can be read here; filled once they are assembled."""


def assemble_flow(entry: CheckpointFlow, clusters: FlowClusters, around: SharedDependencies) -> FlowParts:
    """Assemble the parts of one flow; starts nothing. `entry` has the rules of the file."""
    settings = entry.settings

    def entry_now() -> CheckpointFlow:
        """Rules change while the flow runs: what depends on them has to ask each time."""
        return checkpointer.entry

    topics = TopicChoice(lambda: entry_now().topics, around.known_topics)
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
        generation_of=topics.generation,
    )
    instruments = CheckpointInstruments(around.meter, entry.flow)

    async def equal_offsets() -> Mapping[TopicPartition, int | None]:
        report = await around.copy_states.of(entry.flow)
        return {partition: state.equal_below for partition, state in report.partitions.items()}

    async def equal_offsets_back() -> Mapping[TopicPartition, int | None]:
        report = await around.copy_states.of(entry.flow)
        return {partition: state.equal_back for partition, state in report.partitions.items()}

    forward: Translator = PreservedTranslator(
        equal_offsets=equal_offsets,
        there=clusters.target_log,
        original=lambda partition: partition,
        counterpart=partial(target_partition, entry.policy, entry.flow),
        otherwise=_forward(entry, clusters, tail, instruments),
    )
    back: Translator = PreservedTranslator(
        equal_offsets=equal_offsets_back,
        there=clusters.source_log,
        original=partial(named_origin, entry.flow, entry.policy),
        counterpart=partial(original_of, entry.policy),
        otherwise=_back(entry, clusters, tail, instruments),
    )
    shared = SharedCopies(
        flow=entry.flow, policy=entry.policy, source=clusters.source, target=clusters.target
    )
    unshared = partial(
        UnsharedTranslator,
        shared=shared,
        copy_of=lambda partition: target_partition(entry.policy, entry.flow, partition).topic,
    )
    forward = unshared(otherwise=forward)
    back = UnsharedTranslator(shared=shared, copy_of=lambda partition: partition.topic, otherwise=back)
    is_both_ways: Callable[[TopicPartition], bool] = lambda _source: False  # noqa: E731
    if not entry.policy.tracks_topic_sources:
        forward, back = both = _both_ways(entry, clusters, around, tail, forward, back)
        is_both_ways = both[0].is_both_ways
    # Outside of what answers for topics that are copied both ways: a route is no topic of the source.
    routed = RoutedTranslator(
        floor=FloorTranslator(lambda: tail.store),
        target=clusters.target,
        counterpart=partial(target_partition, entry.policy, entry.flow),
    )
    forward = ApartTranslator(
        is_apart=lambda source: topics.is_route(source.topic),
        apart=unshared(otherwise=routed),
        otherwise=forward,
    )

    def routed_to(copy: TopicPartition) -> Collection[str]:
        origin, ever = named_origin(entry.flow, entry.policy, copy), topics.ever_routed()
        if origin is None:
            return ()
        if entry.transforms.routes_records(origin.topic) or any(
            origin.topic in names for names in ever.values()
        ):
            return (copy.topic,)
        return [
            entry.policy.format_remote_topic(entry.flow.source, name) for name in ever.get(origin.topic, ())
        ]

    back = NoWayBack(routed_to=routed_to, target=clusters.target, otherwise=back)
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
        translator=forward,
        history=CheckpointHistory(),
        table=ProgressTable(entry.flow),
        instruments=instruments,
        clock=around.clock,
        refusal=around.refusal,
        away=partial(_away, entry.flow, around),
        is_both_ways=is_both_ways,
    )
    return FlowParts(
        checkpointer=checkpointer,
        forward=forward,
        back=back,
        shared=shared,
        source_log=clusters.source_log,
        target_log=clusters.target_log,
    )


def _both_ways(
    entry: CheckpointFlow,
    clusters: FlowClusters,
    around: SharedDependencies,
    tail: SyncTail,
    forward: Translator,
    back: Translator,
) -> tuple[BothWaysTranslator, BothWaysTranslator]:
    """Translators that answer for topics that are copied both ways, too."""
    flow, reverse = entry.flow, Flow(entry.flow.target, entry.flow.source)
    copy_of = partial(target_partition, entry.policy, flow)
    back_here = SharedCopies(
        flow=reverse, policy=entry.policy, source=clusters.target, target=clusters.source, reads_own=True
    )

    async def told_by(asked: Flow) -> Mapping[TopicPartition, Copied]:
        states = (await around.copy_states.of(asked)).partitions
        return {
            each: Copied(state.position, state.target_end or 0)
            for each, state in states.items()
            if state.position is not None
        }

    def floors() -> tuple[FloorRule, FloorRule] | None:
        """By the syncs of this flow, from offsets of its source; and by those of the flow back."""
        parts = around.parts.get(reverse)
        if parts is None:
            return None
        there = parts.checkpointer.tail
        return _from_source(tail), _from_copy(reverse, parts.entry.policy, there)

    def floors_back() -> tuple[FloorRule, FloorRule] | None:
        parts = around.parts.get(reverse)
        if parts is None:
            return None
        return _from_source(parts.checkpointer.tail), _from_copy(flow, entry.policy, tail)

    return (
        BothWaysTranslator(
            is_both_ways=lambda here: back_here.copies(copy_of(here).topic, here.topic),
            look=back_here.look,
            here=clusters.source_log,
            there=clusters.target_log,
            counterpart=copy_of,
            floors=floors,
            told=partial(told_by, flow),
            told_back=partial(told_by, reverse),
            otherwise=forward,
            clock=around.clock,
        ),
        BothWaysTranslator(
            is_both_ways=lambda copy: back_here.copies(copy.topic, original_of(entry.policy, copy).topic),
            look=back_here.look,
            here=clusters.target_log,
            there=clusters.source_log,
            counterpart=partial(original_of, entry.policy),
            floors=floors_back,
            told=partial(told_by, reverse),
            told_back=partial(told_by, flow),
            otherwise=back,
            clock=around.clock,
        ),
    )


def _from_source(tail: SyncTail) -> PairsFloor:
    return PairsFloor(lambda: tail.store.read_to_end, partial(pairs_of_source, tail), only_vouched=True)


def _from_copy(flow: Flow, policy: ReplicationPolicy, tail: SyncTail) -> PairsFloor:
    pairs = partial(pairs_of_copy, flow, policy, tail)
    return PairsFloor(lambda: tail.store.read_to_end, pairs, only_vouched=True)


def _away(flow: Flow, around: SharedDependencies) -> TwinlogError | None:
    """Return the cluster of the flow that did not answer the last probe, if any."""
    for alias in (flow.source, flow.target):
        if reason := around.away(alias):
            words = f"cluster {no_answer(alias, reason)}"
            return TransientKafkaError(words, reason=UNAVAILABLE.name, metadata={"cluster": alias})
    return None


def assemble_group_syncer(parts: FlowParts, around: SharedDependencies) -> GroupSyncer:
    checkpointer = parts.checkpointer
    syncer = GroupSyncer(
        flow=parts.flow,
        interval_seconds=parts.entry.settings.sync_group_offsets_interval_seconds,
        enabled=parts.entry.settings.sync_group_offsets_enabled,
        target=parts.target,
        history=checkpointer.history,
        is_void=parts.is_void,
        origin_of=parts.origin_of,
        table=checkpointer.table,
        clock=around.clock,
        wanted_groups=lambda: checkpointer.groups.groups,
        passes=lambda: checkpointer.passes,
        close=lambda: checkpointer.close,
        on_failure=checkpointer.instruments.failed,
        deletes_enabled=lambda: checkpointer.entry.settings.sync_group_deletes_enabled,
        journal=_journal(parts),
        moving=parts.moving.locked,
        moves_begun=lambda: parts.moving.begun,
        deleter=GroupDeleter(
            flow=parts.flow,
            source=parts.source,
            target=parts.target,
            history=checkpointer.history,
            is_void=parts.is_void,
            journal=_journal(parts),
            group_filter=lambda: checkpointer.entry.groups,
            origin_of=parts.origin_of,
            record=source_table(
                parts.flow,
                parts.target,
                replication_factor=parts.entry.settings.topic_replication_factor,
            ),
            rules=lambda: GroupDeleteRules(
                grace_seconds=checkpointer.entry.settings.sync_group_deletes_grace_seconds,
                max_per_hour=checkpointer.entry.settings.sync_group_deletes_max_per_hour,
            ),
            clock=around.clock,
            on_held=checkpointer.table.on_deletions_held,
        ),
    )
    # What the move has put in force, or ended, is told at once.
    parts.moving.on_end = syncer.look_again
    return syncer


def assemble_flow_elsewhere(
    entry: CheckpointFlow, clusters: FlowClusters, around: SharedDependencies
) -> FlowParts:
    """Assemble the parts of a flow that this process does not run, for the moves of the flow in the other
    direction: offset syncs, rules and checkpoints can be read by any process."""
    parts = replace(assemble_flow(entry, clusters, around), duty=ServedElsewhere(entry.flow))
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
            away=around.away,
            others=around.aliases,
            stop=around.stop,
            copy_states=around.copy_states,
        ),
        journal=_journal(parts),
        reverse_journal=MoveJournal(
            flow=Flow(parts.flow.target, parts.flow.source),
            cluster=parts.source,
            replication_factor=parts.entry.settings.topic_replication_factor,
        ),
        duty=parts.duty,
        clock=around.clock,
        stop=around.stop,
        lock=parts.moving,
    )


def _journal(parts: FlowParts) -> MoveJournal:
    return MoveJournal(
        flow=parts.flow,
        cluster=parts.target,
        replication_factor=parts.entry.settings.topic_replication_factor,
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


def _forward(
    entry: CheckpointFlow, clusters: FlowClusters, tail: SyncTail, instruments: CheckpointInstruments
) -> Translator:
    """From source to target; exact, unless the configuration forbids reading the logs."""
    floor = FloorTranslator(lambda: tail.store)
    if entry.settings.translation_max_bytes == 0:
        return floor
    return ExactTranslator(
        here=clusters.source_log,
        there=clusters.target_log,
        counterpart=partial(target_partition, entry.policy, entry.flow),
        pairs=lambda partition: tail.history.of(partition),
        floor=floor,
        is_comparable=lambda partition: entry.transforms.expressions(partition.topic) is None,
        origin=entry.transforms.origin,
        max_bytes=entry.settings.translation_max_bytes,
        on_read_bytes=instruments.on_read_bytes,
    )


def _back(
    entry: CheckpointFlow, clusters: FlowClusters, tail: SyncTail, instruments: CheckpointInstruments
) -> Translator:
    """From copies to originals, also where a topic has left the rules."""
    pairs = partial(pairs_of_copy, entry.flow, entry.policy, tail)
    return ExactTranslator(
        here=clusters.target_log,
        there=clusters.source_log,
        counterpart=partial(original_of, entry.policy),
        pairs=pairs,
        floor=PairsFloor(lambda: tail.store.read_to_end, pairs),
        is_comparable=lambda partition: (
            entry.transforms.expressions(original_of(entry.policy, partition).topic) is None
        ),
        origin=lambda partition: entry.transforms.origin(original_of(entry.policy, partition)),
        copy_is_here=True,
        max_bytes=max(entry.settings.translation_max_bytes, 1),
        on_read_bytes=instruments.on_read_bytes,
    )
