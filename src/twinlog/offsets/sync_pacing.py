"""Limits the number of offset syncs: MM2's rule says which may be sent, this one keeps them in proportion.

MM2 writes a sync wherever the source skips an offset: one for every transaction, and one for every record of
a compacted topic. Here a partition has at most
- one sync for each `offset_lag_max + 1` records copied,
- one more in each `flush_seconds` (`BURST` saved up) for the remaining records when the partition has no
  traffic for `QUIET_SECONDS`, or when its newest record has waited for `flush_seconds`,
- the first one, and one at the record where either side went back, which voids all syncs before.

A missing sync costs precision, never correctness. Pure; nothing here waits or sends.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from twinlog.model import TopicPartition
from twinlog.offsets.sync_writer import OffsetSyncWriter
from twinlog.wire.offset_sync import OffsetSync

QUIET_SECONDS = 1.0
BURST = 3.0
MOST_TURNS = 8
"""Most syncs waiting for each partition; the oldest are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPace:
    """The state of a partition's syncs, from which the next writer continues."""

    upstream_offset: int
    """Offset of the newest record copied; `downstream_offset` is its offset on the target."""
    downstream_offset: int
    records: int
    """Records copied since the newest sync."""
    credit: float
    """Syncs that may be sent in addition to those for enough records."""
    synced: bool
    """Whether the newest record has its sync."""


@dataclass(slots=True)
class _Partition:
    upstream: int = -1
    downstream: int = -1
    records: int = 0
    credit: float = 1.0
    credited_at: float = 0.0
    sent_at: float = 0.0
    changed_at: float = 0.0
    turns: list[OffsetSync] = field(default_factory=list)
    """Syncs of the records where either side went back."""


class PacedSyncs:
    """The syncs of one task's partitions. `now` is in monotonic seconds, never falling."""

    def __init__(self, writer: OffsetSyncWriter, *, flush_seconds: float) -> None:
        self._writer = writer
        self._flush_seconds = max(flush_seconds, QUIET_SECONDS)
        self._step = writer.offset_lag_max + 1
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._waiting: set[TopicPartition] = set()
        """Partitions with records newer than their newest sync."""

    def resume(self, partition: TopicPartition, pace: SyncPace, now: float) -> None:
        """Continue after the previous writer, in order."""
        self._partitions[partition] = _Partition(
            upstream=pace.upstream_offset,
            downstream=pace.downstream_offset,
            records=pace.records,
            credit=pace.credit,
            credited_at=now,
            sent_at=now,
            changed_at=now,
        )
        self._writer.resume(partition, pace.upstream_offset, pace.downstream_offset, synced=pace.synced)
        if not pace.synced:
            self._waiting.add(partition)

    def pace(self, partition: TopicPartition, now: float) -> SyncPace | None:
        """The state for the next writer; None before the first record."""
        state = self._partitions.get(partition)
        if state is None or state.upstream < 0:
            return None
        return SyncPace(
            upstream_offset=state.upstream,
            downstream_offset=state.downstream,
            records=state.records,
            credit=self._credit(state, now),
            synced=partition not in self._waiting,
        )

    def acknowledged(
        self,
        partition: TopicPartition,
        runs: Sequence[tuple[int, int]],
        downstream_offset: int,
        now: float,
    ) -> None:
        """Count the records of a batch that the target has from `downstream_offset` on. `runs`: their first
        offset at the source and their number, in order and with offsets missing between them.

        Raises ValueError for a run of none.
        """
        state = self._partitions.get(partition)
        if state is None:
            state = self._partitions[partition] = _Partition(credited_at=now, sent_at=now)
        # Each run leaves a sync at least, so those of the newest would displace those between.
        newest = max(1, len(runs) - self._writer.history_per_partition)
        for place, (first, count) in enumerate(runs):
            if place == 0 or place >= newest:
                self._acknowledged_run(partition, state, first, downstream_offset, count)
            else:
                state.records += count
            downstream_offset += count
        state.changed_at = now
        self._waiting.add(partition)

    def _acknowledged_run(
        self,
        partition: TopicPartition,
        state: _Partition,
        upstream_offset: int,
        downstream_offset: int,
        count: int,
    ) -> None:
        if state.upstream < 0 or upstream_offset <= state.upstream or downstream_offset <= state.downstream:
            self._turn(
                state,
                OffsetSync(
                    partition=partition, upstream_offset=upstream_offset, downstream_offset=downstream_offset
                ),
            )
            if count > 1:
                self._writer.acknowledged_run(
                    partition, upstream_offset + 1, downstream_offset + 1, count - 1
                )
        else:
            self._writer.acknowledged_run(partition, upstream_offset, downstream_offset, count)
        state.upstream = upstream_offset + count - 1
        state.downstream = downstream_offset + count - 1
        state.records += count

    def take(self, now: float) -> list[OffsetSync]:
        """Remove and return the syncs to send now, in order per partition; see `OffsetSyncWriter.take`."""
        most: dict[TopicPartition, int] = {}
        beside: set[TopicPartition] = set()
        for partition in self._waiting:
            state = self._partitions[partition]
            enough = state.records // self._step
            if enough:
                most[partition] = enough
            elif self._may_go_beside(state, now):
                most[partition] = 1
                beside.add(partition)
        return self._take(most, beside, now)

    def take_rest(self, now: float, *, of: Set[TopicPartition] | None = None) -> list[OffsetSync]:
        """Take the sync of every partition whose newest record has none, or of those among `of`; no writer
        follows."""
        left = self._waiting if of is None else self._waiting & of
        return self._take(dict.fromkeys(left, 1), frozenset(), now)

    @property
    def is_waiting(self) -> bool:
        """Whether some partition's newest record has no sync yet."""
        return bool(self._waiting)

    def completed(self, count: int) -> None:
        """See `OffsetSyncWriter.completed`."""
        self._writer.completed(count)

    def lost(self, partitions: Iterable[TopicPartition]) -> None:
        """A sync of each of these did not arrive: the newest record's is due once more."""
        for partition in partitions:
            state = self._partitions[partition]
            self._writer.forget(partition)
            self._writer.resume(partition, state.upstream, state.downstream, synced=False)
            self._waiting.add(partition)

    def _may_go_beside(self, state: _Partition, now: float) -> bool:
        is_quiet = now - state.changed_at >= QUIET_SECONDS
        return (is_quiet or now - state.sent_at >= self._flush_seconds) and self._credit(state, now) >= 1

    def _credit(self, state: _Partition, now: float) -> float:
        return min(BURST, state.credit + (now - state.credited_at) / self._flush_seconds)

    def _take(
        self, most: Mapping[TopicPartition, int], beside: Set[TopicPartition], now: float
    ) -> list[OffsetSync]:
        for partition in most:
            self._writer.promote(partition)
        turns = [sync for partition in self._waiting for sync in self._partitions[partition].turns]
        self._writer.also_in_flight(len(turns))
        taken = turns + self._writer.take(most)
        for sync in taken:
            state = self._partitions[sync.partition]
            state.turns.clear()
            if (sync.upstream_offset, sync.downstream_offset) == (state.upstream, state.downstream):
                self._note_newest(sync.partition, state, charged=sync.partition in beside, now=now)
        return taken

    def _note_newest(
        self, partition: TopicPartition, state: _Partition, *, charged: bool, now: float
    ) -> None:
        """Queue the sync of the newest record."""
        if charged:
            state.credit, state.credited_at = self._credit(state, now) - 1, now
        state.records, state.sent_at = 0, now
        self._waiting.discard(partition)

    def _turn(self, state: _Partition, sync: OffsetSync) -> None:
        """Queue the sync of a record where a side went back; it voids those waiting before."""
        state.turns = [*state.turns, sync][-MOST_TURNS:]
        self._writer.forget(sync.partition)
        self._writer.resume(sync.partition, sync.upstream_offset, sync.downstream_offset, synced=True)
