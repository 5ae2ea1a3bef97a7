"""A topic that a copier has begun to copy: what latency and idleness are measured on."""

import asyncio
import time

from bench.comparing.loads import LOADS, make_pool
from bench.comparing.replay import replay
from bench.comparing.stage import Stage
from twinlog.errors import StateError
from twinlog.service.waiting import wait_or_stop

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
        progress=lambda _: None,
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
