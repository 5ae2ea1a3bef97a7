"""What Twinlog is to reach beside MM2, and whether a benchmark shows it. Pure.

Rates are those of the warm part: a cold JVM would flatter Twinlog.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.comparing.results import Copier, Results

_CPU_RATIOS = {"1kb-none": 8.0, "1kb-zstd": 16.0, "100b-zstd": 16.0, "tiny-batches": 3.0}
_RATE_RATIO = 2.0
_CEILING_SHARE = 0.85
_FAR_MEGABYTES_PER_SECOND = {"far-60": 110.0, "far-150": 110.0, "far-60-one": 40.0}
_LATENCY_RATIOS = {
    "busy": {"p50": 0.35, "p99": 0.9, "p99.9": 1.0},
    "quiet": {"p50": 0.4},
    "sparse": {"p50": 0.4},
}
"""Of MM2's defaults."""
_LATENCY_MS = {
    ("far-60", Copier.TWINLOG): {"p50": 36.0, "p99": 55.0},
    ("far-150", Copier.TWINLOG): {"p50": 85.0},
    ("far-60", Copier.TWINLOG_TRANSLATED): {"p50": 130.0},
}
_FIELDS = {"p50": "p50_ms", "p99": "p99_ms", "p99.9": "p999_ms"}
_IDLE_CPU_SHARE = 0.05
_MEMORY_BYTES = 700_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One promise. `reached` is None when it was not measured."""

    text: str
    wanted: str
    found: str
    reached: bool | None

    def document(self) -> Mapping[str, Any]:
        return {"goal": self.text, "wanted": self.wanted, "found": self.found, "reached": self.reached}


def judge(results: Results) -> Sequence[Goal]:
    """Every goal, in the order of the tables."""
    return [
        *_cpu_goals(results),
        *_rate_goals(results),
        *_latency_goals(results),
        _idle_goal(results),
        _memory_goal(results),
    ]


def _cpu_goals(results: Results) -> Iterator[Goal]:
    for load, ratio in _CPU_RATIOS.items():
        ours, theirs = results.drain(load, Copier.TWINLOG), results.drain(load, Copier.MM2)
        found = (
            ours.drain.warm.records_per_cpu_second / theirs.drain.warm.records_per_cpu_second
            if ours and theirs
            else None
        )
        yield _at_least(f"records per CPU-second against MM2's defaults, {load}", ratio, found, "x")


def _rate_goals(results: Results) -> Iterator[Goal]:
    for load in results.loads:
        ours = results.drain(load, Copier.TWINLOG)
        rate = ours.drain.warm.records_per_second if ours else None
        if load in _FAR_MEGABYTES_PER_SECOND:
            found = rate * results.loads[load].bytes_per_record / 1e6 if rate else None
            yield _at_least(f"MB/s of the backlog, {load}", _FAR_MEGABYTES_PER_SECOND[load], found, " MB/s")
            continue
        for copier, ratio in ((Copier.MM2, _RATE_RATIO), (Copier.MM2_TUNED, 1.0)):
            theirs = results.drain(load, copier)
            found = rate / theirs.drain.warm.records_per_second if rate and theirs else None
            yield _at_least(f"records/s against {copier.label}, {load}", ratio, found, "x")
        ceiling = results.ceiling(load)
        share = rate / ceiling.records_per_second if rate and ceiling else None
        yield _at_least(f"records/s against the ceiling, {load}", _CEILING_SHARE, share, "x")
    many, few = [results.drain(load, Copier.TWINLOG) for load in ("100-partitions", "1kb-none")]
    both = many.drain.warm.records_per_second / few.drain.warm.records_per_second if many and few else None
    yield _at_least("records/s of 100 partitions against 8", 1.0, both, "x")


def _latency_goals(results: Results) -> Iterator[Goal]:
    for load, ratios in _LATENCY_RATIOS.items():
        ours, theirs = results.latency(Copier.TWINLOG, load), results.latency(Copier.MM2, load)
        for name, ratio in ratios.items():
            limit = getattr(theirs, _FIELDS[name]) * ratio if theirs else None
            yield _at_most(
                f"latency {name} against MM2's defaults, {load}",
                limit,
                getattr(ours, _FIELDS[name], None),
                unknown=f"{ratio:g} of MM2's",
            )
    for load in _LATENCY_RATIOS:
        ours, theirs = results.latency(Copier.TWINLOG, load), results.latency(Copier.MM2, load)
        limit = theirs.brokers_cpu_share if theirs else None
        found = ours.brokers_cpu_share if ours else None
        yield Goal(
            text=f"CPU of both brokers against MM2's defaults, {load}",
            wanted="less than with MM2" if limit is None else f"< {limit:.0%} of a core",
            found="not measured" if found is None else f"{found:.0%} of a core",
            reached=None if limit is None or found is None else found < limit,
        )
    for (load, copier), limits in _LATENCY_MS.items():
        ours = results.latency(copier, load)
        for name, limit in limits.items():
            yield _at_most(
                f"latency {name}, {copier.label}, {load}", limit, getattr(ours, _FIELDS[name], None)
            )


def _idle_goal(results: Results) -> Goal:
    idle = results.idle(Copier.TWINLOG)
    return Goal(
        text="CPU of a core with 100 idle partitions",
        wanted=f"< {_IDLE_CPU_SHARE:.0%}",
        found="not measured" if idle is None else f"{idle.cpu_share:.1%}",
        reached=None if idle is None else idle.cpu_share < _IDLE_CPU_SHARE,
    )


def _memory_goal(results: Results) -> Goal:
    memory = results.peak_memory(Copier.TWINLOG)
    return Goal(
        text="peak memory of the process tree (PSS)",
        wanted=f"< {_MEMORY_BYTES / 1e6:.0f} MB",
        found="not measured" if memory is None else f"{memory.pss_bytes / 1e6:,.0f} MB",
        reached=None if memory is None else memory.pss_bytes < _MEMORY_BYTES,
    )


def _at_least(text: str, wanted: float, found: float | None, unit: str) -> Goal:
    return Goal(
        text=text,
        wanted=f"≥ {wanted:g}{unit}",
        found="not measured" if found is None else f"{found:.2f}{unit}",
        reached=None if found is None else found >= wanted,
    )


def _at_most(text: str, limit_ms: float | None, found_ms: float | None, *, unknown: str = "") -> Goal:
    return Goal(
        text=text,
        wanted=unknown if limit_ms is None else f"≤ {limit_ms:.1f} ms",
        found="not measured" if found_ms is None else f"{found_ms:.1f} ms",
        reached=None if limit_ms is None or found_ms is None else found_ms <= limit_ms,
    )
