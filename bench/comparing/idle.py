"""What a copier costs while there is nothing to copy."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from bench.comparing.copiers import copier_in, copier_properties, starting
from bench.comparing.drain import replay
from bench.comparing.loads import LOADS, make_pool
from bench.comparing.process_tree import TreeMeter
from bench.comparing.results import Copier, IdleRun
from bench.comparing.stage import Stage
from twinlog.errors import StateError
from twinlog.model import Flow
from twinlog.service.waiting import wait_or_stop

# A topic that a copier has begun to copy: what latency and idleness are measured on.

_COPY_SECONDS = 120.0
_POLL_SECONDS = 0.5


async def put_first_records(stage: Stage, topic: str, partition_count: int) -> None:
    """Create a topic on the source with a record in each partition."""
    await stage.source.create_topic(topic, partition_count)
    pool = make_pool(LOADS[0], batch_bytes=1000, pool_bytes=1000, now_ms=time.time_ns() // 1_000_000)
    await replay(
        stage.source.session,
        topic,
        pool,
        partition_count=partition_count,
        record_count=partition_count,
    )


async def wait_for_first_records(stage: Stage, remote_topic: str, partition_count: int) -> None:
    """Until each of them is on the target. Raises StateError after two minutes."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + _COPY_SECONDS
    never = asyncio.Event()
    while not all(await stage.target.ends(remote_topic, partition_count)):
        if loop.time() > give_up_at:
            raise StateError(f"{remote_topic} did not get its first records within {_COPY_SECONDS:.0f} s")
        await wait_or_stop(never, _POLL_SECONDS)


PARTITIONS = 100
_METER_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePlan:
    settle_seconds: float
    measured_seconds: float

    @property
    def seconds(self) -> float:
        return self.settle_seconds + self.measured_seconds


async def run_idle(
    stage: Stage,
    copier: Copier,
    flow: Flow,
    plan: IdlePlan,
    directory: Path,
) -> IdleRun:
    """A topic of 100 partitions with one record each, long copied. `flow` must be new to these clusters.

    Raises TwinlogError.
    """
    topic = f"idle-{flow.source}"
    remote_topic = f"{flow.source}.{topic}"
    await put_first_records(stage, topic, PARTITIONS)
    properties = copier_properties(
        copier,
        flow,
        stage.source.brokers.client_properties(),
        stage.target.brokers.client_properties(),
        topics=topic,
    )
    loop = asyncio.get_running_loop()
    never = asyncio.Event()
    meter = TreeMeter()
    try:
        async with copier_in(directory, copier, properties) as running, starting(running):
            await wait_for_first_records(stage, remote_topic, PARTITIONS)
            began = loop.time()
            await wait_or_stop(never, plan.settle_seconds)
            first_at = loop.time()
            first_cpu_seconds = cpu_seconds = meter.cpu_seconds(running.pid, first_at)
            while loop.time() < began + plan.seconds:
                await wait_or_stop(never, _METER_SECONDS)
                cpu_seconds = meter.cpu_seconds(running.pid, loop.time())
            seconds = loop.time() - first_at
    finally:
        await stage.source.delete_topic(topic)
        await stage.target.delete_topic(remote_topic)
    return IdleRun(
        copier=copier,
        partitions=PARTITIONS,
        cpu_share=(cpu_seconds - first_cpu_seconds) / seconds,
        peak_pss_bytes=meter.peak_pss_bytes,
    )
