"""Assembles what translates the offsets of one flow. No I/O.

From the inside to the outside: the rule for copies with offsets of their own, copies with the source's
offsets, copies that several flows write, topics that are copied both ways, and topics that records are routed
to.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from opentelemetry.metrics import Meter

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.kafka.outage import Outage
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog.offsets import target_partition
from twinlog.wire import TopicIds
from twinlog_checkpoint.config import CheckpointFlow
from twinlog_checkpoint.flow.parts import named_origin, original_of, pairs_of_copy
from twinlog_checkpoint.groups.directory import KnownTopics, TopicChoice
from twinlog_checkpoint.moves.planning.decision import CopyStates
from twinlog_checkpoint.translation.both_ways import BothWaysTranslator, Copied, topic_ids_now
from twinlog_checkpoint.translation.exact import ExactTranslator, LogSide
from twinlog_checkpoint.translation.history import PairHistory, ReversedPairs
from twinlog_checkpoint.translation.routed import ApartTranslator, NoWayBack, RoutedTranslator
from twinlog_checkpoint.translation.shared_copies import (
    Equal,
    PreservedTranslator,
    SharedCopies,
    UnsharedTranslator,
)
from twinlog_checkpoint.translation.sync_tail import SyncTail
from twinlog_checkpoint.translation.translation import FloorRule, FloorTranslator, PairsFloor, Translator

Copies = Callable[[str, str], bool]
"""Whether a topic is copied to a topic of this name."""


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
    outage: Callable[[ClusterAlias], Outage]
    """The brokers of the cluster that did not answer the last probe."""
    aliases: Collection[ClusterAlias]
    """Every cluster of the configuration."""
    copy_states: CopyStates
    """Asks the source service for the state of the copies."""
    tails: dict[Flow, SyncTail] = field(default_factory=dict)
    """Of all flows that can be read here, also those of other files; filled once they are assembled."""
    copies: dict[Flow, Copies] = field(default_factory=dict)
    """By flow of the file: whether it copies a topic to a copy; filled once they are assembled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTranslators:
    forward: Translator
    """From topics of the source to their copies."""
    back: Translator
    """From the copies to the source's topics."""
    shared: SharedCopies
    is_both_ways: Callable[[TopicPartition], bool]
    """Whether a partition of the source is copied both ways."""


def assemble_translators(
    entry: CheckpointFlow,
    clusters: FlowClusters,
    around: SharedDependencies,
    *,
    topics: TopicChoice,
    tail: SyncTail,
    on_read_bytes: Callable[[int], None],
) -> FlowTranslators:
    async def equal_offsets() -> Mapping[TopicPartition, Equal]:
        states = (await around.copy_states.of(entry.flow)).partitions
        return {each: Equal(state.equal_below, state.target_end or 0) for each, state in states.items()}

    async def equal_offsets_back() -> Mapping[TopicPartition, Equal]:
        states = (await around.copy_states.of(entry.flow)).partitions
        return {each: Equal(state.equal_back, state.position or 0) for each, state in states.items()}

    forward: Translator = PreservedTranslator(
        equal_offsets=equal_offsets,
        there=clusters.target_log,
        original=lambda partition: partition,
        counterpart=partial(target_partition, entry.policy, entry.flow),
        otherwise=_forward(entry, clusters, tail, on_read_bytes),
    )
    back: Translator = PreservedTranslator(
        equal_offsets=equal_offsets_back,
        there=clusters.source_log,
        original=partial(named_origin, entry.flow, entry.policy),
        counterpart=partial(original_of, entry.policy),
        otherwise=_back(entry, clusters, tail, topics, on_read_bytes),
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
        forward, back = both = _both_ways(entry, clusters, around, tail=tail, forward=forward, back=back)
        is_both_ways = both[0].is_both_ways
    # Outside of what answers for topics that are copied both ways: a route is no topic of the source.
    routed = RoutedTranslator(
        floor=FloorTranslator(lambda: tail.store),
        target=clusters.target_log,
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
    return FlowTranslators(forward=forward, back=back, shared=shared, is_both_ways=is_both_ways)


def _both_ways(
    entry: CheckpointFlow,
    clusters: FlowClusters,
    around: SharedDependencies,
    *,
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

    def is_both_ways(here: str, copy: str) -> bool:
        """The file says it before its configsync does."""
        copies_back = around.copies.get(reverse)
        return back_here.copies(copy, here) or (copies_back is not None and copies_back(copy, here))

    async def told_by(asked: Flow) -> Mapping[TopicPartition, Copied]:
        states = (await around.copy_states.of(asked)).partitions
        return {
            each: Copied(state.position, state.target_end, state.topic_ids, state.equal_below is None)
            for each, state in states.items()
            if state.position is not None
        }

    async def present(topics: Collection[str]) -> Mapping[str, TopicIds]:
        copies = {topic: copy_of(TopicPartition(topic, 0)).topic for topic in topics}
        return await topic_ids_now(clusters.source, clusters.target, copies)

    async def present_copies(copies: Collection[str]) -> Mapping[str, TopicIds]:
        originals = {copy: original_of(entry.policy, TopicPartition(copy, 0)).topic for copy in copies}
        return await topic_ids_now(clusters.target, clusters.source, originals)

    def tail_back() -> SyncTail | None:
        found = around.tails.get(reverse)
        if found is not None and found.is_wanted is not None:
            found.is_wanted.set()
            return found if found.blocker is None or found.store.read_to_end else None
        return found

    def floors(ids: TopicIds) -> tuple[FloorRule, FloorRule] | None:
        """By the syncs of this flow, from offsets of its source; and by those of the flow back."""
        there = tail_back()
        if there is None:
            return None
        return _from_source(tail, ids), _from_copy(there, ids.reversed(), copy_of)

    def floors_back(ids: TopicIds) -> tuple[FloorRule, FloorRule] | None:
        there = tail_back()
        if there is None:
            return None
        return _from_source(there, ids), _from_copy(tail, ids.reversed(), partial(original_of, entry.policy))

    return (
        BothWaysTranslator(
            is_both_ways=lambda here: is_both_ways(here.topic, copy_of(here).topic),
            look=back_here.look,
            present=present,
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
            is_both_ways=lambda copy: is_both_ways(original_of(entry.policy, copy).topic, copy.topic),
            look=back_here.look,
            present=present_copies,
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


def _from_source(tail: SyncTail, ids: TopicIds) -> PairsFloor:
    """By the syncs that are of these very topics."""

    def pairs(partition: TopicPartition) -> PairHistory | None:
        known = tail.history.of(partition)
        return known if known is not None and known.topic_ids == ids else None

    return PairsFloor(lambda: tail.store.read_to_end, pairs, only_vouched=True)


def _from_copy(
    tail: SyncTail, ids: TopicIds, original: Callable[[TopicPartition], TopicPartition]
) -> PairsFloor:
    """By the same, from offsets of the copy."""

    def pairs(copy: TopicPartition) -> ReversedPairs | None:
        known = tail.history.begun(original(copy), ids)
        return ReversedPairs(known) if known.topic_ids == ids else None

    return PairsFloor(lambda: tail.store.read_to_end, pairs, only_vouched=True)


def _forward(
    entry: CheckpointFlow, clusters: FlowClusters, tail: SyncTail, on_read_bytes: Callable[[int], None]
) -> Translator:
    """From source to target; exact, unless the configuration forbids reading the logs."""
    floor = FloorTranslator(lambda: tail.store)
    if entry.settings.translation_max_bytes == 0:
        return floor
    return ExactTranslator(
        here=clusters.source_log,
        there=clusters.target_log,
        counterpart=partial(target_partition, entry.policy, entry.flow),
        pairs=lambda partition: tail.history.begun(partition, tail.ids_of(partition.topic)),
        floor=floor,
        is_comparable=lambda partition: entry.transforms.expressions(partition.topic) is None,
        origin=entry.transforms.origin,
        max_bytes=entry.settings.translation_max_bytes,
        on_read_bytes=on_read_bytes,
    )


def _back(
    entry: CheckpointFlow,
    clusters: FlowClusters,
    tail: SyncTail,
    topics: TopicChoice,
    on_read_bytes: Callable[[int], None],
) -> Translator:
    """From copies to originals, also where a topic has left the rules."""
    pairs = partial(pairs_of_copy, entry.flow, entry.policy, tail, topics.topic_ids)
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
        on_read_bytes=on_read_bytes,
    )
