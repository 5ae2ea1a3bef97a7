"""How many slots copy, and which partitions each has: by measured load, and changed only when it pays. Pure.

Each slot costs a transaction per round and the memory of a worker, and a single slot copies hundreds of
megabytes per second. So a quiet flow has one slot, and a flow that is behind has all that it may have.

Invariant A: every partition is in exactly one slot (one writer per partition).

Invariant B: a plan is kept unless the new one relieves the heaviest slot by more than `gain_ratio` and by an
amount that matters, or a slot is empty.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from twinlog.model import TopicPartition

UNKNOWN_BYTES_PER_SECOND = 5_000.0
"""Assumed load of a partition that was not measured yet (Brooklin's default)."""
FIXED_BYTES_PER_SECOND = 500.0
"""The cost of an idle partition: a fetch entry, a report."""
LEAST_GAIN_BYTES_PER_SECOND = 200_000.0
"""Below this load no slot is busy, however unequal the slots are."""

SLOT_BYTES_PER_SECOND = 32e6
"""Mean load of a slot above which another one is added. A slot copies at least 200 MB/s raw, or 80 MB/s
recoded."""
SLOT_KEPT_ABOVE = 0.5
"""The share of that load below which a slot is given up."""
BEHIND_SECONDS = 5.0
BEHIND_RECORDS = 10_000
"""A partition that lags more than both of these is behind: its slot does not keep up."""
BACKLOG_RECORDS = 100
"""A partition with a larger lag has a backlog: its slot would copy faster if it were allowed to."""

FIRST_BACKLOG_RECORDS = 500_000
"""A flow that begins with a larger backlog begins with all slots: one slot would take seconds, and adding
slots costs another start."""

Plan = tuple[tuple[TopicPartition, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The present load of partitions."""

    bytes_per_second: float = 0.0
    """As measured."""
    has_backlog: bool = False
    """The partitions would be copied faster without limits."""
    is_behind: bool = False
    """The slots do not keep up."""
    first_backlog_records: int = 0
    """Backlog of partitions that no task copies yet: offsets from position to end of the log."""

    @property
    def most_bytes_per_second(self) -> float | None:
        """The load without limits; None = unbounded."""
        return None if self.has_backlog else 2 * self.bytes_per_second


def slots_needed(load: Load, *, present: int, most: int) -> int:
    """Slots for a load, 1 to `most`, when `present` copy now (0 = none yet).

    >>> slots_needed(Load(bytes_per_second=1e6), present=0, most=8)
    1
    >>> slots_needed(Load(bytes_per_second=100e6), present=1, most=8)
    4
    >>> slots_needed(Load(bytes_per_second=1e6, is_behind=True), present=1, most=8)
    8
    >>> slots_needed(Load(first_backlog_records=10_000_000), present=0, most=8)
    8
    """
    if load.is_behind or load.first_backlog_records >= FIRST_BACKLOG_RECORDS:
        return most
    growing = math.ceil(load.bytes_per_second / SLOT_BYTES_PER_SECOND)
    if growing < present:
        shrinking = math.ceil(load.bytes_per_second / (SLOT_BYTES_PER_SECOND * SLOT_KEPT_ABOVE))
        growing = min(present, shrinking)
    return max(1, min(growing, most))


def workers_wanted(load: Load, *, present: int, partitions: int) -> int:
    """Slots with which so many partitions would keep up, whatever Spark has. A partition is in one slot.

    >>> workers_wanted(Load(bytes_per_second=1e6), present=1, partitions=8)
    1
    >>> workers_wanted(Load(bytes_per_second=1e6, is_behind=True), present=2, partitions=8)
    4
    """
    needed = slots_needed(replace(load, is_behind=False), present=present, most=max(1, partitions))
    return min(partitions, max(needed, 2 * present if load.is_behind else 0))


def plan(
    rates: Mapping[TopicPartition, float | None],
    *,
    max_slots: int,
    previous: Plan = (),
    gain_ratio: float = 0.2,
) -> Plan:
    """Assign every partition of `rates` (bytes per second, None = unknown) to one of at most `max_slots`
    slots.

    Partitions keep their slot while the heaviest slot of `previous` (new partitions go to the lightest) is
    within `gain_ratio` of the best plan's. Otherwise all are distributed again, heaviest first.
    """
    slots = min(len(rates), max_slots)  # A slot is never empty.
    if not slots:
        return ()
    load = {
        p: FIXED_BYTES_PER_SECOND + (UNKNOWN_BYTES_PER_SECOND if r is None else r) for p, r in rates.items()
    }

    def is_enough(kept: Plan, best: float) -> bool:
        limit = max(best * (1 + gain_ratio), best + LEAST_GAIN_BYTES_PER_SECOND)
        return all(kept) and _heaviest(kept, load) <= limit

    kept: Plan = ()
    if len(previous) == slots:
        kept = _deal(load, tuple(tuple(p for p in slot if p in load) for slot in previous))
        # No plan is better than equal slots, and to make one takes much longer than to look at this one.
        if is_enough(kept, sum(load.values()) / slots):
            return kept
    fresh = _deal(load, tuple(() for _ in range(slots)))
    return kept if kept and is_enough(kept, _heaviest(fresh, load)) else fresh


def _deal(load: Mapping[TopicPartition, float], start: Sequence[Sequence[TopicPartition]]) -> Plan:
    """Add the missing partitions to `start`, the heaviest first, each to the lightest slot."""
    missing = load.keys() - {p for slot in start for p in slot}
    if not missing:
        return tuple(tuple(slot) for slot in start)
    slots = [list(slot) for slot in start]
    heap = [(sum(load[p] for p in slot), index) for index, slot in enumerate(slots)]
    heapq.heapify(heap)
    for partition in sorted(missing, key=lambda p: (-load[p], p)):
        weight, index = heapq.heappop(heap)
        slots[index].append(partition)
        heapq.heappush(heap, (weight + load[partition], index))
    return tuple(tuple(sorted(slot)) for slot in slots)


def _heaviest(slots: Plan, load: Mapping[TopicPartition, float]) -> float:
    return max(sum(load[p] for p in slot) for slot in slots)
