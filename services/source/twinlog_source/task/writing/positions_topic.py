"""Positions as records of the positions topic.

Which positions are on the positions topic, and which have moved without a record and have to be written.

Invariant: a position that was set from outside (an operator, a recorded gap) stays until it is stored. A
commit before it that turns out to have succeeded does not replace it.

Stores the positions of preserved copies at an interval, and facts about the copies with them.

The end of a copy is its position; storing it only shortens what the next task has to check.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twinlog.batches import NewRecord, OutgoingBatch, RawHeaders, build_batch
from twinlog.clock import Clock
from twinlog.model import TopicPartition
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import NOTHING_WRITTEN, encode_source_offset, source_offset_key
from twinlog_source.log.fact_records import fact_record, partition_key
from twinlog_source.log.facts import CopyFact, EpochStart, LeaderEpochsFact, ZeroFact
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.writing.preserved_copy import PreservedCopy
from twinlog_source.task.writing.round import Round

_NOTHING_WRITTEN: RawHeaders = ((NOTHING_WRITTEN.encode(), b""),)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsTopic:
    """Where and how positions are written."""

    topic: str
    partition_count: int
    source_alias: str
    connector_name: str
    _places: dict[TopicPartition, "_Place"] = field(default_factory=dict, compare=False, repr=False)
    """For every partition with a written position: the constant parts, which cost most to encode."""

    def batches(
        self,
        positions: Mapping[TopicPartition, int],
        extra: Sequence[NewRecord],
        *,
        leaving_zero: Collection[TopicPartition] = (),
        nothing_written: Collection[TopicPartition] = (),
        now_ms: int,
    ) -> dict[TopicPartition, OutgoingBatch]:
        """The records that store these positions, and `extra`, as one batch per partition of the topic."""
        by_partition: dict[TopicPartition, list[NewRecord]] = {}
        for partition, position in positions.items():
            if not position:
                fact = NewRecord(*fact_record(self.source_alias, ZeroFact(partition=partition)), now_ms)
                self._add(by_partition, fact)
        for partition in leaving_zero:
            key = partition_key(self.source_alias, "zero", partition)
            self._add(by_partition, NewRecord(key, None, now_ms))
        for partition, position in positions.items():
            place = self._places.get(partition) or self._find_place(partition)
            headers = _NOTHING_WRITTEN if partition in nothing_written else ()
            record = NewRecord(place.key, encode_source_offset(position), now_ms, headers)
            by_partition.setdefault(place.partition, []).append(record)
        for record in extra:
            self._add(by_partition, record)
        return {partition: build_batch(records) for partition, records in by_partition.items()}

    def _add(self, by_partition: dict[TopicPartition, list[NewRecord]], record: NewRecord) -> None:
        by_partition.setdefault(self._partition_of(record.key or b""), []).append(record)

    def _find_place(self, partition: TopicPartition) -> "_Place":
        key = source_offset_key(self.source_alias, partition, connector=self.connector_name)
        place = self._places[partition] = _Place(key, self._partition_of(key))
        return place

    def _partition_of(self, key: bytes) -> TopicPartition:
        return TopicPartition(self.topic, partition_for_key(key, self.partition_count))


class _Place(NamedTuple):
    """Where and under which key a position is stored."""

    key: bytes
    partition: TopicPartition


@dataclass(slots=True, kw_only=True)
class PositionsToStore:
    topic: PositionsTopic
    copies: Mapping[TopicPartition, PartitionCopy]
    clock: Clock
    unstored: set[TopicPartition] = field(default_factory=set)
    """Partitions whose position moved without a record."""
    _stored: dict[TopicPartition, int] = field(default_factory=dict)
    """The positions that the log has; others are absent."""
    _epochs: dict[TopicPartition, tuple[EpochStart, ...]] = field(default_factory=dict)
    """The leader epochs that this task has stored with positions that moved without data."""
    _extra_records: list[NewRecord] = field(default_factory=list)
    """Twinlog's own records (gaps) for the positions topic, written with the next round."""
    _restarts: dict[TopicPartition, int] = field(default_factory=dict)
    """For each partition of the last attempted commit, how often it had been restarted before."""

    @property
    def is_behind(self) -> bool:
        """Whether something is only in memory."""
        return bool(self.unstored or self._extra_records)

    def note(self, partition: TopicPartition, position: int) -> None:
        """The log already has this position."""
        self._stored[partition] = position

    def add(self, partitions: Collection[TopicPartition], extra: Sequence[NewRecord]) -> None:
        """These moved without data."""
        self.unstored.update(partitions)
        self._extra_records.extend(extra)

    def batches(
        self,
        current: Round,
        ends: Mapping[TopicPartition, int],
        marks: Sequence[NewRecord],
        *,
        before: Round | None,
    ) -> dict[TopicPartition, OutgoingBatch]:
        """The positions at the end of a round, and those that moved without data, for its transaction.

        `before` is the round whose commit is unanswered: if it fails, nothing of this one counts either, so
        what it stores is not stored again.
        """
        unstored = {
            partition
            for partition in self.unstored
            if before is None or not before.stores(self.copies[partition])
        }
        extra = self._extra_records[before.extra_count if before is not None else 0 :]
        current.moved = {partition: self.copies[partition].committed for partition in unstored}
        current.positions = {**current.moved, **ends}
        current.extra_count = len(extra)
        current.told_epochs = {
            partition: self.copies[partition].epochs for partition in unstored - current.epochs.keys()
        }
        restarts = {partition: self.copies[partition].restarts for partition in current.positions}
        self._restarts = restarts if before is None else {**self._restarts, **restarts}
        leaving_zero = [
            partition
            for partition, position in current.positions.items()
            if position and self._stored.get(partition) == 0
        ]
        return self.topic.batches(
            current.positions,
            [*extra, *self._epoch_records(current.told_epochs), *marks],
            leaving_zero=leaving_zero,
            nothing_written={each for each in current.positions if self.copies[each].wrote_nothing},
            now_ms=self.clock.now_ms(),
        )

    def committed(self, current: Round) -> None:
        """The round is on the log."""
        self._stored.update(current.positions)
        self._epochs.update(current.told_epochs)
        # Not those that were moved again meanwhile.
        self.unstored -= {
            partition
            for partition in current.positions
            if current.moved.get(partition, self.copies[partition].committed)
            == self.copies[partition].committed
        }
        del self._extra_records[: current.extra_count]

    def resume(self, log_says: Mapping[TopicPartition, int]) -> Iterator[tuple[PartitionCopy, int]]:
        """The copies whose last commit succeeded although its answer was lost, and where they continue."""
        for partition, copy in self.copies.items():
            position = log_says.get(partition)
            if position is None or position == self._stored.get(partition):
                continue
            self._stored[partition] = position
            if copy.keeps_offsets:
                continue  # The end of its copy is the position.
            if copy.restarts == self._restarts.get(partition, copy.restarts):
                self.unstored.discard(partition)
                yield copy, position

    def _epoch_records(self, moved: Mapping[TopicPartition, tuple[EpochStart, ...]]) -> list[NewRecord]:
        """The leader epochs of positions that moved without data, as of these very positions: with those of
        an earlier one the next task would take what its source has gained since for lost. None removes what
        the log has."""
        alias, now_ms = self.topic.source_alias, self.clock.now_ms()
        records = []
        for partition, epochs in moved.items():
            if epochs and epochs != self._epochs.get(partition):
                fact = fact_record(alias, LeaderEpochsFact(partition=partition, epochs=epochs))
                records.append(NewRecord(*fact, now_ms))
            elif not epochs and partition in self._stored:
                records.append(NewRecord(partition_key(alias, "epochs", partition), None, now_ms))
        return records


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
    _touched: dict[PreservedCopy, None] = field(default_factory=dict)
    """Copies that may have moved since positions were last stored, in this order."""

    def touch(self, taken: PreservedCopy) -> None:
        """The copy may have moved."""
        self._touched[taken] = None

    def store_touched(self) -> None:
        """Pass on the positions of copies that may have moved since the last call."""
        touched, self._touched = self._touched, {}
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
        epoch_told = None if stored is None else stored[2]
        if epoch_told != taken.leader_epoch and not copy.needs_translation:
            # Always with the position: everything below it was checked in this leader's log.
            records, epoch_told = [*records, self.fact_of(taken)], taken.leader_epoch
        self._stored[copy.partition] = copy.committed, copy.epochs, epoch_told
        self.store_position(copy.partition, records)

    def _record(self, fact: CopyFact) -> NewRecord:
        return NewRecord(*fact_record(self.source_alias, fact), self.clock.now_ms())
