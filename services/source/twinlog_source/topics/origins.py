"""Which batches of the source are copies of what the target has already, under policies that keep names
(docs/adr/0017).

A flow stores its producer ids on its positions topic before it writes with them. So a batch on the source
that another flow copied is known by its header. It is left out (an echo) if it comes from this flow's own
target topic, or from a cluster from which another flow copies it to this target directly.

Invariant: a batch is judged by what the positions topics on the source say after it was fetched. While one
cannot be read whose flow may copy back, nobody's batches are judged.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from twinlog.batches.header import HIGHEST_OFFSET
from twinlog.batches.prepared import NOT_YET
from twinlog.errors import KafkaError, TwinlogError, WireFormatError, required
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, Topics
from twinlog_source.config import Partner, SourceFlow
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import FOUND, OriginFact, TopicFact
from twinlog_source.log.journal import Journal
from twinlog_source.log.positions import PositionsLog
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.topics.id_tables import IdTable, IdTables

Range = tuple[int, int]
_NOWHERE: Final = (0, 0)


@dataclass(slots=True, kw_only=True)
class Origins:
    ids: IdTables
    target: KafkaCluster
    positions: PositionsLog
    """Of the flow itself."""
    topics_of: Callable[[Flow], Topics | None] = lambda _flow: None
    """The topics that another flow copies now, if that is known; else the file decides."""

    @property
    def flow(self) -> SourceFlow:
        return self.ids.flow

    @property
    def cluster_id(self) -> Callable[[str], str | None]:
        return self.ids.cluster_id

    @property
    def control(self) -> ControlState:
        """The facts of the flow itself."""
        return self.positions.control

    @property
    def keeps_names(self) -> bool:
        return not self.flow.policy.tracks_topic_sources

    async def read(self) -> None:
        """Look at what the flows into the source say, where that matters: rarely, and at once, so that what
        tasks ask about their first batches does not wait. Raises KafkaError."""
        if self.keeps_names:
            await self.ids.read(is_paced=False)

    def is_both_ways(self, topic: ReplicatedTopic) -> bool:
        return self.copied_back(topic) is True

    def copied_back(self, topic: ReplicatedTopic) -> bool | TwinlogError:
        """Whether another flow copies the target topic back to the source topic; or why that is not known.
        One of another file is known by what its positions topic said at the last look. It may not have seen
        yet that either topic was created again: the target topic is known by its name, the source topic by
        its former ids, too."""
        own = self.control.topics.get(topic.source_topic)
        ids = {topic.source_topic_id, *(() if own is None else (own.topic_id, *own.former_ids))}
        tables = self.ids.tables.values()
        return (
            self._file_has_back(topic)
            or any(
                mark.topic == topic.target_topic and mark.target_topic_id in ids
                for table in filter(self.ids.is_back, tables)
                for mark in table.log.control.topics.values()
            )
            or next((each.failure for each in tables if each.failure and self.ids.may_be_back(each)), False)
        )

    def _file_has_back(self, topic: ReplicatedTopic) -> bool:
        return any(
            each.flow.source == self.flow.flow.target and self._copies(each, topic.target_topic, topic)
            for each in self.ids.into_source
        )

    def former_positions(self, partition: TopicPartition, topic: ReplicatedTopic) -> frozenset[str]:
        """The positions topics, by Kafka's ids, by which flows back knew copies of the partition; not the
        flow's own, nor those of which it has all. What flows from elsewhere name lies on their sources."""
        known = {"", self.positions.topic_id, *self.positions.former_topics}
        there = TopicPartition(topic.target_topic, partition.partition)
        ids = topic.target_topic_id, topic.source_topic_id
        back = filter(self.ids.is_back, self.ids.tables.values())
        told = (each.log.control.origins.get(there) for each in back)
        named = {each.ids_topic_id for each in told if each and (each.topic_id, each.target_topic_id) == ids}
        return frozenset(named - known)

    def is_shared(self, topic: ReplicatedTopic) -> bool:
        """Whether flows of a third cluster write the topic, by the file."""
        ends = {self.flow.flow.source: topic.source_topic, self.flow.flow.target: topic.target_topic}
        return any(
            each.flow.source not in ends
            and (upstream := each.selector.policy.upstream_topic(ends[each.flow.target])) is not None
            and each.copy_of(upstream) == ends[each.flow.target]
            for each in self.flow.partners
        )

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
                # In a topic that was created again nobody has judged anything yet.
                ids = "" if known.topic_id else known.ids_topic_id
                new[partition] = replace(known, topic_id=topic.source_topic_id, ids_topic_id=ids)
            else:
                continue
            if known is None or (known.topic_id and known.target_topic_id == topic.target_topic_id):
                at_end[partition] = TopicPartition(topic.target_topic, partition.partition)
        if not new:
            return
        ends = await self.target.list_offsets(OffsetSpec.LATEST, at_end.values()) if at_end else {}
        for partition, copy in at_end.items():
            new[partition] = self._with_end(new[partition], required(ends[copy]))
        await self._record(new.values(), journal, confirm)

    def _with_end(self, fact: OriginFact, end: int) -> OriginFact:
        """What the present end of the copy means."""
        if fact.partition in self.control.origins:
            return replace(fact, since=end)
        if self._was_unnamed(fact.partition):
            return replace(fact, unnamed_until=end)
        return fact if fact.partition in self.positions.known() else replace(fact, begins_at=end)

    async def remember(
        self,
        partitions: Collection[TopicPartition],
        topics: Topics,
        journal: Journal,
        confirm: Callable[[], Awaitable[None]],
    ) -> None:
        """Record for partitions that were judged, and may be copied back, which positions topic named the
        copies: if it is deleted, a later process must not take them for other records. Raises KafkaError."""
        back = (
            each.topic_id
            for each in self.ids.tables.values()
            if each.failure is None and self.ids.is_back(each)
        )
        if topic_id := next(back, ""):
            unknown = [
                each
                for each in self._known(partitions)
                if not each.ids_topic_id
                and (topic := topics.get(each.partition.topic)) is not None
                and self.copied_back(topic) is not False
            ]
            await self._record([replace(each, ids_topic_id=topic_id) for each in unknown], journal, confirm)

    async def forget(
        self, partitions: Collection[TopicPartition], journal: Journal, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        """An operator has set their positions: what lies behind is judged by what there is. Raises
        KafkaError."""
        known = self._known(partitions)
        await self._record([replace(each, ids_topic_id="") for each in known], journal, confirm)

    async def note_lost(
        self, partitions: Collection[TopicPartition], journal: Journal, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        """The flow has written to their copies before their positions were lost: nothing there is older than
        the flow. Raises KafkaError."""
        await self._record([replace(each, begins_at=0) for each in self._known(partitions)], journal, confirm)

    def _known(self, partitions: Iterable[TopicPartition]) -> list[OriginFact]:
        return [self.control.origins[each] for each in partitions if each in self.control.origins]

    async def _record(
        self, facts: Iterable[OriginFact], journal: Journal, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        known = self.control.origins
        before = {each: known.get(each.partition) for each in facts}
        if new := [each for each, was in before.items() if was != each]:
            await confirm()
            # There may be a fact of a topic that was created again meanwhile.
            new = [each for each in new if _topics(known.get(each.partition)) == _topics(before[each])]
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
        await self.ids.read()
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

    def _writers_of(self, topic: ReplicatedTopic) -> list[Partner]:
        """The flows of the file that copy something to the source topic."""
        return [
            each
            for each in self.ids.into_source
            if (upstream := each.selector.policy.upstream_topic(topic.source_topic)) is not None
            and self._copies(each, upstream, topic)
        ]

    def range_of(self, partition: TopicPartition, producer_id: int, topics: Topics) -> Range:
        """By what was read last. Raises TransientKafkaError (ORIGIN_UNKNOWN), and what made a positions topic
        unreadable."""
        topic = topics.get(partition.topic)
        if topic is None:
            raise self.ids.unknown(f"{partition.topic} is no topic of the flow any more")
        for each in self._writers_of(topic):
            if each.positions_topic in self.ids.missing:
                raise self.ids.does_not_exist(each.positions_topic)
        for table in self.ids.tables.values():
            if table.failure is not None and self.ids.may_be_back(table):
                raise table.failure
        own = self.control.origins.get(partition)
        told = {""}.union(*((each.topic_id, *each.log.former_topics) for each in self.ids.tables.values()))
        if own is not None and own.ids_topic_id not in told:
            raise self.ids.unknown(
                f"the positions topic on {self.flow.flow.source} that named copies was deleted"
            )
        best = _NOWHERE
        for table in self.ids.tables.values():
            begin, end = found = self._range_of(table, topic, partition, producer_id)
            if end - begin > best[1] - best[0] or (found == NOT_YET and best == _NOWHERE):
                best = found
        return best

    def _range_of(
        self, table: IdTable, topic: ReplicatedTopic, partition: TopicPartition, producer_id: int
    ) -> Range:
        control = table.log.control
        mark = table.topic_of(topic)
        there = None if mark is None else TopicPartition(mark.topic, partition.partition)
        origin = None if there is None else control.origins.get(there)
        if origin is not None and origin.target_topic_id != topic.source_topic_id:
            origin = None
        producer = control.producers.get(producer_id)
        if producer is None or producer.cluster_id != self.cluster_id(self.flow.flow.source):
            return self._unnamed(table, topic, partition, mark, origin)
        begins_at = 0 if origin is None else origin.begins_at
        if producer.source_cluster_id != self.cluster_id(self.flow.flow.target):
            if self._comes_directly(table, producer.source_cluster_id, mark, topic):
                return begins_at, HIGHEST_OFFSET
            self._refuse_twice(producer.source_cluster_id, mark, topic)
            return _NOWHERE
        if mark is None and not topic.source_topic_id:
            return 0, HIGHEST_OFFSET  # Brokers before 2.8: no copy has an id.
        if mark is None and self._file_has_back(topic):
            raise self.ids.unknown(
                f"{table.log.topic} does not say yet what is copied to {topic.source_topic}"
            )
        if mark is None:
            return _NOWHERE  # Somebody has copied byte for byte, and producer ids are small numbers.
        if topic.target_topic_id in mark.former_ids:
            raise self.ids.unknown(f"{topic.target_topic} on {self.flow.flow.target} was created again")
        if mark.topic_id and topic.target_topic_id and mark.topic_id != topic.target_topic_id:
            # It came from an earlier topic, and the present one gets everything. The flow back may go on
            # with the same id once it has seen the present one.
            return NOT_YET
        if origin is None or origin.topic_id != mark.topic_id:
            raise self.ids.unknown(
                f"{table.log.topic} does not say yet where the copy of {mark.topic} begins"
            )
        return max(begins_at, origin.since), HIGHEST_OFFSET

    def _unnamed(
        self,
        table: IdTable,
        topic: ReplicatedTopic,
        partition: TopicPartition,
        mark: TopicFact | None,
        origin: OriginFact | None,
    ) -> Range:
        """Of producers that no flow has named."""
        partner = next(
            (each for each in self.ids.into_source if each.positions_topic == table.log.topic), None
        )
        if partner is None and origin is not None and mark is not None and self.ids.is_back(table):
            # A flow of another file.
            return (0, origin.unnamed_until) if mark.topic_id == topic.target_topic_id else _NOWHERE
        if partner is None or partner.flow.source != self.flow.flow.target or not self._file_has_back(topic):
            return _NOWHERE
        if origin is not None:
            return 0, origin.unnamed_until
        there = TopicPartition(topic.target_topic, partition.partition)
        if there in table.log.known():
            raise self.ids.unknown(
                f"{partner.flow} has copied {there.topic} before it named its producers, and has not begun"
                " with it since"
            )
        return _NOWHERE

    def _comes_directly(
        self, table: IdTable, cluster_id: str, mark: TopicFact | None, topic: ReplicatedTopic
    ) -> bool:
        """Whether another flow copies the topic from this cluster to the flow's target topic."""
        # By its name in the file where it was not reached yet, so that its id is not known.
        names = {each.flow.source for each in self.ids.into_source if each.positions_topic == table.log.topic}
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
        for table in self.ids.beside.values():
            control = table.log.control
            is_from_there = any(each.source_cluster_id == cluster_id for each in control.producers.values())
            copied = control.topics.get(name)
            if is_from_there and copied is not None and copied.target_topic_id == topic.target_topic_id:
                target = self.flow.flow.target
                raise self.ids.unknown(
                    f"a flow of another file copies {name} to {target}, too, by {table.log.topic}: put all"
                    f" flows to {target} into one file, or delete that topic if its flow is gone"
                )


def _topics(fact: OriginFact | None) -> tuple[str, str] | None:
    return None if fact is None else (fact.topic_id, fact.target_topic_id)
