"""Every known pair "record u of the source is record d of the target", dense where MM2's store keeps 64.
Pure.

MM2's `OffsetSyncStore` answers without reading the logs, so it must forget; exact translation reads the logs
from the nearest pair on, so it wants the nearest pair there is.
"""

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from twinlog.model import TopicPartition
from twinlog.wire import TopicIds

MAX_PAIRS_PER_PARTITION = 4096
"""16 bytes each. When full, every second pair of the older half goes."""

CONDENSED_NEWEST = 64
CONDENSED_OLDER = 64
"""Pairs of a partition that are kept over a restart."""

_generations = count()
"""No two states of any two histories share a number."""


@dataclass(frozen=True, slots=True)
class OffsetPair:
    """Offsets of one and the same record on both sides."""

    upstream: int
    downstream: int

    def reversed(self) -> "OffsetPair":
        return OffsetPair(self.downstream, self.upstream)


def _target_went_back(newest: OffsetPair | None, sync: OffsetPair) -> bool:
    """Whether another record lies on the target where the newest one was, or before."""
    return newest is not None and sync.downstream <= newest.downstream and sync != newest


@dataclass(frozen=True, slots=True)
class CondensedPairs:
    """What is kept of a history over a restart."""

    newest_sync: OffsetPair
    vouched_from: int
    """See `PairHistory.vouched`."""
    pairs: tuple[OffsetPair, ...]
    """Rising on both sides."""
    topic_ids: TopicIds | None = None


class PairHistory:
    """The pairs of one source partition.

    Invariant: both offsets rise strictly from pair to pair. Whatever contradicts a newer sync is dropped:
    after a rewind of the copy (records copied twice) the pairs above it, after the target was re-created all
    of them.
    """

    def __init__(self) -> None:
        self._upstream = array("q")
        self._downstream = array("q")
        self.newest_sync: OffsetPair | None = None
        self._vouched_from = 0
        self.topic_ids: TopicIds | None = None
        """Of the two logs that the pairs are of; None = the newest sync does not tell."""
        self.generation = next(_generations)
        """Rises whenever a pair was dropped because a newer sync contradicts it: answers made before are
        void."""

    def __len__(self) -> int:
        return len(self._upstream)

    @classmethod
    def restored(cls, condensed: CondensedPairs) -> "PairHistory":
        """A history as it was, less dense."""
        history = cls()
        history.newest_sync = condensed.newest_sync
        history._vouched_from = condensed.vouched_from
        history.topic_ids = condensed.topic_ids
        history._upstream.extend(pair.upstream for pair in condensed.pairs)
        history._downstream.extend(pair.downstream for pair in condensed.pairs)
        return history

    def condensed(self) -> CondensedPairs | None:
        """The newest pairs and some of the older ones, spread evenly; None before the first sync."""
        if self.newest_sync is None:
            return None
        older = max(0, len(self) - CONDENSED_NEWEST)
        spread = range(0, older, max(1, -(-older // CONDENSED_OLDER)))
        kept = [self._pair(index) for index in (*spread, *range(older, len(self)))]
        pairs = tuple(pair for pair in kept if pair is not None)
        return CondensedPairs(self.newest_sync, self._vouched_from, pairs, self.topic_ids)

    def on_sync(self, sync: OffsetPair, topic_ids: TopicIds | None = None) -> None:
        """Take an offset sync, in the order of the offset-syncs topic; the newest one is always right.

        One that goes back on either side (the copy was rewound, a topic was re-created) voids all pairs at or
        above it on either side. One of other topics voids all.
        """
        newest, self.newest_sync = self.newest_sync, sync
        former, self.topic_ids = self.topic_ids, topic_ids
        if None not in (former, topic_ids) and former != topic_ids:
            newest, self._vouched_from = None, sync.upstream
            self._clear()
        if sync.upstream < self._vouched_from or _target_went_back(newest, sync):
            self._vouched_from = sync.upstream
        went_back = newest is not None and (
            sync.upstream < newest.upstream or sync.downstream < newest.downstream
        )
        at = self._place(sync)
        if at is None or went_back:
            cut = min(
                bisect_left(self._upstream, sync.upstream), bisect_left(self._downstream, sync.downstream)
            )
            if self._pair(cut) == sync and (not went_back or cut == len(self) - 1):
                return
            if cut < len(self):
                del self._upstream[cut:]
                del self._downstream[cut:]
                self.generation = next(_generations)
            at = cut
        self._insert(at, sync)

    def on_verified(self, pair: OffsetPair) -> None:
        """Take a pair that a comparison has found. One that contradicts the known ones, or repeats one, is
        ignored."""
        at = self._place(pair)
        if at is not None:
            self._insert(at, pair)

    def at_or_below(self, upstream: int) -> OffsetPair | None:
        """The nearest pair whose upstream offset is not above `upstream`."""
        return self._pair(bisect_right(self._upstream, upstream) - 1)

    def above(self, upstream: int) -> OffsetPair | None:
        """The nearest pair whose upstream offset is above `upstream`."""
        return self._pair(bisect_right(self._upstream, upstream))

    def downstream_at_or_below(self, downstream: int) -> OffsetPair | None:
        """The nearest pair whose downstream offset is not above `downstream`: for the way back."""
        return self._pair(bisect_right(self._downstream, downstream) - 1)

    def downstream_above(self, downstream: int) -> OffsetPair | None:
        return self._pair(bisect_right(self._downstream, downstream))

    def newest(self) -> OffsetPair | None:
        return self._pair(len(self) - 1)

    def contradicts(self, upstream: int, downstream: int) -> bool:
        """Whether `downstream` is surely ahead of the copy of record `upstream`: the copy of a record at or
        after it lies before. So it is with answers from before the copy lost its tail or was created again.
        """
        pair = self._pair(bisect_left(self._upstream, upstream))
        return pair is not None and pair.downstream < downstream

    def vouched(self, pair: OffsetPair) -> bool:
        """Whether the pair was learned since the copy last went back. Others may be of a log that is gone."""
        return pair.upstream >= self._vouched_from

    def _clear(self) -> None:
        del self._upstream[:]
        del self._downstream[:]
        self.generation = next(_generations)

    def _pair(self, index: int) -> OffsetPair | None:
        if not 0 <= index < len(self):
            return None
        return OffsetPair(self._upstream[index], self._downstream[index])

    def _place(self, pair: OffsetPair) -> int | None:
        """Where the pair fits without touching the others; None when it repeats or contradicts one."""
        at = bisect_left(self._upstream, pair.upstream)
        if at != bisect_left(self._downstream, pair.downstream):
            return None
        if at < len(self) and (
            self._upstream[at] == pair.upstream or self._downstream[at] == pair.downstream
        ):
            return None
        return at

    def _insert(self, at: int, pair: OffsetPair) -> None:
        self._upstream.insert(at, pair.upstream)
        self._downstream.insert(at, pair.downstream)
        if len(self) > MAX_PAIRS_PER_PARTITION:
            half = len(self) // 2
            self._upstream = self._upstream[:half:2] + self._upstream[half:]
            self._downstream = self._downstream[:half:2] + self._downstream[half:]


class Pairs(Protocol):
    """Pairs seen from one side, called upstream here whichever cluster it is."""

    @property
    def generation(self) -> int: ...

    def at_or_below(self, upstream: int) -> OffsetPair | None: ...

    def above(self, upstream: int) -> OffsetPair | None: ...

    def downstream_at_or_below(self, downstream: int) -> OffsetPair | None: ...

    def newest(self) -> OffsetPair | None: ...

    def on_verified(self, pair: OffsetPair) -> None: ...

    def vouched(self, pair: OffsetPair) -> bool: ...


class ReversedPairs:
    """The same pairs seen from the target: for the way back."""

    def __init__(self, history: PairHistory) -> None:
        self._history = history

    @property
    def generation(self) -> int:
        return self._history.generation

    def at_or_below(self, upstream: int) -> OffsetPair | None:
        return _reversed(self._history.downstream_at_or_below(upstream))

    def above(self, upstream: int) -> OffsetPair | None:
        return _reversed(self._history.downstream_above(upstream))

    def downstream_at_or_below(self, downstream: int) -> OffsetPair | None:
        return _reversed(self._history.at_or_below(downstream))

    def newest(self) -> OffsetPair | None:
        return _reversed(self._history.newest())

    def on_verified(self, pair: OffsetPair) -> None:
        self._history.on_verified(pair.reversed())

    def vouched(self, pair: OffsetPair) -> bool:
        return self._history.vouched(pair.reversed())


def _reversed(pair: OffsetPair | None) -> OffsetPair | None:
    return None if pair is None else pair.reversed()


class SyncHistory:
    """The pairs of every source partition of one flow."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PairHistory] = {}
        self._topics: set[str] = set()

    def on_sync(self, partition: TopicPartition, sync: OffsetPair, topic_ids: TopicIds | None = None) -> None:
        self._topics.add(partition.topic)
        self._partitions.setdefault(partition, PairHistory()).on_sync(sync, topic_ids)

    def restore(self, partition: TopicPartition, condensed: CondensedPairs) -> None:
        self._topics.add(partition.topic)
        self._partitions[partition] = PairHistory.restored(condensed)

    def of(self, partition: TopicPartition) -> PairHistory | None:
        """None when nothing of the partition was ever seen."""
        return self._partitions.get(partition)

    def begun(self, partition: TopicPartition, topic_ids: TopicIds | None) -> PairHistory:
        """Also before the first sync, for what comparisons find in these topics. It is not kept while nobody
        knows which they are."""
        history = self._partitions.get(partition)
        if history is not None and history.newest_sync is not None:
            return history
        if topic_ids is None or "" in topic_ids:
            return PairHistory()
        if history is None or history.topic_ids != topic_ids:
            history = self._partitions[partition] = PairHistory()
            history.topic_ids = topic_ids
        return history

    def has_topic(self, topic: str) -> bool:
        """Whether it has a partition of the topic. Moves ask for each offset of each group."""
        return topic in self._topics

    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._partitions)
