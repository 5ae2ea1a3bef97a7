"""From samples to figures: rates of the whole run and of its warm part, percentiles, medians. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

WARM_FROM = 0.5
"""The warm part is what is copied after this share of the records."""


class Sample(NamedTuple):
    """One moment of a run. CPU seconds count from some moment before the run's first sample."""

    at_seconds: float
    records: int
    """On the target and visible to a read_committed consumer. As sampled: offsets, of which transaction
    markers take some; see `without_markers`."""
    cpu_seconds: float
    """CPU time of the copier's whole process tree."""
    source_broker_cpu_seconds: float
    target_broker_cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What happened between two samples."""

    records: int
    seconds: float
    cpu_seconds: float
    source_broker_cpu_seconds: float
    target_broker_cpu_seconds: float

    @property
    def records_per_second(self) -> float:
        return _ratio(self.records, self.seconds)

    @property
    def records_per_cpu_second(self) -> float:
        return _ratio(self.records, self.cpu_seconds)

    @property
    def broker_cpu_seconds(self) -> float:
        return self.source_broker_cpu_seconds + self.target_broker_cpu_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A backlog from the first record on the target to the last one."""

    first_record_seconds: float
    """From the start of the copier; at most one sampling interval early."""
    first_record_cpu_seconds: float
    whole: Stretch
    warm: Stretch


def without_markers(samples: Sequence[Sample], record_count: int) -> Sequence[Sample]:
    """The samples with records instead of offsets, given how many records the last one stands for.

    Markers come with every transaction, so they are taken out evenly.
    """
    offsets = samples[-1].records if samples else 0
    if offsets == record_count:
        return samples
    return [sample._replace(records=sample.records * record_count // offsets) for sample in samples]


def measure_drain(samples: Sequence[Sample]) -> Drain:
    """Cut a run into its parts. Raises ValueError when nothing was copied.

    The run begins with the last sample without a record and ends with the first one that has the final count.
    """
    final = samples[-1].records if samples else 0
    if not final:
        raise ValueError("no record was copied")
    first = max(index for index, sample in enumerate(samples) if not sample.records)
    last = next(index for index, sample in enumerate(samples) if sample.records == final)
    warm = next(index for index, sample in enumerate(samples) if sample.records >= final * WARM_FROM)
    if warm == last:
        # So fast that no sample lies between: the last step is all there is.
        warm = last - 1
    return Drain(
        first_record_seconds=samples[first].at_seconds,
        first_record_cpu_seconds=samples[first].cpu_seconds,
        whole=between(samples[first], samples[last]),
        warm=between(samples[warm], samples[last]),
    )


def between(first: Sample, last: Sample) -> Stretch:
    return Stretch(
        records=last.records - first.records,
        seconds=last.at_seconds - first.at_seconds,
        cpu_seconds=last.cpu_seconds - first.cpu_seconds,
        source_broker_cpu_seconds=last.source_broker_cpu_seconds - first.source_broker_cpu_seconds,
        target_broker_cpu_seconds=last.target_broker_cpu_seconds - first.target_broker_cpu_seconds,
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all do not exceed (nearest rank: always a value that was
    seen). `ordered` ascends. Raises ValueError when it is empty.
    """
    if not ordered:
        raise ValueError("no values")
    # Rounded: 99.9 % of 1,000 is 999, which floating point makes 999.0000000000001.
    rank = math.ceil(round(len(ordered) * percent / 100, 6))
    return ordered[max(rank, 1) - 1]


def middle(values: Sequence[float]) -> int:
    """Index of the median value (the lower one of two). Raises ValueError when there is none."""
    if not values:
        raise ValueError("no values")
    ranked = sorted(range(len(values)), key=values.__getitem__)
    return ranked[(len(values) - 1) // 2]


def _ratio(amount: float, per: float) -> float:
    return amount / per if per > 0 else math.inf
