"""The results as tables: rows of text, shown on a terminal or as Markdown for the docs. Pure but for
`show`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.comparing.loads import LATENCY_LOADS
from bench.comparing.results import Copier, DrainRun, LoadFacts, Results, Stretch

# What Twinlog is to reach beside MM2, and whether a benchmark shows it. Pure.
#
# Rates are those of the warm part: a cold JVM would flatter Twinlog.

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


_NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def all_tables(results: Results) -> Sequence[TextTable]:
    """Those that have something to show."""
    tables = (_rates(results), _costs(results), _latencies(results), _idles(results), _goals(judge(results)))
    return [table for table in tables if table.rows]


def markdown(table: TextTable) -> str:
    """As a Markdown table below its title."""
    lines = [
        f"**{table.title}**",
        "",
        _markdown_row(table.columns),
        _markdown_row(("---",) + ("---:",) * (len(table.columns) - 1)),
        *map(_markdown_row, table.rows),
    ]
    return "\n".join(lines) + "\n"


def show(console: Console, table: TextTable) -> None:
    """Print it."""
    shown = Table(title=table.title, title_justify="left", title_style="bold")
    for number, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if number > 1 else "left")
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)


def _rates(results: Results) -> TextTable:
    return TextTable(
        title="Rates: the whole run from its first record, and its warm half",
        columns=(
            "load",
            "copier",
            "records/s whole",
            "warm",
            "MB/s warm",
            "records per CPU-s whole",
            "warm",
            "x MM2 warm",
        ),
        rows=tuple(row for facts in results.loads_with_drains() for row in _rate_rows(results, facts)),
    )


def _rate_rows(results: Results, facts: LoadFacts) -> Iterator[tuple[str, ...]]:
    ceiling = results.ceiling(facts.load)
    if ceiling is not None:
        yield (
            facts.title,
            "ceiling",
            _thousands(ceiling.records_per_second),
            _NOTHING,
            _megabytes_per_second(ceiling.records_per_second, facts),
            _thousands(ceiling.records_per_cpu_second),
            _NOTHING,
            _NOTHING,
        )
    base = results.drain(facts.load, Copier.MM2)
    for copier in Copier:
        run = results.drain(facts.load, copier)
        if run is None:
            continue
        whole, warm = run.drain.whole, run.drain.warm
        yield (
            facts.title,
            copier.label,
            _thousands(whole.records_per_second),
            _thousands(warm.records_per_second),
            _megabytes_per_second(warm.records_per_second, facts),
            _thousands(whole.records_per_cpu_second),
            _thousands(warm.records_per_cpu_second),
            _times(warm, base),
        )


def _times(warm: Stretch, base: DrainRun | None) -> str:
    """Rate, then efficiency, as multiples of MM2 with its defaults."""
    if base is None:
        return _NOTHING
    theirs = base.drain.warm
    rate = warm.records_per_second / theirs.records_per_second
    efficiency = warm.records_per_cpu_second / theirs.records_per_cpu_second
    return f"{rate:.1f} · {efficiency:.1f}"


def _costs(results: Results) -> TextTable:
    runs = [
        (facts, run)
        for facts in results.loads_with_drains()
        for copier in Copier
        if (run := results.drain(facts.load, copier)) is not None
    ]
    return TextTable(
        title="What a run costs",
        columns=(
            "load",
            "copier",
            "first record after",
            "CPU until then",
            "copier CPU",
            "source broker CPU",
            "target broker CPU",
            "peak PSS",
            "peak RSS",
            "repeated records",
        ),
        rows=tuple(
            (
                facts.title,
                run.copier.label,
                f"{run.drain.first_record_seconds:.1f} s",
                f"{run.drain.first_record_cpu_seconds:.1f} s",
                f"{run.drain.whole.cpu_seconds:.1f} s",
                f"{run.drain.whole.source_broker_cpu_seconds:.1f} s",
                f"{run.drain.whole.target_broker_cpu_seconds:.1f} s",
                _megabytes(run.memory.pss_bytes),
                _megabytes(run.memory.rss_bytes),
                f"{run.surplus_records:,}",
            )
            for facts, run in runs
        ),
    )


def _latencies(results: Results) -> TextTable:
    runs = [
        (load, run)
        for load in LATENCY_LOADS
        for copier in Copier
        if (run := results.latency(copier, load.name)) is not None
    ]
    return TextTable(
        title="Latency, read_committed consumer",
        columns=(
            "load",
            "copier",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "longest",
            "CPU of a core",
            "both brokers",
            "repeated records",
        ),
        rows=tuple(
            (
                load.title,
                run.copier.label,
                f"{run.p50_ms:.1f} ms",
                f"{run.p90_ms:.1f} ms",
                f"{run.p99_ms:.1f} ms",
                f"{run.p999_ms:.1f} ms",
                f"{run.longest_ms:.1f} ms",
                f"{run.cpu_share:.0%}",
                f"{run.brokers_cpu_share:.0%}",
                f"{run.duplicates:,}",
            )
            for load, run in runs
        ),
    )


def _idles(results: Results) -> TextTable:
    runs = [run for copier in Copier if (run := results.idle(copier)) is not None]
    return TextTable(
        title="Idle, 100 partitions",
        columns=("copier", "CPU of a core", "peak PSS", "peak RSS"),
        rows=tuple(
            (
                run.copier.label,
                f"{run.cpu_share:.1%}",
                _megabytes(run.memory.pss_bytes),
                _megabytes(run.memory.rss_bytes),
            )
            for run in runs
        ),
    )


def _goals(goals: Sequence[Goal]) -> TextTable:
    verdicts = {True: "reached", False: "MISSED"}
    return TextTable(
        title="Goals",
        columns=("goal", "wanted", "found", "verdict"),
        rows=tuple(
            (goal.text, goal.wanted, goal.found, verdicts[goal.reached])
            for goal in goals
            if goal.reached is not None
        ),
    )


def _thousands(rate: float) -> str:
    return f"{rate / 1000:,.0f} k"


def _megabytes_per_second(records_per_second: float, facts: LoadFacts) -> str:
    """Bytes on the wire at the source."""
    return f"{records_per_second * facts.bytes_per_record / 1e6:,.0f}"


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
