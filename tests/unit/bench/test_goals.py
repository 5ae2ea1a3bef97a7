"""Which goals the figures reach."""

import pytest
from bench.comparing.goals import Goal, judge
from bench.comparing.loads import LATENCY_LOADS
from bench.comparing.results import Copier, Results

from unit.bench.bench_results import (
    ceiling_run,
    drain_run,
    empty_results,
    idle_run,
    latency_run,
)

NEAR = ("1kb-none", "1kb-zstd", "100b-zstd", "tiny-batches", "100-partitions")
FAR = ("far-60", "far-150", "far-60-one")
LOADS = (*NEAR, *FAR)


def all_reached() -> Results:
    results = empty_results(*LOADS)
    for load in LOADS:
        results.drains += [
            drain_run(load, Copier.MM2, 50_000, 50_000),
            drain_run(load, Copier.MM2_TUNED, 100_000, 70_000),
            drain_run(load, Copier.TWINLOG, 180_000, 800_000),
        ]
        results.ceilings.append(ceiling_run(load, 200_000))
    for steady in LATENCY_LOADS:
        results.latencies += [
            latency_run(Copier.MM2, 5, 15, 32, load=steady.name, brokers_cpu_share=0.5),
            latency_run(Copier.TWINLOG, 1.5, 13, 28, load=steady.name),
        ]
    results.latencies.append(latency_run(Copier.TWINLOG_TRANSLATED, 120, 150, 160, load="far-60"))
    results.idles += [idle_run(Copier.MM2, 0.2), idle_run(Copier.TWINLOG, 0.03)]
    return results


def goal(results: Results, beginning: str) -> Goal:
    (found,) = [each for each in judge(results) if each.text.startswith(beginning)]
    return found


def test_every_goal_is_reached() -> None:
    goals = judge(all_reached())
    assert len(goals) == 4 + 3 * len(NEAR) + len(FAR) + 1 + 5 + 3 + 4 + 2
    assert [each.text for each in goals if not each.reached] == []


def test_nothing_measured_is_neither_reached_nor_missed() -> None:
    goals = judge(empty_results(*LOADS))
    assert {each.reached for each in goals} == {None}
    assert {each.found for each in goals} == {"not measured"}


@pytest.mark.parametrize(
    ("load", "ratio"), [("1kb-none", 8), ("1kb-zstd", 16), ("100b-zstd", 16), ("tiny-batches", 3)]
)
def test_efficiency_is_compared_with_mm2s_defaults(load: str, ratio: int) -> None:
    for found, reached in ((ratio * 50_000 + 1, True), (ratio * 50_000 - 1, False)):
        results = empty_results(load)
        results.drains = [
            drain_run(load, Copier.MM2, 50_000, 50_000),
            drain_run(load, Copier.MM2_TUNED, 50_000, 999_000),
            drain_run(load, Copier.TWINLOG, 50_000, found),
        ]
        judged = goal(results, f"records per CPU-second against MM2's defaults, {load}")
        assert judged.wanted == f"≥ {ratio}x"
        assert judged.reached is reached


def test_only_the_warm_part_counts() -> None:
    results = empty_results("1kb-none")
    results.drains = [
        drain_run("1kb-none", Copier.MM2, 100_000, 50_000, cold=0.1),
        drain_run("1kb-none", Copier.TWINLOG, 190_000, 800_000, cold=1.0),
    ]
    judged = goal(results, "records/s against MM2, defaults")
    assert judged.found == "1.90x"
    assert judged.reached is False


def test_the_tuned_mm2_and_the_ceiling_are_compared_by_rate() -> None:
    results = all_reached()
    results.ceilings[0] = ceiling_run("1kb-none", 250_000)
    results.drains[1] = drain_run("1kb-none", Copier.MM2_TUNED, 181_000, 70_000)
    assert goal(results, "records/s against the ceiling, 1kb-none").found == "0.72x"
    assert goal(results, "records/s against the ceiling, 1kb-none").reached is False
    assert goal(results, "records/s against MM2, tuned, 1kb-none").reached is False
    assert goal(results, "records/s against MM2, tuned, 1kb-zstd").reached is True


def test_latency_may_be_equal_to_its_share_of_mm2s_but_not_above() -> None:
    results = all_reached()
    assert goal(results, "latency p99 against MM2's defaults, busy").reached is True
    results.latencies[1] = latency_run(Copier.TWINLOG, 1.75, 13.6, 28)
    assert goal(results, "latency p99 against MM2's defaults, busy").reached is False
    assert goal(results, "latency p50 against MM2's defaults, busy").reached is True
    assert goal(results, "latency p99 against MM2's defaults, busy").wanted == "≤ 13.5 ms"


def test_latency_alone_of_twinlog_shows_nothing_but_over_distances() -> None:
    results = empty_results()
    results.latencies = [latency_run(Copier.TWINLOG, 2, 7, 28)]
    judged = goal(results, "latency p50 against MM2's defaults, busy")
    assert (judged.wanted, judged.found, judged.reached) == ("0.35 of MM2's", "2.0 ms", None)
    results.latencies = [latency_run(Copier.TWINLOG, 37, 50, 60, load="far-60")]
    judged = goal(results, "latency p50, Twinlog, exactly once, far-60")
    assert (judged.wanted, judged.found, judged.reached) == ("≤ 36.0 ms", "37.0 ms", False)
    assert goal(results, "latency p99, Twinlog, exactly once, far-60").reached is True
    assert goal(results, "latency p50, Twinlog, translated, far-60").reached is None


def test_the_brokers_must_need_less_than_with_mm2() -> None:
    results = all_reached()
    results.latencies[1] = latency_run(Copier.TWINLOG, 1.5, 13, 28, brokers_cpu_share=0.5)
    judged = goal(results, "CPU of both brokers against MM2's defaults, busy")
    assert (judged.wanted, judged.found, judged.reached) == ("< 50% of a core", "50% of a core", False)


def test_a_far_backlog_has_a_rate_in_bytes_and_many_partitions_are_as_fast_as_few() -> None:
    results = all_reached()
    assert goal(results, "MB/s of the backlog, far-60-one").found == "180.00 MB/s"
    results.drains = [
        drain_run("far-60", Copier.TWINLOG, 109_000, 1),
        drain_run("100-partitions", Copier.TWINLOG, 90_000, 1),
        drain_run("1kb-none", Copier.TWINLOG, 100_000, 1),
    ]
    (far,) = [each for each in judge(results) if each.text == "MB/s of the backlog, far-60"]
    assert far.reached is False
    assert goal(results, "records/s of 100 partitions").found == "0.90x"


def test_idle_cpu_and_memory_have_limits_of_their_own() -> None:
    results = all_reached()
    results.idles.append(idle_run(Copier.TWINLOG, 0.05, pss_megabytes=701))
    results.idles.append(idle_run(Copier.TWINLOG, 0.06))
    assert goal(results, "CPU of a core").found == "5.0%"
    assert goal(results, "CPU of a core").reached is False
    assert goal(results, "peak memory").found == "701 MB"
    assert goal(results, "peak memory").reached is False
