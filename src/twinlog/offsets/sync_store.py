"""The store of offset syncs that translates group offsets: MM2's OffsetSyncStore (3.5 and later), pure.

Per source partition 64 slots hold syncs, the newest first; neighbouring slots often hold the very same sync.
Syncs are dense near the end of the topic and sparse further back, so that memory is bounded and recent
positions translate best.

Invariants (`s` the slots, `up` the upstream offset, "same" is identity; B and C hold for distinct syncs, i <
j):
- A: s[0] is the newest sync.
- B: up(s[i]) <= up(s[j]) + 2^j - 2^i: a slot never reaches further back than its share.
- C: up(s[i]) >= up(s[j]) + 2^max(i - 2, 0): distinct syncs keep a distance that grows with their age.
- D: s[63] is the earliest sync that may be used.

One rule is stricter than MM2's: where the downstream offset of a new sync goes back (the copy lost its tail,
or was deleted and created again), the older syncs describe records that no longer exist, and are dropped.

For one state of the store, translation is monotonic in the offset. Over time the same offset may translate
*lower*, as syncs in the middle are dropped; hence the checkpoint guard (`twinlog.offsets.checkpoints`). A
translation is never more than one past a known sync: never ahead of the record that the group would read
next.
"""

from dataclasses import dataclass
from enum import StrEnum

from twinlog.model import TopicPartition
from twinlog.wire.offset_sync import OffsetSync

SLOTS = 64

Slots = tuple[OffsetSync, ...]


class TranslationOutcome(StrEnum):
    AT_SYNC = "AT_SYNC"
    """The offset has a sync: the translation is exact."""
    AFTER_SYNC = "AFTER_SYNC"
    """The offset lies after a sync: the translation is the record after that sync's, at or before the true
    one."""
    NOT_READ = "NOT_READ"
    """The offset syncs topic has not been read to its end yet."""
    NO_SYNC = "NO_SYNC"
    """The partition has no sync, because nothing of it was copied yet."""
    TOO_OLD = "TOO_OLD"
    """The offset lies before the earliest usable sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTranslation:
    outcome: TranslationOutcome
    downstream_offset: int | None = None
    """The next offset to read on the target; None unless AT_SYNC or AFTER_SYNC."""
    sync: OffsetSync | None = None
    """The sync used; for TOO_OLD the earliest one."""


class OffsetSyncStore:
    """Takes offset syncs in the order of their topic, translates source offsets to target offsets."""

    def __init__(self, *, must_read_to_end: bool) -> None:
        """With `must_read_to_end`, syncs read before `finish_reading` leave no history: only the latest
        counts.

        MM2 sets it when it could not load the earlier checkpoints: old syncs are safe only behind a
        checkpoint guard that remembers.
        """
        self._must_read_to_end = must_read_to_end
        self.read_to_end = False
        self._slots: dict[TopicPartition, Slots] = {}

    def finish_reading(self) -> None:
        """Call when the topic was read to the end it had at the start of reading; translation starts now."""
        self.read_to_end = True

    def distrust_history(self) -> None:
        """Keep only the newest sync of each partition, because the earlier checkpoints could not be
        loaded."""
        self._must_read_to_end = True
        self._slots = {partition: (slots[0],) * SLOTS for partition, slots in self._slots.items()}

    def apply(self, sync: OffsetSync) -> None:
        """Apply the next sync of the topic. One that goes back on either side drops the history."""
        slots = self._slots.get(sync.partition)
        starts_again = (
            slots is None
            or (self._must_read_to_end and not self.read_to_end)
            or sync.upstream_offset < slots[0].upstream_offset
            or _target_went_back(slots[0], sync)
        )
        self._slots[sync.partition] = (
            (sync,) * SLOTS if slots is None or starts_again else _insert(slots, sync)
        )

    def translate(self, partition: TopicPartition, upstream_offset: int) -> SyncTranslation:
        """Translate a next offset on the source into a next offset on the target."""
        if not self.read_to_end:
            return SyncTranslation(outcome=TranslationOutcome.NOT_READ)
        slots = self._slots.get(partition)
        if slots is None:
            return SyncTranslation(outcome=TranslationOutcome.NO_SYNC)
        for sync in slots:
            if sync.upstream_offset == upstream_offset:
                return SyncTranslation(
                    outcome=TranslationOutcome.AT_SYNC, downstream_offset=sync.downstream_offset, sync=sync
                )
            if sync.upstream_offset < upstream_offset:
                return SyncTranslation(
                    outcome=TranslationOutcome.AFTER_SYNC,
                    downstream_offset=sync.downstream_offset + 1,
                    sync=sync,
                )
        return SyncTranslation(outcome=TranslationOutcome.TOO_OLD, sync=slots[-1])

    def slots(self, partition: TopicPartition) -> Slots:
        """Return the partition's 64 slots, newest first; empty when it has no sync."""
        return self._slots.get(partition, ())

    def partitions(self) -> frozenset[TopicPartition]:
        """Return the source partitions that have a sync."""
        return frozenset(self._slots)


def _target_went_back(newest: OffsetSync, sync: OffsetSync) -> bool:
    """Whether the target now has another record at or before the offset of the newest sync."""
    return sync.downstream_offset < newest.downstream_offset or (
        sync.downstream_offset == newest.downstream_offset and sync.upstream_offset != newest.upstream_offset
    )


def _insert(old: Slots, sync: OffsetSync) -> Slots:
    """Return the slots with `sync` first and the others moved back as far as B and C require.

    Slot by slot, the candidate is the newest old sync that is recent enough (B) and far enough from its
    neighbours on both sides (C). Ends at the first slot from which the rest is valid unchanged.
    """
    slots = list(old)
    slots[0] = sync
    replacement = sync
    candidate_index = 0
    for current in range(1, SLOTS):
        previous = current - 1
        while True:
            candidate = old[candidate_index]
            separate = _separate(slots[previous], candidate, previous)
            fits = (
                separate
                and _recent(slots[previous], candidate, previous, current)
                and (current + 1 >= SLOTS or _separate(candidate, slots[current + 1], current))
            )
            if fits:
                replacement = candidate
            skip = not separate or _repeated(old, candidate_index)
            if fits or skip:
                candidate_index += 1
            if not skip or candidate_index >= current:
                break
        if _recent(slots[previous], slots[current], previous, current):
            break
        slots[current] = replacement
    return tuple(slots)


def _recent(newer: OffsetSync, older: OffsetSync, i: int, j: int) -> bool:
    """Invariant B for the syncs in slots i < j."""
    return newer is older or newer.upstream_offset <= older.upstream_offset + (1 << j) - (1 << i)


def _separate(newer: OffsetSync, older: OffsetSync, i: int) -> bool:
    """Invariant C for a sync in slot i and one in a later slot."""
    return newer is older or newer.upstream_offset >= older.upstream_offset + (1 << max(i - 2, 0))


def _repeated(slots: Slots, index: int) -> bool:
    """Tell whether the next slot holds the same sync."""
    return index + 1 < SLOTS and slots[index] is slots[index + 1]
