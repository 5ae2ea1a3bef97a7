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

from twinlog.model import TopicPartition
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.throttle import ReadShares, Throttle

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
