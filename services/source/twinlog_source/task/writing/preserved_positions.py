"""Stores the positions of preserved copies at an interval, and facts about the copies with them.

The end of a copy is its position; storing it only shortens what the next task has to check.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from twinlog.batches import NewRecord
from twinlog.clock import Clock
from twinlog.model import TopicPartition
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import CopyFact, EpochStart, LeaderEpochsFact
from twinlog_source.task.writing.preserved_copy import PreservedCopy

_Stored = tuple[int, tuple[EpochStart, ...], int | None]
"""The position, the leader epochs of the source, and the epoch of the target's leader in whose log the copy
was checked."""


@dataclass(slots=True, kw_only=True)
class PreservedPositions:
    source_alias: str
    store_position: Callable[[TopicPartition, list[NewRecord]], None]
    """Store the position of a partition soon, with these records in the same transaction. Does not wait."""
    clock: Clock
    _stored: dict[TopicPartition, _Stored] = field(default_factory=dict)
    """What was passed on to be stored."""
    _touched: set[PreservedCopy] = field(default_factory=set)
    """Copies that may have moved since positions were last stored."""

    def touch(self, taken: PreservedCopy) -> None:
        """The copy may have moved."""
        self._touched.add(taken)

    def store_touched(self) -> None:
        """Pass on the positions of copies that may have moved since the last call."""
        touched, self._touched = self._touched, set()
        for taken in touched:
            self.store_moved(taken)

    def note_stored(self, taken: PreservedCopy) -> None:
        """The log has where a copy stands."""
        self._stored[taken.copy.partition] = taken.copy.committed, taken.copy.epochs, taken.leader_epoch

    def store_moved(self, taken: PreservedCopy) -> None:
        """Pass on the positions that have moved since the last call."""
        copy = taken.copy
        if not taken.is_end_known or copy.needs_translation:
            return
        if self._stored.get(copy.partition) != (copy.committed, copy.epochs, taken.leader_epoch):
            self._store(taken, [])

    def store_end(self, taken: PreservedCopy, *, until: int, reason: str) -> None:
        """The copy has the source's offsets below `until`, and none of them from there on."""
        ended = CopyFact(
            partition=taken.copy.partition,
            preserved=False,
            since=until,
            reason=reason,
            target_topic_id=taken.topic_id,
            leader_epoch=taken.appends.epoch_that_reached(until),
        )
        self._store(taken, [self._record(ended)])

    def fact_of(self, taken: PreservedCopy, *, skip_to: int | None = None) -> NewRecord:
        """The record about what a copy leaves out: as it is, or after `skip`."""
        skipped = taken.skipped if skip_to is None else (taken.appends.acknowledged, skip_to)
        return self._record(
            CopyFact(
                partition=taken.copy.partition,
                preserved=True,
                since=taken.since,
                reason="",
                target_topic_id=taken.topic_id,
                skip_from=skipped[0],
                skip_to=skipped[1],
                leader_epoch=taken.leader_epoch,
                common_until=taken.common_until,
            )
        )

    def _store(self, taken: PreservedCopy, records: list[NewRecord]) -> None:
        copy = taken.copy
        stored = self._stored.get(copy.partition)
        if copy.epochs and (stored is None or stored[1] != copy.epochs):
            records = [*records, self._record(LeaderEpochsFact(partition=copy.partition, epochs=copy.epochs))]
        epoch_told = None if stored is None else stored[2]
        if epoch_told != taken.leader_epoch and not copy.needs_translation:
            # Always with the position: everything below it was checked in this leader's log.
            records, epoch_told = [*records, self.fact_of(taken)], taken.leader_epoch
        self._stored[copy.partition] = copy.committed, copy.epochs, epoch_told
        self.store_position(copy.partition, records)

    def _record(self, fact: CopyFact | LeaderEpochsFact) -> NewRecord:
        return NewRecord(*fact_record(self.source_alias, fact), self.clock.now_ms())
