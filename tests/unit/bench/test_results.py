"""Which of several runs is shown, and what is written down."""

import json
from pathlib import Path

from bench.comparing.goals import judge
from bench.comparing.loads import LATENCY_LOADS
from bench.comparing.results import Copier, to_json, write_results
from bench.comparing.tables import all_tables, markdown

from unit.bench.bench_results import (
    ceiling_run,
    drain_run,
    empty_results,
    idle_run,
    latency_run,
)


def test_the_median_run_is_shown_and_the_fastest_ceiling() -> None:
    results = empty_results("1kb-none")
    results.drains = [
        drain_run("1kb-none", Copier.TWINLOG, rate, 1.0) for rate in (300_000, 100_000, 200_000)
    ]
    results.ceilings = [ceiling_run("1kb-none", rate) for rate in (10.0, 30.0, 20.0)]
    results.latencies = [latency_run(Copier.MM2, 1, p99, 90) for p99 in (30, 10, 20)]
    shown = results.drain("1kb-none", Copier.TWINLOG)
    assert shown is not None
    assert shown is results.drains[2]
    assert results.ceiling("1kb-none") is results.ceilings[1]
    assert results.latency(Copier.MM2, "busy") is results.latencies[2]
    assert results.latency(Copier.MM2, "quiet") is None
    assert results.drain("1kb-none", Copier.MM2) is None
    assert results.idle(Copier.MM2) is None


def test_memory_is_the_peak_over_everything_a_copier_did() -> None:
    results = empty_results("1kb-none")
    results.drains = [
        drain_run("1kb-none", Copier.TWINLOG, 1, 1, pss_megabytes=450),
        drain_run("1kb-none", Copier.MM2, 1, 1, pss_megabytes=1900),
    ]
    results.idles = [idle_run(Copier.TWINLOG, 0.01, pss_megabytes=460)]
    peak = results.peak_memory(Copier.TWINLOG)
    assert peak is not None
    assert (peak.pss_bytes, peak.rss_bytes) == (460_000_000, 900_000_000)
    assert results.peak_memory(Copier.MM2_TUNED) is None


def test_json_holds_every_run_with_its_rates_and_the_goals() -> None:
    results = empty_results("1kb-none")
    results.drains = [drain_run("1kb-none", Copier.MM2, 50_000, 40_000)]
    results.idles = [idle_run(Copier.TWINLOG, 0.02)]
    results.failures = ["latency: it did not start"]
    document = json.loads(to_json(results, [goal.document() for goal in judge(results)]))
    (drain,) = document["drains"]
    assert drain["copier"] == "mm2"
    assert round(drain["drain"]["warm"]["records_per_second"]) == 50_000
    assert round(drain["drain"]["whole"]["records_per_cpu_second"]) == 20_000
    assert document["failures"] == ["latency: it did not start"]
    assert {"goal": "CPU of a core with 100 idle partitions", "reached": True} in [
        {key: goal[key] for key in ("goal", "reached")} for goal in document["goals"]
    ]


def test_results_are_written_whole(tmp_path: Path) -> None:
    file = write_results("{}\n", tmp_path / "results", "one")
    assert file == tmp_path / "results" / "one.json"
    assert file.read_text() == "{}\n"
    assert list(file.parent.iterdir()) == [file]


def test_tables_show_what_there_is_and_nothing_else() -> None:
    results = empty_results("1kb-none", "1kb-zstd")
    assert all_tables(results) == []
    results.ceilings = [ceiling_run("1kb-none", 400_000)]
    results.drains = [
        drain_run("1kb-none", Copier.MM2, 50_000, 50_000),
        drain_run("1kb-none", Copier.TWINLOG, 200_000, 400_000),
    ]
    rates, costs, goals = all_tables(results)
    assert [row[:2] for row in rates.rows] == [
        ("1KB-NONE", "ceiling"),
        ("1KB-NONE", "MM2, defaults"),
        ("1KB-NONE", "Twinlog, exactly once"),
    ]
    assert rates.rows[2][2:] == ("100 k", "200 k", "200", "200 k", "400 k", "4.0 · 8.0")
    assert [len(row) for row in costs.rows] == [len(costs.columns)] * 2
    assert ("records/s against the ceiling, 1kb-none", "≥ 0.85x", "0.50x", "MISSED") in goals.rows


def test_markdown_has_a_row_for_each_row() -> None:
    results = empty_results()
    results.latencies = [latency_run(Copier.TWINLOG, 2.04, 7, 28)]
    (table,) = all_tables(results)
    times = "p50 | p90 | p99 | p99.9"
    figures = "2.0 ms | 3.0 ms | 7.0 ms | 28.0 ms | 29.0 ms"
    assert markdown(table).splitlines() == [
        "**Latency, read_committed consumer**",
        "",
        f"| load | copier | {times} | longest | CPU of a core | both brokers | repeated records |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| {LATENCY_LOADS[0].title} | Twinlog, exactly once | {figures} | 20% | 30% | 0 |",
    ]
