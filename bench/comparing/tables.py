"""The results as tables, for a terminal or as Markdown for the docs."""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from rich import box
from rich.table import Table

from bench.comparing.loads import LATENCY_LOADS, LatencyLoad
from bench.comparing.results import (
    CeilingRun,
    Copier,
    DrainRun,
    IdleRun,
    LatencyRun,
    LoadFacts,
    Results,
    Stretch,
)

# What Twinlog is to reach beside MM2, and whether a benchmark shows it. Pure.
#
# Rates are those of the warm part: a cold JVM would flatter Twinlog.

_CPU_RATIOS = {
    "1kb-none": 8.0,
    "1kb-zstd": 16.0,
    "100b-zstd": 16.0,
    "tiny-batches": 3.0,
    "filter-none": 2.0,
    "filter-zstd": 2.0,
    "expression": 1.0,
}
_RATE_RATIO = 2.0
_RATE_RATIOS = {"expression": 1.2}
"""Where another ratio is wanted: MM2 only copies these records."""
_CEILING_SHARE = 0.85
_FAR_MEGABYTES_PER_SECOND = {"far-60": 110.0, "far-150": 110.0, "far-60-one": 40.0}
_LATENCY_RATIOS = {
    "busy": {"p50": 0.35, "p99": 0.9, "p99.9": 1.0},
    "quiet": {"p50": 0.4},
    "sparse": {"p50": 0.4},
    "filter-200": {"p50": 1.0},
}
"""Of MM2's defaults."""
_EXPRESSIONS = ("expression-50", "expression-200", "expression-500")
_TAIL_RATIO = 4.0
_LATENCY_MS = {
    ("far-60", Copier.TWINLOG): {"p50": 36.0, "p99": 55.0},
    ("far-150", Copier.TWINLOG): {"p50": 85.0},
    ("far-60", Copier.TWINLOG_TRANSLATED): {"p50": 130.0},
    **{(load, Copier.TWINLOG): {"p50": 80.0} for load in _EXPRESSIONS},
    ("expression-200-far-60", Copier.TWINLOG): {"p50": 200.0},
}
_FIELDS = {"p50": "p50_ms", "p99": "p99_ms", "p99.9": "p999_ms"}
_IDLE_CPU_SHARE = 0.05
_MEMORY_BYTES = 700_000_000
_MEMORY_BYTES_WITH_SPARK_SQL = 1_200_000_000


_REACHED = {"≥": operator.ge, "≤": operator.le, "<": operator.lt}


class Goal(NamedTuple):
    """One promise. `reached` is None when it was not measured."""

    goal: str
    wanted: str
    found: str
    reached: bool | None


def judge(results: Results) -> Sequence[Goal]:
    """Every goal, in the order of the tables."""
    idle, peak_bytes = results.idle(Copier.TWINLOG), results.peak_pss_bytes(Copier.TWINLOG)
    share, megabytes = getattr(idle, "cpu_share", None), peak_bytes / 1e6 if peak_bytes else None
    has_spark_sql = any(load.startswith("expression") for load in results.loads)
    memory_bytes = _MEMORY_BYTES_WITH_SPARK_SQL if has_spark_sql else _MEMORY_BYTES
    return [
        *_cpu_goals(results),
        *_rate_goals(results),
        *_latency_goals(results),
        _goal("CPU of a core with 100 idle partitions", "<", _IDLE_CPU_SHARE, share, "{:.1%}"),
        _goal("peak memory of the process tree (PSS)", "<", memory_bytes / 1e6, megabytes, "{:,.0f} MB"),
    ]


def _cpu_goals(results: Results) -> Iterator[Goal]:
    for load, ratio in _CPU_RATIOS.items():
        ours, theirs = results.drain(load, Copier.TWINLOG), results.drain(load, Copier.MM2)
        found = (
            ours.drain.warm.records_per_cpu_second / theirs.drain.warm.records_per_cpu_second
            if ours and theirs
            else None
        )
        yield _goal(f"records per CPU-second against MM2's defaults, {load}", "≥", ratio, found)


def _rate_goals(results: Results) -> Iterator[Goal]:
    for load in results.loads:
        ours = results.drain(load, Copier.TWINLOG)
        rate = ours.drain.warm.records_per_second if ours else None
        if load in _FAR_MEGABYTES_PER_SECOND:
            found = rate * results.loads[load].bytes_per_record / 1e6 if rate else None
            wanted = _FAR_MEGABYTES_PER_SECOND[load]
            yield _goal(f"MB/s of the backlog, {load}", "≥", wanted, found, "{:.1f} MB/s")
            continue
        for copier, ratio in ((Copier.MM2, _RATE_RATIOS.get(load, _RATE_RATIO)), (Copier.MM2_TUNED, 1.0)):
            theirs = results.drain(load, copier)
            found = rate / theirs.drain.warm.records_per_second if rate and theirs else None
            yield _goal(f"records/s against {copier.label}, {load}", "≥", ratio, found)
        ceiling = results.ceiling(load)
        share = rate / ceiling.records_per_second if rate and ceiling else None
        yield _goal(f"records/s against the ceiling, {load}", "≥", _CEILING_SHARE, share)
    many, few = [results.drain(load, Copier.TWINLOG) for load in ("100-partitions", "1kb-none")]
    both = many.drain.warm.records_per_second / few.drain.warm.records_per_second if many and few else None
    yield _goal("records/s of 100 partitions against 8", "≥", 1.0, both)


def _latency_goals(results: Results) -> Iterator[Goal]:
    for load, ratios in _LATENCY_RATIOS.items():
        ours, theirs = results.latency(Copier.TWINLOG, load), results.latency(Copier.MM2, load)
        for name, ratio in ratios.items():
            limit = getattr(theirs, _FIELDS[name]) * ratio if theirs else None
            text = f"latency {name} against MM2's defaults, {load}"
            yield _goal(text, "≤", limit, getattr(ours, _FIELDS[name], None), _MILLISECONDS)
        yield _goal(
            f"CPU of both brokers against MM2's defaults, {load}",
            "<",
            getattr(theirs, "brokers_cpu_share", None),
            getattr(ours, "brokers_cpu_share", None),
            "{:.0%} of a core",
        )
    for (load, copier), limits in _LATENCY_MS.items():
        ours = results.latency(copier, load)
        for name, limit in limits.items():
            text = f"latency {name}, {copier.label}, {load}"
            yield _goal(text, "≤", limit, getattr(ours, _FIELDS[name], None), _MILLISECONDS)
    for load in _EXPRESSIONS:
        ours = results.latency(Copier.TWINLOG, load)
        found = ours.p99_ms / ours.p50_ms if ours else None
        yield _goal(f"latency p99 against p50, {load}", "≤", _TAIL_RATIO, found)


def _goal(text: str, sign: str, limit: float | None, found: float | None, form: str = "{:.2f}x") -> Goal:
    return Goal(
        goal=text,
        wanted=f"{sign} {_NOTHING if limit is None else form.format(limit)}",
        found="not measured" if found is None else form.format(found),
        reached=None if limit is None or found is None else _REACHED[sign](found, limit),
    )


_NOTHING = "-"
_MILLISECONDS = "{:.1f} ms"


_Row = TypeVar("_Row")
_Columns: TypeAlias = tuple[tuple[str, Callable[[_Row], str]], ...]


class _Rate(NamedTuple):
    facts: LoadFacts
    copier: str
    whole: Stretch | CeilingRun
    warm: Stretch | None = None
    base: DrainRun | None = None
    """MM2 with its defaults on the same load."""


_RATES: _Columns[_Rate] = (
    ("load", lambda rate: rate.facts.title),
    ("copier", lambda rate: rate.copier),
    ("records/s whole", lambda rate: _thousands(rate.whole.records_per_second)),
    ("warm", lambda rate: _thousands(rate.warm.records_per_second) if rate.warm else _NOTHING),
    ("MB/s warm", lambda rate: _megabytes_per_second(rate)),
    ("records per CPU-s whole", lambda rate: _thousands(rate.whole.records_per_cpu_second)),
    ("warm", lambda rate: _thousands(rate.warm.records_per_cpu_second) if rate.warm else _NOTHING),
    ("x MM2 warm", lambda rate: _times(rate)),
)
_COSTS: _Columns[tuple[LoadFacts, DrainRun]] = (
    ("load", lambda of: of[0].title),
    ("copier", lambda of: of[1].copier.label),
    ("first record after", lambda of: f"{of[1].drain.first_record_seconds:.1f} s"),
    ("CPU until then", lambda of: f"{of[1].drain.first_record_cpu_seconds:.1f} s"),
    ("copier CPU", lambda of: f"{of[1].drain.whole.cpu_seconds:.1f} s"),
    ("source broker CPU", lambda of: f"{of[1].drain.whole.source_broker_cpu_seconds:.1f} s"),
    ("target broker CPU", lambda of: f"{of[1].drain.whole.target_broker_cpu_seconds:.1f} s"),
    ("peak PSS", lambda of: _megabytes(of[1].peak_pss_bytes)),
    ("repeated records", lambda of: f"{of[1].surplus_records:,}"),
)
_LATENCIES: _Columns[tuple[LatencyLoad, LatencyRun]] = (
    ("load", lambda of: of[0].title),
    ("copier", lambda of: of[1].copier.label),
    ("p50", lambda of: _MILLISECONDS.format(of[1].p50_ms)),
    ("p90", lambda of: _MILLISECONDS.format(of[1].p90_ms)),
    ("p99", lambda of: _MILLISECONDS.format(of[1].p99_ms)),
    ("p99.9", lambda of: _MILLISECONDS.format(of[1].p999_ms)),
    ("longest", lambda of: _MILLISECONDS.format(of[1].longest_ms)),
    ("CPU of a core", lambda of: f"{of[1].cpu_share:.0%}"),
    ("both brokers", lambda of: f"{of[1].brokers_cpu_share:.0%}"),
    ("repeated records", lambda of: f"{of[1].duplicates:,}"),
)
_IDLES: _Columns[IdleRun] = (
    ("copier", lambda run: run.copier.label),
    ("CPU of a core", lambda run: f"{run.cpu_share:.1%}"),
    ("peak PSS", lambda run: _megabytes(run.peak_pss_bytes)),
)
_GOALS: _Columns[Goal] = (
    ("goal", lambda goal: goal.goal),
    ("wanted", lambda goal: goal.wanted),
    ("found", lambda goal: goal.found),
    ("verdict", lambda goal: "reached" if goal.reached else "MISSED"),
)


def all_tables(results: Results, *, markdown: bool) -> Iterator[Table]:
    """Those that have something to show."""
    costs = [
        (facts, run)
        for facts in results.loads_with_drains()
        for copier in Copier
        if (run := results.drain(facts.load, copier)) is not None
    ]
    latencies = [
        (load, found)
        for load in LATENCY_LOADS
        for copier in Copier
        if (found := results.latency(copier, load.name)) is not None
    ]
    idles = [idle for idle in map(results.idle, Copier) if idle is not None]
    goals = [goal for goal in judge(results) if goal.reached is not None]
    for table in (
        _table("Rates: the whole run from its first record, and its warm half", _RATES, _rates(results)),
        _table("What a run costs", _COSTS, costs),
        _table("Latency, read_committed consumer", _LATENCIES, latencies),
        _table("Idle, 100 partitions", _IDLES, idles),
        _table("Goals", _GOALS, goals),
    ):
        if table.row_count:
            table.box = box.MARKDOWN if markdown else box.HEAVY_HEAD
            yield table


def _table(title: str, columns: _Columns[_Row], rows: Iterable[_Row]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, (name, _) in enumerate(columns):
        table.add_column(name, justify="right" if number > 1 else "left")
    for row in rows:
        table.add_row(*(text(row) for _, text in columns))
    return table


def _rates(results: Results) -> Iterator[_Rate]:
    for facts in results.loads_with_drains():
        if (ceiling := results.ceiling(facts.load)) is not None:
            yield _Rate(facts, "ceiling", ceiling)
        base = results.drain(facts.load, Copier.MM2)
        for copier in Copier:
            if (run := results.drain(facts.load, copier)) is not None:
                yield _Rate(facts, copier.label, run.drain.whole, run.drain.warm, base)


def _times(rate: _Rate) -> str:
    """Rate, then efficiency, as multiples of MM2 with its defaults."""
    if rate.base is None or rate.warm is None:
        return _NOTHING
    theirs = rate.base.drain.warm
    faster = rate.warm.records_per_second / theirs.records_per_second
    efficiency = rate.warm.records_per_cpu_second / theirs.records_per_cpu_second
    return f"{faster:.1f} · {efficiency:.1f}"


def _thousands(rate: float) -> str:
    return f"{rate / 1000:,.0f} k"


def _megabytes_per_second(rate: _Rate) -> str:
    """Bytes on the wire at the source."""
    return f"{(rate.warm or rate.whole).records_per_second * rate.facts.bytes_per_record / 1e6:,.0f}"


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
