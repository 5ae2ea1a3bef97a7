"""What the positions topic holds, and what moved without a record of it and is to be written.

Invariant: a position that was decided elsewhere (an operator, a recorded gap) stands until it is stored: what
a commit before it turns out to have written does not replace it.
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
    """Partitions whose position moved without a record of it."""
    _stored: dict[TopicPartition, int] = field(default_factory=dict)
    """Positions as the log holds them; those it does not hold are absent."""
    _extra_records: list[NewRecord] = field(default_factory=list)
    """Records of our own (gaps) for the positions topic, written with the next round."""
    _restarts: dict[TopicPartition, int] = field(default_factory=dict)
    """How often each partition of the last attempted commit had been restarted before it."""

    @property
    def is_behind(self) -> bool:
        """Something is only in memory."""
        return bool(self.unstored or self._extra_records)

    def note(self, partition: TopicPartition, position: int) -> None:
        """The log holds this position already."""
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
        """The positions that a round ends with, and those that moved without data, for its transaction.

        `before` is the round whose commit is unanswered: what it stores, it stores or fails, and nothing of
        this one counts then.
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
        # Not those that were moved once more meanwhile.
        self.unstored -= {
            partition
            for partition in current.positions
            if current.moved.get(partition, self.copies[partition].committed)
            == self.copies[partition].committed
        }
        del self._extra_records[: current.extra_count]

    def resume(self, log_says: Mapping[TopicPartition, int]) -> Iterator[tuple[PartitionCopy, int]]:
        """The copies whose last commit took place although its answer was lost, and where they continue."""
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
        """What takes back the leader epochs of partitions that continue elsewhere."""
        alias, now_ms = self.topic.source_alias, self.clock.now_ms()
        return [
            NewRecord(partition_key(alias, "epochs", partition), None, now_ms)
            for partition in moved
            if partition in self._stored and not self.copies[partition].epochs
        ]
