"""Which batches of the source are copies of what the target has already, under policies that keep names
(docs/adr/0017).

A flow stores its producer ids on its positions topic before it writes with them. So a batch on the source
that another flow copied is known by its header. It is left out (an echo) if it comes from this flow's own
target topic, or from a cluster from which another flow copies it to this target directly.

Invariant: a batch is judged by what the positions topics on the source say after it was fetched. While one
cannot be read whose flow may copy back, nobody's batches are judged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from twinlog.batches.header import HIGHEST_OFFSET
from twinlog.batches.prepared import NOT_YET
from twinlog.clock import Clock
from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError, TwinlogError, WireFormatError
from twinlog.kafka.deadline import pause
from twinlog.kafka.ports import KafkaCluster, LogReader, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Flow, TopicPartition
from twinlog.policy.internal_topics import source_of_offsets
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, Topics
from twinlog_source.config import Partner, SourceFlow
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import FOUND, OriginFact, TopicFact
from twinlog_source.log.journal import Journal
from twinlog_source.log.positions import PositionsLog
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.reasons import PartitionReason

log = structlog.get_logger(__name__)

ASK_SECONDS: Final = 1.0
"""From one look at the positions topics to the next. Each lists the topics of the source, whose batches can
have new producers with each fetch. One look answers all that was asked before it."""
Range = tuple[int, int]
_NOWHERE: Final = (0, 0)


@dataclass(slots=True)
class _Table:
    """What the positions topic of a flow into the source says."""

    log: PositionsLog
    topic_id: str
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where it ended when it was last read."""
    failure: TwinlogError | None = None
    """Why it does not say everything."""

    def topic_of(self, copy: ReplicatedTopic) -> TopicFact | None:
        """The topic of which the flow's source topic is a copy."""
        topics = self.log.control.topics.values()
        if not copy.source_topic_id:
            # Brokers before 2.8: no copy there has an id.
            marks = (each for each in topics if not each.target_topic_id)
            return next((each for each in marks if each.topic == copy.target_topic), None)
        return next((each for each in topics if each.target_topic_id == copy.source_topic_id), None)


@dataclass(slots=True, kw_only=True)
class Origins:
    flow: SourceFlow
    source: KafkaCluster
    reader: LogReader
    """Reads the source with read_uncommitted: facts are written without transactions, and a transaction of
    another slot must not hide them."""
    target: KafkaCluster
    target_reader: LogReader
    """Reads the target as `reader` the source."""
    positions: PositionsLog
    """Of the flow itself."""
    cluster_id: Callable[[str], str | None]
    topics_of: Callable[[Flow], Topics | None] = lambda _flow: None
    """The topics that another flow copies now, if that is known; else the file decides."""
    clock: Clock
    pace_seconds: float = ASK_SECONDS
    _tables: dict[str, _Table] = field(default_factory=dict)
    _beside: dict[str, _Table] = field(default_factory=dict)
    """The positions topics on the target of flows that are not of the file."""
    _missing: set[str] = field(default_factory=set)
    """Positions topics of the file's flows into the source that do not exist yet."""
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _looks: int = 0
    """How many looks have begun."""
    _seen: int = 0
    """The last one that succeeded."""
    _next_look_at: float = 0.0

    @property
    def control(self) -> ControlState:
        """The facts of the flow itself."""
        return self.positions.control

    @property
    def keeps_names(self) -> bool:
        return not self.flow.policy.tracks_topic_sources

    def is_both_ways(self, topic: ReplicatedTopic) -> bool:
        """Whether another flow of the file copies the target topic back to the source topic."""
        return any(
            each.flow.source == self.flow.flow.target and self._copies(each, topic.target_topic, topic)
            for each in self._into_source
        )

    def is_shared(self, topic: ReplicatedTopic) -> bool:
        """Whether flows of a third cluster write the topic, by the file."""
        ends = {self.flow.flow.source: topic.source_topic, self.flow.flow.target: topic.target_topic}
        return any(
            each.flow.source not in ends
            and (upstream := each.selector.policy.upstream_topic(ends[each.flow.target])) is not None
            and each.copy_of(upstream) == ends[each.flow.target]
            for each in self.flow.partners
        )

    @property
    def _into_source(self) -> list[Partner]:
        return [each for each in self.flow.partners if each.flow.target == self.flow.flow.source]

    def _copies(self, partner: Partner, name: str, topic: ReplicatedTopic) -> bool:
        """Whether a partner copies a topic of this name to the source topic: by the rules in force, or by the
        file."""
        known = (self.topics_of(partner.flow) or {}).get(name)
        return topic.source_topic in (partner.copy_of(name), None if known is None else known.target_topic)

    # ------------------------------------------------------------------------------------------ own copies

    async def note(
        self,
        rows: Iterable[PartitionRow],
        topics: Topics,
        *,
        journal: Journal,
        confirm: Callable[[], Awaitable[None]],
    ) -> None:
        """Record where copies begin, before their partitions are assigned: what else is in the target topic,
        and from which offset on it is of the present source topic. Raises KafkaError."""
        if not self.keeps_names:
            return
        new: dict[TopicPartition, OriginFact] = {}
        at_end: dict[TopicPartition, TopicPartition] = {}
        for row in rows:
            partition, topic = row.partition, topics.get(row.partition.topic)
            if row.position is None or topic is None:
                continue
            known = self.control.origins.get(partition)
            if known is None or known.target_topic_id != topic.target_topic_id:
                new[partition] = OriginFact(
                    partition=partition,
                    target_topic_id=topic.target_topic_id,
                    topic_id=topic.source_topic_id,
                )
            elif topic.source_topic_id not in ("", known.topic_id):
                new[partition] = replace(known, topic_id=topic.source_topic_id)
            else:
                continue
            if known is None or (known.topic_id and known.target_topic_id == topic.target_topic_id):
                at_end[partition] = TopicPartition(topic.target_topic, partition.partition)
        if not new:
            return
        await confirm()
        ends = await self.target.list_offsets(OffsetSpec.LATEST, at_end.values()) if at_end else {}
        for partition, copy in at_end.items():
            end = ends[copy]
            if isinstance(end, KafkaError):
                raise end
            new[partition] = self._with_end(new[partition], end)
        await journal.record_all(new.values())
        for fact in new.values():
            self.control.record(fact)

    def _with_end(self, fact: OriginFact, end: int) -> OriginFact:
        """What the present end of the copy means."""
        if fact.partition in self.control.origins:
            return replace(fact, since=end)
        if self._was_unnamed(fact.partition):
            return replace(fact, unnamed_until=end)
        return fact if fact.partition in self.positions.known() else replace(fact, begins_at=end)

    async def remember(
        self, partitions: Collection[TopicPartition], journal: Journal, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        """Record for partitions that were judged which positions topic named the copies: if it is deleted, a
        later process must not take them for other records. Raises KafkaError."""
        back = (
            each.topic_id for each in self._tables.values() if each.failure is None and self._is_back(each)
        )
        if topic_id := next(back, ""):
            unknown = [each for each in partitions if not self._ids_of(each)]
            await self._record_ids(unknown, topic_id, journal, confirm)

    async def forget(
        self, partitions: Collection[TopicPartition], journal: Journal, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        """An operator has set their positions: what lies behind is judged by what there is. Raises
        KafkaError."""
        await self._record_ids([each for each in partitions if self._ids_of(each)], "", journal, confirm)

    def _ids_of(self, partition: TopicPartition) -> str:
        known = self.control.origins.get(partition)
        return "" if known is None else known.ids_topic_id

    async def _record_ids(
        self,
        partitions: Collection[TopicPartition],
        topic_id: str,
        journal: Journal,
        confirm: Callable[[], Awaitable[None]],
    ) -> None:
        known = [self.control.origins[each] for each in partitions if each in self.control.origins]
        if new := [replace(each, ids_topic_id=topic_id) for each in known]:
            await confirm()
            await journal.record_all(new)
            for fact in new:
                self.control.record(fact)

    def _was_unnamed(self, partition: TopicPartition) -> bool:
        """Whether its position on the log was stored by somebody who did not name all producers before they
        wrote."""
        if partition not in self.positions.written_by:
            return False
        writer = self.control.producers.get(self.positions.written_by[partition])
        return writer is None or writer.name == FOUND

    # ------------------------------------------------------------------------------------------ judging

    async def judge(
        self, asked: Mapping[TopicPartition, Collection[int]], topics: Topics
    ) -> dict[tuple[TopicPartition, int], Range]:
        """Where batches of these producers of the source are echoes, as in `CopyPolicy.echoes`; `NOT_YET`:
        ask again about later batches. Call it after the batches were fetched.

        Partitions of which it is not known are left out: one of them holds up no other. Raises KafkaError and
        WireFormatError while it is known of none."""
        await self.read()
        found: dict[tuple[TopicPartition, int], Range] = {}
        unknown: list[TwinlogError] = []
        for partition, ids in asked.items():
            try:
                found |= {(partition, each): self.range_of(partition, each, topics) for each in ids}
            except (KafkaError, WireFormatError) as error:
                unknown.append(error)
        if unknown and not found:
            raise unknown[0]
        return found

    async def read(self) -> None:
        """Read what has come since, of each flow into the source that has a positions topic there. Raises
        KafkaError if the source does not answer; `range_of` raises for a topic that cannot be read."""
        asked_after = self._looks
        async with self._reading:
            if self._seen > asked_after:
                return  # A look that began after the question answers it.
            await pause(self._next_look_at - self.clock.monotonic())
            self._next_look_at = self.clock.monotonic() + self.pace_seconds
            self._looks += 1
            await self._look()
            self._seen = self._looks

    async def _look(self) -> None:
        expected = {each.positions_topic: each.flow.source for each in self._into_source}
        listed = {
            name: alias
            for name in await self.source.list_topics()
            if (alias := source_of_offsets(name)) is not None
        }
        aliases = listed | expected | {name: each.log.source_alias for name, each in self._tables.items()}
        self._missing.clear()
        there: list[_Table] = []
        for name, described in (
            await self.source.describe_topics(sorted(aliases)) if aliases else {}
        ).items():
            table = self._tables.get(name)
            if isinstance(described, KafkaError):
                is_absent = described.reason == KafkaReason.TOPIC_UNKNOWN
                if table is not None or not is_absent:
                    table = table or self._tables.setdefault(name, _Table(self._log(name, aliases[name]), ""))
                    self._fail(table, self._does_not_exist(name) if is_absent else described)
                    if is_absent and not self._may_be_back(table):
                        del self._tables[name]
                elif name in expected:
                    self._missing.add(name)
                continue
            if table is not None and table.topic_id not in ("", described.topic_id):
                if self._may_be_back(
                    self._fail(table, self._unknown(f"{name} was deleted and created again"))
                ):
                    continue
                table = None
            if table is None:
                table = self._tables[name] = _Table(self._log(name, aliases[name]), described.topic_id)
            table.topic_id, table.log.partition_count = described.topic_id, described.partition_count
            there.append(table)
        await self._follow(self.source, there)
        ids = {fact.source_cluster_id for each in there for fact in each.log.control.producers.values()}
        if ids - {self.cluster_id(self.flow.flow.target)}:
            await self._look_beside()

    async def _look_beside(self) -> None:
        """The source has copies from elsewhere, which a flow of another file may also copy to the target."""
        known = {each.positions_topic for each in self.flow.partners if each not in self._into_source}
        listed = {
            name: alias
            for name in await self.target.list_topics()
            if (alias := source_of_offsets(name)) is not None and name not in (self.positions.topic, *known)
        }
        tables = {}
        for name, found in (await self.target.describe_topics(sorted(listed)) if listed else {}).items():
            if not isinstance(found, KafkaError):
                log = self._log(name, listed[name], beside=True)
                log.partition_count = found.partition_count
                before = self._beside.get(name)
                is_same = before is not None and before.topic_id == found.topic_id
                tables[name] = before if before is not None and is_same else _Table(log, found.topic_id)
        self._beside = tables
        await self._follow(self.target, tables.values())

    async def _follow(self, cluster: KafkaCluster, tables: Collection[_Table]) -> None:
        """Read those that have changed, by their ends."""
        places = {
            TopicPartition(each.log.topic, number): each
            for each in tables
            for number in range(each.log.partition_count)
        }
        ends = await cluster.list_offsets(OffsetSpec.LATEST, places) if places else {}
        for table in tables:
            now = {each: ends[each] for each, its in places.items() if its is table}
            if now == table.ends and table.failure is None:
                continue
            try:
                await table.log.refresh()
            except (KafkaError, WireFormatError) as error:
                self._fail(table, error)
            else:
                table.failure = None
                named = table.log.control.producers
                if strange := sum(each not in named for each in table.log.ids_by.values()):
                    words = f"has {strange} records about producers that its flow did not write"
                    self._fail(table, self._unknown(f"{table.log.topic} {words}"))
                table.ends = {each: end for each, end in now.items() if isinstance(end, int)}

    def _fail(self, table: _Table, failure: TwinlogError) -> _Table:
        was, table.failure = table.failure, failure
        if (was is None or was.reason != failure.reason) and not self._may_be_back(table):
            log.warning(
                "ids_not_read", flow=str(self.flow.flow), topic=table.log.topic, reason=failure.reason
            )
        return table

    def _may_be_back(self, table: _Table) -> bool:
        """Whether the flow of these ids copies from a cluster whose records the target has, too; or may,
        while not all of its ids are known."""
        to_target = (each.flow.source for each in self.flow.partners if each not in self._into_source)
        aliases = {self.flow.flow.target, *to_target}
        named = {each.source_cluster_id for each in table.log.control.producers.values()}
        if table.log.is_read and named:
            known = {self.cluster_id(each) for each in aliases}
            return None in known or not named.isdisjoint(known)
        if table.log.source_alias in aliases:
            return True
        # One of the file copies from elsewhere, and one that is gone told nothing. Of another file it may
        # have any name. Nobody waits for ever for the right to read what may be none of their business.
        is_of_file = any(each.positions_topic == table.log.topic for each in self._into_source)
        is_gone = table.failure is not None and table.failure.reason == PartitionReason.ORIGIN_UNKNOWN
        return not (is_of_file or is_gone or isinstance(table.failure, FatalKafkaError))

    def _writers_of(self, topic: ReplicatedTopic) -> list[Partner]:
        """The flows of the file that copy something to the source topic."""
        return [
            each
            for each in self._into_source
            if (upstream := each.selector.policy.upstream_topic(topic.source_topic)) is not None
            and self._copies(each, upstream, topic)
        ]

    def _is_back(self, table: _Table) -> bool:
        """Whether the flow of these ids copies from the target of this one."""
        target_id = self.cluster_id(self.flow.flow.target)
        return any(each.source_cluster_id == target_id for each in table.log.control.producers.values())

    def _log(self, name: str, alias: str, *, beside: bool = False) -> PositionsLog:
        return PositionsLog(
            list_offsets=(self.target if beside else self.source).list_offsets,
            reader=self.target_reader if beside else self.reader,
            topic=name,
            partition_count=0,
            source_alias=alias,
            clock=self.clock,
        )

    def range_of(self, partition: TopicPartition, producer_id: int, topics: Topics) -> Range:
        """By what was read last. Raises TransientKafkaError (ORIGIN_UNKNOWN), and what made a positions topic
        unreadable."""
        topic = topics.get(partition.topic)
        if topic is None:
            raise self._unknown(f"{partition.topic} is no topic of the flow any more")
        for each in self._writers_of(topic):
            if each.positions_topic in self._missing:
                raise self._does_not_exist(each.positions_topic)
        for table in self._tables.values():
            if table.failure is not None and self._may_be_back(table):
                raise table.failure
        own = self.control.origins.get(partition)
        if own is not None and own.ids_topic_id not in (
            "",
            *(each.topic_id for each in self._tables.values()),
        ):
            raise self._unknown(
                f"the positions topic on {self.flow.flow.source} that named copies was deleted"
            )
        best = _NOWHERE
        for table in self._tables.values():
            begin, end = found = self._range_of(table, topic, partition, producer_id)
            if end - begin > best[1] - best[0] or (found == NOT_YET and best == _NOWHERE):
                best = found
        return best

    def _range_of(
        self, table: _Table, topic: ReplicatedTopic, partition: TopicPartition, producer_id: int
    ) -> Range:
        control = table.log.control
        mark = table.topic_of(topic)
        there = None if mark is None else TopicPartition(mark.topic, partition.partition)
        origin = None if there is None else control.origins.get(there)
        if origin is not None and origin.target_topic_id != topic.source_topic_id:
            origin = None
        producer = control.producers.get(producer_id)
        if producer is None or producer.cluster_id != self.cluster_id(self.flow.flow.source):
            return self._unnamed(table, topic, partition, origin)
        begins_at = 0 if origin is None else origin.begins_at
        if producer.source_cluster_id != self.cluster_id(self.flow.flow.target):
            if self._comes_directly(table, producer.source_cluster_id, mark, topic):
                return begins_at, HIGHEST_OFFSET
            self._refuse_twice(producer.source_cluster_id, mark, topic)
            return _NOWHERE
        if mark is None and not topic.source_topic_id:
            return 0, HIGHEST_OFFSET  # Brokers before 2.8: no copy has an id.
        if mark is None and self.is_both_ways(topic):
            raise self._unknown(f"{table.log.topic} does not say yet what is copied to {topic.source_topic}")
        if mark is None:
            return _NOWHERE  # Somebody has copied byte for byte, and producer ids are small numbers.
        if topic.target_topic_id in mark.former_ids:
            raise self._unknown(f"{topic.target_topic} on {self.flow.flow.target} was created again")
        if mark.topic_id and topic.target_topic_id and mark.topic_id != topic.target_topic_id:
            # It came from an earlier topic, and the present one gets everything. The flow back may go on
            # with the same id once it has seen the present one.
            return NOT_YET
        if origin is None or origin.topic_id != mark.topic_id:
            raise self._unknown(f"{table.log.topic} does not say yet where the copy of {mark.topic} begins")
        return max(begins_at, origin.since), HIGHEST_OFFSET

    def _unnamed(
        self, table: _Table, topic: ReplicatedTopic, partition: TopicPartition, origin: OriginFact | None
    ) -> Range:
        """Of producers that no flow has named."""
        partner = next((each for each in self._into_source if each.positions_topic == table.log.topic), None)
        mark = table.topic_of(topic)
        if partner is None and origin is not None and mark is not None and self._is_back(table):
            # A flow of another file.
            return (0, origin.unnamed_until) if mark.topic_id == topic.target_topic_id else _NOWHERE
        if partner is None or partner.flow.source != self.flow.flow.target or not self.is_both_ways(topic):
            return _NOWHERE
        if origin is not None:
            return 0, origin.unnamed_until
        there = TopicPartition(topic.target_topic, partition.partition)
        if there in table.log.known():
            raise self._unknown(
                f"{partner.flow} has copied {there.topic} before it named its producers, and has not begun"
                " with it since"
            )
        return _NOWHERE

    def _comes_directly(
        self, table: _Table, cluster_id: str, mark: TopicFact | None, topic: ReplicatedTopic
    ) -> bool:
        """Whether another flow copies the topic from this cluster to the flow's target topic."""
        # By its name in the file where it was not reached yet, so that its id is not known.
        names = {each.flow.source for each in self._into_source if each.positions_topic == table.log.topic}
        for each in self.flow.partners:
            name = topic.source_topic if mark is None else mark.topic
            known_id = self.cluster_id(each.flow.source)
            is_it = each.flow.source in names if known_id is None else known_id == cluster_id
            if each.flow.target == self.flow.flow.target and is_it:
                known = self.topics_of(each.flow)
                if known is None:
                    return each.copy_of(name) == topic.target_topic
                return name in known and known[name].target_topic == topic.target_topic
        return False

    def _refuse_twice(self, cluster_id: str, mark: TopicFact | None, topic: ReplicatedTopic) -> None:
        """Raises TransientKafkaError where a flow of another file copies the topic from this cluster to the
        target topic: its records would come twice, and go round."""
        name = topic.source_topic if mark is None else mark.topic
        for table in self._beside.values():
            control = table.log.control
            is_from_there = any(each.source_cluster_id == cluster_id for each in control.producers.values())
            copied = control.topics.get(name)
            if is_from_there and copied is not None and copied.target_topic_id == topic.target_topic_id:
                target = self.flow.flow.target
                raise self._unknown(
                    f"a flow of another file copies {name} to {target}, too, by {table.log.topic}: put all"
                    f" flows to {target} into one file, or delete that topic if its flow is gone"
                )

    def _does_not_exist(self, positions_topic: str) -> TransientKafkaError:
        return self._unknown(f"{positions_topic} does not exist on {self.flow.flow.source}")

    def _unknown(self, words: str) -> TransientKafkaError:
        return TransientKafkaError(f"{self.flow.flow} waits: {words}", reason=PartitionReason.ORIGIN_UNKNOWN)
