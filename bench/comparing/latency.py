"""How long a record takes at a steady rate, over few partitions or many."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.comparing.copiers import RunningCopier, copier_in, copier_properties, starting
from bench.comparing.idle import put_first_records, wait_for_first_records
from bench.comparing.latency_probe import ProbeOutcome, ProbePlan
from bench.comparing.loads import LatencyLoad
from bench.comparing.process_tree import TreeMeter
from bench.comparing.results import Copier, LatencyRun, percentile
from bench.comparing.stage import Stage
from twinlog.errors import StateError
from twinlog.model import Flow

_METER_SECONDS = 0.5
_PROBE = Path(__file__).with_name("latency_probe.py")
_LONGEST_LINE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPlan:
    loads: Sequence[LatencyLoad]
    warm_up_seconds: float
    measured_seconds: float


async def run_latency(
    stage: Stage,
    copier: Copier,
    flow: Flow,
    load: LatencyLoad,
    plan: LatencyPlan,
    directory: Path,
) -> LatencyRun:
    """Records at a steady rate through a copier that is warm, seen by a read_committed consumer.

    `flow` must be new to these clusters. Raises TwinlogError when the copier does not start or records do not
    arrive.
    """
    topic = f"latency-{flow.source}"
    remote_topic = f"{flow.source}.{topic}"
    source, target = stage.source.brokers, stage.target.brokers
    await put_first_records(stage, topic, load.partitions)
    probe_plan = ProbePlan(
        source_servers=source.bootstrap_servers,
        target_servers=target.bootstrap_servers,
        source_topic=topic,
        target_topic=remote_topic,
        partitions=load.partitions,
        records_per_second=load.records_per_second,
        value_bytes=load.value_bytes,
        warm_up_seconds=plan.warm_up_seconds,
        measured_seconds=plan.measured_seconds,
    )
    try:
        way = stage.way_to_target(load.round_trip_ms, lost_every_seconds=load.lost_every_seconds)
        async with way as far:
            properties = copier_properties(
                copier, flow, source.client_properties(), far, topics=topic, more=load.settings
            )
            async with copier_in(directory, copier, properties) as running, starting(running):
                await wait_for_first_records(stage, remote_topic, load.partitions)
                outcome, cpu_share, brokers_cpu_share = await _watch(
                    probe_plan,
                    running,
                    lambda: source.cpu_seconds() + target.cpu_seconds(),
                )
    finally:
        await stage.source.delete_topic(topic)
        await stage.target.delete_topic(remote_topic)
    if outcome.missing:
        raise StateError(f"{outcome.missing:,} of {probe_plan.all_records:,} records did not arrive")
    latencies = outcome.latencies_ms
    return LatencyRun(
        copier=copier,
        load=load.name,
        p50_ms=percentile(latencies, 50),
        p90_ms=percentile(latencies, 90),
        p99_ms=percentile(latencies, 99),
        p999_ms=percentile(latencies, 99.9),
        longest_ms=latencies[-1],
        records=len(latencies),
        duplicates=outcome.duplicates,
        cpu_share=cpu_share,
        brokers_cpu_share=brokers_cpu_share,
    )


async def _watch(
    plan: ProbePlan,
    running: RunningCopier,
    brokers_cpu_seconds: Callable[[], float],
) -> tuple[ProbeOutcome, float, float]:
    """Run the probe; the outcome, and the CPU shares of the copier and of the brokers while it measured."""
    loop = asyncio.get_running_loop()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_PROBE),
        json.dumps(asdict(plan)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        limit=_LONGEST_LINE_BYTES,
    )
    meter = TreeMeter()
    marks: list[tuple[float, float, float]] = []
    try:
        assert process.stdout is not None
        while True:
            line: str | None = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_METER_SECONDS):
                    line = (await process.stdout.readline()).decode().strip()
            cpu_seconds = meter.cpu_seconds(running.pid, loop.time())
            if line is None:
                continue
            if line in ("measuring", "measured"):
                marks.append((loop.time(), cpu_seconds, brokers_cpu_seconds()))
                continue
            if not line:
                raise StateError("the latency probe ended without a result; its error is above")
            (first_at, *first), (last_at, *last) = marks
            copier_share, brokers_share = [
                (after - before) / (last_at - first_at) for before, after in zip(first, last, strict=True)
            ]
            return ProbeOutcome(**json.loads(line)), copier_share, brokers_share
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
