"""Decides which copies are preserved, and stores the decision before the copies are assigned.

Invariant: a copy is assigned as preserved only when the log says so for exactly this target topic.
"""

import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import astuple, dataclass, field, replace

import structlog

from twinlog.config import OffsetsMode
from twinlog.errors import KafkaError, TwinlogError
from twinlog.model import TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, Topics
from twinlog_source.log.facts import PRESERVED, CopyFact, ForeignFact, TransformsFact, TransformStart
from twinlog_source.log.gaps import lost_with_target
from twinlog_source.log.producers import Producers
from twinlog_source.partitions.copy_mode import (
    CommonLog,
    Decision,
    NewCopy,
    OffsetsReason,
    decide_all,
    refused,
)
from twinlog_source.partitions.events import (
    Begun,
    CopyChanged,
    CopyDecided,
    ForeignKnown,
)
from twinlog_source.partitions.orders import ForeignWrite
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.reasons import PartitionReason
from twinlog_source.topics.flow_book import RETRY_SECONDS, FlowBook
from twinlog_source.topics.new_copies import NewCopies, refusal
from twinlog_source.topics.target_logs import copied_before, held_before, lost_with_topic, topics_by_id

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyModes:
    """All methods raise KafkaError."""

    book: FlowBook
    producers: Producers
    new_copies: NewCopies
    confirm: Callable[[], Awaitable[None]]
    """Raises KafkaError when this process no longer owns the flow; called before facts are written."""
    id_problem: Callable[[str], KafkaError | None]
    """As `WantedTopics.id_problem`."""
    transform_problem: Callable[[str], TwinlogError | None] = lambda _topic: None
    """Why records of a topic may not be copied before Spark has looked at what it is to do to them."""
    routes_records: Callable[[str], bool] = lambda _topic: False
    """Whether records of a topic may go to other topics than its copy."""
    transform_of: Callable[[str], str] = lambda _topic: ""
    """As `TopicTransforms.digest`."""
    without_writer: set[TopicPartition] = field(default_factory=set)
    """Copies without a write in flight when the flow was taken over, and that no task has had since."""

    def forget(self) -> None:
        """Another process may have decided meanwhile: read the log again."""
        self.new_copies.common_logs.forget()
        for partition in self.book.table.rows:
            self.book.note(CopyChanged(partition=partition, copy=None))

    async def decide(self, topics: Topics, *, only: TopicPartition | None = None) -> None:
        """Decide the kind of copy for every partition with a position, or for one. Call it while nothing
        copies the undecided ones."""
        configured: list[PartitionRow] = []
        new: list[PartitionRow] = []
        known: list[tuple[PartitionRow, CopyFact]] = []
        undecided = [row for row in self._undecided(topics) if only in (None, row.partition)]
        await self._note_transforms(undecided, topics)
        origins = self.new_copies.origins
        again = {row.partition for row in undecided if self.new_copies.has_new_target(row, topics)}
        if not all(origins.is_both_ways(topics[each.topic]) for each in again):
            # What a topic that was created again gets depends on whether it is copied both ways.
            await origins.read()
        for row in undecided:
            topic = topics[row.partition.topic]
            back = origins.copied_back(topic)
            if isinstance(back, TwinlogError) and row.partition in again:
                words = f"whether {topic.target_topic} is copied back is not known: {back}"
                self._set_aside(row, back.reason, words)
                continue
            fact = self.book.marks.copy_of(row.partition, topic)
            wanted = self.book.flow.offsets.wanted(topic.source_topic)
            is_first = row.partition not in self.book.control.copies and back is not True
            if fact is None and wanted is OffsetsMode.TRANSLATED and is_first:
                configured.append(row)
            elif fact is None:
                new.append(row)
            elif not fact.preserved and wanted is OffsetsMode.PRESERVED:
                self._set_aside(row, fact.reason, refused(fact.reason, "it is translated"))
            elif fact.preserved and self.routes_records(topic.source_topic):
                words = "the copy has the source's offsets, and records that go elsewhere would leave holes"
                self._set_aside(
                    row,
                    PartitionReason.ROUTE_REFUSED,
                    f"{words}: delete {topic.target_topic}, and it begins again",
                )
            else:
                known.append((row, fact))
        unknown = await self._note_held_before(configured, topics)
        for row in (row for row in configured if row.partition not in unknown):
            # Not stored: a copy that has not begun yet may be decided differently with other settings.
            target_id = topics[row.partition.topic].target_topic_id
            copy = _translated(row, target_id, OffsetsReason.OFFSETS_CONFIGURED)
            self.book.note(CopyDecided(partition=row.partition, copy=copy))
        if known:
            await self._continue(known, topics)
        if new:
            await self._begin(new, topics)

    async def _note_transforms(self, rows: Collection[PartitionRow], topics: Topics) -> None:
        """Put on the log from which offset on records are changed otherwise than before."""
        facts: list[TransformsFact] = []
        for row in rows:
            partition, target_id = row.partition, topics[row.partition.topic].target_topic_id
            known, digest = self.book.control.transforms.get(partition), self.transform_of(partition.topic)
            starts: tuple[TransformStart, ...] = ()
            offset = row.position or 0
            if known is not None and known.target_topic_id == target_id:
                starts = known.starts
            elif known is not None or not row.stored:
                offset = 0  # All of this copy.
            if digest != (starts[-1].digest if starts else ""):
                # After a position was set back: what is copied again.
                kept = [each for each in starts if each.offset < offset]
                starts = (*kept, TransformStart(digest, offset))
                facts.append(TransformsFact(partition=partition, target_topic_id=target_id, starts=starts))
        if not facts:
            return
        await self.confirm()
        await self.book.record(facts)
        for fact in facts:
            log.info("transform_begins", topic=fact.partition.topic, partition=fact.partition.partition)

    def look_again(self, recreated: Collection[str]) -> None:
        """Do not wait any longer with partitions of these source topics: their target topics have changed."""
        for row in self.book.table.rows.values():
            waits = row.blocker
            if row.partition.topic in recreated and waits is not None and waits.retry_at < math.inf:
                self.book.set_aside(row.partition, waits.reason, waits.message, wait_seconds=0.0)

    def _undecided(self, topics: Topics) -> list[PartitionRow]:
        """Those to decide now. Topics that may have been recreated are set aside: their positions may belong
        to a deleted topic."""
        now = self.book.clock.monotonic()
        undecided = []
        for row in self.book.table.rows.values():
            target_id = topics[row.partition.topic].target_topic_id
            if row.copy is not None and row.copy.target_topic_id != target_id:
                self.book.note(CopyChanged(partition=row.partition, copy=None))
            waits = row.blocker is not None and row.blocker.retry_at > now
            if row.copy is not None or row.position is None or waits:
                continue
            refused = self.transform_problem(row.partition.topic)
            problem = self.id_problem(row.partition.topic)
            if refused is not None:
                self._set_aside(row, refused.reason, str(refused), wait_seconds=0.0)
            elif problem is None:
                undecided.append(row)
            else:
                words = f"whether its source topic was created again is not known: {problem}"
                self._set_aside(row, problem.reason, words, wait_seconds=0.0)
        return undecided

    def _set_aside(
        self, row: PartitionRow, reason: str, message: str, *, wait_seconds: float = RETRY_SECONDS
    ) -> None:
        if reason == PartitionReason.COMPARING:
            wait_seconds = 0.0  # A comparison continues with the next look.
        self.book.set_aside(row.partition, reason, message, wait_seconds=wait_seconds)

    async def _continue(self, known: Collection[tuple[PartitionRow, CopyFact]], topics: Topics) -> None:
        """Copies that have begun. If the last owner left in order and the target has grown since, another
        producer wrote there: records that are already the source's (because they came from there) are not
        copied again."""
        left = [
            row
            for row, fact in known
            if fact.preserved and row.stored and row.partition in self.without_writer
        ]
        grown = await self.new_copies.written_by_others(left, topics)
        if any(not isinstance(each, KafkaError) for each in grown.values()):
            await self.confirm()
        for row, fact in known:
            there = grown.get(row.partition)
            if isinstance(there, KafkaError):
                self._set_aside(row, there.reason, f"foreign records in its copy could not be read: {there}")
                continue
            if there is not None:
                fact = await self._take_written(row, fact, *there)
            if fact.preserved and not row.stored and (row.position or 0) < fact.begins_at:
                # Its position was not stored any more when the copy began.
                self.book.note(Begun(partition=row.partition, position=fact.begins_at))
            has_no_writer = row.partition in self.without_writer
            self.without_writer.discard(row.partition)
            wanted = self.book.flow.offsets.wanted(row.partition.topic)
            if fact.preserved or wanted is not OffsetsMode.PRESERVED:
                self.book.note(CopyDecided(partition=row.partition, copy=fact, has_no_writer=has_no_writer))
            else:
                words = f"from offset {fact.since} on the target has other records"
                self._set_aside(row, fact.reason, refused(fact.reason, words))

    async def _take_written(
        self, row: PartitionRow, fact: CopyFact, common: CommonLog, target_end: int
    ) -> CopyFact:
        """The copy continues behind what the target has of the source; translated if the target has other
        records too. The leader epochs of those records are unknown."""
        fact = replace(fact, leader_epoch=None, common_until=common.end)
        if common.end < target_end:
            reason = OffsetsReason.TARGET_DIFFERS
            fact = replace(fact, preserved=False, since=common.end, reason=reason, skip_from=0, skip_to=0)
        await self.book.record([fact])
        await self._begin_at(row.partition, common.end)
        log.info(
            "copy_continues_behind_others",
            flow=str(self.book.marks.flow),
            topic=row.partition.topic,
            partition=row.partition.partition,
            position=common.end,
            target_end=target_end,
        )
        return fact

    async def _begin(self, new: Collection[PartitionRow], topics: Topics) -> None:
        # The table may change while the clusters answer.
        rows = {row.partition: row for row in new}
        copies: list[NewCopy] = []
        for partition, found in (await self.new_copies.look(new, topics)).items():
            if isinstance(found, KafkaError):
                self._set_aside(
                    rows[partition],
                    found.reason,
                    f"whether its copy can keep the offsets is not known: {found}",
                )
            else:
                copies.append(found)
        decisions = self._decisions(copies, topics)
        if any(decision.preserved for decision in decisions.values()):
            # Nothing fences the driver's own writer, so check the claim first: the process may have slept.
            await self.confirm()
            no_writer = await self._find_writer()
            if no_writer is not None:
                copies = [replace(copy, refusal=copy.refusal or no_writer) for copy in copies]
                decisions = self._decisions(copies, topics)
        begins = {copy.partition: copy for copy in copies}
        facts = self._facts(rows, copies, decisions, topics)
        # Behind what both logs have in common there may be what a translated copy got.
        differ = [rows[each] for each, fact in facts.items() if not (fact.preserved or begins[each].is_there)]
        common = {each for each, copy in begins.items() if copy.common is not None}
        for partition in await self._note_held_before(differ, topics, have_common=common):
            del facts[partition]
        if facts:
            await self._state(rows, begins, facts, topics)

    async def _note_held_before(
        self,
        rows: Collection[PartitionRow],
        topics: Topics,
        *,
        have_common: Collection[TopicPartition] = (),
    ) -> Collection[TopicPartition]:
        """Put on the log, before copies begin, what their targets hold of others, but for those that continue
        behind a common log. Return those of which this is not known now: they are set aside."""
        held = await self.new_copies.held_before(rows, topics)
        lost = [each for each, found in held.items() if _is_lost(found)]
        await self.new_copies.origins.note_lost(lost, self.book.journal, self.confirm)
        facts: list[ForeignFact] = []
        for row in rows:
            found, topic = held.get(row.partition), topics[row.partition.topic]
            before = self.book.control.foreign.get(row.partition)
            if isinstance(found, KafkaError):
                words = str(found) if _is_lost(found) else f"what its target holds is not known: {found}"
                self._set_aside(row, found.reason, words)
            elif row.partition in have_common:
                continue
            elif found is not None and (before is None or before.topic_id != topic.target_topic_id):
                fact = ForeignFact(
                    partition=row.partition,
                    topic_id=topic.target_topic_id,
                    records=found.records,
                    writes=(astuple(found),),
                )
                facts.append(fact)
        if facts:
            await self.confirm()
            await self.book.record(facts)
        for fact in facts:
            writes = tuple(ForeignWrite(*write) for write in fact.writes)
            self.book.note(ForeignKnown(partition=fact.partition, records=fact.records, writes=writes))
            log.warning(
                "foreign_write",
                flow=str(self.book.marks.flow),
                reason=OffsetsReason.TARGET_NOT_EMPTY,
                topic=topics[fact.partition.topic].target_topic,
                partition=fact.partition.partition,
                records=fact.records,
            )
        return {partition for partition, found in held.items() if isinstance(found, KafkaError)}

    def _decisions(self, copies: Collection[NewCopy], topics: Topics) -> Mapping[TopicPartition, Decision]:
        filled = (
            fact.skip_to - fact.skip_from
            for partition in self.book.table.rows
            if partition.topic in topics
            and (fact := self.book.marks.copy_of(partition, topics[partition.topic])) is not None
            and fact.preserved
        )
        rule = self.book.flow.offsets
        return decide_all(copies, fill_max=rule.fill_max, fill_left=rule.fill_total - sum(filled))

    async def _find_writer(self) -> tuple[str, str] | None:
        """Get the producer that writes the flow's preserved copies, once and for all; reason and message when
        the target gives none."""
        if self.book.control.writer is not None:
            return None
        try:
            writer = await self.new_copies.probe.new_writer()
        except KafkaError as error:
            if error.retriable:
                raise
            return refusal(error)
        await self.producers.store({writer.producer_id: PRESERVED})
        await self.book.record([writer])
        return None

    async def _state(
        self,
        rows: Mapping[TopicPartition, PartitionRow],
        begins: Mapping[TopicPartition, NewCopy],
        facts: Mapping[TopicPartition, CopyFact],
        topics: Topics,
    ) -> None:
        await self.confirm()
        moved = await self._moved([rows[partition] for partition in facts], topics)
        later: dict[TopicPartition, int] = {}
        for partition, fact in facts.items():
            row, copy = rows[partition], begins[partition]
            # What the source has of a topic that is copied both ways is also what a new target topic had.
            is_whole = fact.preserved or (copy.both_ways and self.new_copies.has_new_target(row, topics))
            if not is_whole and partition not in moved:
                await self._note_left_behind(row, copy, topics)
            position = row.position
            if copy.common is not None:
                # Do this first: whatever happens later, these records are not copied again.
                position = copy.continues_at
            elif is_whole:
                position = fact.since if fact.preserved else copy.begins_at
            if is_whole and (row.stored or partition in self.book.control.copies):
                # A new target topic is written from its beginning.
                begins_at = fact.since if fact.preserved else copy.begins_at
                await self._note_lost(row, begins_at, topics[partition.topic], is_moved=partition in moved)
            # With a fact and without the position that was told, a later process would copy all again.
            if position == row.position and (fact.preserved or not row.is_told):
                continue
            assert position is not None
            if fact.preserved and not row.stored:
                # Behind the fact, from which it would follow: a position alone is that of a translated copy.
                later[partition] = position
            else:
                await self._begin_at(partition, position)
        first = facts.keys() - self.book.control.copies.keys()
        await self.book.record(facts.values())
        for partition, position in later.items():
            await self._begin_at(partition, position)
        for partition, fact in facts.items():
            self.book.note(CopyDecided(partition=partition, copy=fact, has_no_writer=partition in first))
        log.info(
            "copies_begin",
            flow=str(self.book.marks.flow),
            preserved=sum(fact.preserved for fact in facts.values()),
            translated=sum(not fact.preserved for fact in facts.values()),
            filled_offsets=sum(fact.skip_to - fact.skip_from for fact in facts.values()),
        )

    def _facts(
        self,
        rows: Mapping[TopicPartition, PartitionRow],
        copies: Collection[NewCopy],
        decisions: Mapping[TopicPartition, Decision],
        topics: Topics,
    ) -> dict[TopicPartition, CopyFact]:
        """What to record of the decided copies; those that may not begin are set aside."""
        facts: dict[TopicPartition, CopyFact] = {}
        for copy in copies:
            partition, decision = copy.partition, decisions[copy.partition]
            row, target_id = rows[partition], topics[partition.topic].target_topic_id
            if decision.preserved:
                since = copy.begins_at if copy.common is None else copy.common.begin
                facts[partition] = CopyFact(
                    partition=partition,
                    preserved=True,
                    since=since,
                    reason="",
                    target_topic_id=target_id,
                    skip_to=copy.filled_offsets,
                    common_until=0 if copy.common is None else copy.common.end,
                )
            elif copy.wanted is OffsetsMode.PRESERVED:
                self._set_aside(row, decision.reason, refused(decision.reason, decision.message))
            else:
                since = 0 if copy.common is None else copy.common.end
                facts[partition] = _translated(row, target_id, decision.reason, since=since)
        return facts

    async def _begin_at(self, partition: TopicPartition, position: int) -> None:
        await self.book.journal.position(partition, position)
        self.book.note(Begun(partition=partition, position=position, stored=True))

    async def _moved(self, rows: Collection[PartitionRow], topics: Topics) -> frozenset[TopicPartition]:
        """The partitions whose former target topic still exists, beside the present one: it has what was
        copied."""
        control, former = self.book.control, {}
        for row in rows:
            known = control.copies.get(row.partition) or control.topics.get(row.partition.topic)
            if known is not None and self.new_copies.has_new_target(row, topics):
                former[row.partition] = known.target_topic_id
        there = await topics_by_id(self.book.target) if former else {}
        return frozenset(partition for partition, topic_id in former.items() if topic_id in there)

    async def _note_lost(
        self, row: PartitionRow, begins_at: int, topic: ReplicatedTopic, *, is_moved: bool
    ) -> None:
        """Record the loss of what the former target topic had, unless it still has it, or was still to get,
        and the source no longer has."""
        held_from = None if is_moved else held_before(self.book, topic, row.partition)
        known = [offset for offset in (held_from, row.position) if offset is not None]
        await self._note_gap(row.partition, min(known, default=begins_at), begins_at)

    async def _note_left_behind(self, row: PartitionRow, copy: NewCopy, topics: Topics) -> None:
        """Record the loss of what only the former target topic had, of a copy that continues in another
        one."""
        if self.new_copies.has_new_target(row, topics) and row.stored and row.position:
            begin, end = lost_with_topic(
                position=copied_before(row, row.position),
                first=copy.begins_at,
                held_from=held_before(self.book, topics[row.partition.topic], row.partition),
                has_common=copy.common is not None,
            )
            await self._note_gap(row.partition, begin, end)

    async def _note_gap(self, partition: TopicPartition, from_offset: int, to_offset: int) -> None:
        now_ms = self.book.clock.now_ms()
        await self.book.ledger.write(lost_with_target(partition, from_offset, to_offset, found_at_ms=now_ms))


def _is_lost(found: object) -> bool:
    return isinstance(found, KafkaError) and found.reason == PartitionReason.NO_POSITION


def _translated(row: PartitionRow, target_topic_id: str, reason: str, *, since: int = 0) -> CopyFact:
    """It has the source's offsets only for the records below `since`."""
    return CopyFact(
        partition=row.partition, preserved=False, since=since, reason=reason, target_topic_id=target_topic_id
    )
