"""What Twinlog is to reach beside MM2, and whether a benchmark shows it. Pure.

Rates are those of the warm part: a cold JVM would flatter Twinlog.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.comparing.loads import LATENCY_LOADS
from bench.comparing.results import Copier, Results

_CPU_RATIOS = {"1kb-none": 7.0, "1kb-zstd": 8.0, "100b-zstd": 15.0, "tiny-batches": 3.0}
_RATE_RATIO = 3.0
_CEILING_SHARE = 0.8
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
        for copier, ratio in ((Copier.MM2, _RATE_RATIO), (Copier.MM2_TUNED, 1.0)):
            theirs = results.drain(load, copier)
            found = rate / theirs.drain.warm.records_per_second if rate and theirs else None
            yield _at_least(f"records/s against {copier.label}, {load}", ratio, found, "x")
        ceiling = results.ceiling(load)
        share = rate / ceiling.records_per_second if rate and ceiling else None
        yield _at_least(f"records/s against the ceiling, {load}", _CEILING_SHARE, share, "x")


def _latency_goals(results: Results) -> Iterator[Goal]:
    for load in LATENCY_LOADS:
        ours, theirs = results.latency(Copier.TWINLOG, load.name), results.latency(Copier.MM2, load.name)
        for name, field in (("p50", "p50_ms"), ("p99", "p99_ms"), ("p99.9", "p999_ms")):
            limit: float | None = getattr(theirs, field, None)
            found: float | None = getattr(ours, field, None)
            yield Goal(
                text=f"latency {name} against MM2's defaults, {load.name}",
                wanted="at most MM2's" if limit is None else f"≤ {limit:.1f} ms",
                found="not measured" if found is None else f"{found:.1f} ms",
                reached=None if limit is None or found is None else found <= limit,
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
