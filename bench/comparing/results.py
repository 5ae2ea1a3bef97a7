"""What a benchmark found, and how it is kept: one JSON file per run."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

# From samples to figures: rates of the whole run and of its warm part, percentiles, medians. Pure.

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


class Copier(StrEnum):
    """Who copies."""

    MM2 = "mm2"
    MM2_TUNED = "mm2-tuned"
    TWINLOG = "twinlog"
    TWINLOG_TRANSLATED = "twinlog-translated"
    """Only measured over distances."""

    @property
    def label(self) -> str:
        return {
            Copier.MM2: "MM2, defaults",
            Copier.MM2_TUNED: "MM2, tuned",
            Copier.TWINLOG: "Twinlog, exactly once",
            Copier.TWINLOG_TRANSLATED: "Twinlog, translated",
        }[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRun:
    """One copier on one load."""

    load: str
    copier: Copier
    drain: Drain
    peak_pss_bytes: int
    """Of the process tree."""
    surplus_records: int
    """Records on the target beyond those of the source (at-least-once repeats some). Never negative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingRun:
    """The load's batches from memory into the target, as fast as it takes them."""

    load: str
    records_per_second: float
    records_per_cpu_second: float
    target_broker_cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRun:
    """From the producer's call on the source to a read_committed consumer on the target."""

    copier: Copier
    load: str
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    longest_ms: float
    records: int
    duplicates: int
    cpu_share: float
    """Share of one core that the whole process tree takes."""
    brokers_cpu_share: float
    """The same of both brokers together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRun:
    """A running copier with nothing to copy."""

    copier: Copier
    partitions: int
    cpu_share: float
    """Share of one core that the whole process tree takes."""
    peak_pss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFacts:
    """What a load turned out to be."""

    load: str
    title: str
    records: int
    bytes_per_record: float
    """On the wire at the source."""
    mean_batch_bytes: float


@dataclass(slots=True, kw_only=True)
class Results:
    """Grows while the benchmark runs."""

    machine: Mapping[str, str]
    settings: Mapping[str, str]
    loads: dict[str, LoadFacts] = field(default_factory=dict)
    drains: list[DrainRun] = field(default_factory=list)
    ceilings: list[CeilingRun] = field(default_factory=list)
    latencies: list[LatencyRun] = field(default_factory=list)
    idles: list[IdleRun] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Runs that gave no figures, and why."""

    def drain(self, load: str, copier: Copier) -> DrainRun | None:
        """The run whose warm rate is the median."""
        runs = [run for run in self.drains if (run.load, run.copier) == (load, copier)]
        return runs[middle([run.drain.warm.records_per_second for run in runs])] if runs else None

    def ceiling(self, load: str) -> CeilingRun | None:
        """The fastest run: it is a ceiling."""
        runs = [run for run in self.ceilings if run.load == load]
        return max(runs, key=lambda run: run.records_per_second, default=None)

    def latency(self, copier: Copier, load: str) -> LatencyRun | None:
        """The run whose p99 is the median."""
        runs = [run for run in self.latencies if (run.copier, run.load) == (copier, load)]
        return runs[middle([run.p99_ms for run in runs])] if runs else None

    def idle(self, copier: Copier) -> IdleRun | None:
        """The run whose share of a core is the median."""
        runs = [run for run in self.idles if run.copier is copier]
        return runs[middle([run.cpu_share for run in runs])] if runs else None

    def peak_pss_bytes(self, copier: Copier) -> int | None:
        """The peak over everything this copier did."""
        runs: tuple[DrainRun | IdleRun, ...] = (*self.drains, *self.idles)
        return max((run.peak_pss_bytes for run in runs if run.copier is copier), default=None)

    def loads_with_drains(self) -> Sequence[LoadFacts]:
        measured = {run.load for run in self.drains} | {run.load for run in self.ceilings}
        return [facts for name, facts in self.loads.items() if name in measured]


def to_json(results: Results, goals: Iterable[Mapping[str, Any]] = ()) -> str:
    """Every run with what is computed from it, for programs."""
    document = {
        "machine": dict(results.machine),
        "settings": dict(results.settings),
        "loads": [asdict(facts) for facts in results.loads.values()],
        "drains": [_drain_document(run) for run in results.drains],
        "ceilings": [asdict(run) for run in results.ceilings],
        "latencies": [asdict(run) for run in results.latencies],
        "idles": [asdict(run) for run in results.idles],
        "failures": results.failures,
        "goals": list(goals),
    }
    return json.dumps(document, indent=2) + "\n"


def write_results(text: str, directory: Path, name: str) -> Path:
    """Write whole or not at all, and return the file."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name}.json"
    unfinished = file.with_suffix(".tmp")
    unfinished.write_text(text)
    return unfinished.replace(file)


def _drain_document(run: DrainRun) -> dict[str, Any]:
    document = asdict(run)
    document["drain"]["whole"] |= _rates(run.drain.whole)
    document["drain"]["warm"] |= _rates(run.drain.warm)
    return document


def _rates(stretch: Stretch) -> dict[str, float]:
    return {
        "records_per_second": stretch.records_per_second,
        "records_per_cpu_second": stretch.records_per_cpu_second,
    }
