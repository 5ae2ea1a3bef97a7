"""Where the logs end that a move leaves: what lies before belongs to it."""

import asyncio
from collections.abc import Collection

from twinlog.clock import Clock
from twinlog.kafka.ports import LogAdmin
from twinlog.model import TopicPartition
from twinlog.service.runtime import wait_or_stop
from twinlog_checkpoint.exact import log_ends
from twinlog_checkpoint.log_ranges import log_ranges

FENCE_SETTLE_SECONDS = 30.0
"""How long logs may go on growing behind a fence before their ends are taken as they are."""


async def ends_now(admin: LogAdmin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Of what is committed. Raises KafkaError."""
    return {partition: bounds.end for partition, bounds in (await log_ends(admin, partitions)).items()}


async def ends_behind_fence(
    admin: LogAdmin,
    partitions: Collection[TopicPartition],
    *,
    clock: Clock,
    stop: asyncio.Event,
    look_seconds: float,
) -> dict[TopicPartition, int]:
    """The same once nothing comes any more. Raises KafkaError.

    Brokers hear of a fence a little later, and it does not keep an open transaction from being committed.
    """
    ends = await ends_now(admin, partitions)
    give_up_at = clock.monotonic() + FENCE_SETTLE_SECONDS
    while clock.monotonic() < give_up_at and not stop.is_set():
        await wait_or_stop(stop, look_seconds)
        before, latest = ends, await log_ranges(admin, partitions)
        ends = await ends_now(admin, partitions)
        if before == ends == {partition: log.end for partition, log in latest.items()}:
            break
    return ends
