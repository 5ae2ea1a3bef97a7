"""How preserved copies change, according to what their tasks have put on the log: they end, or leave out a
range.

Invariant A: a copy changes in one direction only, from preserved to translated, at one source offset that is
on the log. Everything below it keeps the source's offsets.

Invariant B: while a task has a copy, only the task stores what it leaves out and that it ends, in one
transaction with the position. The driver does so between two epochs, for an operator.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import structlog

from twinlog.clock import Clock
from twinlog.config import OffsetsMode
from twinlog.model import Flow, TopicPartition
from twinlog.policy.expected_offsets import OffsetsRule
from twinlog.service.feeds.replicated_topics import Topics
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import CopyFact
from twinlog_source.log.journal import Journal
from twinlog_source.log.topic_facts import TopicFacts
from twinlog_source.partitions.copy_mode import OffsetsReason
from twinlog_source.partitions.events import (
    CopyChanged,
    CopyReread,
    CopyTranslated,
    Event,
    TargetRecreated,
)
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.preserved.reasons import PreservedReason

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChanges:
    """Methods that write raise KafkaError."""

    rule: OffsetsRule
    table: PartitionTable
    marks: TopicFacts
    journal: Journal
    clock: Clock

    @property
    def control(self) -> ControlState:
        return self.marks.control

    def take_ended(self) -> bool:
        """Handle copies that their tasks have ended, as the log shows. Return whether there were any: they
        have to be assigned again, or set aside (their kind is undecided)."""
        rows = [row for row in self.table.rows.values() if row.needs_translation]
        for row in rows:
            assert row.report is not None
            assert row.copy is not None
            fact = _as_translated(row.copy, row.report.preserved_until, row.report.reason)
            self.control.record(fact)
            self._note(
                CopyTranslated(partition=row.partition, copy=self._kept(fact), position=row.report.position)
            )
            _log_translated(self.marks.flow, fact, fact.since, fact.reason)
        return bool(rows)

    def take_from_log(self, partitions: Collection[TopicPartition]) -> None:
        """The log was read after fencing, and decides about the copies of these partitions."""
        for partition in partitions:
            row, fact = self.table.rows.get(partition), self.control.copies.get(partition)
            if row is None or row.copy is None or fact is None or not row.copy.preserved:
                continue
            if fact.target_topic_id != row.copy.target_topic_id:
                continue
            self._note(CopyReread(partition=partition, copy=self._kept(fact)))

    async def translate_recreated(self, topics: Topics) -> None:
        """Translate the copies of recreated source topics: offsets begin at 0 again, so none of the copy's
        offsets are the source's any more. Also a copy that stayed preserved for a while, because its task
        found the topic shorter before the driver saw its id. Call it before positions are reset, and while
        nothing copies."""
        for partition in self.table.rows:
            topic = topics[partition.topic]
            fact = self.marks.copy_of(partition, topic)
            has_equal_offsets = fact is not None and (fact.preserved or fact.since > 0)
            if fact is None or not has_equal_offsets or not self.marks.source_was_recreated(topic):
                continue
            await self._write([_as_translated(fact, 0, OffsetsReason.SOURCE_RECREATED)])
            _log_translated(self.marks.flow, fact, 0, OffsetsReason.SOURCE_RECREATED)
            self._note(CopyChanged(partition=partition, copy=None))
            self._note(TargetRecreated(partition=partition))

    def take_skips(self) -> None:
        """Handle ranges that tasks have left out of preserved copies, as the log shows. Nothing is written
        here, because only the task writes about its copy."""
        for partition, row in self.table.rows.items():
            known = self.control.copies.get(partition)
            if row.copy is None or not row.copy.preserved or row.copy == known:
                continue
            if known is None or known.target_topic_id != row.copy.target_topic_id or not known.preserved:
                continue
            if known.skip_to > row.copy.skip_to:
                # It was read from the log, and is not reported yet: ranges only move forward.
                skipped = replace(row.copy, skip_from=known.skip_from, skip_to=known.skip_to)
                self._note(CopyChanged(partition=partition, copy=skipped))
            else:
                self.control.record(row.copy)

    async def leave_out(self, row: PartitionRow, skip_from: int | None, skip_to: int) -> None:
        """An operator moves a copy on, and no task has it: what it leaves out is filled."""
        assert row.copy is not None
        assert skip_from is not None
        copy = replace(row.copy, skip_from=skip_from, skip_to=skip_to)
        await self._write([copy])
        self._note(CopyChanged(partition=row.partition, copy=copy))

    async def end(self, row: PartitionRow, since: int, position: int) -> None:
        """An operator moves a copy that holds what the source lost from `since` on, and no task has it: it
        continues at `position` with other offsets."""
        assert row.copy is not None
        fact = _as_translated(row.copy, since, PreservedReason.SOURCE_TRUNCATED)
        await self._write([fact])
        self._note(CopyTranslated(partition=row.partition, copy=self._kept(fact), position=position))
        _log_translated(self.marks.flow, fact, since, fact.reason)

    def _note(self, event: Event) -> None:
        self.table.apply(event, self.clock.monotonic())

    def _kept(self, fact: CopyFact) -> CopyFact | None:
        """None for a copy that has ended although the configuration requires the source's offsets."""
        demanded = self.rule.wanted(fact.partition.topic) is OffsetsMode.PRESERVED
        return None if demanded and not fact.preserved else fact

    async def _write(self, facts: Collection[CopyFact]) -> None:
        await self.journal.record_all(facts)
        for fact in facts:
            self.control.record(fact)


def _as_translated(fact: CopyFact, since: int, reason: str) -> CopyFact:
    return replace(
        fact, preserved=False, since=since, reason=reason, skip_from=0, skip_to=0, leader_epoch=None
    )


def _log_translated(flow: Flow, fact: CopyFact, since: int, reason: str) -> None:
    log.warning(
        "offsets_translated",
        flow=str(flow),
        topic=fact.partition.topic,
        partition=fact.partition.partition,
        since=since,
        reason=reason,
    )
