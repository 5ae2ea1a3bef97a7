"""Decides when an offset sync is due and queues it: MM2's OffsetSyncWriter as pure state.

The caller reports acknowledged records, takes the syncs to send, and reports the end of each send. Nothing
here waits or sends. One instance per writer of a set of source partitions. Its state starts empty, so the
first record of every partition is always due.
"""

from collections import deque
from collections.abc import Mapping

from twinlog.model import TopicPartition
from twinlog.wire.offset_sync import OffsetSync

DEFAULT_OFFSET_LAG_MAX = 100
MAX_IN_FLIGHT = 10


class PartitionSyncState:
    """The last acknowledged record and the last sync of one source partition.

    `due` stays set until `reset`, which the writer calls right after it queued the sync.
    """

    __slots__ = (
        "_last_sync_downstream",
        "_previous_downstream",
        "_previous_upstream",
        "due",
        "offset_lag_max",
    )

    def __init__(self, offset_lag_max: int) -> None:
        self.offset_lag_max = offset_lag_max
        self._previous_upstream = -1
        self._previous_downstream = -1
        self._last_sync_downstream = -1
        self.due = False

    def update(self, upstream_offset: int, downstream_offset: int) -> bool:
        """Take one acknowledged record; return `due`.

        A sync is due for the first record, when a translated offset would lag by `offset_lag_max` or more,
        when the source skipped or went back, and when the target went back.
        """
        if (
            self._last_sync_downstream == -1
            or downstream_offset - (self._last_sync_downstream + 1) >= self.offset_lag_max
            or upstream_offset - self._previous_upstream != 1
            or downstream_offset < self._previous_downstream
        ):
            self._last_sync_downstream = downstream_offset
            self.due = True
        self._previous_upstream = upstream_offset
        self._previous_downstream = downstream_offset
        return self.due

    def update_run(self, upstream_offset: int, downstream_offset: int, count: int) -> list[int]:
        """Take `count` records whose offsets rise by one on both sides; return the indexes of those that were
        due.

        Equals `update` and `reset` for each record, in time proportional to the syncs. Leaves `due` False.
        """
        due_at = [0] if self.update(upstream_offset, downstream_offset) else []
        self.reset()
        last = count - 1
        # Inside the run nothing skips, so only the lag makes a sync due: one every offset_lag_max + 1
        # records.
        step = max(self.offset_lag_max, 0) + 1
        following = max(self._last_sync_downstream + step - downstream_offset, 1)
        due_at.extend(range(following, count, step))
        if due_at:
            self._last_sync_downstream = downstream_offset + due_at[-1]
        self._previous_upstream = upstream_offset + last
        self._previous_downstream = downstream_offset + last
        return due_at

    def reset(self) -> None:
        self.due = False


class OffsetSyncWriter:
    """Queues of syncs: pending ones are sent as soon as there is room, delayed ones after the next `commit`.

    MM2 keeps one pending sync per partition, the newest. `history_per_partition` keeps that many, so that a
    run of records acknowledged at once leaves as many syncs as single records do. Beyond it the oldest are
    dropped: losing a sync costs precision, never correctness.
    """

    def __init__(
        self,
        *,
        offset_lag_max: int = DEFAULT_OFFSET_LAG_MAX,
        max_in_flight: int = MAX_IN_FLIGHT,
        history_per_partition: int = 1,
    ) -> None:
        self.offset_lag_max = offset_lag_max
        self._max_in_flight = max_in_flight
        self.history_per_partition = history_per_partition
        self.in_flight = 0
        self._states: dict[TopicPartition, PartitionSyncState] = {}
        # Pairs of an offset of the source and one of the target: most of them are never sent.
        self._pending: dict[TopicPartition, deque[tuple[int, int]]] = {}
        self._delayed: dict[TopicPartition, tuple[int, int]] = {}

    def acknowledged(self, partition: TopicPartition, upstream_offset: int, downstream_offset: int) -> None:
        """Take one record that the target acknowledged."""
        self.acknowledged_run(partition, upstream_offset, downstream_offset, 1)

    def acknowledged_run(
        self, partition: TopicPartition, upstream_offset: int, downstream_offset: int, count: int
    ) -> None:
        """Take `count` acknowledged records whose offsets rise by one on both sides (a whole batch).

        Raises ValueError when there are none.
        """
        if count < 1:
            raise ValueError(f"a run has at least one record, got {count}")
        state = self._states.get(partition)
        if state is None:
            state = self._states[partition] = PartitionSyncState(self.offset_lag_max)
        due_at = state.update_run(upstream_offset, downstream_offset, count)
        last = count - 1
        if due_at:
            self._delayed.pop(partition, None)
            for index in due_at[-self.history_per_partition :]:
                self._queue(partition, (upstream_offset + index, downstream_offset + index))
        if not due_at or due_at[-1] != last:
            self._delayed[partition] = upstream_offset + last, downstream_offset + last

    def commit(self) -> None:
        """Make every delayed sync pending, so that an idle partition is synced to its last record.

        Called every offset.flush.interval.ms, and after every transaction.
        """
        for partition, offsets in self._delayed.items():
            self._queue(partition, offsets)
        self._delayed.clear()

    def promote(self, partition: TopicPartition) -> None:
        """Make the delayed sync of one partition pending."""
        offsets = self._delayed.pop(partition, None)
        if offsets is not None:
            self._queue(partition, offsets)

    def take(self, most: Mapping[TopicPartition, int] | None = None) -> list[OffsetSync]:
        """Remove and return the syncs to send now, up to the limit in flight, in order per partition.

        With `most`, only that many of each partition, the newest; older ones are dropped.
        """
        taken: list[OffsetSync] = []
        for partition in list(self._pending if most is None else most):
            queue = self._pending.get(partition)
            if queue is None:
                continue
            room = self._max_in_flight - self.in_flight
            if most is not None and room > 0:
                while len(queue) > min(most[partition], room):
                    queue.popleft()
            while queue and self.in_flight < self._max_in_flight:
                taken.append(_sync(partition, *queue.popleft()))
                self.in_flight += 1
            if not queue:
                del self._pending[partition]
        return taken

    def resume(
        self, partition: TopicPartition, upstream_offset: int, downstream_offset: int, *, synced: bool
    ) -> None:
        """Continue after another writer's last record; unless `synced`, its sync is still due."""
        state = self._states[partition] = PartitionSyncState(self.offset_lag_max)
        state.update(upstream_offset, downstream_offset)
        state.reset()
        if not synced:
            self._delayed[partition] = upstream_offset, downstream_offset

    def also_in_flight(self, count: int) -> None:
        """Count syncs that another path has in flight."""
        self.in_flight += count

    def completed(self, count: int = 1) -> None:
        """Report that `count` of the syncs taken were acknowledged or failed. A failed one is lost, as in
        MM2."""
        self.in_flight -= count

    def forget(self, partition: TopicPartition) -> None:
        """Forget a partition that this writer no longer copies."""
        self._states.pop(partition, None)
        self._pending.pop(partition, None)
        self._delayed.pop(partition, None)

    @property
    def pending(self) -> tuple[OffsetSync, ...]:
        """Syncs that wait for room in flight."""
        return tuple(_sync(of, *offsets) for of, queue in self._pending.items() for offsets in queue)

    @property
    def delayed(self) -> tuple[OffsetSync, ...]:
        """Syncs that wait for the next `commit`: at most one per partition."""
        return tuple(_sync(of, *offsets) for of, offsets in self._delayed.items())

    def _queue(self, partition: TopicPartition, offsets: tuple[int, int]) -> None:
        queue = self._pending.get(partition)
        if queue is None:
            queue = self._pending[partition] = deque(maxlen=self.history_per_partition)
        queue.append(offsets)


def _sync(partition: TopicPartition, upstream_offset: int, downstream_offset: int) -> OffsetSync:
    return OffsetSync(
        partition=partition, upstream_offset=upstream_offset, downstream_offset=downstream_offset
    )
