"""The driver's own records on the positions topic: facts, and positions of partitions that no task has.

The gap ledger while the flow runs: writes every gap to the log, counts it, logs it once, and bounds the
ledger.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.ports import LogWriter
from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.log.control import ControlState
from twinlog_source.log.fact_records import control_key, fact_record, partition_key
from twinlog_source.log.facts import (
    MOST_FORMER_IDS,
    CopyFact,
    Fact,
    PauseFact,
    ThrottleFact,
    TopicFact,
    ZeroFact,
)
from twinlog_source.log.gaps import Gap, GapIdentity, gap_key, gap_record, tidied
from twinlog_source.log.positions import PositionsLog

Subject = tuple[str, str | None, int | None]
"""Kind, topic and partition of a fact."""
COMMAND_SECONDS = 10.0
"""The longest time to store an operator's command. It is less than the deadline of a call, so that the answer
can name the cluster that did not take it."""


@dataclass(slots=True, kw_only=True)
class Journal:
    """Appends to the positions topic; each call returns when the record is replicated. All methods raise
    KafkaError."""

    flow: Flow
    connector_name: str
    topic: str
    writer: LogWriter
    clock: Clock
    partition_count: int = 0
    """Known once the topic exists."""

    async def record(self, fact: Fact) -> None:
        await self.append(*fact_record(self.flow.source, fact))

    async def record_all(self, facts: Iterable[Fact]) -> None:
        """Write many facts; they share requests."""
        await self._append_all(fact_record(self.flow.source, fact) for fact in facts)

    async def retract(self, kind: str, topic: str | None = None, partition: int | None = None) -> None:
        await self.append(control_key(self.flow.source, kind, topic, partition), None)

    async def command(self, subject: Subject, fact: PauseFact | ThrottleFact | None) -> None:
        """Store an operator's command, or withdraw it (None), within `COMMAND_SECONDS`. If this fails, the
        record may be on the log, or reach it later: then it counts, as whoever reads the log sees."""
        value = None if fact is None else fact_record(self.flow.source, fact)[1]
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                await self.append(control_key(self.flow.source, *subject), value)
        except TimeoutError:
            raise TransientKafkaError(
                f"cluster {self.flow.target}: append to {self.topic}: no answer within {COMMAND_SECONDS:g} s",
                reason="KAFKA_TIMEOUT",
                metadata={"cluster": self.flow.target, "topic": self.topic},
            ) from None

    async def gap(self, gap: Gap) -> None:
        await self.append(*gap_record(self.flow, gap))

    async def gaps(self, gaps: Iterable[Gap]) -> None:
        """Write many; they share requests."""
        await self._append_all(gap_record(self.flow, gap) for gap in gaps)

    async def remove_gaps(self, identities: Iterable[GapIdentity]) -> None:
        """Remove gaps from the ledger."""
        await self._append_all((gap_key(self.flow, identity), None) for identity in identities)

    async def position(self, partition: TopicPartition, position: int) -> None:
        """Call it only while no task has the partition."""
        if not position:
            # Write this first: with neither of the two records, auto.offset.reset would decide.
            await self.record(ZeroFact(partition=partition))
        key = source_offset_key(self.flow.source, partition, connector=self.connector_name)
        await self.append(key, encode_source_offset(position))
        if position:
            await self.append(partition_key(self.flow.source, "zero", partition), None)
        await self.append(partition_key(self.flow.source, "epochs", partition), None)

    async def positions(self, known: Mapping[TopicPartition, int]) -> None:
        """Store what the log has already, without a word on what was written."""
        await self._append_all(self._of_positions(known))

    def _of_positions(self, known: Mapping[TopicPartition, int]) -> Iterator[tuple[bytes, bytes | None]]:
        for partition, position in known.items():
            key = source_offset_key(self.flow.source, partition, connector=self.connector_name)
            yield key, encode_source_offset(position)

    async def write_again(self, known: PositionsLog) -> None:
        """The log has lost what this process has read of it. Producers go first: a position of one that is
        not named would count as somebody else's."""
        await self.record_all(known.control.producers.values())
        await self._append_all(
            [
                *(fact_record(self.flow.source, fact) for fact in known.control.to_write_again()),
                *(gap_record(self.flow, gap) for gap in known.gaps.values()),
                *self._of_positions(known.known()),
            ]
        )
        log.warning("positions_written_again", flow=str(self.flow), topic=self.topic)

    async def _append_all(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for key, value in records:
                    group.create_task(self.append(key, value), name="append to the positions topic")
        except* KafkaError as failures:
            raise failures.exceptions[0] from None

    async def append(self, key: bytes, value: bytes | None) -> None:
        await self.writer.append(self.place_of(key), key=key, value=value, timestamp_ms=self.clock.now_ms())

    def place_of(self, key: bytes) -> TopicPartition:
        return TopicPartition(self.topic, partition_for_key(key, self.partition_count))


log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Ledger:
    flow: Flow
    journal: Journal
    positions: PositionsLog
    on_gap: Callable[[Gap], None]
    _grown: set[TopicPartition] = field(default_factory=set)
    """Partitions with new gaps since the ledger was last tidied."""
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Ranges that are being acknowledged; they are not joined meanwhile."""

    async def write(self, gap: Gap) -> None:
        """Write a gap that the driver found; an empty one is ignored. Raises KafkaError."""
        if gap.from_offset >= gap.to_offset:
            return
        gap = self._of_topic(gap)
        await self.journal.gap(gap)
        self.enter(gap)

    async def write_all(self, gaps: Sequence[Gap]) -> Sequence[Gap]:
        """Write gaps that the caller enters later, and return what is to be entered. Raises KafkaError."""
        written = [self._of_topic(gap) for gap in gaps]
        await self.journal.gaps(written)
        return written

    def _of_topic(self, gap: Gap) -> Gap:
        mark = self.positions.control.topics.get(gap.partition.topic)
        return gap if gap.topic_id or mark is None else replace(gap, topic_id=mark.topic_id)

    def enter(self, gap: Gap) -> None:
        """Enter a gap that is already on the log."""
        gap = self._of_topic(gap)
        self.positions.gaps[gap.identity] = gap
        self._grown.add(gap.partition)
        self.on_gap(gap)
        log.warning(
            "data_gap",
            flow=str(self.flow),
            topic=gap.partition.topic,
            partition=gap.partition.partition,
            from_offset=gap.from_offset,
            to_offset=gap.to_offset,
            reason=gap.reason,
        )

    async def acknowledge(
        self, is_meant: Callable[[Gap], bool], *, by: str, now_ms: int
    ) -> tuple[Gap, ...] | None:
        """Acknowledge these gaps; return those that were not acknowledged before, None when no gap matches.
        For the flow's owner. Raises KafkaError."""
        async with self._changing:
            held = self.positions.gaps
            meant = [gap for gap in held.values() if is_meant(gap)]
            new = [gap for gap in meant if not gap.acknowledged_by]
            acknowledged = tuple(replace(gap, acknowledged_by=by, acknowledged_at_ms=now_ms) for gap in new)
            await self.journal.gaps(acknowledged)
            for before, gap in zip(new, acknowledged, strict=True):
                # Not if the gap was found again meanwhile: nobody has seen the new one.
                if held.get(gap.identity) is before:
                    held[gap.identity] = gap
        return acknowledged if meant else None

    async def tidy(self, *, everything: bool = False) -> None:
        """Join ranges (see `tidied`) of partitions with new gaps, or of all. For the flow's owner. Raises
        KafkaError; the next call continues.

        A joined range is written before its parts are removed. A crash in between leaves both, and loses
        nothing.
        """
        async with self._changing:
            await self._tidy(everything=everything)

    async def _tidy(self, *, everything: bool) -> None:
        grown, self._grown = self._grown, set()
        gaps = self.positions.gaps
        before = {identity: gap for identity, gap in gaps.items() if everything or gap.partition in grown}
        after = {gap.identity: gap for gap in tidied(before.values())}
        joined = {identity: gap for identity, gap in after.items() if before.get(identity) != gap}
        held = before.keys() - after.keys()
        try:
            await self.journal.gaps(joined.values())
            await self.journal.remove_gaps(held)
        except BaseException:
            self._grown |= grown
            raise
        # Not those that were found again meanwhile: the next call joins them.
        unchanged = {identity for identity, gap in before.items() if gaps.get(identity) is gap}
        gaps.update((identity, gap) for identity, gap in joined.items() if identity in unchanged)
        for identity in held & unchanged:
            del gaps[identity]


# The recorded identity of each topic of a flow and of its copy.


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdentities:
    """All methods that write raise KafkaError."""

    flow: Flow
    control: ControlState
    journal: Journal

    def source_was_recreated(self, topic: ReplicatedTopic) -> bool:
        """Whether the source topic is another one than that of its positions. An unknown id is no other
        one."""
        mark = self.control.topics.get(topic.source_topic)
        before = "" if mark is None else mark.topic_id
        return bool(before) and bool(topic.source_topic_id) and before != topic.source_topic_id

    def target_was_recreated(self, topic: ReplicatedTopic) -> bool:
        """Whether the copy is another topic than the one that was written before."""
        mark = self.control.topics.get(topic.source_topic)
        before = "" if mark is None else mark.target_topic_id
        return bool(before) and bool(topic.target_topic_id) and before != topic.target_topic_id

    def copy_of(self, partition: TopicPartition, topic: ReplicatedTopic) -> CopyFact | None:
        """The kind of the partition's copy; None when it is not on the log, or belongs to an earlier target
        topic."""
        fact = self.control.copies.get(partition)
        return fact if fact is not None and fact.target_topic_id == topic.target_topic_id else None

    def has_new_target(self, partition: TopicPartition, topic: ReplicatedTopic) -> bool:
        """Whether the decision about the copy belongs to an earlier target topic, and nothing was written to
        the present one since."""
        fact, mark = self.control.copies.get(partition), self.control.targets.get(partition)
        if fact is None or fact.target_topic_id in ("", topic.target_topic_id) or not topic.target_topic_id:
            return False
        return mark is None or mark.topic_id != topic.target_topic_id or not mark.end_offset

    async def record(self, topic: ReplicatedTopic, *, known_partitions: int) -> None:
        """Record the present topic and its copy; partitions from `known_partitions` on are newer than the
        flow. A source that shows no ids now does not make the topic another one."""
        before = self.control.topics.get(topic.source_topic)
        former_ids, since_ms = ((), 0) if before is None else (before.former_ids, before.since_ms)
        if before is not None and before.topic_id and topic.source_topic_id not in ("", before.topic_id):
            kept = [each for each in former_ids if each != topic.source_topic_id]
            former_ids = (*kept, before.topic_id)[-MOST_FORMER_IDS:]
            since_ms = self.journal.clock.now_ms()
        mark = TopicFact(
            topic=topic.source_topic,
            topic_id=topic.source_topic_id or ("" if before is None else before.topic_id),
            known_partitions=known_partitions,
            target_topic_id=topic.target_topic_id,
            former_ids=former_ids,
            since_ms=since_ms,
        )
        await self.journal.record(mark)
        self.control.record(mark)

    async def record_new(self, topics: Mapping[str, ReplicatedTopic]) -> None:
        """Record the topics that have no record yet, and ids that were unknown."""
        for topic in topics.values():
            mark = self.control.topics.get(topic.source_topic)
            if not topic.source_topic_id:
                continue
            if mark is None:
                await self.record(topic, known_partitions=topic.partition_count)
            elif not mark.topic_id:
                known = replace(mark, topic_id=topic.source_topic_id)
                await self.journal.record(known)
                self.control.record(known)
