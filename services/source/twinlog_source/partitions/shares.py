"""How the slots share one limit. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
