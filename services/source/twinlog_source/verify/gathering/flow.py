"""Gathers topics, ends of logs, positions, gaps and settings before the first record is compared.

The order distinguishes loss from lag:
- 1. the ends of the source: everything before them has to be on the target;
- 2. the stored positions;
- 3. the ends of the target: everything below a position was on the target before its end was read;
- 4. the ends of the source again: everything that the target showed was on the source by then.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from twinlog.batches.header import BatchHeader
from twinlog.comparison.model import Bounds, NotCompared, NotComparedReason, PartitionProof, Range, Side
from twinlog.comparison.sides import EndsNow, of_anybody
from twinlog.config import Configuration, FlowConfig
from twinlog.config.client_settings import ClientConfig
from twinlog.errors import KafkaError, TwinlogError, required
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Flow, TopicPartition
from twinlog.policy.transformed import TopicTransforms
from twinlog.selection import TopicSelector
from twinlog.selection_configured import topic_selector
from twinlog.service.feeds.registry import stored_topics
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog.service.feeds.routes import routes_of
from twinlog.service.feeds.rules import flow_in_force
from twinlog.service.waiting import wait_or_stop
from twinlog.verify.report import RulesUsed
from twinlog_source.config import source_flows
from twinlog_source.log.positions import PositionsLog
from twinlog_source.topics.id_tables import IdTables
from twinlog_source.topics.origins import Origins
from twinlog_source.verify.gathering.recorded import (
    AFTER_ALL,
    RecordedCopies,
    bounds_of_nothing,
    end_promise,
    narrowed,
    of_one_transform,
    with_truncations,
)
from twinlog_source.verify.gathering.topics import VerifiedTopics, replicated_topic
from twinlog_source.verify.request import Instant, VerifyRequest, Way

OpenClient = Callable[[ClientConfig], KafkaCluster]

_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.5
_NOBODY = -2
"""The id of no producer."""


@dataclass(slots=True, kw_only=True)
class GatheredFlow:
    """The two clusters of a flow during a verification. An async context manager."""

    flow: FlowConfig
    request: VerifyRequest
    source: KafkaCluster
    target: KafkaCluster
    positions: PositionsLog
    selector: TopicSelector
    origins: Origins | None = None
    """Tells which records of the source are copies, where names are kept."""
    projected: dict[str, ReplicatedTopic] = field(default_factory=dict)
    """The topics of whose logs only the records of the flow's source are compared."""
    rules: RulesUsed | None = None
    transforms: TopicTransforms = field(init=False)
    topics: VerifiedTopics = field(init=False)
    recorded: RecordedCopies = field(init=False)
    open_copies: dict[TopicPartition, NotCompared] = field(default_factory=dict)
    """By source partition: what an open transaction on the copy hides."""
    of_other_transforms: dict[TopicPartition, list[NotCompared]] = field(default_factory=dict)
    """By source partition: what was copied with other transforms than the configuration has."""
    _positions_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.transforms = TopicTransforms(self.flow.policy_config, self.flow.flow.source)
        self.topics = VerifiedTopics(
            flow=self.flow,
            request=self.request,
            selector=self.selector,
            source=self.source,
            target=self.target,
        )
        self.recorded = RecordedCopies(
            flow=self.flow,
            positions=self.positions,
            pairs=self.topics.pairs,
            is_complete=self.request.complete,
            transform_of=self.transforms.digest,
        )

    @property
    def read_committed(self) -> bool:
        asked = self.request.read_committed
        return self.flow.source.read_committed if asked is None else asked

    @property
    def source_end(self) -> OffsetSpec:
        return OffsetSpec.LAST_STABLE if self.read_committed else OffsetSpec.LATEST

    async def gather(self) -> list[Bounds]:
        """Return the bounds of every partition that can be compared. Raises KafkaError when a cluster does
        not answer, ConfigError for a topic that the flow does not have."""
        await self.topics.find()
        if self.transforms.may_route:
            flow = self.flow.flow
            stored = await routes_of(flow, self.target).load()
            await self.topics.find_routes(stored, await stored_topics(self.target, flow))
        partitions = self.topics.partitions()
        logs = {partition: self.topics.log_of(partition) for partition in partitions}
        source_ends = await self._offsets(self.source, self.source_end, set(logs.values()))
        positions = await self.stored_positions()
        copies = {partition: self.topics.copy_of(partition) for partition in partitions}
        target_ends, behind = await self._target_ends(list(copies.values()))
        self.open_copies = {partition: behind[copy] for partition, copy in copies.items() if copy in behind}
        limits = await self._offsets(self.source, self.source_end, set(logs.values()))
        target_starts = await self._offsets(self.target, OffsetSpec.EARLIEST, list(copies.values()))
        source_starts = await self._offsets(self.source, OffsetSpec.EARLIEST, set(logs.values()))
        begins = await self._instants(self.request.begin, logs)
        if self.request.ends is None:
            ends = await self._instants(self.request.end, logs)
        else:
            ends = {partition: self.request.ends[log] for partition, log in logs.items()}
        gathered = []
        for partition, log in logs.items():
            copy = copies[partition]
            answers = (
                source_ends[log], limits[log], source_starts[log],
                target_ends[copy], target_starts[copy],
            )  # fmt: skip
            refusal = next((answer for answer in answers if isinstance(answer, KafkaError)), None)
            if refusal is not None:
                self.topics.refuse(partition, copy, refusal.reason, str(refusal))
                continue
            goal, limit, start, target_end, target_start = (int(answer) for answer in answers)  # type: ignore[arg-type]
            why = await self._one_origin(partition, copy)
            if why:
                self.topics.refuse(
                    partition, copy, NotComparedReason.BOTH_WAYS, f"the topic is copied both ways; {why}"
                )
                continue
            is_another = self.recorded.was_recreated(log)
            kept_from, kept_until = (
                (None, None) if log != partition else self.recorded.offsets_kept(partition)
            )
            bounds = Bounds(
                source=partition,
                target=copy,
                source_start=start,
                source_goal=goal,
                source_limit=max(goal, limit),
                target_start=target_start,
                target_goal=target_end,
                target_limit=target_end,
                position=self.recorded.position_of(log, positions) if copy not in behind else None,
                source_lost=(Range(0, start),) if start or is_another else (),
                only_on_target=NotComparedReason.EARLIER_TOPIC
                if is_another
                else NotComparedReason.SOURCE_RETENTION,
                target_lost=(Range(0, target_start),) if target_start else (),
                gaps=self.recorded.known_gaps(log),
                offsets_kept_from=kept_from,
                offsets_kept_until=kept_until,
                source_log_start=start,
                source_compacted=self.topics.pairs[partition.topic].source_compacted,
                target_compacted=self.topics.pairs[partition.topic].target_compacted,
                begins_anywhere=self.recorded.begins_anywhere(log)
                or partition.topic in self.topics.made_again,
            )
            bounds = narrowed(
                with_truncations(bounds), begins, ends, is_whole_copy=self.request.ends is not None
            )
            bounds, self.of_other_transforms[partition] = of_one_transform(
                bounds, self.recorded.same_transform(log)
            )
            gathered.append(bounds)
        return [*gathered, *await self._only_on_target()]

    async def _one_origin(self, partition: TopicPartition, copy: TopicPartition) -> str:
        """For a topic that is copied both ways, see to it that only the records that the source's own
        applications wrote are compared, and their copies. Why that is not possible; empty if it is, and for
        all other topics."""
        if self.origins is None:
            return ""
        pair = self.topics.pairs[partition.topic]
        topic = replicated_topic(self.flow.flow, pair)
        if not (self.recorded.is_both_ways(partition) or self.origins.is_both_ways(topic)):
            return ""
        if pair.source_compacted or pair.target_compacted:
            return "where it is compacted, a record of one side removes one of the other"
        if self.origins.is_shared(topic):
            return "a third cluster writes it, too"
        begun = self.positions.control.origins.get(partition)
        if begun is None or begun.unnamed_until or begun.since:
            return "not all of its copies are known by their producers"
        try:
            await self.origins.ids.read()
            unnamed = self.origins.range_of(partition, _NOBODY, {partition.topic: topic})
        except TwinlogError as error:
            return str(error)
        if unnamed[1]:
            return "not all of the copies on the source are known by their producers"
        self.projected[partition.topic] = topic
        return ""

    def counts(self, side: Side, partition: TopicPartition) -> Callable[[BatchHeader], bool]:
        """Which batches of a partition, named as on the source, are compared. All of them below the offset up
        to which both logs were alike when the copy began, or until which it kept the offsets."""
        topic, origins = self.projected.get(partition.topic), self.origins
        if topic is None or origins is None:
            return of_anybody
        same_until = self.recorded.offsets_kept(partition)[1] or 0
        if side is Side.TARGET:
            target_id, control = origins.cluster_id(self.flow.flow.target) or "", self.positions.control
            begins_at = control.origins[partition].begins_at
            return lambda header: (
                header.base_offset < same_until
                or (header.base_offset >= begins_at and control.is_own(header.producer_id, target_id))
            )
        topics = {partition.topic: topic}

        def is_of_the_source(header: BatchHeader) -> bool:
            begin, end = origins.range_of(partition, header.producer_id, topics)
            return header.base_offset < same_until or not begin <= header.base_offset < end

        return is_of_the_source

    async def _only_on_target(self) -> list[Bounds]:
        """Partitions that only the copy has: the source has none of their records."""
        if self.request.ends is not None:
            return []
        extra = [
            TopicPartition(pair.target.name, number)
            for pair in self.topics.pairs.values()
            for number in range(pair.source.partition_count, pair.target.partition_count)
            if not self.request.partitions or number in self.request.partitions
        ]
        ends = await self._offsets(self.target, OffsetSpec.LAST_STABLE, extra)
        starts = await self._offsets(self.target, OffsetSpec.EARLIEST, extra)
        topics = {pair.target.name: topic for topic, pair in self.topics.pairs.items()}
        found = []
        for copy in extra:
            partition = TopicPartition(topics[copy.topic], copy.partition)
            start, end = starts[copy], ends[copy]
            refusal = next((answer for answer in (start, end) if isinstance(answer, KafkaError)), None)
            if refusal is not None:
                self.topics.refuse(partition, copy, refusal.reason, str(refusal))
                continue
            begin, goal = int(start), int(end)  # type: ignore[arg-type]
            was_recreated = self.recorded.was_recreated(partition)
            if goal > begin:
                found.append(bounds_of_nothing(partition, copy, begin, goal, was_recreated=was_recreated))
        return found

    async def stored_positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to copy of each partition, as committed now. Raises KafkaError."""
        async with self._positions_lock:
            if not self.positions.partition_count:
                topic = self.positions.topic
                found = (await self.target.describe_topics([topic]))[topic]
                if isinstance(found, KafkaError):
                    if found.reason == KafkaReason.TOPIC_UNKNOWN:
                        return {}
                    raise found
                self.positions.partition_count = found.partition_count
            await self.positions.peek()
            return self.positions.known()

    async def target_end(self, copy: TopicPartition, spec: OffsetSpec = OffsetSpec.LAST_STABLE) -> int:
        """The present end of the copy, for its readers or for its writers. Raises KafkaError."""
        return required((await self.target.list_offsets(spec, [copy]))[copy])

    async def ends_now(self, partition: TopicPartition) -> EndsNow:
        """Raises KafkaError."""
        copy_end = await self.target_end(self.copy_of(partition))
        log = self.topics.log_of(partition)
        source_end = (await self.source.list_offsets(self.source_end, [log]))[log]
        return EndsNow(source=required(source_end), target=copy_end)

    def copy_of(self, partition: TopicPartition) -> TopicPartition:
        return self.topics.copy_of(partition)

    def position_of(self, partition: TopicPartition, positions: Mapping[TopicPartition, int]) -> int | None:
        return self.recorded.position_of(self.topics.log_of(partition), positions)

    async def take_back_promise(self, proof: PartitionProof) -> None:
        """A copy may have got offsets of its own while it was waited for: from there on they are no
        difference. Raises KafkaError."""
        if not (proof.offsets_promised and proof.differences):
            return
        await self.stored_positions()
        kept_from, until = self.recorded.offsets_kept(proof.source)
        if kept_from is None or until is not None:
            end_promise(proof, until or 0)

    def say_what_is_hidden(self, proof: PartitionProof) -> None:
        """Report the range that an open transaction on the copy hides. This, and not a missing position, is
        why it is unknown what was copied at the end."""
        hidden = self.open_copies.get(proof.source)
        if hidden is None:
            return
        proof.not_compared = [
            replace(each, detail="") if each.reason == NotComparedReason.NOT_COPIED_YET else each
            for each in proof.not_compared
        ]
        proof.not_compared.append(hidden)

    def way_of(self, partition: TopicPartition) -> Way | None:
        """None for a partition whose records go to one topic."""
        if self.topics.log_of(partition) != partition:
            return Way(partition.topic)
        return Way("", self.topics.routed_from) if self.transforms.routes_records(partition.topic) else None

    def say_what_goes_elsewhere(self, proof: PartitionProof, way: Way | None) -> None:
        """Report records that take a route which is not compared."""
        for route, (first, last) in sorted({} if way is None else way.elsewhere.items()):
            if first >= proof.source_to:
                continue
            is_gone = route in self.topics.gone_routes
            why = "was deleted on the target" if is_gone else "has begun meanwhile: verify again"
            proof.not_compared.append(
                NotCompared(
                    side=Side.SOURCE,
                    from_offset=first,
                    to_offset=min(last + 1, proof.source_to),
                    reason=NotComparedReason.ROUTED,
                    detail=f"records take the route {route}, whose topic {why}",
                    is_harmless=is_gone,
                )
            )

    async def _target_ends(
        self, copies: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, int | KafkaError], dict[TopicPartition, NotCompared]]:
        """The end of each copy for its readers, after the transactions that are open now have ended; and what
        remains hidden if one stays open."""
        wanted = await self._offsets(self.target, OffsetSpec.LATEST, copies)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.request.wait_seconds
        while True:
            ends = await self._offsets(self.target, OffsetSpec.LAST_STABLE, copies)
            behind = {
                copy: hidden for copy in copies if (hidden := _hidden(ends[copy], wanted[copy])) is not None
            }
            if not behind or loop.time() > give_up_at:
                return ends, behind
            await wait_or_stop(asyncio.Event(), _POLL_SECONDS)

    async def _instants(
        self, instant: Instant | None, logs: Mapping[TopicPartition, TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """By partition, of which the log of the source is given."""
        if instant is None:
            return {}
        if instant.offset is not None:
            return dict.fromkeys(logs, instant.offset)
        assert instant.timestamp_ms is not None
        found = await self.source.offsets_for_times(dict.fromkeys(logs.values(), instant.timestamp_ms))
        # None: no record is that young, so the range begins or ends at the end.
        return {
            partition: AFTER_ALL if (offset := required(found[log])) is None else offset
            for partition, log in logs.items()
        }

    async def _offsets(
        self, cluster: KafkaCluster, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError]:
        return dict(await cluster.list_offsets(spec, partitions)) if partitions else {}


def _hidden(end: int | KafkaError, wanted: int | KafkaError) -> NotCompared | None:
    """What an open transaction of a copy hides."""
    if isinstance(end, KafkaError) or isinstance(wanted, KafkaError) or end >= wanted:
        return None
    return NotCompared(
        side=Side.TARGET, from_offset=end, to_offset=wanted, reason=NotComparedReason.TARGET_OPEN_TRANSACTION
    )


async def open_gathering(
    configuration: Configuration,
    request: VerifyRequest,
    stack: AsyncExitStack,
    *,
    open_client: OpenClient | None = None,
) -> GatheredFlow:
    """Open connections to both clusters of a flow; they close with the stack. Its topics are those of the
    rules in force. Raises ConfigError, and as `flow_in_force`."""
    connect = open_client or _open
    clients = configuration.flow(request.flow).clients
    source = await stack.enter_async_context(connect(clients.source_admin))
    target = await stack.enter_async_context(connect(clients.target_admin))
    reading = await stack.enter_async_context(connect(clients.target_consumer))
    in_force = await flow_in_force(configuration, request.flow, target)
    flow = in_force.config
    positions = PositionsLog(
        list_offsets=target.list_offsets,
        reader=await stack.enter_async_context(reading.reader(read_committed=True)),
        topic=flow.source.offset_storage.topic,
        partition_count=0,
        source_alias=flow.flow.source,
        connector_name=flow.source.connector_name,
    )
    return GatheredFlow(
        flow=flow,
        request=request,
        source=source,
        target=target,
        positions=positions,
        selector=topic_selector(flow),
        origins=await _origins(configuration, request.flow, source, target, positions, stack, connect),
        rules=RulesUsed(version=in_force.record.revision, told=in_force.told),
    )


async def _origins(
    configuration: Configuration,
    flow: Flow,
    source: KafkaCluster,
    target: KafkaCluster,
    positions: PositionsLog,
    stack: AsyncExitStack,
    connect: OpenClient,
) -> Origins | None:
    """None where names tell where a record comes from. Raises KafkaError."""
    found = next((each for each in source_flows(configuration) if each.flow == flow), None)
    if found is None or found.policy.tracks_topic_sources:
        return None
    reading = await stack.enter_async_context(connect(found.clients.source_consumer))
    there = await stack.enter_async_context(connect(found.clients.target_consumer))
    ids = {flow.source: await source.cluster_id(), flow.target: await target.cluster_id()}
    tables = IdTables(
        flow=found,
        source=source,
        reader=await stack.enter_async_context(reading.reader(read_committed=False)),
        target=target,
        target_reader=await stack.enter_async_context(there.reader(read_committed=False)),
        cluster_id=ids.get,
        clock=positions.clock,
        pace_seconds=0.0,
    )
    # Also a flow of another file may copy back.
    await tables.read()
    return Origins(ids=tables, target=target, positions=positions)


def _open(client: ClientConfig) -> KafkaCluster:
    return open_cluster(
        client.alias, client.properties, timeout_seconds=_TIMEOUT_SECONDS, client_id_suffix="verify"
    )
