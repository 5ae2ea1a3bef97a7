"""The positions of a flow, read from `mm2-offsets.<A>.internal` in MM2's own format; a position of 0, which
that format cannot express, comes from a fact.

Invariant: after `refresh` returned, `positions` has for each partition the newest record that was committed
before the call, also if the topic was given more partitions. The topic is read whole once, and then only its
tail.

If the topic loses its tail (an unclean election on the target), or is deleted, a partition that ends before
what was read of it, or each one of the topic that was created again, is read from its start before anything
is returned. What only the former log had stays known to this process, unless the log has a newer record of
it, by its timestamp: the copies still have what was committed with such a position, and an operator's pause
was promised. About claims and signatures the log alone decides. The owner takes the flow over again, and
writes what it knows before it signs. Until then a process that starts knows only what the log has. A lost
tail is not noticed if the log has grown past what was read before it is looked at again.

Finds the newest record of a key in a topic that was given more partitions.

A key's partition follows from its hash and the number of partitions. After that number has changed, old and
new records of a key are in different partitions, which are read one after the other: the record that is read
last need not be the newest. The same holds when a partition lost its tail and is read again from its start:
what was lost may be newer than what is there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from twinlog.clock import Clock, SystemClock
from twinlog.errors import KafkaError, TransientKafkaError, WireFormatError, required
from twinlog.kafka.ports import LogReader, OffsetSpec, TopicDescription
from twinlog.kafka.whole_logs import StandsStillError, read_to
from twinlog.model import Record, TopicPartition
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import (
    NOTHING_WRITTEN,
    SOURCE_CONNECTOR,
    decode_source_offset,
    decode_source_offset_key,
)
from twinlog_source.log.control import ControlState
from twinlog_source.log.fact_records import control_key, parse_control
from twinlog_source.log.fact_records import is_about_ids as is_about_ids_of
from twinlog_source.log.facts import MOST_FORMER_IDS, Fact, OwnerFact
from twinlog_source.log.gaps import Gap, GapIdentity, parse_gap, parse_gap_identity


@dataclass(slots=True)
class NewestRecords:
    """Within a partition the order of the log counts. Between two partitions the timestamp counts; for equal
    timestamps, the partition that the key has now. Records of a lost tail count as those of another
    partition."""

    _newest: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Key -> partition (its complement, ~n: read before it lost its tail) and timestamp of its newest
    record."""

    def is_superseded(
        self, key: bytes | None, partition: int, timestamp_ms: int, *, partition_count: int
    ) -> bool:
        """Whether a newer record of this key was already read; otherwise this one becomes the newest."""
        if key is None:
            return False
        before = self._newest.get(key)
        if before is not None and before[0] != partition and before[1] >= timestamp_ms:
            home = partition_for_key(key, partition_count)
            if (before[1], before[0] == home) >= (timestamp_ms, partition == home):
                return True
        self._newest[key] = partition, timestamp_ms
        return False

    def read_again(self, partition: int) -> None:
        """The partition has lost its tail and is read again from its start."""
        self._move(partition, ~partition)

    def was_read_again(self, partition: int) -> None:
        """All of the partition was read again: what follows is newer than what it has lost."""
        self._move(~partition, partition)

    def _move(self, before: int, after: int) -> None:
        for key, (partition, timestamp_ms) in self._newest.items():
            if partition == before:
                self._newest[key] = after, timestamp_ms

    def forget(self, keys: Iterable[bytes]) -> None:
        """Forget these keys: every partition was read to its end, so no older record of them will come; or
        the order of reading is to decide about them."""
        for key in keys:
            self._newest.pop(key, None)

    def __len__(self) -> int:
        return len(self._newest)


FETCH_MAX_BYTES = 4 << 20
OPEN_SECONDS = 60.0
"""Longer than the open transaction of a dead owner can last."""
STALE_SECONDS = 1800.0
"""Half of the time for which a tombstone stays on the topic (`COMPACTED_SOON`)."""

log = structlog.get_logger(__name__)

ListOffsets = Callable[
    [OffsetSpec, Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int | KafkaError]]
]


@dataclass(slots=True, kw_only=True)
class PositionsLog:
    list_offsets: ListOffsets
    reader: LogReader
    topic: str
    partition_count: int
    source_alias: str
    connector_name: str = SOURCE_CONNECTOR
    clock: Clock = field(default_factory=SystemClock)
    gaps: dict[GapIdentity, Gap] = field(default_factory=dict)
    """The gap ledger read so far."""
    control: ControlState = field(default_factory=ControlState)
    """The facts read so far."""
    written_at_ms: dict[TopicPartition, int] = field(default_factory=dict)
    """The timestamp of the newest position of each partition, by its writer's clock."""
    written_at: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Where the newest position of each partition is stored: partition number of this topic, and offset."""
    written_by: dict[TopicPartition, int] = field(default_factory=dict)
    """The producer id of the newest position of each partition; -1 for a producer that is not idempotent."""
    nothing_written: set[TopicPartition] = field(default_factory=set)
    """Partitions whose newest position says that the flow had written nothing to the copy by then."""
    parsed: int = 0
    """How many records were parsed so far; those that a later one of the same fetch supersedes are not."""
    unreadable: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions whose newest record is not a valid position, with the reason. They must not be copied."""
    ids_by: dict[bytes, int | None] = field(default_factory=dict)
    """By key of the records about ids: the producer id that wrote it; None = none, or it cannot be read. The
    writers of the flow name themselves first, so any other is a stranger."""
    is_read: bool = False
    """The log was read to its end at least once."""
    has_lost: bool = False
    """The log does not have all that is known: it lost its tail, or another topic has its name now."""
    former_topics: tuple[str, ...] = ()
    """As in `OwnerFact`."""
    topic_id: str = ""
    """Of the topic that has the name now, as far as it was noted."""
    _lost_topics: tuple[str, ...] = ()
    """The topics that had the name before, and whose records nobody has written again."""
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Two concurrent readers would apply old records after new ones."""
    newest: NewestRecords = field(default_factory=NewestRecords)
    _removed_gaps: set[bytes] = field(default_factory=set)
    """Keys that were removed from the ledger: a copy that is slower than retention keeps creating them."""
    _next: dict[int, int] = field(default_factory=dict)
    _read_again_to: dict[int, int] = field(default_factory=dict)
    """Partitions that lost their tail and are being read again, with their ends when that was noticed."""
    _positions: dict[TopicPartition, int] = field(default_factory=dict)
    _read_at_ms: int = 0
    """From when on everything that was written has been read, or will be."""
    _may_have_missed: bool = False
    """For a while it was not read for so long that tombstones may be gone which were never read."""
    _subjects: dict[bytes, TopicPartition] = field(default_factory=dict)
    """The decoded keys of positions."""

    async def refresh(self) -> Mapping[TopicPartition, int]:
        """Read new records up to the end, however long that takes; return the next offset to copy of each
        partition.

        Waits for transactions that were open at the call, because what they commit counts. Raises KafkaError
        when a partition cannot be read: a position is never guessed; and TransientKafkaError
        (POSITIONS_UNSTABLE) when a transaction stays open for `OPEN_SECONDS`. Raises WireFormatError
        (WIRE_VERSION) for a record of a later release.
        """
        async with self._reading:
            # The log's end, not the last stable offset: an open transaction of another slot would hide what
            # was committed behind its beginning.
            await self._read_up_to(OffsetSpec.LATEST)
            self.newest.forget(self._removed_gaps)
            self._removed_gaps.clear()
            return self.known()

    def known(self) -> dict[TopicPartition, int]:
        """The next offset to copy of each partition, as read so far."""
        return {**dict.fromkeys(self.control.zeros.keys() - self.unreadable.keys(), 0), **self._positions}

    async def forget_if_stale(self, *, was_lost: bool = False) -> None:
        """Begin again if the topic was lost together with what it tells of, or was not read for so long that
        tombstones may be gone which were never read. Call it before the flow is taken over: until the log is
        read again, nothing is known."""
        async with self._reading:
            self._look_for_silence(now_ms := self.clock.now_ms())
            if not (self._may_have_missed or was_lost):
                return
            self._read_at_ms, self.is_read, self._may_have_missed = now_ms, False, False
            self.control.forget()
            self.newest = NewestRecords()
            self._removed_gaps.clear()
            for known in (
                self.gaps,
                self.written_at_ms,
                self.written_at,
                self.written_by,
                self.nothing_written,
                self.unreadable,
                self._next,
                self._read_again_to,
                self._positions,
            ):
                known.clear()

    def note_topic(self, topic: TopicDescription) -> None:
        """What has the name now. Brokers before 2.8 show no ids: there, a new topic has lost its tail."""
        if topic.topic_id and self.topic_id not in ("", topic.topic_id):
            log.warning("positions_topic_created_again", topic=self.topic)
            self.has_lost, self._lost_topics = True, (*self._lost_topics, self.topic_id)
            for number in tuple(self._next):
                self._read_again(number, 0)
        self.topic_id, self.partition_count = topic.topic_id, topic.partition_count

    def was_written_again(self) -> None:
        """The log has all that is known."""
        self.former_topics = (*self.former_topics, *self._lost_topics)[-MOST_FORMER_IDS:]
        self.has_lost, self._lost_topics = False, ()

    def _look_for_silence(self, now_ms: int) -> None:
        """Reading on afterwards brings back no tombstone, so it is remembered."""
        if self._next and now_ms - self._read_at_ms >= STALE_SECONDS * 1000:
            self._may_have_missed = True

    async def peek(self) -> None:
        """Read what is committed now, without waiting for open transactions. Raises as `refresh`."""
        async with self._reading:
            await self._read_up_to(OffsetSpec.LAST_STABLE)

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in range(self.partition_count)]

    async def _read_up_to(self, end: OffsetSpec) -> None:
        partitions = self._partitions()
        began_at_ms = self.clock.now_ms()
        self._look_for_silence(began_at_ms)
        starts = await self.list_offsets(OffsetSpec.EARLIEST, partitions)
        ends = await self.list_offsets(end, partitions)
        await self._notice_lost_tails({each: required(ends[each]) for each in partitions}, end)
        for partition in partitions:
            await self._read(partition, required(starts[partition]), required(ends[partition]))
        self.is_read = bool(partitions)
        self._read_at_ms = began_at_ms

    async def _notice_lost_tails(self, ends: Mapping[TopicPartition, int], spec: OffsetSpec) -> None:
        short = [each for each, end in ends.items() if end < self._next.get(each.partition, end)]
        if not short:
            return
        if spec is not OffsetSpec.LATEST:
            # A last stable offset may lie before what was read although nothing is lost.
            latest = await self.list_offsets(OffsetSpec.LATEST, short)
            ends = {each: required(latest[each]) for each in short}
        for each in short:
            number = each.partition
            if ends[each] >= self._next[number]:
                continue
            log.warning(
                "positions_lost_tail",
                topic=self.topic,
                partition=number,
                read_to=self._next[number],
                end=ends[each],
            )
            self.has_lost = True
            self._read_again(number, ends[each])

    def _read_again(self, number: int, end: int) -> None:
        del self._next[number]
        self._read_again_to[number] = end
        self.newest.read_again(number)
        # The clocks of two owners differ.
        self.newest.forget(control_key(self.source_alias, kind) for kind in ("claim", "owner"))

    async def _read(self, partition: TopicPartition, start: int, end: int) -> None:
        number = partition.partition
        offset = max(start, self._next.get(number, start))
        reading = read_to(
            self.reader, partition, offset, end, max_bytes=FETCH_MAX_BYTES, patience_seconds=OPEN_SECONDS
        )
        try:
            async for fetched in reading:
                self._take_all(fetched.records, number)
                offset = self._next[number] = fetched.next_offset
        except StandsStillError as error:
            latest = required((await self.list_offsets(OffsetSpec.LATEST, [partition]))[partition])
            if latest < end:
                raise  # The log has lost its tail meanwhile.
            raise TransientKafkaError(
                f"{partition}: a transaction stayed open for {OPEN_SECONDS:g} s, before offset {latest}",
                reason="POSITIONS_UNSTABLE",
                metadata={"topic": self.topic},
            ) from error
        # A last stable offset is not enough: a transaction whose end was lost is open again, and hides old
        # records.
        if offset >= self._read_again_to.get(number, offset + 1):
            del self._read_again_to[number]
            self.newest.was_read_again(number)

    def _take_all(self, records: Iterable[Record], number: int) -> None:
        """Take what was fetched: of each key only the newest record is parsed, because a position is
        superseded soon. Of claims each one counts."""
        claim_key = control_key(self.source_alias, "claim")
        kept: dict[tuple[bytes | None, int], Record] = {}
        for record in records:
            key = record.key
            if not self.newest.is_superseded(
                key, number, record.timestamp_ms, partition_count=self.partition_count
            ):
                is_single = key is None or key == claim_key
                kept[key, record.offset if is_single else -1] = record
        for record in kept.values():
            self._apply(record, number)

    def _subject(self, key: bytes | None) -> TopicPartition | None:
        """The partition of a position of this flow; None for every other record."""
        known = self._subjects.get(key or b"")
        if known is None:
            decoded = decode_source_offset_key(key, connector=self.connector_name)
            if key is not None and decoded is not None and decoded.cluster == self.source_alias:
                known = self._subjects[key] = decoded.partition
        return known

    def _apply(self, record: Record, number: int) -> None:
        self.parsed += 1
        is_about_ids = record.value is not None and is_about_ids_of(self.source_alias, record.key)
        if record.key is not None and is_about_ids:
            self.ids_by[record.key] = None
        partition = self._subject(record.key)
        try:
            if partition is not None:
                self._take(partition, decode_source_offset(record.value))
                self.written_at_ms[partition] = record.timestamp_ms
                self.written_at[partition] = number, record.offset
                self.written_by[partition] = record.producer_id
                if any(name == NOTHING_WRITTEN for name, _ in record.headers):
                    self.nothing_written.add(partition)
                else:
                    self.nothing_written.discard(partition)
            elif (identity := parse_gap_identity(self.source_alias, record.key)) is not None:
                self._take_gap(identity, record)
            elif (control := parse_control(self.source_alias, record.key, record.value)) is not None:
                self.control.apply(control)
                self._note_signature(control.fact)
                if record.key is not None and is_about_ids and record.producer_id >= 0:
                    self.ids_by[record.key] = record.producer_id
        except WireFormatError as error:
            if error.reason == "WIRE_VERSION":
                # A pause or a loss that cannot be parsed must not be ignored.
                raise
            log.warning("position_unreadable", topic=self.topic, offset=record.offset, error=str(error))
            if partition is not None:
                self.unreadable[partition] = str(error)

    def _note_signature(self, fact: Fact | None) -> None:
        """An owner that names the former topic has written again what was there: it may have removed before
        what is known here."""
        if not isinstance(fact, OwnerFact) or not fact.former_topics:
            return
        self.former_topics = fact.former_topics
        if self._lost_topics and set(self._lost_topics) <= set(fact.former_topics):
            self.has_lost, self._lost_topics, self._may_have_missed = False, (), True

    def _take_gap(self, identity: GapIdentity, record: Record) -> None:
        gap = parse_gap(self.source_alias, record.key, record.value)
        if gap is not None:
            self.gaps[identity] = gap
            self._removed_gaps.discard(record.key or b"")
        elif record.value is None:
            self.gaps.pop(identity, None)
            self._removed_gaps.add(record.key or b"")

    def _take(self, partition: TopicPartition, position: int | None) -> None:
        self.unreadable.pop(partition, None)
        if position is None:
            self._positions.pop(partition, None)
        else:
            self._positions[partition] = position
