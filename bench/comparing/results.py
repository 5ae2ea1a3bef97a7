"""What a benchmark found, and how it is kept: one JSON file per run."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import reduce
from pathlib import Path
from typing import Any

from bench.comparing.figures import Drain, Stretch, middle
from bench.comparing.process_tree import TreeMemory


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
    memory: TreeMemory
    """Peaks of the process tree."""
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
    memory: TreeMemory


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

    def peak_memory(self, copier: Copier) -> TreeMemory | None:
        """The peaks over everything this copier did."""
        peaks = [run.memory for run in self.drains if run.copier is copier]
        peaks += [run.memory for run in self.idles if run.copier is copier]
        return reduce(TreeMemory.peak, peaks) if peaks else None

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
