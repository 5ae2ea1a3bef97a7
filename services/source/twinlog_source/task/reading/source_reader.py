"""The reading half of a task: fetches every readable partition, and queues what `AnswerTaker` makes of it.

It runs ahead of the writing half by at most `max_buffered_bytes`, and by less while the target is slow,
because the records of a quiet partition are written after everything that was read before them. Preserved
copies have limits of their own, and are read while the buffer for rounds is full.

Invariant: the chunks of a partition are queued in the order of their offsets, each begins where the previous
one ended, and none survives a rewind (its generation is old).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field, replace

from twinlog.errors import KafkaError
from twinlog.kafka.raw import FetchedPartition, FetchSizes, RawFetcher
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import AnswerTaker, PreparedChunk
from twinlog_source.task.reading.fetch_schedule import (
    LONGEST_REST_SECONDS,
    WHOLE_FETCH_BYTES,
    FetchSchedule,
    ReadShares,
)

CLUSTER_RETRY_SECONDS = 1.0
OVERFULL = 4
"""Times the limit: the answers of one poll alone do not fill the buffer that much."""


Offer = Callable[[PreparedChunk], None]
"""Takes what was fetched of a preserved copy, and sets `is_full` when that is enough."""


@dataclass(slots=True, kw_only=True)
class SourceReader(AnswerTaker):
    fetcher: RawFetcher
    max_buffered_bytes: int
    """The limit for translated copies; preserved copies have their own."""
    offer: Offer | None = None
    """None if there are no preserved copies."""
    shares: ReadShares = field(default_factory=ReadShares)
    """What preserved copies hold."""
    chunks: deque[PreparedChunk] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever a chunk was queued, and by everything else that is work for the writing half, which clears
    it."""
    source_problem: KafkaError | None = None
    """Why the source cluster as a whole cannot be read; None while it can."""
    failures: dict[str, int] = field(default_factory=dict)
    """Fetches that failed as a whole, by reason."""
    buffered_bytes: int = 0
    _most_buffered_bytes: int = field(init=False)
    _left_out: dict[TopicPartition, None] = field(default_factory=dict)
    """Partitions whose last answer was not taken because the buffer was overfull, in the order in which they
    are the next."""
    _turns: FetchSchedule = field(init=False)

    def __post_init__(self) -> None:
        self._most_buffered_bytes = self.max_buffered_bytes
        self._turns = FetchSchedule(
            copies=self.copies,
            throttle=self.throttle,
            shares=self.shares,
            is_asked=lambda partition: self.fetcher.is_asked(partition),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`."""
        questions: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:

            def ask(question: Coroutine[None, None, None], name: str) -> None:
                asked = group.create_task(question, name=name)
                questions.add(asked)
                asked.add_done_callback(questions.discard)

            self.ask = ask
            try:
                await self._read(stop)
            finally:
                for asked in questions:
                    asked.cancel()

    async def _read(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            now = self.clock.monotonic()
            positions, wait_seconds = self._positions(now), self._turns.wait_seconds(now)
            if self.little_at_spark:
                wait_seconds = min(wait_seconds, LONGEST_REST_SECONDS)
            if not positions:
                await self.fetcher.pause(wait_seconds)
                continue
            try:
                answers = await self.fetcher.poll(
                    positions,
                    max_wait_seconds=wait_seconds,
                    # The configuration may allow 50 MB, and many partitions with a backlog fill that. Half of
                    # the buffer, because the bytes exist twice while they are received.
                    sizes=self._sizes(self.throttle.sizes(self._most_bytes(positions) // 2)),
                )
                self.source_problem = None
            except KafkaError as error:
                self.source_problem = error
                self.failures[error.reason] = self.failures.get(error.reason, 0) + 1
                await wait_or_stop(stop, CLUSTER_RETRY_SECONDS)
                continue
            first = [answers.pop(partition) for partition in self._left_out if partition in answers]
            self.take((*first, *answers.values()))

    def pop(self, *, on_trial: bool | None = None) -> PreparedChunk | None:
        """The next chunk to send, None when everything fetched was sent. With `on_trial`, None also when the
        next one is of a partition of the other kind. Skips chunks that a rewind made void."""
        while self.chunks:
            next_one = self.chunks[0]
            if next_one.is_current and on_trial not in (None, next_one.copy.on_trial):
                return None
            chunk = self.chunks.popleft()
            was_full = self._is_full
            self.buffered_bytes -= chunk.held_bytes
            self._wake_if_open(was_full)
            if chunk.is_current:
                return chunk
        return None

    def limit_buffer(self, size_bytes: int) -> None:
        """Read no further ahead than the next round has room for."""
        was_full = self._is_full
        self._most_buffered_bytes = min(size_bytes, self.max_buffered_bytes)
        self._wake_if_open(was_full)

    def _wake_if_open(self, was_full: bool) -> None:
        if was_full and not self._is_full:
            self.wake()

    def wake(self) -> None:
        """The set of readable partitions has changed: check at once."""
        self.fetcher.interrupt()

    def release(self) -> None:
        """The writing half is about to be free: fetch everything again."""
        if self._turns.end_rest():
            self.wake()

    @property
    def _is_full(self) -> bool:
        """Whether the buffer for rounds is full."""
        return self.buffered_bytes >= self._most_buffered_bytes

    def _most_bytes(self, positions: Collection[TopicPartition]) -> int:
        """The size of the next round limits what is fetched for it. Preserved copies have no rounds."""
        for_round = any(not self.copies[partition].keeps_offsets for partition in positions)
        return self._most_buffered_bytes if for_round else self.max_buffered_bytes

    def _sizes(self, sizes: FetchSizes) -> FetchSizes:
        """Of many preserved copies with unacknowledged records each fetch brings less."""
        if self.shares.share_bytes >= WHOLE_FETCH_BYTES:
            return sizes
        topics = {partition.topic for partition, copy in self.copies.items() if copy.held_bytes}
        each = dict.fromkeys(topics, self.shares.share_bytes)
        return replace(sizes, partition_bytes={**each, **sizes.partition_bytes})

    def room_bytes(self, copy: PartitionCopy) -> int:
        if copy.keeps_offsets:
            return self.shares.room_bytes
        return self._most_buffered_bytes - self.buffered_bytes

    def leaves_out(self, copy: PartitionCopy, answer: FetchedPartition) -> bool:
        is_overfull = self.buffered_bytes >= OVERFULL * self._most_buffered_bytes
        if answer.records and (self.shares.is_overfull if copy.keeps_offsets else is_overfull):
            self._left_out.setdefault(answer.partition)
            return True
        self._left_out.pop(answer.partition, None)
        return False

    def queued(self, chunk: PreparedChunk, size_bytes: int) -> None:
        if chunk.copy.keeps_offsets:
            assert self.offer is not None
            self.offer(chunk)
        else:
            self.chunks.append(chunk)
            self.buffered_bytes += chunk.held_bytes
            self.arrived.set()
        self._turns.served(
            chunk.copy.partition,
            size_bytes,
            buffered_bytes=self.buffered_bytes,
            now=self.clock.monotonic(),
        )

    def _rests_with_others(self, partition: TopicPartition) -> bool:
        has_more = self.copies[partition].has_more or self.fetcher.is_asked(partition)
        return self.changed_topics(partition.topic) and not has_more

    def _positions(self, now: float) -> dict[TopicPartition, int]:
        """The positions to fetch now. While the buffer for rounds is full, only those of preserved copies,
        which do not wait for it; answers in flight are taken.

        While Spark has little of a partition, the others that it changes rest, as all do while little is
        written: their requests would leave that partition out until somebody has a record again."""
        rests = any(now - since < LONGEST_REST_SECONDS for since in self.little_at_spark.values())
        return {
            partition: position
            for partition, position in self._turns.next(now).items()
            if partition not in self.in_question
            and (
                not self._is_full or self.copies[partition].keeps_offsets or self.fetcher.is_asked(partition)
            )
            and not (rests and self._rests_with_others(partition))
        }
