"""The writing half of a task: rounds of data and positions, each committed as soon as the fetched data is
drained.

Invariant A: a partition's `committed` moves only after the commit of the round that held the data was
acknowledged.
Invariant B: after any failure nothing of the failed round counts: a new transport fences its ids, and every
position is what the target's log says.
Invariant C: after new ids nothing is sent before the driver allowed it: who kept silent for long may have
been replaced, and new ids would fence the present owner.
Invariant D: `run` and then `store_rest` return only when every position is certain and on the log; else they
raise, and the driver must read the log.
Invariant E: a position that was decided elsewhere (an operator, a recorded gap) stands until it is stored:
what a commit before it turns out to have written does not replace it.
Invariant F: a round is committed only after the round before it was: a position never stands for records of a
round that was lost.

Over a long way rounds overlap: while the commit of one is unanswered, the next is sent and stored.

    round 1   send ──▶ stored   commit ──▶ committed
    round 2                     send ────▶ stored     commit ──▶ committed

Preserved copies are written elsewhere (`preserved_copies`): only their positions are stored here, now and
then, with whatever else is committed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import structlog

from twinlog.batches import NewRecord, OutgoingBatch
from twinlog.batches.joining import join
from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.raw import COMMITTED, OUTCOME
from twinlog.model import TopicPartition
from twinlog.service.waiting import Backoff, wait_or_stop
from twinlog_source.log.fact_records import fact_record, partition_key
from twinlog_source.log.facts import EpochStart, Fact, LeaderEpochsFact
from twinlog_source.log.fencing import FENCED
from twinlog_source.task.partition import PartitionCopy, retry_wait
from twinlog_source.task.reading.loss import extended
from twinlog_source.task.reading.source_reader import PreparedChunk, SourceReader
from twinlog_source.task.writing.positions_topic import PositionsTopic
from twinlog_source.task.writing.round import Round
from twinlog_source.task.writing.round_size import RoundSize
from twinlog_source.task.writing.settling import settle_batch
from twinlog_source.task.writing.syncs import OffsetSyncs
from twinlog_source.task.writing.transport import Transport

FAR_SECONDS = 0.008
"""From so long an answer on the target is far away: a round trip costs more there than joining small
batches and keeping two transactions."""
FEW_BYTES = 128 << 10
"""A round of so few bytes takes as long as its round trips do."""
DOUBTFUL_SECONDS = 1.0
"""For partitions that failed last time, once the others are written; a slow way may take longer for what it
carries of them."""

TOO_SLOW = frozenset({"KAFKA_TIMEOUT", "KAFKA_UNAVAILABLE"})
"""What a round ends with that was too large for the way to the target."""

log = structlog.get_logger(__name__)


def doubtful_seconds(others_took: float, *, doubtful_bytes: int, other_bytes: int) -> float:
    """How much longer than the others doubtful partitions may take: twice what the way took for as much."""
    return max(DOUBTFUL_SECONDS, 2 * others_took * doubtful_bytes / max(other_bytes, 1))


@dataclass(slots=True, kw_only=True)
class TargetWriter:
    positions_topic: PositionsTopic
    source_reader: SourceReader
    copies: Mapping[TopicPartition, PartitionCopy]
    by_target: Mapping[TopicPartition, PartitionCopy]
    """Target partition -> the copy that writes it."""
    take_over: Callable[[Collection[TopicPartition]], Awaitable[None]]
    """Fence previous holders of the transactional ids and end their hanging transactions. The argument lists
    target partitions whose hanging transaction is known to have committed. Raises KafkaError."""
    open_transport: Callable[[], Transport]
    ask_driver: Callable[[], Awaitable[None]]
    """Whether this task still copies for its driver, asked after its ids were initialised again. Raises
    KafkaError when not; PRODUCER_FENCED is final."""
    read_positions: Callable[[], Awaitable[Mapping[TopicPartition, int]]]
    syncs: OffsetSyncs
    clock: Clock
    random: Callable[[], float]
    on_unexplained: Callable[[PartitionCopy, int, int], None] = lambda _copy, _begin, _end: None
    """Told of ranges of target offsets between records of ours that are not ours, unless they are aborted."""
    target_throttled: Callable[[], bool] = lambda: False
    """Whether a quota of the target holds requests back now."""
    on_round: Callable[[Round], None] = lambda _: None
    """Told of each round with data when it is committed, or has failed."""
    committed_rounds: int = 0
    aborted_rounds: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """Rounds that failed as a whole, by reason."""
    target_problem: KafkaError | None = None
    """Why the target as a whole cannot be written; None while it can."""
    _stored: dict[TopicPartition, int] = field(default_factory=dict)
    """Positions as the log holds them; those it does not hold are absent."""
    _unstored: set[TopicPartition] = field(default_factory=set)
    """Partitions whose position moved without a record of it."""
    _extra_records: list[NewRecord] = field(default_factory=list)
    """Records of our own (gaps) for the positions topic, written with the next round."""
    _restarts: dict[TopicPartition, int] = field(default_factory=dict)
    """Of the partitions of the last commit that was tried: how often each had been restarted before it."""
    _late: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    """What the others of the present round did not wait for any longer."""
    _hanging_committed: set[TopicPartition] = field(default_factory=set)
    """Target partitions that were refused because a transaction of ours that was committed hangs there."""
    _size: RoundSize = field(default_factory=RoundSize)
    _round: Round = field(default_factory=Round)
    """The present one, or the one before."""
    _committing: Round | None = None
    """The one whose commit is unanswered while the present one is sent."""
    _way_seconds: float = 0.0
    """How long the target took for a round of few bytes, without its commit."""
    _tasks: asyncio.TaskGroup | None = None
    _store_now: bool = False
    _transport: Transport | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def open(self) -> None:
        """Take the transactional ids over; their former holder is fenced. Raises KafkaError."""
        self.source_reader.limit_buffer(self._size.size_bytes)
        await self.take_over(self._hanging_committed)
        self._hanging_committed.clear()
        self._transport = await self._stack.enter_async_context(self.open_transport())

    async def close(self) -> None:
        """Stop at once; an open transaction is left to the next owner of its id."""
        self._transport = None
        await self._stack.aclose()

    def note_stored(self, partition: TopicPartition, position: int) -> None:
        """The log holds this position already, by its last owner's word."""
        self._stored[partition] = position

    def is_stored(self, partition: TopicPartition) -> bool:
        """No position of it is only in memory."""
        return partition not in self._unstored

    def store_soon(self, partition: TopicPartition, extra: Sequence[NewRecord] = ()) -> None:
        """A position moved without data (a reset, a gap, an operator): write it without waiting for
        records."""
        self._unstored.add(partition)
        self._extra_records.extend(extra)
        self._store_now = True
        self.source_reader.arrived.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`, then commit what was sent. `open` comes before, `store_rest` after.

        Raises KafkaError: PRODUCER_FENCED when another owner took over, any other when the last round failed.
        """
        failure: KafkaError | None = None
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await self._run(stop)
            except KafkaError as error:
                failure = error
        if failure is not None:
            raise failure

    async def _run(self, stop: asyncio.Event) -> None:
        backoff = Backoff(initial_seconds=0.2, max_seconds=5.0, random=self.random)
        while True:
            try:
                if self._transport is None:
                    await self.open()
                    await self.ask_driver()
                    await self._resume_from_log()
                    self.source_reader.wake()
                assert self._transport is not None
                self.target_problem = None
                await self._rounds(stop, self._transport, backoff)
                return
            except KafkaError as found:
                error = await self._outcome_of_last() or found
                self._failed(error)
                await self.close()
                if error.reason == FENCED or await wait_or_stop(stop, backoff.next()):
                    raise

    async def _rounds(self, stop: asyncio.Event, transport: Transport, backoff: Backoff) -> None:
        while not stop.is_set():
            if self._unanswered is None:
                # Also with nothing left to send: what a lost round held is fetched again.
                await self._last_committed()
            if transport.failure is not None:
                raise transport.failure
            chunk = self.source_reader.pop()
            if chunk is not None:
                await self._copy_round(transport, chunk)
                backoff.reset()
            elif self._store_now:
                await self._store(transport)
            else:
                await self._await_chunk(stop)
        await self._last_committed()

    async def _last_committed(self) -> None:
        """Wait until the round before the present one is committed. Raises its failure."""
        failure = await self._outcome_of_last()
        if failure is not None:
            raise failure

    async def _outcome_of_last(self) -> KafkaError | None:
        """Bounded by the producer's time-outs."""
        last, self._committing = self._committing, None
        if last is None:
            return None
        await last.over.wait()
        return last.failure

    async def store_rest(self) -> None:
        """Write the positions and gaps that are only in memory; once nothing can be found any more. Raises
        KafkaError."""
        assert self._transport is not None
        while self._unstored or self._extra_records:
            await self._store(self._transport)

    async def _await_chunk(self, stop: asyncio.Event) -> None:
        """Wait for a chunk, something to store, a failure, or the stop: each of them sets `arrived`."""
        self.source_reader.arrived.clear()
        self.source_reader.release()
        if not stop.is_set():
            await self.source_reader.arrived.wait()

    async def _copy_round(self, transport: Transport, first: PreparedChunk) -> None:
        """One transaction: everything that is fetched now."""
        current = self._round = Round(began_at=self.clock.monotonic())
        chunk: PreparedChunk | None = first
        while chunk is not None:
            self._collect(current, chunk)
            if current.size_bytes >= self._size.size_bytes:
                break
            chunk = self.source_reader.pop()
        self._send(transport, current)
        await self._await_doubtful(current)
        ends = {taken.copy.partition: taken.prepared.next_offset for taken in current.chunks}
        current.epochs = self._new_epochs(current)
        marks = [
            self._fact(LeaderEpochsFact(partition=partition, epochs=after))
            for partition, after in current.epochs.items()
        ]
        if current.transaction is None:
            # Only markers and aborted data: there is nothing to be atomic with.
            await self._last_committed()
            self._unstored |= ends.keys()
            self._extra_records += marks
            self._settle(current)
            self._take_epochs(current)
            return
        await self._put(current, ends, marks)
        if current.size_bytes <= FEW_BYTES and not self.target_throttled():
            self._way_seconds = self.clock.monotonic() - current.began_at
        await self._last_committed()
        await self._commit(current, overlapping=transport.overlaps and self._is_far)

    @property
    def _is_far(self) -> bool:
        # Rounds that overlap under a quota would only wait for it one behind the other.
        return self._way_seconds >= FAR_SECONDS and not self.target_throttled()

    async def _await_doubtful(self, current: Round) -> None:
        """Partitions that failed last time may not hold up the others for as long as a delivery may take."""
        doubtful = [(copy, sent) for copy, _, sent in current.sent if copy.failures]
        others = [sent for copy, _, sent in current.sent if not copy.failures]
        if not doubtful or not others:
            return
        await asyncio.wait(others)  # bounded by the producer's deadline
        patience_seconds = doubtful_seconds(
            self.clock.monotonic() - current.began_at,
            doubtful_bytes=sum(batch.size_bytes for copy, batch, _ in current.sent if copy.failures),
            other_bytes=sum(batch.size_bytes for copy, batch, _ in current.sent if not copy.failures),
        )
        _, late = await asyncio.wait([sent for _, sent in doubtful], timeout=patience_seconds)
        for copy, sent in doubtful:
            if sent in late:
                reason = copy.reason_before or "KAFKA_TIMEOUT"
                error = TransientKafkaError(f"{copy.partition}: still not written", reason=reason)
                self._late[copy.partition] = error
        if self._late:
            raise next(iter(self._late.values()))

    def _collect(self, current: Round, chunk: PreparedChunk) -> None:
        current.chunks.append(chunk)
        chunk.copy.sent = chunk.prepared.next_offset
        chunk.copy.rounds += 1
        current.size_bytes += sum([batch.size_bytes for batch in chunk.prepared.batches])

    def _send(self, transport: Transport, current: Round) -> None:
        for copy, batches in self._batches(current):
            target = TopicPartition(copy.target_topic, copy.partition.partition)
            for batch in batches:
                if current.transaction is None:
                    current.transaction = transport.begin()
                current.sent.append((copy, batch, current.transaction.send(target, batch)))

    def _batches(self, current: Round) -> Iterator[tuple[PartitionCopy, Sequence[OutgoingBatch]]]:
        if not self._is_far:
            for chunk in current.chunks:
                yield chunk.copy, chunk.prepared.batches
            return
        # A request takes one batch of a partition: small ones that follow one another would wait in turn.
        by_copy: dict[TopicPartition, list[OutgoingBatch]] = {}
        for chunk in current.chunks:
            by_copy.setdefault(chunk.copy.partition, []).extend(chunk.prepared.batches)
        for partition, batches in by_copy.items():
            policy = self.source_reader.policies[partition]
            yield self.copies[partition], join(batches, target=policy.target)

    async def _store(self, transport: Transport) -> None:
        """Write the positions that moved without data."""
        await self._last_committed()
        self._store_now = False
        if self._unstored or self._extra_records:
            current = self._round = Round(began_at=self.clock.monotonic(), transaction=transport.begin())
            await self._put(current, {}, [])
            await self._commit(current, overlapping=False)

    async def _put(
        self, current: Round, ends: Mapping[TopicPartition, int], marks: Sequence[NewRecord]
    ) -> None:
        """Write the positions that the round ends with, and those that moved without data, beside it."""
        before = self._unanswered
        assert current.transaction is not None
        # What the round before stores, it stores or fails, and nothing of this one counts then.
        unstored = {
            partition
            for partition in self._unstored
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
        await current.transaction.store(
            self.positions_topic.batches(
                current.positions,
                [*extra, *self._unknown_epochs(unstored - ends.keys()), *marks],
                leaving_zero=leaving_zero,
                now_ms=self.clock.now_ms(),
            )
        )

    async def _commit(self, current: Round, *, overlapping: bool) -> None:
        """Commit what was put; `overlapping` returns at once. Raises the failure otherwise."""
        self._committing = current
        self.source_reader.release()
        if overlapping:
            assert self._tasks is not None
            self._tasks.create_task(self._end(current), name="commit a round")
            await current.ending.wait()
            return
        await self._end(current)
        await self._last_committed()

    async def _end(self, current: Round) -> None:
        assert current.transaction is not None
        current.ending.set()
        try:
            await current.transaction.commit()
            self._committed(current)
        except KafkaError as error:
            current.failure = error
        finally:
            current.over.set()
            self.source_reader.arrived.set()
            if current.chunks:
                self.on_round(current)

    def _committed(self, current: Round) -> None:
        self._stored.update(current.positions)
        # Not those that were moved once more meanwhile.
        self._unstored -= {
            partition
            for partition in current.positions
            if current.moved.get(partition, self.copies[partition].committed)
            == self.copies[partition].committed
        }
        del self._extra_records[: current.extra_count]
        self.committed_rounds += 1
        self._settle(current)
        self._take_epochs(current)
        if current.chunks:
            self._size.passed(current.size_bytes, self.clock.monotonic() - current.began_at)
            self.source_reader.limit_buffer(self._size.size_bytes)

    def _take_epochs(self, current: Round) -> None:
        for partition, after in current.epochs.items():
            self.copies[partition].epochs = after

    @property
    def _unanswered(self) -> Round | None:
        """The round whose commit is on its way."""
        last = self._committing
        return None if last is None or last.over.is_set() else last

    def _new_epochs(self, current: Round) -> dict[TopicPartition, tuple[EpochStart, ...]]:
        """Of partitions that go on under another leader."""
        changed: dict[TopicPartition, tuple[EpochStart, ...]] = {}
        before_it = self._unanswered
        unanswered = before_it.epochs if before_it is not None else {}
        for taken in current.chunks:
            partition = taken.copy.partition
            before = changed.get(partition, unanswered.get(partition, taken.copy.epochs))
            after = extended(before, taken.prepared.leader_epochs)
            if after is not before:
                changed[partition] = after
        return changed

    def _unknown_epochs(self, moved: Collection[TopicPartition]) -> list[NewRecord]:
        """What takes back the leader epochs of partitions that continue elsewhere."""
        alias, now_ms = self.positions_topic.source_alias, self.clock.now_ms()
        return [
            NewRecord(partition_key(alias, "epochs", partition), None, now_ms)
            for partition in moved
            if partition in self._stored and not self.copies[partition].epochs
        ]

    def _fact(self, fact: Fact) -> NewRecord:
        return NewRecord(*fact_record(self.positions_topic.source_alias, fact), self.clock.now_ms())

    def _settle(self, current: Round) -> None:
        """The round is committed: move positions, count, queue offset syncs, tell what faults stand behind
        it."""
        now, now_ms = self.clock.monotonic(), self.clock.now_ms()
        for copy, batch, acknowledged in current.sent:
            found = settle_batch(copy, batch, acknowledged.result(), syncs=self.syncs, now_ms=now_ms)
            if found is not None:
                self.on_unexplained(copy, *found)
        for partition in {copy.partition for copy, _, _ in current.sent}:
            self.copies[partition].end_round()
        for chunk in current.chunks:
            chunk.copy.commit(chunk.prepared.next_offset)
            chunk.copy.rounds -= 1
            fault = chunk.prepared.fault
            if fault is not None:
                chunk.copy.fail(reason=fault.reason, message=fault.message, retriable=False, now=now)

    def _failed(self, error: KafkaError) -> None:
        """Decide who is to blame, and go back to what is committed."""
        now = self.clock.monotonic()
        self.aborted_rounds += 1
        if error.reason in TOO_SLOW:
            self._size.timed_out(self._round.size_bytes)
            self.source_reader.limit_buffer(self._size.size_bytes)
        blamed = dict(self._transport.partition_failures) if self._transport is not None else {}
        self._hanging_committed |= {
            target for target, why in blamed.items() if why.metadata.get(OUTCOME) == COMMITTED
        }
        at_fault = {
            copy.partition: why
            for target, why in blamed.items()
            if (copy := self.by_target.get(target)) is not None
        } | self._late
        self._late = {}
        in_round = {
            partition
            for partition, copy in self.copies.items()
            if copy.sent != copy.committed and not copy.keeps_offsets
        }
        cluster_is_away = all(why.retriable for why in at_fault.values()) and in_round <= at_fault.keys()
        if cluster_is_away or not at_fault:
            self.target_problem, at_fault = error, {}
            self.failures[error.reason] = self.failures.get(error.reason, 0) + 1
        log.warning(
            "round_failed", reason=error.reason, error=str(error), partitions=[str(p) for p in at_fault]
        )
        # Those that failed together try again together: each try costs the others a round.
        jitter = self.random()
        for partition, copy in self.copies.items():
            if copy.keeps_offsets:
                continue  # Its records were in no round.
            copy.rewind()
            why = at_fault.get(partition)
            if why is not None:
                copy.fail(
                    reason=why.reason,
                    message=f"target: {why}",
                    retriable=why.retriable,
                    now=now,
                    wait_seconds=retry_wait(copy.failures, jitter),
                )

    async def _resume_from_log(self) -> None:
        """The ids are ours again and the failed round is over: go on from what the log says."""
        log_says = await self.read_positions()
        for partition, copy in self.copies.items():
            position = log_says.get(partition)
            if position is None or position == self._stored.get(partition):
                continue
            # The answer to the last commit was lost, the commit was not.
            self._stored[partition] = position
            if copy.keeps_offsets:
                continue  # The end of its copy is the position.
            if copy.restarts == self._restarts.get(partition, copy.restarts):
                self._unstored.discard(partition)
                copy.restart_at(position)
        self._store_now = bool(self._unstored or self._extra_records)
