"""Fills offsets of copies by aborted transactions, where the source has no record for consumers.

The end of a transaction writes one control record to each of its partitions: one offset that no consumer
sees. A short hole is filled by as many transactions, one after the other. A longer one gets empty records of
one transaction before its end; consumers with `read_uncommitted` see these. A former owner cannot fill any
more, because each new owner initialises the transactional id before it reads the end of any copy.

In which order transactions fill the holes of several partitions.

Each transaction writes one marker to each of its partitions. A hole joins the next transaction after it was
added, and leaves with its own last marker. So it waits for no longer hole of another partition, and for no
leader that is slow to show a marker.
"""

import asyncio
from asyncio import FIRST_COMPLETED
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.batches import Codec, NewRecord, OutgoingBatch, TargetTopicLimits, build_batch
from twinlog.batches.outgoing import Seal, sealed_header
from twinlog.errors import FatalKafkaError, KafkaError, StateError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.protocol.reach import LONGEST_THROTTLE_SECONDS
from twinlog.kafka.raw import (
    BatchReader,
    DataClientPool,
    ProducerIdentity,
    ProducerSettings,
    TransactionCoordinator,
)
from twinlog.kafka.raw.leaders import about, leader_of, partition_error, refresh_metadata
from twinlog.kafka.raw.produce.wire import SealedBatch, produce_request
from twinlog.model import TopicPartition
from twinlog.policy.expected_offsets import MOST_MARKERS
from twinlog_source.log.facts import FENCED
from twinlog_source.preserved.append_steps import PreservedReason
from twinlog_source.preserved.fill_limits import FILLER_RECORDS, FillLimit, batches_of, markers_of, next_batch
from twinlog_source.preserved.leader_filler import Ended, HoleLeaders, Holes, LeftOut, More, nothing_more
from twinlog_source.preserved.own_batches import is_marker_at

MORE_SECONDS = 0.02
"""How soon added holes are noticed while markers are looked for and nothing is written."""


@dataclass(slots=True)
class _Writing:
    """What is left to write of one hole."""

    empty: int
    """Empty records of the next transaction."""
    markers: int
    last: int
    """The last offset of the hole."""


@dataclass(slots=True, kw_only=True)
class FillWindow:
    """For one run."""

    filler: "Filler"
    most_partitions: int
    """Of one transaction."""
    _waiting: deque[tuple[TopicPartition, tuple[int, int]]] = field(default_factory=deque)
    _writing: dict[TopicPartition, _Writing] = field(default_factory=dict)
    _failures: list[KafkaError] = field(default_factory=list)

    async def run(self, holes: Holes, ended: Ended, left_out: LeftOut, more: More = nothing_more) -> None:
        """As `Filler.fill`. Ends when nothing is left to do, or after the first failure."""
        await self._add(holes, left_out)
        looks: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while (self._waiting or self._writing or looks) and not self._failures:
                try:
                    if self._waiting or self._writing:
                        for partition, last, producer_id in await self._transaction():
                            look = self._look(partition, last, producer_id, ended)
                            name = f"wait for the marker at {partition}"
                            looks.add(group.create_task(look, name=name))
                    else:
                        await asyncio.wait(looks, timeout=MORE_SECONDS, return_when=FIRST_COMPLETED)
                    looks = {each for each in looks if not each.done()}
                    await self._add(more(), left_out)
                except KafkaError as error:
                    self._failures.append(error)
        if self._failures:
            raise first_to_tell(self._failures)

    async def _add(self, holes: Holes, left_out: LeftOut) -> None:
        """The shortest of them come first."""
        led = await self.filler.led(holes, left_out) if holes else {}
        self._waiting.extend(sorted(led.items(), key=lambda item: self.filler.markers_of(item[1][1])))

    async def _transaction(self) -> list[tuple[TopicPartition, int, int]]:
        """Run the next one; return the partitions whose last marker it wrote, its offset and its producer."""
        while self._waiting and len(self._writing) < self.most_partitions:
            partition, (first, count) = self._waiting.popleft()
            markers = self.filler.markers_of(count)
            await self.filler.prepare(partition, count - markers)
            self._writing[partition] = _Writing(count - markers, markers, first + count - 1)
        empty = {partition: each.empty for partition, each in self._writing.items()}
        producer_id = await self.filler.write(empty)
        for each in self._writing.values():
            each.empty = 0
            each.markers -= 1
        written = [partition for partition, each in self._writing.items() if not each.markers]
        return [(partition, self._writing.pop(partition).last, producer_id) for partition in written]

    async def _look(self, partition: TopicPartition, last: int, producer_id: int, ended: Ended) -> None:
        """The marker is in the log soon after the coordinator has answered."""
        try:
            ended(partition, await self.filler.is_filled(partition, last, producer_id))
        except KafkaError as error:
            self._failures.append(error)


def first_to_tell(failures: Sequence[KafkaError]) -> KafkaError:
    """Of failures at the same time: that another owner has taken over counts before all others."""
    return next((error for error in failures if error.reason == FENCED), failures[0])


PARTITIONS_PER_TRANSACTION = 50
_TOO_LARGE = frozenset((ErrorCode.message_too_large, ErrorCode.record_list_too_large))
_ABOUT_THE_RECORDS = _TOO_LARGE | {
    ErrorCode.invalid_timestamp,
    ErrorCode.policy_violation,
    ErrorCode.unsupported_compression_type,
    ErrorCode.invalid_record,
}
_MOST_KEPT = 6
_FIRST_LOOK_SECONDS = 0.002
_LONGEST_LOOK_SECONDS = 0.1
_LEADER_SECONDS = 10.0
"""How long a transaction waits for a partition whose leader does not answer; its other partitions wait,
too."""
_SEQUENCE_MASK = 0x7FFFFFFF


class Filler:
    """One transactional id of one task. Call `open` before `fill`. For one asyncio task at a time."""

    def __init__(
        self,
        session: DataClientPool,
        transactional_id: str,
        settings: ProducerSettings,
        *,
        reads: DataClientPool | None = None,
    ) -> None:
        """`reads` may read the copies; None = `session` may. Without an id nothing can be filled: copies of
        the task end where they are."""
        self._session = session
        self._reader = BatchReader(session if reads is None else reads, read_committed=False)
        self._settings = settings
        self._coordinator = TransactionCoordinator(
            session,
            transactional_id,
            transaction_timeout_seconds=settings.transaction_timeout_seconds,
            admit=settings.admit,
        )
        self._has_id = bool(transactional_id)
        self._identity: ProducerIdentity | None = None
        self._sequences: dict[TopicPartition, int] = {}
        """The next sequence number by partition, for the present identity."""
        self._empty: dict[int, OutgoingBatch] = {}
        """Batches of empty records, by their number of records."""
        self._limits: dict[TopicPartition, FillLimit] = {}
        self._leaders = HoleLeaders(session)
        self._most: dict[TopicPartition, int] = {}
        """The number of records of a batch, for leaders that accept less than their known limit."""
        self.most_markers = MOST_MARKERS
        """A longer hole gets empty records."""
        self._making = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the filler has an identity and left nothing open; True without an id."""
        return self._identity is not None or not self._has_id

    def note_limit(self, partition: TopicPartition, limit: FillLimit) -> None:
        """Set the limits of a partition; Kafka's defaults apply to others."""
        self._limits[partition] = limit
        self._most.pop(partition, None)

    async def open(self) -> None:
        """Initialise the id. Transactions that its former owner was ending have ended when this returns.
        Raises KafkaError."""
        if not self._has_id:
            return
        timeout_seconds = self._settings.delivery_timeout_seconds
        self._take(await self._coordinator.new_identity(timeout_seconds=timeout_seconds))
        await self._coordinator.agree(timeout_seconds=timeout_seconds)

    async def fill(self, holes: Holes, ended: Ended, left_out: LeftOut, more: More = nothing_more) -> None:
        """Fill `count` offsets from `first` on, at the end of each log that has a leader; the others are
        passed to `left_out`. `ended` is called for each partition as soon as its own last marker is written,
        with whether its log now certainly ends behind the hole. After an error, which applies to all
        partitions that were not passed to either, the id has to be initialised again.

        Raises KafkaError (PRODUCER_FENCED when another owner has initialised the id; FILL_REFUSED when a
        leader accepts no empty records, with the partition in the metadata).
        """
        window = FillWindow(filler=self, most_partitions=PARTITIONS_PER_TRANSACTION)
        try:
            await window.run(holes, ended, left_out, more)
        except KafkaError:
            self._identity = None
            raise

    async def led(self, holes: Holes, left_out: LeftOut) -> Holes:
        """The holes whose partitions have a leader; the others are passed on. Raises KafkaError."""
        return await self._leaders.led(holes, left_out)

    def markers_of(self, count: int) -> int:
        """How many markers a hole of this length gets; the rest are empty records of its first
        transaction."""
        return markers_of(count, self.most_markers)

    async def prepare(self, partition: TopicPartition, empty: int) -> None:
        """Make batches of so many empty records before the transaction begins: no deadline runs yet, and no
        consumer waits for its end."""
        for records in set(batches_of(empty, self._most_records(partition))):
            await self._empty_batch(records)

    async def write(self, empty: Mapping[TopicPartition, int]) -> int:
        """Write this many empty records and one marker to each partition; return the producer id. By then the
        marker of the previous transaction is in the log, because the coordinator begins no other one
        before."""
        timeout_seconds = self._settings.delivery_timeout_seconds
        identity = self._opened()
        await self._coordinator.add_partitions(
            identity, empty, timeout_seconds=timeout_seconds, unknown_topic_seconds=0.0
        )
        failures: list[KafkaError] = []

        async def write(partition: TopicPartition, count: int) -> None:
            try:
                await self._write_empty(partition, count, identity)
            except KafkaError as error:
                failures.append(error)

        async with asyncio.TaskGroup() as tasks:
            for partition, count in empty.items():
                if count:
                    tasks.create_task(write(partition, count), name=f"fill {partition}")
        if failures:
            raise first_to_tell(failures)
        self._take(await self._coordinator.end(identity, commit=False, timeout_seconds=timeout_seconds))
        return identity.producer_id

    def _take(self, identity: ProducerIdentity) -> None:
        if identity != self._identity:
            self._sequences.clear()
        self._identity = identity

    async def _write_empty(self, partition: TopicPartition, count: int, identity: ProducerIdentity) -> None:
        """Write the empty records. The leader does not forget an open transaction, so a batch without an
        answer may be sent again."""
        doing = f"fill {partition}"
        async with deadline(self._settings.delivery_timeout_seconds, doing, alias=self._session.alias):
            while count:
                records = next_batch(count, self._most_records(partition))
                batch = await self._empty_batch(records)
                sequence = self._sequences.get(partition, 0)
                header = sealed_header(batch, Seal(*identity, sequence, True))
                part = SealedBatch(partition=partition, batch=batch, header=header)
                give_up_at = self._now() + _LEADER_SECONDS
                try:
                    while not await self._is_written(part, doing):
                        if self._now() >= give_up_at:
                            self._leaders.doubt([partition])
                            raise self._leaders.absent(partition, doing)
                        await pause(self._settings.retry_pause_seconds)
                except _TooManyRecordsError:
                    self._most[partition] = records // 2
                    continue
                self._sequences[partition] = (sequence + records) & _SEQUENCE_MASK
                count -= records

    def _most_records(self, partition: TopicPartition) -> int:
        limit = self._limits.get(partition) or FillLimit(TargetTopicLimits().max_message_bytes)
        return self._most.get(partition, limit.most_records)

    async def _is_written(self, part: SealedBatch, doing: str) -> bool:
        """Return False when the batch may be sent again. Raises KafkaError, and _TooManyRecordsError when the
        leader may accept fewer records."""
        client = await self._session.client(doing)
        leader = leader_of(client, part.partition)
        if leader is None:
            await refresh_metadata(self._session, client, {part.partition.topic})
            return False
        request = produce_request(
            [part],
            transactional_id=self._coordinator.transactional_id,
            timeout_ms=int(self._settings.request_timeout_seconds * 1000),
            adds_partitions=self._coordinator.version_2,
        )
        try:
            (answer,) = (await self._session.send(leader, request, doing)).answers
        except TransientKafkaError:
            await refresh_metadata(self._session, client, {part.partition.topic})
            return False
        if answer.error_code == 0:
            return True
        if answer.error_code in _TOO_LARGE and part.batch.record_count > 1:
            raise _TooManyRecordsError
        refusal = partition_error(answer.error_code, part.partition, doing, alias=self._session.alias)
        if answer.error_code in _ABOUT_THE_RECORDS:
            raise about(part.partition, fill_refused(part.partition, refusal, answer.message))
        if not refusal.retriable:
            raise refusal
        await refresh_metadata(self._session, client)
        return False

    async def _empty_batch(self, records: int) -> OutgoingBatch:
        """A batch with timestamp 0 and nothing else, with the same bytes each time. Large ones are built in a
        thread, because the event loop has other partitions to copy."""
        if records < FILLER_RECORDS[-1]:
            return _empty_batch(records)
        async with self._making:
            if records not in self._empty:
                while len(self._empty) >= _MOST_KEPT:
                    del self._empty[next(iter(self._empty))]
                self._empty[records] = await asyncio.to_thread(_empty_batch, records)
        return self._empty[records]

    async def is_filled(self, partition: TopicPartition, last: int, filler_id: int) -> bool:
        """Whether the log ends with our marker at this offset, so that nothing else is in the hole."""
        doing, wait_seconds = f"wait for the marker at {partition}", _FIRST_LOOK_SECONDS
        try:
            async with (
                deadline(_LEADER_SECONDS + LONGEST_THROTTLE_SECONDS, doing, alias=self._session.alias),
                deadline(_LEADER_SECONDS, doing, alias=self._session.alias) as limit,
            ):
                while True:
                    fetched = await self._reader.fetch(partition, last, max_bytes=1, limit=limit)
                    if fetched.batches:
                        header = fetched.batches[0].header
                        return fetched.end_offset == last + 1 and is_marker_at(header, last, filler_id)
                    await pause(wait_seconds)
                    wait_seconds = min(2 * wait_seconds, _LONGEST_LOOK_SECONDS)
        except KafkaError as error:
            self._leaders.doubt([partition])
            raise about(partition, error) from None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _opened(self) -> ProducerIdentity:
        if self._identity is None:
            raise StateError("the filler has no identity: open it")
        return self._identity


class _TooManyRecordsError(Exception):
    """A leader accepts no batch with this many records."""


def fill_refused(partition: TopicPartition, refusal: KafkaError, detail: str) -> KafkaError:
    """The error for a target that accepts no empty records."""
    why = f"{refusal.reason}: {detail}" if detail else refusal.reason
    return FatalKafkaError(
        f"{partition}: offsets that the source does not show cannot be filled: the target takes no empty"
        f" records with timestamp 0 ({why}); look at its max.message.bytes and"
        " message.timestamp.before.max.ms",
        reason=PreservedReason.FILL_REFUSED,
    )


def _empty_batch(records: int) -> OutgoingBatch:
    return build_batch([NewRecord(None, None, 0)] * records, codec=Codec.ZSTD)
