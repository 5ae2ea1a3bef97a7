"""Which positions are on the positions topic, and which have moved without a record and have to be written.

Invariant: a position that was set from outside (an operator, a recorded gap) stays until it is stored. A
commit before it that turns out to have succeeded does not replace it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.batches import NewRecord, OutgoingBatch
from twinlog.clock import Clock
from twinlog.model import TopicPartition
from twinlog_source.log.fact_records import partition_key
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.writing.positions_topic import PositionsTopic
from twinlog_source.task.writing.round import Round


@dataclass(slots=True, kw_only=True)
class StoredPositions:
    topic: PositionsTopic
    copies: Mapping[TopicPartition, PartitionCopy]
    clock: Clock
    unstored: set[TopicPartition] = field(default_factory=set)
    """Partitions whose position moved without a record."""
    _stored: dict[TopicPartition, int] = field(default_factory=dict)
    """The positions that the log has; others are absent."""
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
        restarts = {partition: self.copies[partition].restarts for partition in current.positions}
        self._restarts = restarts if before is None else {**self._restarts, **restarts}
        leaving_zero = [
            partition
            for partition, position in current.positions.items()
            if position and self._stored.get(partition) == 0
        ]
        return self.topic.batches(
            current.positions,
            [*extra, *self._unknown_epochs(unstored - ends.keys()), *marks],
            leaving_zero=leaving_zero,
            now_ms=self.clock.now_ms(),
        )

    def committed(self, current: Round) -> None:
        """The round is on the log."""
        self._stored.update(current.positions)
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

    def _unknown_epochs(self, moved: Collection[TopicPartition]) -> list[NewRecord]:
        """What removes the leader epochs of partitions that continue elsewhere."""
        alias, now_ms = self.topic.source_alias, self.clock.now_ms()
        return [
            NewRecord(partition_key(alias, "epochs", partition), None, now_ms)
            for partition in moved
            if partition in self._stored and not self.copies[partition].epochs
        ]
