"""Where a partition without a stored position begins: at the committed offset of a group, at a time, or by
MM2's reset policy; partitions that are newer than the flow begin at their first record.

Gives every partition its position: the stored one, or a start position.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from twinlog.clock import Clock, SystemClock
from twinlog.config import AutoOffsetReset
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, Topics
from twinlog_source.log.facts import TopicFact
from twinlog_source.partitions.events import Begun, PositionRead
from twinlog_source.reasons import PartitionReason
from twinlog_source.topics.flow_book import FlowBook

_WITHOUT_MEMBERS = frozenset(("EMPTY", "DEAD"))
"""States of a group; DEAD also means that it never existed."""


def came_later(partition: TopicPartition, topic: ReplicatedTopic, mark: TopicFact | None) -> bool:
    """Whether it appeared after the flow had started. Such topics and partitions are always copied from their
    first record, because nothing of them was meant to be left out."""
    later_partition = mark is not None and partition.partition >= mark.known_partitions
    return topic.created_after_start or later_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPositions:
    source: KafkaCluster
    read_committed: bool
    group: str = ""
    """A consumer group of the source; empty = none."""
    time_ms: int | None = None
    ago_ms: int = 0
    """What BY_DURATION means."""
    clock: Clock = field(default_factory=SystemClock)

    @property
    def are_told(self) -> bool:
        """Whether start positions are configured: another replicator copied what lies before."""
        return bool(self.group) or self.time_ms is not None

    async def begin(
        self, resets: Mapping[TopicPartition, AutoOffsetReset], *, were_there: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """Where partitions begin now: those that `were_there` when the flow began at the group's offsets or
        at the time, all others as `resets` says. With `none` a partition has no entry. Raises KafkaError."""
        found: dict[TopicPartition, int | KafkaError] = {}
        asked = set(were_there)
        if self.group and asked:
            found.update(await self._committed(asked))
        if self.time_ms is not None and (asked := asked - found.keys()):
            found.update(await self._at(self.time_ms, asked))
        rest = {partition: reset for partition, reset in resets.items() if partition not in found}
        return {**found, **await self.resolve(rest)}

    async def _committed(self, asked: Collection[TopicPartition]) -> dict[TopicPartition, int | KafkaError]:
        """The offsets of a group without members. While it has members, records that they have copied since
        their last commit would be copied twice."""
        described = (await self.source.describe_groups([self.group]))[self.group]
        if isinstance(described, KafkaError):
            return dict.fromkeys(asked, described)
        if described.state not in _WITHOUT_MEMBERS:
            active = TransientKafkaError(
                f"group {self.group} of twinlog.start.group has members: stop the replicator that uses it",
                reason=PartitionReason.START_GROUP_ACTIVE,
            )
            return dict.fromkeys(asked, active)
        committed = (await self.source.group_offsets([self.group]))[self.group]
        if isinstance(committed, KafkaError):
            return dict.fromkeys(asked, committed)
        return {partition: committed[partition].next_offset for partition in asked if partition in committed}

    async def _at(
        self, time_ms: int, asked: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError]:
        """The end where there is no record of that time yet."""
        found = await self.source.offsets_for_times(dict.fromkeys(asked, time_ms))
        none_yet = [partition for partition in asked if found[partition] is None]
        ends = await self.resolve(dict.fromkeys(none_yet, AutoOffsetReset.LATEST))
        return {p: offset if offset is not None else ends[p] for p, offset in found.items()}

    async def resolve(
        self, resets: Mapping[TopicPartition, AutoOffsetReset]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """The offset that each reset means now. With `none` a partition has no entry. Raises KafkaError."""
        latest = OffsetSpec.LAST_STABLE if self.read_committed else OffsetSpec.LATEST
        found: dict[TopicPartition, int | KafkaError] = {}
        for reset, spec in (
            (AutoOffsetReset.EARLIEST, OffsetSpec.EARLIEST),
            (AutoOffsetReset.LATEST, latest),
        ):
            asked: Collection[TopicPartition] = [p for p, wanted in resets.items() if wanted is reset]
            if asked:
                found.update(await self.source.list_offsets(spec, asked))
        asked = [p for p, wanted in resets.items() if wanted is AutoOffsetReset.BY_DURATION]
        if asked:
            found.update(await self._at(max(0, self.clock.now_ms() - self.ago_ms), asked))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionFinder:
    book: FlowBook
    starts: StartPositions
    reset: AutoOffsetReset
    """For partitions that existed when the flow began."""

    async def find(self, topics: Topics) -> None:
        """Give positions to partitions without one; those that cannot have one now are set aside for a while.
        Raises KafkaError."""
        now = self.book.clock.monotonic()
        missing = [
            partition
            for partition, row in self.book.table.rows.items()
            if row.position is None and (row.blocker is None or row.blocker.retry_at <= now)
        ]
        if not missing:
            return
        stored = await self.book.positions.refresh()
        resets: dict[TopicPartition, AutoOffsetReset] = {}
        for partition in missing:
            unreadable = self.book.positions.unreadable.get(partition)
            if unreadable is not None:
                self.book.set_aside(
                    partition,
                    PartitionReason.POSITION_UNREADABLE,
                    f"the stored position is damaged: {unreadable}",
                )
            elif partition in stored:
                read = PositionRead(
                    partition=partition,
                    position=stored[partition],
                    leader_epochs=self.book.control.leader_epochs.get(partition, ()),
                    wrote_nothing=partition in self.book.positions.nothing_written,
                )
                self.book.note(read)
            elif (
                copy := self.book.marks.copy_of(partition, topics[partition.topic])
            ) is not None and copy.preserved:
                # It has begun: a reset could skip records that were not copied yet.
                self.book.note(Begun(partition=partition, position=copy.begins_at))
            else:
                came_later = self._came_later(partition, topics)
                resets[partition] = AutoOffsetReset.EARLIEST if came_later else self.reset
        there = [partition for partition in resets if not self._came_later(partition, topics)]
        begun = await self.starts.begin(resets, were_there=there)
        unwritten = await self._unwritten(begun, topics)
        for partition, offset in begun.items():
            if isinstance(offset, KafkaError):
                self.book.set_aside(partition, offset.reason, f"source: {offset}")
            else:
                wrote_nothing = partition in unwritten
                self.book.note(Begun(partition=partition, position=offset, wrote_nothing=wrote_nothing))
        for partition in resets.keys() - begun.keys():
            self.book.set_aside(
                partition,
                PartitionReason.NO_POSITION,
                "there is no stored position and auto.offset.reset is none",
            )

    async def _unwritten(
        self, begun: Collection[TopicPartition], topics: Topics
    ) -> frozenset[TopicPartition]:
        """Those to whose copies the flow has written nothing, whatever its log has lost: the source or the
        copy never had a record. Raises KafkaError."""
        if self.book.flow.policy.tracks_topic_sources:
            return frozenset()  # Nobody asks.
        copies = {each: TopicPartition(topics[each.topic].target_topic, each.partition) for each in begun}
        ends = await self.book.source.list_offsets(OffsetSpec.LATEST, begun) if copies else {}
        there = await self.book.target.list_offsets(OffsetSpec.LATEST, copies.values()) if copies else {}
        return frozenset(each for each, copy in copies.items() if 0 in (ends[each], there[copy]))

    def _came_later(self, partition: TopicPartition, topics: Topics) -> bool:
        mark = self.book.control.topics.get(partition.topic)
        return came_later(partition, topics[partition.topic], mark)
