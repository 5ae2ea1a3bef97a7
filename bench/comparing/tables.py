"""The results as tables: rows of text, shown on a terminal or as Markdown for the docs. Pure but for
`show`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.comparing.goals import Goal, judge
from bench.comparing.loads import LATENCY_LOADS
from bench.comparing.results import Copier, DrainRun, LoadFacts, Results, Stretch

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
