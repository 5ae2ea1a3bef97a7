"""Which partitions go to which slot: by measured bytes per second, moved only when it pays. Pure.

Invariant A: every partition is in exactly one slot (one writer per partition).
Invariant B: a plan is kept as it is unless the new one relieves the heaviest slot by more than `gain_ratio`
and by an amount that matters, or a slot is empty.
"""

import heapq
from collections.abc import Mapping, Sequence

from twinlog.model import TopicPartition

UNKNOWN_BYTES_PER_SECOND = 5_000.0
"""Load of a partition that was not measured yet (Brooklin's planning default)."""
FIXED_BYTES_PER_SECOND = 500.0
"""What an idle partition costs: a fetch entry, a report."""
LEAST_GAIN_BYTES_PER_SECOND = 200_000.0
"""Below this no slot is busy, however unequal they are."""

Plan = tuple[tuple[TopicPartition, ...], ...]


def slot_count(partitions: int, *, max_slots: int) -> int:
    """Slots for a number of partitions: never an empty one."""
    return max(0, min(partitions, max_slots))


def plan(
    rates: Mapping[TopicPartition, float | None],
    *,
    max_slots: int,
    previous: Plan = (),
    gain_ratio: float = 0.2,
) -> Plan:
    """Assign every partition of `rates` (bytes per second, None = unknown) to one of at most `max_slots`
    slots.

    Partitions keep their slot while the heaviest slot of `previous` (new partitions added to the lightest)
    is within `gain_ratio` of the best plan's; else all are dealt anew, heaviest first.
    """
    slots = slot_count(len(rates), max_slots=max_slots)
    if not slots:
        return ()
    load = {
        p: FIXED_BYTES_PER_SECOND + (UNKNOWN_BYTES_PER_SECOND if r is None else r) for p, r in rates.items()
    }
    fresh = _deal(load, tuple(() for _ in range(slots)))
    if len(previous) != slots:
        return fresh
    kept = _deal(load, tuple(tuple(p for p in slot if p in load) for slot in previous))
    best = _heaviest(fresh, load)
    if _heaviest(kept, load) <= max(best * (1 + gain_ratio), best + LEAST_GAIN_BYTES_PER_SECOND):
        return kept
    return fresh


def _deal(load: Mapping[TopicPartition, float], start: Sequence[Sequence[TopicPartition]]) -> Plan:
    """Add what is missing from `start` to the lightest slot, heaviest partition first."""
    assigned = {p for slot in start for p in slot}
    slots = [list(slot) for slot in start]
    heap = [(sum(load[p] for p in slot), index) for index, slot in enumerate(slots)]
    heapq.heapify(heap)
    for partition in sorted(load.keys() - assigned, key=lambda p: (-load[p], p)):
        weight, index = heapq.heappop(heap)
        slots[index].append(partition)
        heapq.heappush(heap, (weight + load[partition], index))
    return tuple(tuple(sorted(slot)) for slot in slots)


def _heaviest(slots: Plan, load: Mapping[TopicPartition, float]) -> float:
    return max(sum(load[p] for p in slot) for slot in slots)
