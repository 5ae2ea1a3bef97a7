"""A compacted topic with one partition as a dictionary: what Twinlog remembers is kept in such topics.

Several tables may share a topic: each has keys of its own and skips the others. A key has one writer.

Invariant: after `load` returned, `rows` has the newest value of each key that the log had at the call, or
what this table has put since. A load that fails changes nothing: no part is taken for the whole.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

from twinlog.errors import KafkaError, WireFormatError, required
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.deadline import pause
from twinlog.kafka.ports import KafkaCluster, LogReader, ManagedWriter, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import records_to
from twinlog.model import Record, TopicPartition

K = TypeVar("K")
V = TypeVar("V")

STALE_SECONDS = 1800.0
"""Half of the time for which a tombstone stays on the topic (`COMPACTED_SOON`). A table that was not loaded
for so long may have missed one, so it reads everything again."""
_AT_ONCE = 500
"""Records that are sent, or decoded, without a pause."""


class RowCodec(Protocol[K, V]):
    """How the rows of a table are stored. Pure; each method but `encode` may raise WireFormatError: a value
    of a later format is refused, because to overwrite it would lose its meaning."""

    def decode_key(self, key: bytes) -> K | None:
        """None for a key that is not the table's."""
        ...

    def decode_value(self, key: K, value: bytes) -> V: ...

    def encode(self, key: K, value: V | None) -> tuple[bytes, bytes | None]:
        """The record of a row; None is a tombstone."""
        ...


class Revision(NamedTuple):
    """A state of a table: what the log had before an offset."""

    topic_id: str
    """Empty where brokers have none."""
    leader_epoch: int
    """Under which the log was read. A later leader may have lost its end, and written another one."""
    next_offset: int
    """The next offset to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """How far a log was read. Pure."""

    revision: Revision
    seen_end: int
    """The log has reached this end, as read or as written by this process."""
    at_seconds: float
    """When that was; monotonic."""

    def resume(self, start: int, now_at: Revision, *, now: float) -> int | None:
        """Where reading goes on in the log as it is now, up to its end. None: at its start, because it is
        another topic, has another leader, has lost its tail or its beginning, or was not read for too
        long."""
        read = self.revision
        is_same = read[:2] == now_at[:2] and start <= read.next_offset and self.seen_end <= now_at.next_offset
        return read.next_offset if is_same and now - self.at_seconds < STALE_SECONDS else None


@dataclass(slots=True, kw_only=True)
class Table(Generic[K, V]):
    """To follow another writer, call `load` again: it reads what is new. One call at a time is served."""

    cluster: KafkaCluster
    topic: str
    codec: RowCodec[K, V]
    replication_factor: int = -1
    """Used to create the topic; -1 = the cluster's default."""
    keeps: bool = False
    """What was read stays known if the topic is deleted, created again without a row of the table, or loses
    its tail: one process owns the table, and writes it again."""
    rows: Mapping[K, V] = field(default_factory=dict)
    _unsure: set[K] = field(default_factory=set)
    """Keys of which it is not known whether the log has what was sent last: they are written again."""
    _lost: set[K] = field(default_factory=set)
    """Keys of which the topic has not what is known (`keeps`)."""
    _is_trusted: bool = True
    """Nobody else can have written the rows since they were read."""
    _place: LogPlace | None = None
    _exists: bool = False
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def load(self) -> Mapping[K, V]:
        """Return the rows; none without a topic.

        Raises KafkaError (transient, if the leader shows less than the log has), or WireFormatError with
        topic and offset for a row that this release cannot read.
        """
        async with self._busy:
            return await self._load()

    @property
    def revision(self) -> Revision | None:
        """What was read; None before the first `load`, and without a topic."""
        return None if self._place is None else self._place.revision

    @property
    def is_read_back(self) -> bool:
        """Whether `rows` are those of `revision`: nothing was put since."""
        return self._place is not None and self._place.seen_end == self._place.revision.next_offset

    async def take(
        self, records: Mapping[bytes, bytes | None], revision: Revision, *, is_whole: bool
    ) -> None:
        """Take what another process has read from the topic: the newest values since `self.revision`, None
        for rows that are gone, or all rows. The next `load` reads on from `revision`.

        Raises WireFormatError for a row that this release cannot read; then nothing changes.
        """
        async with self._busy:
            rows: dict[K, V] = {} if is_whole else dict(self.rows)
            newest = {
                key: Record(offset=-1, timestamp_ms=-1, key=raw, value=value)
                for raw, value in records.items()
                if (key := self.codec.decode_key(raw)) is not None
            }
            await self._take(newest, rows)
            self._keep(rows, revision, asyncio.get_running_loop().time())

    async def _load(self) -> Mapping[K, V]:
        found = (await self.cluster.describe_topics([self.topic]))[self.topic]
        if isinstance(found, KafkaError):
            if found.reason != KafkaReason.TOPIC_UNKNOWN:
                raise found
            self._lose()
            return self.rows
        now = asyncio.get_running_loop().time()
        partition = TopicPartition(self.topic, 0)
        # The log's end, not the last stable offset: an open transaction must not hide rows.
        start = required((await self.cluster.list_offsets(OffsetSpec.EARLIEST, [partition]))[partition])
        end, leader_epoch = required((await self.cluster.log_ends([partition]))[partition])
        revision = Revision(found.topic_id, leader_epoch, end)
        place = None if self._place is None else self._place.resume(start, revision, now=now)
        rows = {} if place is None else dict(self.rows)
        offset = start if place is None else place
        newest: Mapping[K, Record] = {}
        if offset < end:
            async with self.cluster.reader() as reader:
                newest = await self._newest(reader, partition, offset, end)
            await self._take(newest, rows)
        if place is None:
            lost = self._lost_in(revision, rows)
            rows = dict(self.rows) if lost else rows
        else:
            lost = self._lost - newest.keys()
        self._keep(rows, revision, now)
        self._lost = lost
        return rows

    def _lost_in(self, now_at: Revision, rows: Mapping[K, V]) -> set[K]:
        """Keys of which the log, which has these rows, does not say what is known; none where another process
        has written them again."""
        if not (self.keeps and self._is_trusted):
            return set()
        place = self._place
        is_same = place is not None and place.revision.topic_id == now_at.topic_id
        if is_same and place is not None and place.seen_end > now_at.next_offset:
            return self.rows.keys() | rows.keys()
        if not (is_same or rows):
            return set(self.rows)
        own = (self.rows.keys() - self._lost) | self._unsure  # An earlier try may have written these.
        return set(self._lost) if rows.keys() <= own else set()

    def _lose(self) -> None:
        """The topic was deleted."""
        known = self.rows if self.keeps and self._is_trusted else {}
        self.forget()
        self.rows = known
        self._lost.update(known)

    def distrust(self) -> None:
        """The owner before may have written the table since it was read here: the next `load` believes the
        topic alone."""
        self._place, self._is_trusted = None, False
        self._lost.clear()

    async def write_again(self) -> bool:
        """Write what the topic has lost; return whether there was something. For the owner, after `load`.
        Raises KafkaError."""
        async with self._busy:
            return bool(await self._put([{key: self.rows.get(key) for key in self._lost}]))

    def _keep(self, rows: Mapping[K, V], revision: Revision, now: float) -> None:
        self.rows, self._exists = rows, True
        self._unsure.clear()
        self._is_trusted = True
        self._place = LogPlace(revision=revision, seen_end=revision.next_offset, at_seconds=now)

    def forget(self) -> None:
        """The next `load` reads everything."""
        self.rows, self._place, self._exists, self._is_trusted = {}, None, False, True
        self._unsure.clear()
        self._lost.clear()

    async def create(self) -> None:
        """Create the topic if it does not exist. Costs nothing once it was seen. Raises KafkaError."""
        if not self._exists:
            await ensure_compacted_topic(
                self.cluster, self.topic, replication_factor=self.replication_factor, is_read_whole=True
            )
            self._exists = True

    async def put(self, *steps: Mapping[K, V | None]) -> int:
        """Write these rows in order, and drop those that are None, where they differ from what is known. A
        step begins when the topic has all of the one before. Return how many records there were.

        The topic is created if it is not there. Raises KafkaError; then some rows may be stored, and calling
        it again is safe.
        """
        async with self._busy:
            return await self._put(steps)

    async def replace(self, rows: Mapping[K, V]) -> int:
        """As `put`, and drop every other row."""
        async with self._busy:
            known = self.rows.keys() | self._unsure | self._lost
            gone: dict[K, V | None] = dict.fromkeys(known - rows.keys())
            return await self._put([gone | {**rows}])

    async def _put(self, steps: Iterable[Mapping[K, V | None]]) -> int:
        due = [
            [
                (key, value)
                for key, value in step.items()
                if key in self._unsure or key in self._lost or self.rows.get(key) != value
            ]
            for step in steps
        ]
        if any(due):
            await self.create()
            async with self.cluster.writer() as writer:
                for step in due:
                    for begin in range(0, len(step), _AT_ONCE):
                        await self._append(writer, step[begin : begin + _AT_ONCE])
        return sum(map(len, due))

    async def _newest(
        self, reader: LogReader, partition: TopicPartition, offset: int, end: int
    ) -> Mapping[K, Record]:
        """The newest record of each key; older ones are not decoded."""
        newest: dict[K, Record] = {}
        async for record in records_to(reader, partition, offset, end):
            try:
                key = None if record.key is None else self.codec.decode_key(record.key)
            except WireFormatError as error:
                raise self._at(record, error) from error
            if key is not None:
                newest[key] = record
        return newest

    async def _take(self, newest: Mapping[K, Record], rows: dict[K, V]) -> None:
        for number, (key, record) in enumerate(newest.items(), start=1):
            if number % _AT_ONCE == 0:
                await pause(0)  # One turn of the loop: others run meanwhile.
            if record.value is None:
                rows.pop(key, None)
                continue
            try:
                rows[key] = self.codec.decode_value(key, record.value)
            except WireFormatError as error:
                raise self._at(record, error) from error

    async def _append(self, writer: ManagedWriter, changes: Iterable[tuple[K, V | None]]) -> None:
        partition = TopicPartition(self.topic, 0)
        rows, failures = dict(self.rows), list[KafkaError]()

        async def append(key: K, value: V | None) -> None:
            raw, stored = self.codec.encode(key, value)
            self._unsure.add(key)
            try:
                offset = await writer.append(partition, key=raw, value=stored)
            except KafkaError as error:
                failures.append(error)
                return
            self._unsure.discard(key)
            self._lost.discard(key)
            self._note(offset)
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value

        try:
            async with asyncio.TaskGroup() as group:
                for number, (key, value) in enumerate(changes):
                    group.create_task(append(key, value), name=f"put {self.topic} {number}")
        finally:
            self.rows = rows  # Also when it is cancelled.
        for error in failures:
            if error.reason == KafkaReason.TOPIC_UNKNOWN:
                self._lose()  # It was deleted: the next `put` creates it and writes everything.
            raise error

    def _note(self, offset: int) -> None:
        if self._place is not None:
            self._place = replace(self._place, seen_end=max(self._place.seen_end, offset + 1))

    def _at(self, record: Record, error: WireFormatError) -> WireFormatError:
        return WireFormatError(
            f"{self.topic} at offset {record.offset}: {error}",
            reason=error.reason,
            metadata={**error.metadata, "topic": self.topic, "offset": str(record.offset)},
        )
