"""Chooses what is fetched next: every readable partition, except those that wait.

Three kinds of partitions wait:
- Partitions without a backlog. After a fetch has brought little, they rest until the writing half is about to
  be free: records that arrive meanwhile could not be sent sooner, and one fetch then brings all of them. They
  rest together and are requested together, with one request to each broker. If they were requested
  separately, each record would cost another request, until a broker has no room for more (four), and a record
  would wait for the end of another partition's long poll. Preserved copies do not rest, because their records
  are sent at once.
- Partitions of a limited topic with a backlog. They are read a few at a time, in turn: all at once would
  bring many seconds' worth of data.
- Preserved copies while enough of them is held: only a few of which nothing is held are read.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twinlog.kafka.raw import FetchSizes
from twinlog.model import TopicPartition
from twinlog_source.partitions.planner import LimitDebt
from twinlog_source.task.partition import PartitionCopy

# Limits in bytes per second for the task and for single topics, which can change at any time. Pure: takes
# `now`.
#
# A bucket may go into debt by one fetch: the task waits after a large batch, and the mean rate stays within
# the limit. A fetch is also bounded by the limits, so that a debt is paid within a moment.
#
# How much of the preserved copies may be read and not yet acknowledged. No I/O.

BUFFERED_BYTES = 64 << 20
"""The limit for all partitions: bytes that are held and not acknowledged."""
LEAST_SHARE_BYTES = 256 << 10
"""What one partition may have, and what one fetch asks of it, however many there are: for less than the usual
batch size a broker would send nothing."""
WHOLE_FETCH_BYTES = 1 << 20
"""What one fetch brings of a partition by default: with a larger share it is not limited."""
FEW = 8
"""While the buffer is full, this many partitions of which nothing is held are fetched at a time: what is held
may be waiting for a leader that does not answer."""
RESERVE_SHARE = 0.25
"""What those partitions may have together, as a share of the limit."""


@dataclass(slots=True)
class ReadShares:
    """Partitions with unacknowledged bytes have equal shares of the limit."""

    most_bytes: int = BUFFERED_BYTES
    held_bytes: int = 0
    """Of all partitions."""
    _active: int = 0
    """How many partitions have unacknowledged bytes."""

    def change(self, before_bytes: int, after_bytes: int) -> None:
        """Of one partition this much was held, and is held now."""
        self.held_bytes += after_bytes - before_bytes
        self._active += (after_bytes > 0) - (before_bytes > 0)

    @property
    def share_bytes(self) -> int:
        """What each partition with unacknowledged bytes may have."""
        return max(self.most_bytes // max(self._active, 1), LEAST_SHARE_BYTES)

    @property
    def is_full(self) -> bool:
        """Whether only a few partitions may be fetched, and only those of which nothing is held."""
        return self.held_bytes >= self.most_bytes

    @property
    def few(self) -> int:
        """How many that are."""
        return FEW if self.held_bytes < self.most_bytes * (1 + RESERVE_SHARE) else 0

    @property
    def room_bytes(self) -> int:
        return self.most_bytes - self.held_bytes

    @property
    def is_overfull(self) -> bool:
        """Whether what was made of earlier answers of the same poll is so much more than was fetched that
        others have to be fetched again."""
        return self.held_bytes >= 2 * self.most_bytes


BURST_SECONDS = 0.25
LEAST_PARTITION_BYTES = 256 << 10
"""The least that one fetch asks of a partition: for less than the usual batch size a broker would send
nothing."""


@dataclass(slots=True, kw_only=True)
class Bucket:
    bytes_per_second: float
    _tokens: float = 0.0
    _at: float | None = None

    def allows(self, now: float) -> bool:
        """Whether the next fetch may begin."""
        if self._at is not None:
            earned = (now - self._at) * self.bytes_per_second
            self._tokens = min(self._tokens + earned, self.burst_bytes)
        self._at = now
        return self._tokens >= 0

    def spend(self, size_bytes: int, now: float) -> None:
        self.allows(now)
        self._tokens -= size_bytes

    def change(self, bytes_per_second: float, now: float) -> None:
        """Change the rate from now on; the balance stays."""
        self.allows(now)
        self.bytes_per_second = bytes_per_second

    @property
    def burst_bytes(self) -> float:
        return self.bytes_per_second * BURST_SECONDS

    def owed_bytes(self, now: float) -> int:
        self.allows(now)
        return max(0, int(-self._tokens))

    @property
    def owed_seconds(self) -> float:
        """The time until the debt is paid."""
        return max(0.0, -self._tokens / self.bytes_per_second)


@dataclass(slots=True, kw_only=True)
class Throttle:
    _whole: Bucket | None = None
    _topics: dict[str, Bucket] = field(default_factory=dict)

    def set_limits(self, bytes_per_second: int, topics: Mapping[str, int], now: float) -> None:
        """Replace all limits; 0 = none."""
        self._whole = _changed(self._whole, bytes_per_second, now)
        limits = ((topic, _changed(self._topics.get(topic), limit, now)) for topic, limit in topics.items())
        self._topics = {topic: bucket for topic, bucket in limits if bucket is not None}

    def owed(self, now: float) -> LimitDebt:
        return LimitDebt(
            bytes=0 if self._whole is None else self._whole.owed_bytes(now),
            topic_bytes={
                topic: owed for topic, bucket in self._topics.items() if (owed := bucket.owed_bytes(now))
            },
        )

    def owe(self, debt: LimitDebt, now: float) -> None:
        """Take over what the tasks before owed."""
        if self._whole is not None:
            self._whole.spend(debt.bytes, now)
        for topic, owed in debt.topic_bytes.items():
            if topic in self._topics:
                self._topics[topic].spend(owed, now)

    @property
    def is_open(self) -> bool:
        """Whether there is no limit."""
        return self._whole is None and not self._topics

    def allows(self, topic: str, now: float) -> bool:
        """Whether a partition of the topic may be fetched now."""
        bucket = self._topics.get(topic)
        return (self._whole is None or self._whole.allows(now)) and (bucket is None or bucket.allows(now))

    def at_once(self, topic: str) -> int | None:
        """How many partitions of a topic with a backlog may be fetched together; None = all."""
        bucket = self._topics.get(topic)
        return None if bucket is None else max(1, int(bucket.burst_bytes // LEAST_PARTITION_BYTES))

    def sizes(self, most_bytes: int) -> FetchSizes:
        """The size limits of a fetch; `most_bytes` where no limit is lower."""
        whole = most_bytes if self._whole is None else max(1, int(self._whole.burst_bytes))
        return FetchSizes(
            max_bytes=min(whole, most_bytes),
            partition_bytes=dict.fromkeys(self._topics, LEAST_PARTITION_BYTES),
        )

    def spend(self, topic: str, size_bytes: int, now: float) -> None:
        """Report how much of a topic was fetched."""
        for bucket in (self._whole, self._topics.get(topic)):
            if bucket is not None:
                bucket.spend(size_bytes, now)


def _changed(bucket: Bucket | None, bytes_per_second: int, now: float) -> Bucket | None:
    if bytes_per_second <= 0:
        return None
    if bucket is None:
        return Bucket(bytes_per_second=bytes_per_second)
    bucket.change(bytes_per_second, now)
    return bucket


BACKLOG_BYTES = 32 << 10
"""A fetch that brings this much of one partition has a backlog behind it."""
TRICKLE_BYTES = 256 << 10
"""While less than this is buffered, partitions that brought little wait for the writing half."""
LONGEST_REST_SECONDS = 1.0
"""For a writing half that is busy for long, for instance while the target is down: the lag still has to be
known."""
LIMIT_SECONDS = 0.1
"""How soon to check again while a limit makes a partition wait."""
LONGEST_WAIT_SECONDS = 1.0
"""How soon to check again while a partition is left out: the writing half does not announce its findings."""
LONGEST_IDLE_SECONDS = 5.0
"""How soon to check again while every partition is requested."""


@dataclass(slots=True, kw_only=True)
class FetchSchedule:
    """No I/O: takes `now`, in monotonic seconds."""

    copies: Mapping[TopicPartition, PartitionCopy]
    throttle: Throttle
    shares: ReadShares
    is_asked: Callable[[TopicPartition], bool]
    """Its fetch is in flight or answered: leaving it out now would discard the answer."""
    _turn: int = 0
    _served: dict[TopicPartition, int] = field(default_factory=dict)
    """For each partition, the turn in which it last brought records."""
    _busy: set[TopicPartition] = field(default_factory=set)
    """Partitions whose last fetch brought a backlog."""
    _rest_ends_at: float | None = None
    """None while no partition rests."""
    _look_again_at: float = 0.0

    def next(self, now: float) -> dict[TopicPartition, int]:
        """The positions to fetch from. A back-off that is over ends here."""
        look_again_at = now + LONGEST_IDLE_SECONDS
        if self._rest_ends_at is not None:
            if now >= self._rest_ends_at:
                self._rest_ends_at = None
            else:
                look_again_at = min(look_again_at, self._rest_ends_at)
        positions: dict[TopicPartition, int] = {}
        nobody_rests = self._rest_ends_at is None
        for partition, copy in self.copies.items():
            if not copy.fetchable(now):
                if copy.retry_at is not None:
                    look_again_at = min(look_again_at, copy.retry_at)
                if copy.not_before > now:
                    look_again_at = min(look_again_at, copy.not_before)
            elif nobody_rests or self._may_not_rest(copy):
                positions[partition] = copy.fetched
        if not self.throttle.is_open or self.shares.is_full:
            fetchable = {partition: self.copies[partition] for partition in positions}
            if not self.throttle.is_open and self._leave_out_limited(fetchable, now):
                look_again_at = min(look_again_at, now + LIMIT_SECONDS)
            if self.shares.is_full:
                self._leave_out_preserved(fetchable)
            positions = {partition: copy.fetched for partition, copy in fetchable.items()}
        if len(positions) < len(self.copies):
            look_again_at = min(look_again_at, now + LONGEST_WAIT_SECONDS)
        self._look_again_at = look_again_at
        return positions

    def wait_seconds(self, now: float) -> float:
        """For how long the last result of `next` stays valid, if nothing is reported meanwhile."""
        return max(0.0, self._look_again_at - now)

    def served(self, partition: TopicPartition, size_bytes: int, *, buffered_bytes: int, now: float) -> None:
        """A fetch brought this much of a partition; `buffered_bytes` are waiting to be written in rounds."""
        self._turn += 1
        self._served[partition] = self._turn
        if size_bytes >= BACKLOG_BYTES:
            self._busy.add(partition)
            return
        self._busy.discard(partition)
        if self.copies[partition].keeps_offsets:
            return
        if buffered_bytes < TRICKLE_BYTES and self._rest_ends_at is None:
            self._rest_ends_at = now + LONGEST_REST_SECONDS

    def end_rest(self) -> bool:
        """The writing half is about to be free. Return whether any partition rested, and may be fetched
        now."""
        rested = self._rest_ends_at is not None
        self._rest_ends_at = None
        return rested

    def _may_not_rest(self, copy: PartitionCopy) -> bool:
        """Whether the partition waits for no round, has a fetch in flight, or has a backlog."""
        partition = copy.partition
        if copy.keeps_offsets:
            return True
        return partition in self._busy or copy.has_more or self.is_asked(partition)

    def _leave_out_limited(self, fetchable: dict[TopicPartition, PartitionCopy], now: float) -> bool:
        """Return whether any partition was left out."""
        before = len(fetchable)
        waiting: dict[str, list[TopicPartition]] = {}
        under_way: Counter[str] = Counter()
        for partition, copy in list(fetchable.items()):
            topic = partition.topic
            if self.is_asked(partition):
                under_way[topic] += copy.has_more
            elif not self.throttle.allows(topic, now):
                del fetchable[partition]
            elif copy.has_more:
                waiting.setdefault(topic, []).append(partition)
        for topic, partitions in waiting.items():
            at_once = self.throttle.at_once(topic)
            if at_once is not None:
                for late in self._in_turn(partitions)[max(0, at_once - under_way[topic]) :]:
                    del fetchable[late]
        return len(fetchable) < before

    def _leave_out_preserved(self, fetchable: dict[TopicPartition, PartitionCopy]) -> None:
        """Leave out preserved copies but those of which nothing is held, and of these all but a few that have
        a backlog. Answers in flight are taken."""
        few, waiting = self.shares.few, list[TopicPartition]()
        for partition, copy in list(fetchable.items()):
            if not copy.keeps_offsets:
                continue
            if self.is_asked(partition):
                few -= copy.has_more
            elif copy.held_bytes or copy.has_more or not self.shares.few:
                del fetchable[partition]
                if not copy.held_bytes:
                    waiting.append(partition)
        for partition in self._in_turn(waiting)[: max(0, few)]:
            fetchable[partition] = self.copies[partition]

    def _in_turn(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The least recently served first."""
        return sorted(partitions, key=lambda partition: self._served.get(partition, 0))
