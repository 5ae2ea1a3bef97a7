"""What is known before the first record is compared: topics, the ends of logs, positions, gaps, settings.

The order makes loss and lag different things. First the source's ends: that is what has to be on the target.
Then the stored positions, then the target's ends: what is below a position was on the target before its end
was taken. Last the source's ends once more: whatever the target showed had been on the source by then.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from twinlog.config import Configuration, FlowConfig
from twinlog.config.client_settings import ClientConfig
from twinlog.config.flow.settings import AutoOffsetReset, OffsetsMode
from twinlog.errors import ConfigError, KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, OffsetSpec, TopicDescription
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog.policy.offsets_rule import OffsetsRule
from twinlog.selection import TopicSelector
from twinlog.selection_configured import topic_selector
from twinlog.service.waiting import wait_or_stop
from twinlog.verify.model import Bounds, KnownGap, NotCompared, PartitionProof, Range, Reason, Side
from twinlog.verify.report import FlowFailure
from twinlog_source.log.gaps import Gap
from twinlog_source.log.positions import PositionsLog
from twinlog_source.verify.request import Instant, VerifyRequest

_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.5
_TRUNCATION = "TRUNCATION"
_RECREATED = "TOPIC_RECREATED"
_COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPair:
    source: TopicDescription
    target: TopicDescription
    source_compacted: bool
    target_compacted: bool


@dataclass(slots=True, kw_only=True)
class GatheredFlow:
    """The two clusters of a flow, while they are verified. An async context manager."""

    flow: FlowConfig
    request: VerifyRequest
    source: KafkaCluster
    target: KafkaCluster
    positions: PositionsLog
    selector: TopicSelector
    failures: list[FlowFailure] = field(default_factory=list)
    proofs: list[PartitionProof] = field(default_factory=list)
    """Of partitions that cannot be compared at all."""
    pairs: dict[str, TopicPair] = field(default_factory=dict)
    open_copies: dict[TopicPartition, NotCompared] = field(default_factory=dict)
    """By source partition: what a transaction hides that stayed open on the copy."""
    _positions_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def read_committed(self) -> bool:
        asked = self.request.read_committed
        return self.flow.source.read_committed if asked is None else asked

    @property
    def source_end(self) -> OffsetSpec:
        return OffsetSpec.LAST_STABLE if self.read_committed else OffsetSpec.LATEST

    async def gather(self) -> list[Bounds]:
        """Bounds of every partition that can be compared. Raises KafkaError when a cluster does not answer,
        ConfigError for a topic that the flow does not have."""
        await self._find_topics()
        partitions = self._partitions()
        source_ends = await self._offsets(self.source, self.source_end, partitions)
        positions = await self.stored_positions()
        copies = {partition: self.copy_of(partition) for partition in partitions}
        target_ends, behind = await self._target_ends(list(copies.values()))
        self.open_copies = {partition: behind[copy] for partition, copy in copies.items() if copy in behind}
        limits = await self._offsets(self.source, self.source_end, partitions)
        target_starts = await self._offsets(self.target, OffsetSpec.EARLIEST, list(copies.values()))
        source_starts = await self._offsets(self.source, OffsetSpec.EARLIEST, partitions)
        begins = await self._instants(self.request.begin, partitions)
        ends = self.request.ends
        if ends is None:
            ends = await self._instants(self.request.end, partitions)
        gathered = []
        for partition in partitions:
            copy = copies[partition]
            answers = (
                source_ends[partition], limits[partition], source_starts[partition],
                target_ends[copy], target_starts[copy],
            )  # fmt: skip
            refusal = next((answer for answer in answers if isinstance(answer, KafkaError)), None)
            if refusal is not None:
                self._refuse(partition, copy, refusal.reason, str(refusal))
                continue
            goal, limit, start, target_end, target_start = (int(answer) for answer in answers)  # type: ignore[arg-type]
            kept_from, kept_until = self._offsets_kept(partition)
            bounds = Bounds(
                source=partition,
                target=copy,
                source_start=start,
                source_goal=goal,
                source_limit=max(goal, limit),
                target_start=target_start,
                target_goal=target_end,
                target_limit=target_end,
                position=self.position_of(partition, positions) if copy not in behind else None,
                source_lost=(Range(0, start),) if start or self._was_recreated(partition) else (),
                target_lost=(Range(0, target_start),) if target_start else (),
                gaps=self._known_gaps(partition),
                offsets_kept_from=kept_from,
                offsets_kept_until=kept_until,
                source_log_start=start,
                source_compacted=self.pairs[partition.topic].source_compacted,
                target_compacted=self.pairs[partition.topic].target_compacted,
                begins_anywhere=self._begins_anywhere(partition),
            )
            gathered.append(self._narrowed(self._with_truncations(bounds), begins, ends))
        return [*gathered, *await self._only_on_target()]

    async def _only_on_target(self) -> list[Bounds]:
        """Partitions that only the copy has: what is in them, the source has not."""
        if self.request.ends is not None:
            return []
        extra = [
            TopicPartition(pair.target.name, number)
            for pair in self.pairs.values()
            for number in range(pair.source.partition_count, pair.target.partition_count)
            if not self.request.partitions or number in self.request.partitions
        ]
        ends = await self._offsets(self.target, OffsetSpec.LAST_STABLE, extra)
        starts = await self._offsets(self.target, OffsetSpec.EARLIEST, extra)
        topics = {pair.target.name: topic for topic, pair in self.pairs.items()}
        found = []
        for copy in extra:
            partition = TopicPartition(topics[copy.topic], copy.partition)
            start, end = starts[copy], ends[copy]
            refusal = next((answer for answer in (start, end) if isinstance(answer, KafkaError)), None)
            if refusal is not None:
                self._refuse(partition, copy, refusal.reason, str(refusal))
            elif end > start:  # type: ignore[operator]
                found.append(_bounds_of_nothing(partition, copy, int(start), int(end)))  # type: ignore[arg-type]
        return found

    async def stored_positions(self) -> Mapping[TopicPartition, int]:
        """Next offset to copy of each partition, as committed now. Raises KafkaError."""
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
        """What readers of the copy see ends here now, or what is written. Raises KafkaError."""
        answer = (await self.target.list_offsets(spec, [copy]))[copy]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def changed_topics(self) -> dict[str, FlowFailure]:
        """Topics that are not those any more that were compared: what was found of them means nothing."""
        changed: dict[str, FlowFailure] = {}
        for cluster, side in ((self.source, Side.SOURCE), (self.target, Side.TARGET)):
            names = {getattr(pair, side).name: topic for topic, pair in self.pairs.items()}
            try:
                found = await cluster.describe_topics(list(names))
            except KafkaError:
                continue  # what was compared stands: nothing says that the topics are others
            for name, topic in names.items():
                answer, before = found[name], getattr(self.pairs[topic], side)
                if isinstance(answer, KafkaError):
                    if answer.reason == KafkaReason.TOPIC_UNKNOWN:
                        changed[topic] = FlowFailure(
                            topic=topic, reason=answer.reason, detail=f"{name} was deleted meanwhile"
                        )
                elif answer.topic_id != before.topic_id:
                    changed[topic] = FlowFailure(
                        topic=topic,
                        reason="TOPIC_CHANGED",
                        detail=f"{name} was deleted and created again meanwhile",
                    )
        return changed

    def say_what_is_hidden(self, proof: PartitionProof) -> None:
        """Where a transaction stayed open on the copy. That, and no lack of a position, is why it cannot be
        said what of the end was copied."""
        hidden = self.open_copies.get(proof.source)
        if hidden is None:
            return
        proof.not_compared = [
            replace(each, detail="") if each.reason == Reason.NOT_COPIED_YET else each
            for each in proof.not_compared
        ]
        proof.not_compared.append(hidden)

    def copy_of(self, partition: TopicPartition) -> TopicPartition:
        return TopicPartition(self.pairs[partition.topic].target.name, partition.partition)

    async def _find_topics(self) -> None:
        asked = self.request.topics
        there = await self.source.list_topics()
        for topic in sorted(asked):
            decision = self.selector.decide(topic)
            if topic not in there:
                raise ConfigError(
                    f"--topic {topic}: cluster {self.flow.flow.source} has no such topic",
                    metadata={"topic": topic},
                )
            if not decision.selected:
                raise ConfigError(
                    f"--topic {topic}: {self.flow.flow} does not copy it: {decision.rule}",
                    metadata={"topic": topic},
                )
        names = sorted(topic for topic in (asked or there) if self.selector.selects(topic))
        if not names:
            self.failures.append(
                FlowFailure(
                    reason="NO_TOPICS_SELECTED",
                    detail=f"{self.flow.flow} selects none of the topics of cluster {self.flow.flow.source}",
                )
            )
            return
        copies = {
            name: self.selector.policy.format_remote_topic(self.flow.flow.source, name) for name in names
        }
        on_source = await self.source.describe_topics(names)
        on_target = await self.target.describe_topics(list(copies.values()))
        source_compacted = await _compacted(self.source, names)
        target_compacted = await _compacted(self.target, list(copies.values()))
        for name, copy in copies.items():
            here, its_copy = on_source[name], on_target[copy]
            of_source, of_target = source_compacted[name], target_compacted[copy]
            if isinstance(here, KafkaError):
                self._refuse_topic(name, here)
            elif isinstance(its_copy, KafkaError):
                missing = Reason.TARGET_MISSING if its_copy.reason == KafkaReason.TOPIC_UNKNOWN else None
                self._refuse_topic(name, its_copy, missing)
            elif isinstance(of_source, KafkaError):
                self._refuse_topic(name, of_source)
            elif isinstance(of_target, KafkaError):
                self._refuse_topic(name, of_target)
            else:
                self.pairs[name] = TopicPair(
                    source=here, target=its_copy, source_compacted=of_source, target_compacted=of_target
                )

    def _refuse_topic(self, topic: str, error: KafkaError, reason: str | None = None) -> None:
        self.failures.append(FlowFailure(topic=topic, reason=reason or error.reason, detail=str(error)))

    def _partitions(self) -> list[TopicPartition]:
        """Raises ConfigError for a number that no topic has."""
        counts = [
            max(pair.source.partition_count, pair.target.partition_count) for pair in self.pairs.values()
        ]
        most = max(counts, default=None)
        for number in sorted(self.request.partitions):
            if most is not None and number >= most:
                raise ConfigError(
                    f"--partition {number}: no topic that is verified has it", metadata={"key": "--partition"}
                )
        found = []
        for topic, pair in self.pairs.items():
            for number in range(pair.source.partition_count):
                if self.request.partitions and number not in self.request.partitions:
                    continue
                partition = TopicPartition(topic, number)
                if self.request.ends is not None and partition not in self.request.ends:
                    continue
                if number < pair.target.partition_count:
                    found.append(partition)
                else:
                    detail = f"{pair.target.name} has {pair.target.partition_count} partitions"
                    copy = TopicPartition(pair.target.name, number)
                    self._refuse(partition, copy, Reason.TARGET_MISSING, detail)
        return found

    def _refuse(self, partition: TopicPartition, copy: TopicPartition, reason: str, detail: str) -> None:
        proof = PartitionProof(
            source=partition, target=copy, source_from=0, source_to=0, target_from=0, target_to=0
        )
        proof.not_compared.append(
            NotCompared(side=Side.SOURCE, from_offset=0, to_offset=0, reason=reason, detail=detail)
        )
        self.proofs.append(proof)

    async def _target_ends(
        self, copies: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, int | KafkaError], dict[TopicPartition, NotCompared]]:
        """Where each copy ends for its readers, once transactions that are open now have ended; and what
        cannot be seen of those where one stayed open."""
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
        self, instant: Instant | None, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        if instant is None:
            return {}
        if instant.offset is not None:
            return dict.fromkeys(partitions, instant.offset)
        assert instant.timestamp_ms is not None
        found = await self.source.offsets_for_times(dict.fromkeys(partitions, instant.timestamp_ms))
        refused = next((answer for answer in found.values() if isinstance(answer, KafkaError)), None)
        if refused is not None:
            raise refused
        # None: nothing is that young, so the range begins, or ends, at the end.
        return {
            partition: _AFTER_ALL if answer is None else int(answer)  # type: ignore[arg-type]
            for partition, answer in found.items()
        }

    def _begins_anywhere(self, partition: TopicPartition) -> bool:
        """What came after the flow began is copied from its earliest record, whatever the file says."""
        mark = self.positions.control.topics.get(partition.topic)
        if mark is not None and partition.partition >= mark.known_partitions:
            return False
        settings = self.flow.source
        named = settings.start_group or settings.start_time_ms is not None
        return bool(named) or settings.auto_offset_reset is not AutoOffsetReset.EARLIEST

    def _narrowed(
        self, bounds: Bounds, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Bounds:
        begin, end = begins.get(bounds.source), ends.get(bounds.source)
        if end is not None and end < bounds.source_goal:
            bounds = replace(bounds, source_goal=max(end, bounds.source_start))
            if self.request.ends is None:
                # What the target has behind the range is not asked for. A copy that ends there has nothing.
                bounds = replace(bounds, target_goal=0, tail_is_free=True)
        if begin is not None and begin > bounds.source_start:
            start = min(begin, bounds.source_goal)
            bounds = replace(bounds, source_start=start, source_lost=(), head_is_free=True)
        return bounds

    def position_of(self, partition: TopicPartition, positions: Mapping[TopicPartition, int]) -> int | None:
        """None also where the stored one is of a topic that is gone: nothing of this one is copied yet."""
        if self.request.complete:
            return _AFTER_ALL
        mark = self.positions.control.topics.get(partition.topic)
        is_another = mark is not None and mark.topic_id != self.pairs[partition.topic].source.topic_id
        return None if is_another else positions.get(partition)

    def _was_recreated(self, partition: TopicPartition) -> bool:
        """The source topic was deleted and created again: the copy has records of the one before, too."""
        mark = self.positions.control.topics.get(partition.topic)
        if mark is None:
            return False
        return mark.topic_id != self.pairs[partition.topic].source.topic_id or not mark.known_partitions

    def _offsets_kept(self, partition: TopicPartition) -> tuple[int | None, int | None]:
        """From where to where the copy is to have the source's offsets: its writer has put that down, else
        the file says it."""
        fact = self.positions.control.copies.get(partition)
        if fact is None or fact.target_topic_id != self.pairs[partition.topic].target.topic_id:
            wanted = OffsetsRule(self.flow.source.offsets).wanted(partition.topic)
            return (0 if wanted is OffsetsMode.PRESERVED else None), None
        if fact.preserved:
            return fact.since, None
        return (0, fact.since) if fact.since > 0 and not self._was_recreated(partition) else (None, None)

    def _known_gaps(self, partition: TopicPartition) -> tuple[KnownGap, ...]:
        found = [gap for gap in self.positions.gaps.values() if gap.partition == partition]
        # Those of a topic that is gone are told in offsets that mean nothing now.
        forgotten = max((gap.found_at_ms for gap in found if gap.reason == _RECREATED), default=-1)
        return tuple(_known_gap(gap) for gap in found if gap.found_at_ms > forgotten)

    def _with_truncations(self, bounds: Bounds) -> Bounds:
        """Where the source's log was cut off after it was copied, the target has more than the source."""
        cuts = [Range(gap.from_offset, gap.from_offset) for gap in bounds.gaps if gap.reason == _TRUNCATION]
        kept = tuple(gap for gap in bounds.gaps if gap.reason != _TRUNCATION)
        until = bounds.offsets_kept_until
        if until is not None:
            until = min([until, *(cut.from_offset for cut in cuts)])
        return replace(bounds, gaps=kept, source_lost=(*bounds.source_lost, *cuts), offsets_kept_until=until)

    async def _offsets(
        self, cluster: KafkaCluster, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError]:
        return dict(await cluster.list_offsets(spec, partitions)) if partitions else {}


_AFTER_ALL = 1 << 62


def _known_gap(gap: Gap) -> KnownGap:
    return KnownGap(
        from_offset=gap.from_offset,
        to_offset=gap.to_offset,
        reason=gap.reason,
        acknowledged=bool(gap.acknowledged_by),
        is_joined=gap.lost_of_joined is not None,
    )


def _bounds_of_nothing(partition: TopicPartition, copy: TopicPartition, start: int, end: int) -> Bounds:
    return Bounds(
        source=partition,
        target=copy,
        source_start=0,
        source_goal=0,
        source_limit=0,
        target_start=start,
        target_goal=end,
        target_limit=end,
        position=None,
    )


def _hidden(end: int | KafkaError, wanted: int | KafkaError) -> NotCompared | None:
    """What an open transaction hides of a copy."""
    if isinstance(end, KafkaError) or isinstance(wanted, KafkaError) or end >= wanted:
        return None
    return NotCompared(
        side=Side.TARGET, from_offset=end, to_offset=wanted, reason=Reason.TARGET_OPEN_TRANSACTION
    )


async def _compacted(cluster: KafkaCluster, topics: Sequence[str]) -> dict[str, bool | KafkaError]:
    """Of each topic. One that cannot be read may be compacted: nothing that it lacks can be called lost."""
    if not topics:
        return {}
    found = await cluster.describe_topic_configs(topics, keys=("cleanup.policy",))
    return {
        topic: entries
        if isinstance(entries, KafkaError)
        else any(entry.name == "cleanup.policy" and _COMPACT in (entry.value or "") for entry in entries)
        for topic, entries in found.items()
    }


async def open_gathering(
    configuration: Configuration, request: VerifyRequest, stack: AsyncExitStack
) -> GatheredFlow:
    """Connections to both clusters of a flow; they close with the stack. Raises ConfigError."""
    flow = configuration.flow(request.flow)
    clients = flow.clients
    source = await stack.enter_async_context(_open(clients.source_admin))
    target = await stack.enter_async_context(_open(clients.target_admin))
    reading = await stack.enter_async_context(_open(clients.target_consumer))
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
    )


def _open(client: ClientConfig) -> KafkaCluster:
    return open_cluster(
        client.alias, client.properties, timeout_seconds=_TIMEOUT_SECONDS, client_id_suffix="verify"
    )
