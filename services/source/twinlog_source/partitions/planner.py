"""How many slots copy, and which partitions each has: by measured load, and changed only when it pays. Pure.

Each slot costs a transaction per round and the memory of a worker, and a single slot copies hundreds of
megabytes per second. So a quiet flow has one slot, and a flow that is behind has all that it may have.

Invariant A: every partition is in exactly one slot (one writer per partition).

Invariant B: a plan is kept unless the new one relieves the heaviest slot by more than `gain_ratio` and by an
amount that matters, or a slot is empty.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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


# How the slots share one limit. Pure.

TOLERATED_RATIO = 0.02
"""Shares are distributed again only if one would change by more than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLimits:
    """How fast one slot may read."""

    bytes_per_second: int | None = None
    """For all of its partitions together; None = no limit."""
    topic_bytes_per_second: Mapping[str, int] = field(default_factory=dict)
    """By source topic, for topics with a limit of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitDebt:
    """What was read beyond the limits, and is not paid by waiting yet."""

    bytes: int = 0
    """Against the limit for all partitions."""
    topic_bytes: Mapping[str, int] = field(default_factory=dict)
    """By source topic, against the limits of topics."""


NO_DEBT = LimitDebt()


def share_debt(debts: Iterable[LimitDebt], limits: Sequence[SlotLimits]) -> tuple[LimitDebt, ...]:
    """Deal the debts of the slots before out to those that continue, by their shares of the limits. What has
    no limit any more is forgiven.

    >>> before = [LimitDebt(bytes=600), LimitDebt(bytes=300, topic_bytes={"t": 50})]
    >>> share_debt(before, [SlotLimits(bytes_per_second=20), SlotLimits(bytes_per_second=10)])
    (LimitDebt(bytes=600, topic_bytes={}), LimitDebt(bytes=300, topic_bytes={}))
    """
    debts = list(debts)
    owed_by_topic = Counter[str]()
    for debt in debts:
        owed_by_topic.update(debt.topic_bytes)
    whole = _dealt(sum(debt.bytes for debt in debts), [each.bytes_per_second or 0 for each in limits])
    by_topic = {
        topic: _dealt(owed, [each.topic_bytes_per_second.get(topic, 0) for each in limits])
        for topic, owed in owed_by_topic.items()
    }
    return tuple(
        LimitDebt(bytes=share, topic_bytes={topic: dealt[i] for topic, dealt in by_topic.items() if dealt[i]})
        for i, share in enumerate(whole)
    )


def _dealt(owed: int, rates: Sequence[int]) -> list[int]:
    total = sum(rates)
    return [owed * rate // total if total else 0 for rate in rates]


def share_limit(
    limit: float, demands: Sequence[float | None], weights: Sequence[float] | None = None
) -> tuple[float, ...]:
    """Deal `limit` (bytes per second) out: whoever needs less than a share by weight (without weights: an
    equal one) leaves the rest to the others.

    `demands` is what each one takes at most by itself, None = as much as it gets. The shares add up to
    `limit`, so the limit holds whatever they do.

    >>> share_limit(90, [10, None, None])
    (10.0, 40.0, 40.0)
    >>> share_limit(90, [10, 10, 10])
    (30.0, 30.0, 30.0)
    >>> share_limit(90, [10, None, None], [1, 1, 3])
    (10.0, 20.0, 60.0)
    """
    shares, weighs = [0.0] * len(demands), weights or [1.0] * len(demands)
    left, open_slots = float(limit), list(range(len(demands)))
    while open_slots:
        whole = sum(weighs[i] for i in open_slots)
        fair = {i: left * weighs[i] / whole for i in open_slots}
        modest = [i for i in open_slots if (demand := demands[i]) is not None and demand < fair[i]]
        if not modest or len(modest) == len(open_slots):
            # Distribute the rest too, so that a burst can begin before the next distribution.
            taken = [min(fair[i], demands[i] or fair[i]) if modest else fair[i] for i in open_slots]
            spare = (left - sum(taken)) / whole
            for i, share in zip(open_slots, taken, strict=True):
                shares[i] = share + spare * weighs[i]
            break
        for i in modest:
            shares[i] = float(demands[i] or 0.0)
            left -= shares[i]
        open_slots = [i for i in open_slots if i not in modest]
    return tuple(shares)


def differ(told: SlotLimits, wanted: SlotLimits) -> bool:
    """Whether the slot's task has to be told: a limit was added, removed, or changed by more than the
    tolerance."""
    if told.topic_bytes_per_second.keys() != wanted.topic_bytes_per_second.keys():
        return True
    pairs = [(told.bytes_per_second or 0, wanted.bytes_per_second or 0)]
    pairs += [
        (told.topic_bytes_per_second[topic], limit) for topic, limit in wanted.topic_bytes_per_second.items()
    ]
    return any(abs(before - now) > TOLERATED_RATIO * before for before, now in pairs)
