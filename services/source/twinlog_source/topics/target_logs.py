"""Handles copies that lost records: a recreated target topic, or a log that ends before records that were
written. The loss is recorded as a gap, and the copy continues.

Not for preserved copies: their task sees where they end, and copies the lost records again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

import structlog

from twinlog.config import AutoOffsetReset
from twinlog.errors import KafkaError
from twinlog.kafka.ports import KafkaCluster, LogEnd, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, Topics
from twinlog_source.log.facts import CheckedEnd, CopyFact, ForeignFact, TargetFact
from twinlog_source.log.gaps import Gap, lost_with_target
from twinlog_source.partitions.events import (
    CopyChanged,
    ForeignKnown,
    LossRecorded,
    TargetChecked,
    TargetContinued,
    TargetEndSeen,
    TargetForgotten,
    TargetRecreated,
    TargetRemembered,
    TargetReplaced,
    TargetStartSeen,
)
from twinlog_source.partitions.orders import ForeignWrite
from twinlog_source.partitions.rows import PartitionRow, Shortened
from twinlog_source.topics.flow_book import FlowBook
from twinlog_source.topics.start_positions import StartPositions

# Whether the topic that a copy was written to before still exists: a copy that got another name, by
# another policy or rule, was not deleted, and nothing is lost with it.


async def topics_by_id(cluster: KafkaCluster) -> dict[str, str]:
    """The names of all topics that the cluster shows, by their ids. Raises KafkaError, also when it says of a
    single topic nothing for now: that one is not gone.

    Asks for every topic: for the rare moment in which a copy has become another topic.
    """
    there = {}
    for name, found in (await cluster.describe_topics(await cluster.list_topics())).items():
        if not isinstance(found, KafkaError):
            there[found.topic_id] = name
        elif found.retriable:
            raise found
    there.pop("", None)  # Before Kafka 2.8 topics have no ids.
    return there


START_LOOK_SECONDS = 2.0
_NOT_KNOWN = 1 << 62
"""Behind every offset."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLogs:
    """All methods raise KafkaError."""

    book: FlowBook
    starts: StartPositions
    _ends_seen: dict[TopicPartition, int] = field(default_factory=dict)
    """The ends of copies, by source partition, that the last check saw before what was written."""

    def was_recreated(self, topics: Topics) -> bool:
        """Whether a copy is another topic than the one that was written before."""
        return any(map(self.book.marks.target_was_recreated, topics.values()))

    def recreated(self, topics: Topics) -> frozenset[str]:
        """The source topics whose copies were recreated."""
        return frozenset(
            topic.source_topic for topic in topics.values() if self.book.marks.target_was_recreated(topic)
        )

    def forget(self) -> None:
        """Another process owned the flow meanwhile, and the topics may be others since: what the log says of
        the copies is newer than what is remembered of them."""
        self._ends_seen.clear()
        for partition in self.book.table.rows:
            self.book.note(TargetForgotten(partition=partition))

    def _noted(self, topics: Topics) -> Topics:
        """Without topics whose copy was recreated and is not noted as that yet: what is remembered of these
        copies is about the former topic."""
        return {
            name: topic for name, topic in topics.items() if not self.book.marks.target_was_recreated(topic)
        }

    async def note_recreated(self, topics: Topics) -> None:
        """A recreated copy has lost what was copied before: record the gap, and continue. Nothing is lost if
        the former topic still exists, because the copy has another name now.

        Call it while nothing copies it: only then is it certain how far it was copied.
        """
        there = await topics_by_id(self.book.target) if self.was_recreated(topics) else {}
        for topic in topics.values():
            mark = self.book.control.topics.get(topic.source_topic)
            if mark is None or not topic.target_topic_id or mark.target_topic_id == topic.target_topic_id:
                continue
            if mark.target_topic_id in there:
                log.warning(
                    "copy_has_another_name",
                    flow=str(self.book.marks.flow),
                    topic=topic.source_topic,
                    target_topic=topic.target_topic,
                    former_target_topic=there[mark.target_topic_id],
                )
            elif self.book.marks.target_was_recreated(topic):
                await self._note_lost_copies(topic)
            for partition in self.book.table.rows:
                if partition.topic == topic.source_topic:
                    self.book.note(TargetRecreated(partition=partition))
            await self.book.marks.record(topic, known_partitions=mark.known_partitions)

    async def _note_lost_copies(self, topic: ReplicatedTopic) -> None:
        stored = {
            partition: copied_before(row, row.position)
            for partition, row in self.book.table.rows.items()
            if partition.topic == topic.source_topic
            and row.stored
            and row.position
            # Where a decision was stored, `CopyModes` records the loss with the next one.
            and partition not in self.book.control.copies
        }
        firsts = await self.starts.resolve(dict.fromkeys(stored, AutoOffsetReset.EARLIEST))
        for partition, position in stored.items():
            first = firsts[partition]
            begin, end = lost_with_topic(
                position=position,
                first=first if isinstance(first, int) else 0,
                held_from=held_before(self.book, topic, partition),
                has_common=False,
            )
            await self.book.ledger.write(
                lost_with_target(partition, begin, end, found_at_ms=self.book.clock.now_ms())
            )

    async def look_at_ends(self, topics: Topics, *, copying: bool) -> bool:
        """Check whether the copies still reach as far as they were written. Return whether to check again
        soon.

        `copying`: tasks write meanwhile. Records that a task wrote behind a loss are in the log before the
        task reports them, so an end that is too low counts only when the next check sees the same one.
        Otherwise the report shows where the log had ended.

        A log that has grown again since it lost records is found by its leader epochs: a task may have been
        killed before it reported the loss.
        """
        written = self._recalled_ends(self._noted(topics))
        if not written:
            return False
        starts = await self.book.target.list_offsets(OffsetSpec.EARLIEST, written.keys())
        ends = await self.book.target.log_ends(written.keys())
        continued_at = await self._continued_at(written, ends)
        before = dict(self._ends_seen)
        self._ends_seen.clear()
        for copy, found in ends.items():
            (partition, was_written, position), start = written[copy], starts[copy]
            continued = continued_at.get(copy)
            if isinstance(found, KafkaError) or isinstance(continued, KafkaError):
                continue  # The next check asks again.
            now_known = self.book.table.rows.get(partition)
            # Tasks write meanwhile: an answer says nothing about what was written after the request.
            if continued is not None or found.offset < was_written:
                end = found.offset if continued is None else continued
                if copying and before.get(partition) != end:
                    self._ends_seen[partition] = end
                elif continued is None:
                    self.book.note(TargetEndSeen(partition=partition, end_offset=end))
                else:
                    grown = TargetContinued(partition=partition, end_offset=end, log_end=found.offset)
                    self.book.note(grown)
                continue
            checked = CheckedEnd(found.leader_epoch, was_written, position)
            self.book.note(TargetChecked(partition=partition, checked=checked))
            if isinstance(start, int) and now_known is not None and not now_known.losses:
                self.book.note(TargetStartSeen(partition=partition, start_offset=start))
        return bool(self._ends_seen)

    async def look_at_starts(self, topics: Topics) -> None:
        """See where preserved copies begin: what they held is recorded as lost if they are deleted. Takes two
        seconds at most; the next look finds what this one did not."""
        topics = self._noted(topics)
        copies = {
            TopicPartition(topics[partition.topic].target_topic, partition.partition): partition
            for partition, row in self.book.table.rows.items()
            if row.is_preserved and partition.topic in topics
        }
        if not copies:
            return
        try:
            async with asyncio.timeout(START_LOOK_SECONDS):
                starts = await self.book.target.list_offsets(OffsetSpec.EARLIEST, copies)
        except (KafkaError, TimeoutError):
            return
        for copy, start in starts.items():
            if isinstance(start, int):
                self.book.note(TargetStartSeen(partition=copies[copy], start_offset=start))

    async def _continued_at(
        self,
        written: Mapping[TopicPartition, tuple[TopicPartition, int, int]],
        ends: Mapping[TopicPartition, LogEnd | KafkaError],
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """Where each copy continued that lost records with a change of its leader; or why that is not
        known."""
        checked: dict[TopicPartition, CheckedEnd] = {}
        for copy, end in ends.items():
            row = self.book.table.rows.get(written[copy][0])
            before = None if row is None else row.target_checked
            if before and isinstance(end, LogEnd) and end.leader_epoch != before.leader_epoch:
                checked[copy] = before
        if not checked:
            return {}
        asked = {copy: before.leader_epoch for copy, before in checked.items()}
        found: dict[TopicPartition, int | KafkaError] = {}
        for copy, ended in (await self.book.target.epoch_ends(asked)).items():
            if isinstance(ended, KafkaError):
                found[copy] = ended
            elif 0 <= ended.end_offset < checked[copy].end_offset:
                found[copy] = ended.end_offset
        return found

    def _recalled_ends(self, topics: Topics) -> dict[TopicPartition, tuple[TopicPartition, int, int]]:
        """By copy: its source partition, the end of what was written to it, and the source position then.
        Ends that only the log has are entered in the table first."""
        control = self.book.control
        written: dict[TopicPartition, tuple[TopicPartition, int, int]] = {}
        for partition, row in self.book.table.rows.items():
            topic = topics.get(partition.topic)
            if topic is None:
                continue
            foreign = None if row.foreign_writes else control.foreign.get(partition)
            if foreign is not None and foreign.writes and foreign.topic_id == topic.target_topic_id:
                found = tuple(ForeignWrite(*write) for write in foreign.writes)
                self.book.note(
                    ForeignKnown(
                        partition=partition,
                        records=foreign.records,
                        writes=found,
                        acknowledged_by=foreign.acknowledged_by,
                        acknowledged_at_ms=foreign.acknowledged_at_ms,
                    )
                )
            if row.is_preserved:
                continue
            if row.target_end is None:
                mark, decided = control.targets.get(partition), control.copies.get(partition)
                is_newest = mark is not None and self._is_newest(mark)
                remembered = recalled(topic.target_topic_id, mark, decided, is_newest=is_newest)
                if remembered is not None:
                    self.book.note(remembered)
            if row.target_end:
                copy = TopicPartition(topic.target_topic, partition.partition)
                written[copy] = partition, row.target_end, row.target_end_at
        return written

    def _is_newest(self, mark: TargetFact) -> bool:
        """Whether no later position was stored. An equal one may be stored twice: after the position was set
        back, and as much was copied again behind the recorded end."""
        stored_at_ms = self.book.positions.written_at_ms.get(mark.partition)
        noted_at_ms = mark.noted_at_ms
        return noted_at_ms is not None and stored_at_ms is not None and stored_at_ms <= noted_at_ms

    async def note_shortened(self, topics: Topics) -> None:
        """Copies that lost written records: record the gap, and continue."""
        shortened = [row for row in self.book.table.rows.values() if row.losses and not row.is_preserved]
        if not shortened:
            return
        topics = self._noted(topics)
        names = {row.partition.topic: row.target_topic for row in shortened}
        described = await self.book.target.describe_topics(list(names.values()))
        begins, leaders = await self._leaders_began(shortened)
        for row in shortened:
            found, topic = described[row.target_topic], topics.get(row.partition.topic)
            began = begins.get(row.partition)
            if not row.losses or topic is None or isinstance(found, KafkaError) or began is None:
                continue  # The next check asks again.
            if found.topic_id != topic.target_topic_id:
                # Another topic: it is handled once configsync has reported it.
                self.book.note(TargetReplaced(partition=row.partition, position=row.losses[0].position))
                continue
            for lost in row.losses:
                await self._record_loss(row, lost, found.topic_id, began, leaders.get(row.partition))

    async def _leaders_began(
        self, rows: Sequence[PartitionRow]
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """Where the leaders of these copies began to write that followed the one that had all, by source
        partition: a log that lost its tail had ended there. That is the present leader at the latest. A very
        large offset where it is not known, none where no answer came. And the epochs of the present
        leaders."""
        copies = {TopicPartition(row.target_topic, row.partition.partition): row.partition for row in rows}
        whole = {row.partition: row.target_checked.leader_epoch for row in rows if row.target_checked}
        begins: dict[TopicPartition, int] = {}
        before: dict[TopicPartition, int] = {}
        leaders: dict[TopicPartition, int] = {}
        for copy, end in (await self.book.target.log_ends(copies)).items():
            if isinstance(end, LogEnd):
                leaders[copies[copy]], newest = end.leader_epoch, end.leader_epoch - 1
                before[copy] = min(newest, whole.get(copies[copy], newest))
            elif not end.retriable:
                begins[copies[copy]] = _NOT_KNOWN
        for copy, ended in (await self.book.target.epoch_ends(before)).items():
            if not isinstance(ended, KafkaError):
                # A log has lost nothing under its first leader.
                begins[copies[copy]] = ended.end_offset if min(ended) >= 0 else _NOT_KNOWN
            elif not ended.retriable:
                begins[copies[copy]] = _NOT_KNOWN
        return begins, leaders

    async def _lower_equal_offsets(self, row: PartitionRow, end_offset: int) -> None:
        """Below its change a translated copy has the source's offsets: no longer from where it lost its tail.
        Stored before the gap, because only the loss shows the end."""
        copy = self.book.control.copies.get(row.partition)
        if copy is None or copy.preserved or copy.since <= end_offset:
            return
        lowered = replace(copy, since=end_offset)
        await self.book.record([lowered])
        if row.copy is not None:
            self.book.note(CopyChanged(partition=row.partition, copy=lowered))

    async def _record_loss(
        self, row: PartitionRow, lost: Shortened, topic_id: str, began: int, leader_epoch: int | None
    ) -> None:
        """The log may have been cut off before the end that was seen, where its leader `began`: markers that
        ended what hung there, or records of others, are not what was lost."""
        behind = max(0, lost.end_offset - began)
        end_offset, first_lost = lost.end_offset - behind, max(0, lost.first_lost - behind)
        gap = Gap(
            partition=row.partition,
            from_offset=first_lost,
            to_offset=lost.position,
            reason="TARGET_TRUNCATED",
            found_at_ms=self.book.clock.now_ms(),
        )
        await self._lower_equal_offsets(row, end_offset)
        await self.book.ledger.write(gap)
        # Not if the present leader may lack more than what this loss tells.
        has_checked = row.target_checked is not None and row.target_checked.end_offset <= began < _NOT_KNOWN
        epoch = leader_epoch if has_checked else None
        self.book.note(LossRecorded(partition=row.partition, loss=lost, leader_epoch=epoch))
        fact = TargetFact(
            partition=row.partition,
            topic_id=topic_id,
            end_offset=end_offset,
            position=first_lost,
            held_from=row.held_from,
            noted_at_ms=self.book.clock.now_ms(),
            checked=row.target_checked,
        )
        await self.book.record([fact])

    async def put_ends_on_log(self, topics: Topics) -> None:
        """Store how far the copies reach, so that a loss of the target is noticed even if it happens while
        nothing copies. Raises KafkaError.

        Record known losses first: behind a later end nobody would find them.
        """
        await self.note_shortened(topics)
        topics = self._noted(topics)
        marks: list[TargetFact | ForeignFact] = []
        for partition, row in self.book.table.rows.items():
            topic = topics.get(partition.topic)
            if topic is not None and row.foreign_writes:
                foreign = ForeignFact(
                    partition=partition,
                    topic_id=topic.target_topic_id,
                    records=row.foreign_records,
                    writes=tuple(map(astuple, row.foreign_writes)),
                    acknowledged_by=row.foreign_acknowledged_by,
                    acknowledged_at_ms=row.foreign_acknowledged_at_ms,
                )
                if foreign != self.book.control.foreign.get(partition):
                    marks.append(foreign)
            if topic is None or row.losses:
                continue
            if row.is_preserved:
                if row.copy is None or row.held_from is None or row.held_from <= row.copy.since:
                    continue  # The decision says where it began.
            elif row.target_end is None:
                continue
            mark = TargetFact(
                partition=partition,
                topic_id=topic.target_topic_id,
                end_offset=0 if row.is_preserved else row.target_end or 0,
                position=0 if row.is_preserved else row.target_end_at,
                held_from=row.held_from,
                noted_at_ms=self.book.clock.now_ms(),
                checked=None if row.is_preserved else row.target_checked,
            )
            before = self.book.control.targets.get(partition)
            if before is None or is_news(before, mark):
                marks.append(mark)
        await self.book.record(marks)


def copied_before(row: PartitionRow, position: int) -> int:
    """The end of what only the former topic had: the new one may already have records that were copied before
    it was noticed."""
    if row.replaced_at is not None:
        return row.replaced_at
    return position if row.shortened is None else row.shortened.position


def held_before(book: FlowBook, topic: ReplicatedTopic, partition: TopicPartition) -> int | None:
    """Where the copy began before the present target topic, in source offsets; None = unknown. To be asked
    before a decision about the present one is recorded."""
    held_from = book.table.rows[partition].held_from
    if held_from is not None:
        return held_from
    mark, copy = book.control.targets.get(partition), book.control.copies.get(partition)
    if copy is None:
        return mark.held_from if mark is not None and mark.topic_id != topic.target_topic_id else None
    if mark is not None and mark.topic_id == copy.target_topic_id and mark.held_from is not None:
        return mark.held_from
    return copy.since if copy.preserved else None


# What the log of a flow says of the end of a copy.


def recalled(
    topic_id: str, mark: TargetFact | None, copy: CopyFact | None, *, is_newest: bool
) -> TargetRemembered | None:
    """How far the copy with this topic id reached; None = the log does not say. `is_newest`: no position was
    stored after `mark`.

    A copy that was preserved reached to where it became translated, if its task has seen that. What was
    stored about it before that says only where it began (`end_offset` 0).
    """
    if mark is not None and mark.topic_id == topic_id and mark.end_offset:
        return TargetRemembered(
            partition=mark.partition,
            end_offset=mark.end_offset,
            position=mark.position,
            held_from=mark.held_from,
            is_newest=is_newest,
            checked=mark.checked,
        )
    if copy is None or copy.preserved or not copy.since or copy.target_topic_id != topic_id:
        return None
    if copy.leader_epoch is None:
        return None
    return TargetRemembered(
        partition=copy.partition,
        end_offset=copy.since,
        position=copy.since,
        held_from=None,
        checked=CheckedEnd(copy.leader_epoch, copy.since, copy.since),
    )


def lost_with_topic(*, position: int, first: int, held_from: int | None, has_common: bool) -> tuple[int, int]:
    """The source offsets of which only the former target topic had the records, from and to.

    `position`: how far it was copied. `first`: where a copy would begin on the source now. `held_from`: where
    the former copy began; None = unknown. `has_common`: the present topic continues behind records of the
    source that it has at their offsets, so only what the source itself no longer has is lost.
    """
    begin = min(first, position)
    return begin if held_from is None else min(begin, held_from), begin if has_common else position


def is_news(before: TargetFact, mark: TargetFact) -> bool:
    """Whether `mark` says more than `before`. Not if only its source position has moved: then nothing was
    written."""
    return (before.topic_id, before.end_offset, before.held_from, before.checked) != (
        mark.topic_id,
        mark.end_offset,
        mark.held_from,
        mark.checked,
    )
