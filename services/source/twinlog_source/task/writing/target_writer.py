"""The writing half of a task: rounds of data and positions, each committed as soon as the fetched data is
sent.

Invariant A: a partition's `committed` moves only after the commit of the round with its data was
acknowledged.
Invariant B: after a failure nothing of the failed round counts: a new transport fences its ids, and every
position is what the target's log says after that.
Invariant C: after the ids were initialised again, nothing is sent before the driver allows it. A task that
was silent for long may have been replaced, and its new ids would fence the present owner. The driver, which
follows the log anyway, answers with the positions.
Invariant D: `run` and then `store_rest` return only when every position is certain and on the log. Otherwise
they raise, and the driver must read the log.
Invariant E: a round is committed only after the previous round: a position never includes records of a lost
round.

With a distant target rounds overlap: while the commit of one is unanswered, the next is sent and stored.

    round 1   send ──▶ stored   commit ──▶ committed
    round 2                     send ────▶ stored     commit ──▶ committed

Preserved copies are written elsewhere (`preserved_copies`): only their positions are stored here, at an
interval, together with whatever else is committed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import structlog

from twinlog.batches import LaneReason, NewRecord
from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.raw import COMMITTED, OUTCOME
from twinlog.model import TopicPartition
from twinlog.service.runtime import Backoff
from twinlog.service.waiting import wait_or_stop
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import FENCED, EpochStart, Fact, LeaderEpochsFact
from twinlog_source.log.hanging import HANGING
from twinlog_source.task.partition import PartitionCopy, retry_wait
from twinlog_source.task.reading.answers import PreparedChunk
from twinlog_source.task.reading.bounds import extended
from twinlog_source.task.reading.source_reader import SourceReader
from twinlog_source.task.writing.positions_topic import PositionsTopic, PositionsToStore
from twinlog_source.task.writing.round import (
    OffsetSyncs,
    Round,
    RoundSending,
    RoundSize,
    count_batch,
    settle_batch,
)
from twinlog_source.task.writing.transport import Transport

TOO_SLOW = frozenset({"KAFKA_TIMEOUT", "KAFKA_UNAVAILABLE"})
"""A round that was too large for the way to the target ends with this."""

log = structlog.get_logger(__name__)


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
    ask_driver: Callable[[], Awaitable[Mapping[TopicPartition, int]]]
    """Ask whether this task still copies for its driver, after its ids were initialised again; the answer is
    what the log says then of its partitions. Raises KafkaError when it does not; PRODUCER_FENCED is final."""
    syncs: OffsetSyncs
    clock: Clock
    random: Callable[[], float]
    on_unexplained: Callable[[PartitionCopy, int, int], None] = lambda _copy, _begin, _end: None
    """Called with ranges of target offsets between our records that are foreign unless they are aborted."""
    target_throttled: Callable[[], bool] = lambda: False
    """Whether a quota of the target delays requests now."""
    on_round: Callable[[Round], None] = lambda _: None
    """Called for each round with data when it is committed, or has failed."""
    committed_rounds: int = 0
    aborted_rounds: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """Rounds that failed as a whole, by reason."""
    target_problem: KafkaError | None = None
    """Why the target as a whole cannot be written; None while it can."""
    _hanging_committed: set[TopicPartition] = field(default_factory=set)
    """Target partitions that refused records because a committed transaction of ours hangs there."""
    _size: RoundSize = field(default_factory=RoundSize)
    _round: Round = field(default_factory=Round)
    """The present round, or the last one."""
    _committing: Round | None = None
    """The round whose commit is unanswered while the present one is sent."""
    positions: PositionsToStore = field(init=False)
    sending: RoundSending = field(init=False)
    _tasks: asyncio.TaskGroup | None = None
    _store_now: bool = False
    _hanging_at: TopicPartition | None = None
    """A copy at rest where a transaction may hang."""
    _transport: Transport | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def __post_init__(self) -> None:
        self.positions = PositionsToStore(topic=self.positions_topic, copies=self.copies, clock=self.clock)
        self.sending = RoundSending(
            copies=self.copies,
            target_throttled=self.target_throttled,
            clock=self.clock,
            dead_letters=dead.partition if (dead := self.source_reader.dead_letters) is not None else None,
        )

    async def open(self) -> None:
        """Initialise the transactional ids, which fences their former holder. Raises KafkaError."""
        self.source_reader.limit_buffer(self._size.size_bytes)
        self._hanging_at = None
        await self.take_over(self._hanging_committed)
        self._hanging_committed.clear()
        self._transport = await self._stack.enter_async_context(self.open_transport())

    async def close(self) -> None:
        """Stop at once; an open transaction is left to the next owner of its id."""
        self._transport = None
        await self._stack.aclose()

    def note_stored(self, partition: TopicPartition, position: int) -> None:
        """The log already has this position, according to its last owner."""
        self.positions.note(partition, position)

    def is_stored(self, partition: TopicPartition) -> bool:
        """Whether no position is only in memory."""
        return partition not in self.positions.unstored

    @property
    def routed_last(self) -> Mapping[TopicPartition, TopicPartition]:
        """Target partition -> source partition of what took routes in the last round."""
        return {each.target: copy.partition for copy, each, _ in self._round.routed}

    def store_soon(self, partition: TopicPartition, extra: Sequence[NewRecord] = ()) -> None:
        """A position moved without data (a reset, a gap, an operator): store it without waiting for
        records."""
        self.positions.add([partition], extra)
        self._store_now = True
        self.source_reader.arrived.set()

    def take_ids_over(self, target: TopicPartition) -> None:
        """Soon, which ends what hangs: consumers do not see the end of this copy, and nothing may come that
        would be written behind it."""
        self._hanging_at = target
        self.source_reader.arrived.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`, then commit what was sent. Call `open` before, and `store_rest` after.

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
                    self._resume(await self.ask_driver())
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
                # Also with nothing left to send: the records of a lost round are fetched again.
                await self._last_committed()
            if transport.failure is not None:
                raise transport.failure
            if self._hanging_at is not None:
                words = f"{self._hanging_at}: consumers do not see its end: a transaction may hang there"
                raise TransientKafkaError(words, reason=HANGING)
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
        """Wait until the previous round is committed. Raises its failure."""
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
        """Store the positions and gaps that are only in memory, once no more can be found. Raises
        KafkaError."""
        assert self._transport is not None
        while self.positions.is_behind:
            await self._store(self._transport)

    async def _await_chunk(self, stop: asyncio.Event) -> None:
        """Wait for a chunk, something to store, a failure, or the stop; each of them sets `arrived`."""
        self.source_reader.arrived.clear()
        self.source_reader.release()
        if not stop.is_set():
            await self.source_reader.arrived.wait()

    async def _copy_round(self, transport: Transport, first: PreparedChunk) -> None:
        """One transaction with everything that is fetched now. Partitions whose records may be refused again
        are in rounds of their own: the records of others would be in the target's log twice."""
        current = self._round = Round(began_at=self.clock.monotonic())
        chunk: PreparedChunk | None = first
        while chunk is not None:
            self.sending.collect(current, chunk)
            if current.size_bytes >= self._size.size_bytes:
                break
            chunk = self.source_reader.pop(on_trial=first.copy.on_trial)
        self.sending.send(transport, current)
        await self.sending.await_doubtful(current)
        ends = {taken.copy.partition: taken.prepared.next_offset for taken in current.chunks}
        current.epochs = self._new_epochs(current)
        if current.transaction is None:
            # Only markers and aborted data: there is nothing that needs a transaction.
            await self._last_committed()
            self.positions.add(ends.keys(), ())
            self._settle(current)
            return
        marks = [
            self._fact(LeaderEpochsFact(partition=partition, epochs=after))
            for partition, after in current.epochs.items()
        ]
        await self._put(current, ends, marks)
        self.sending.written(current)
        await self._last_committed()
        await self._commit(current, overlapping=transport.overlaps and self.sending.is_far)

    async def _store(self, transport: Transport) -> None:
        """Store the positions that moved without data."""
        await self._last_committed()
        self._store_now = False
        if self.positions.is_behind:
            current = self._round = Round(began_at=self.clock.monotonic(), transaction=transport.begin())
            await self._put(current, {}, [])
            await self._commit(current, overlapping=False)

    async def _put(
        self, current: Round, ends: Mapping[TopicPartition, int], marks: Sequence[NewRecord]
    ) -> None:
        """Write the positions at the end of the round, and those that moved without data."""
        assert current.transaction is not None
        await current.transaction.store(self.positions.batches(current, ends, marks, before=self._unanswered))

    async def _commit(self, current: Round, *, overlapping: bool) -> None:
        """Commit what was put; `overlapping` returns at once. Otherwise raises the failure."""
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
        self.positions.committed(current)
        self.committed_rounds += 1
        self._settle(current)
        if current.chunks:
            self._size.passed(current.size_bytes, self.clock.monotonic() - current.began_at)
            self.source_reader.limit_buffer(self._size.size_bytes)

    @property
    def _unanswered(self) -> Round | None:
        """The round whose commit is in flight."""
        last = self._committing
        return None if last is None or last.over.is_set() else last

    def _new_epochs(self, current: Round) -> dict[TopicPartition, tuple[EpochStart, ...]]:
        """The new leader epochs of partitions that continue under another leader."""
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

    def _fact(self, fact: Fact) -> NewRecord:
        return NewRecord(*fact_record(self.positions_topic.source_alias, fact), self.clock.now_ms())

    def _settle(self, current: Round) -> None:
        """The round is committed: move positions, count, queue offset syncs, report faults behind it."""
        now, now_ms = self.clock.monotonic(), self.clock.now_ms()
        for partition, after in current.epochs.items():
            self.copies[partition].epochs = after
        for copy, batch, acknowledged in current.sent:
            found = settle_batch(copy, batch, acknowledged.result(), syncs=self.syncs, now_ms=now_ms)
            if found is not None:
                self.on_unexplained(copy, *found)
        for copy, routed, acknowledged in current.routed:
            count_batch(copy, routed.batch._replace(reason=LaneReason.ROUTED), now_ms)
            self.syncs.acknowledged_route(routed.route, routed.batch, acknowledged.result())
        for partition in {copy.partition for copy, _, _ in current.sent}:
            self.copies[partition].end_round()
        for chunk in current.chunks:
            for reason, records in chunk.left_out.items():
                counted = chunk.copy.counters.recoded_records
                counted[reason] = counted.get(reason, 0) + records
            chunk.copy.commit(chunk.prepared.next_offset)
            chunk.copy.rounds -= 1
            fault = chunk.prepared.fault
            if fault is not None:
                chunk.copy.fail(reason=fault.reason, message=fault.message, retriable=False, now=now)

    def leaderless(self, target: TopicPartition) -> KafkaError | None:
        """Why the round of a copy cannot go on: the copy, another one of its round, or positions have no
        leader; None if all have."""
        waits = {} if self._transport is None else self._transport.without_leader
        if target in waits or not waits:
            return waits.get(target)
        other = next(iter(waits.values()))
        return TransientKafkaError(f"it waits for others of its transaction: {other}", reason=other.reason)

    def _failed(self, error: KafkaError) -> None:
        """Find the partitions that caused the failure, and go back to what is committed."""
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
        } | self.sending.late
        dead_letters = self.sending.dead_letters
        if dead_letters is not None and dead_letters in blamed:
            refused = blamed[dead_letters]
            at_fault |= {chunk.copy.partition: refused for chunk in self._round.chunks if chunk.dead_letters}
        for copy, routed, _ in self._round.routed:
            if routed.target in blamed:
                at_fault[copy.partition] = blamed[routed.target]
                # It may be gone: it is asked for again.
                self.source_reader.routes.pop(routed.route.topic, None)
        self.sending.late = {}
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
        # Partitions that failed together retry together, because each retry costs the others a round.
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

    def _resume(self, log_says: Mapping[TopicPartition, int]) -> None:
        """The ids are initialised again and the failed round is over: continue from the log's positions."""
        for copy, position in self.positions.resume(log_says):
            copy.restart_at(position)
        self._store_now = self.positions.is_behind
