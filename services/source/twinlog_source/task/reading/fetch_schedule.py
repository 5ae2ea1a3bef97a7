"""Who is fetched next: every partition that may be read, but for those that wait for their turn.

Two kinds wait. Once a fetch has brought a little, all partitions without a backlog rest until the writing
half is about to be free: what comes meanwhile could not be sent sooner, and is fetched in one go. They rest
together and are asked for together, in one request to each broker: were the others asked for at once, and the
one that rested later, each record would cost a request more, until none is left (a broker gets four) and a
record waits for the end of somebody else's long poll. Preserved copies do not rest: what they read is sent at
once, whatever else is on its way. And the backlogs of a limited topic are read a few at a
time, those first that were served longest ago: all at once would bring many seconds' worth.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twinlog.model import TopicPartition
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.throttle import Throttle

BACKLOG_BYTES = 32 << 10
"""A fetch that brings this much of one partition has a backlog behind it."""
TRICKLE_BYTES = 256 << 10
"""While less than this is buffered, partitions that brought little wait for the writing half."""
LONGEST_REST_SECONDS = 1.0
"""For a writing half that is not free for long, as while the target is away: how far behind partitions are is
still to be known."""
LIMIT_SECONDS = 0.1
"""How soon to look again when a limit keeps somebody waiting."""
LONGEST_WAIT_SECONDS = 1.0
"""How soon to look again while a partition is left out: what the writing half finds out is not announced."""
LONGEST_IDLE_SECONDS = 5.0
"""How soon to look again while every partition is asked for."""


@dataclass(slots=True, kw_only=True)
class FetchSchedule:
    """Pure but for what it is asked to remember: takes `now`, in monotonic seconds."""

    copies: Mapping[TopicPartition, PartitionCopy]
    throttle: Throttle
    is_asked: Callable[[TopicPartition], bool]
    """Its fetch is under way or answered: leaving it out now would throw the answer away."""
    _turn: int = 0
    _served: dict[TopicPartition, int] = field(default_factory=dict)
    """When each partition brought records last, in turns."""
    _busy: set[TopicPartition] = field(default_factory=set)
    """Those whose last records were a backlog's."""
    _rest_ends_at: float | None = None
    """None while nobody rests."""
    _look_again_at: float = 0.0

    def next(self, now: float) -> dict[TopicPartition, int]:
        """The positions to fetch from. A back-off that is over ends here."""
        look_again_at = now + LONGEST_IDLE_SECONDS
        if self._rest_ends_at is not None:
            if now >= self._rest_ends_at:
                self._rest_ends_at = None
            else:
                look_again_at = min(look_again_at, self._rest_ends_at)
        fetchable: dict[TopicPartition, PartitionCopy] = {}
        for partition, copy in self.copies.items():
            if not copy.fetchable(now):
                if copy.retry_at is not None:
                    look_again_at = min(look_again_at, copy.retry_at)
                if copy.not_before > now:
                    look_again_at = min(look_again_at, copy.not_before)
            elif self._rest_ends_at is None or self._may_not_rest(copy):
                fetchable[partition] = copy
        if not self.throttle.is_open and self._leave_out_limited(fetchable, now):
            look_again_at = min(look_again_at, now + LIMIT_SECONDS)
        if len(fetchable) < len(self.copies):
            look_again_at = min(look_again_at, now + LONGEST_WAIT_SECONDS)
        self._look_again_at = look_again_at
        return {partition: copy.fetched for partition, copy in fetchable.items()}

    def wait_seconds(self, now: float) -> float:
        """For how long the last answer of `next` stays right, if nothing is said meanwhile."""
        return max(0.0, self._look_again_at - now)

    def served(self, partition: TopicPartition, size_bytes: int, *, buffered_bytes: int, now: float) -> None:
        """A fetch brought so much of a partition, `buffered_bytes` are waiting to be written in rounds."""
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
        """The writing half is about to be free. Whether anybody rested, and may be fetched now."""
        rested = self._rest_ends_at is not None
        self._rest_ends_at = None
        return rested

    def _may_not_rest(self, copy: PartitionCopy) -> bool:
        """It waits for no round, its fetch is under way, or there is more of it to fetch."""
        partition = copy.partition
        if copy.keeps_offsets:
            return True
        return partition in self._busy or copy.has_more or self.is_asked(partition)

    def _leave_out_limited(self, fetchable: dict[TopicPartition, PartitionCopy], now: float) -> bool:
        """Whether anybody was left out."""
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
                partitions.sort(key=lambda partition: self._served.get(partition, 0))
                for late in partitions[max(0, at_once - under_way[topic]) :]:
                    del fetchable[late]
        return len(fetchable) < before
