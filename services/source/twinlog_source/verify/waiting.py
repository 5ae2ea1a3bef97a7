"""What a comparison asks of the clusters while it runs: has more come to the target, which offset has a
time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.verify.sides import Extended
from twinlog_source.verify.gathering import Estate
from twinlog_source.verify.locating import OffsetForTime

_POLL_SECONDS = 0.5
_LookUp = Callable[
    [Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, int | KafkaError | None]]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """For the copy to arrive at the ends of the source that were taken at the start."""

    estate: Estate
    give_up_at: float

    async def extend(self, partition: TopicPartition, *, at: int, limit: int) -> Extended:
        """`at` is the next source offset to compare, `limit` the end of the copy as it is known. Raises
        KafkaError."""
        loop = asyncio.get_running_loop()
        copy = self.estate.copy_of(partition)
        while True:
            position = self.estate.position_of(partition, await self.estate.stored_positions())
            end = await self.estate.target_end(copy)
            is_lost = position is not None and position > at
            if end > limit or is_lost or loop.time() >= self.give_up_at:
                return Extended(target_limit=max(end, limit), position=position)
            await wait_or_stop(asyncio.Event(), _POLL_SECONDS)


def offset_for_time(look_up: _LookUp, partition: TopicPartition) -> OffsetForTime:
    """Asks a cluster; None also where it does not answer."""

    async def offset(timestamp_ms: int) -> int | None:
        found = (await look_up({partition: max(0, timestamp_ms)}))[partition]
        return found if isinstance(found, int) else None

    return offset
