"""Results made up for tests."""

from bench.comparing.figures import Drain, Stretch
from bench.comparing.process_tree import TreeMemory
from bench.comparing.results import CeilingRun, Copier, DrainRun, IdleRun, LatencyRun, LoadFacts, Results


def stretch(records_per_second: float, records_per_cpu_second: float) -> Stretch:
    return Stretch(
        records=1_000_000,
        seconds=1_000_000 / records_per_second,
        cpu_seconds=1_000_000 / records_per_cpu_second,
        source_broker_cpu_seconds=1.0,
        target_broker_cpu_seconds=2.0,
    )


def drain_run(
    load: str,
    copier: Copier,
    rate: float,
    per_cpu_second: float,
    *,
    cold: float = 0.5,
    pss_megabytes: int = 500,
) -> DrainRun:
    """Warm figures as given; those of the whole run are `cold` times as good."""
    return DrainRun(
        load=load,
        copier=copier,
        drain=Drain(
            first_record_seconds=7.0,
            first_record_cpu_seconds=10.0,
            whole=stretch(rate * cold, per_cpu_second * cold),
            warm=stretch(rate, per_cpu_second),
        ),
        memory=TreeMemory(pss_bytes=pss_megabytes * 10**6, rss_bytes=2 * pss_megabytes * 10**6),
        surplus_records=0,
    )


def latency_run(
    copier: Copier,
    p50_ms: float,
    p99_ms: float,
    p999_ms: float,
    *,
    load: str = "busy",
    brokers_cpu_share: float = 0.3,
) -> LatencyRun:
    return LatencyRun(
        copier=copier,
        load=load,
        p50_ms=p50_ms,
        p90_ms=p50_ms + 1,
        p99_ms=p99_ms,
        p999_ms=p999_ms,
        longest_ms=p999_ms + 1,
        records=60_000,
        duplicates=0,
        cpu_share=0.2,
        brokers_cpu_share=brokers_cpu_share,
    )


def idle_run(copier: Copier, cpu_share: float, pss_megabytes: int = 400) -> IdleRun:
    memory = TreeMemory(pss_bytes=pss_megabytes * 10**6, rss_bytes=pss_megabytes * 10**6)
    return IdleRun(copier=copier, partitions=100, cpu_share=cpu_share, memory=memory)


def ceiling_run(load: str, rate: float) -> CeilingRun:
    return CeilingRun(
        load=load, records_per_second=rate, records_per_cpu_second=rate * 3, target_broker_cpu_seconds=2.0
    )


def empty_results(*loads: str) -> Results:
    return Results(
        machine={"cores": "2"},
        settings={},
        loads={
            name: LoadFacts(
                load=name,
                title=name.upper(),
                records=1_000_000,
                bytes_per_record=1000.0,
                mean_batch_bytes=131_000.0,
            )
            for name in loads
        },
    )
