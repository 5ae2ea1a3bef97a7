"""Gives every partition its position: the stored one, or a start position."""

from dataclasses import dataclass

from twinlog.clock import Clock
from twinlog.config import AutoOffsetReset
from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog.service.feeds.replicated_topics import Topics
from twinlog_source.log.positions import PositionsLog
from twinlog_source.log.topic_facts import TopicFacts
from twinlog_source.partitions.events import Begun, Event, PositionRead, SetAside
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.reasons import PartitionReason
from twinlog_source.topics.start_positions import StartPositions, came_later

BLOCKER_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionFinder:
    table: PartitionTable
    positions: PositionsLog
    starts: StartPositions
    marks: TopicFacts
    reset: AutoOffsetReset
    """For partitions that existed when the flow began."""
    clock: Clock

    async def find(self, topics: Topics) -> None:
        """Give positions to partitions without one; those that cannot have one now are set aside for a while.
        Raises KafkaError."""
        now = self.clock.monotonic()
        missing = [
            partition
            for partition, row in self.table.rows.items()
            if row.position is None and (row.blocker is None or row.blocker.retry_at <= now)
        ]
        if not missing:
            return
        stored = await self.positions.refresh()
        resets: dict[TopicPartition, AutoOffsetReset] = {}
        for partition in missing:
            unreadable = self.positions.unreadable.get(partition)
            if unreadable is not None:
                self._set_aside(
                    partition,
                    PartitionReason.POSITION_UNREADABLE,
                    f"the stored position is damaged: {unreadable}",
                )
            elif partition in stored:
                epochs = self.positions.control.leader_epochs.get(partition, ())
                self._note(
                    PositionRead(partition=partition, position=stored[partition], leader_epochs=epochs)
                )
            elif (
                copy := self.marks.copy_of(partition, topics[partition.topic])
            ) is not None and copy.preserved:
                # It has begun: a reset could skip records that were not copied yet.
                self._note(Begun(partition=partition, position=copy.begins_at))
            else:
                came_later = self._came_later(partition, topics)
                resets[partition] = AutoOffsetReset.EARLIEST if came_later else self.reset
        there = [partition for partition in resets if not self._came_later(partition, topics)]
        begun = await self.starts.begin(resets, were_there=there)
        for partition, offset in begun.items():
            if isinstance(offset, KafkaError):
                self._set_aside(partition, offset.reason, f"source: {offset}")
            else:
                self._note(Begun(partition=partition, position=offset))
        for partition in resets.keys() - begun.keys():
            self._set_aside(
                partition,
                PartitionReason.NO_POSITION,
                "there is no stored position and auto.offset.reset is none",
            )

    def _came_later(self, partition: TopicPartition, topics: Topics) -> bool:
        mark = self.positions.control.topics.get(partition.topic)
        return came_later(partition, topics[partition.topic], mark)

    def _set_aside(self, partition: TopicPartition, reason: str, message: str) -> None:
        retry_at = self.clock.monotonic() + BLOCKER_RETRY_SECONDS
        self._note(SetAside(partition=partition, reason=reason, message=message, retry_at=retry_at))

    def _note(self, event: Event) -> None:
        self.table.apply(event, self.clock.monotonic())
