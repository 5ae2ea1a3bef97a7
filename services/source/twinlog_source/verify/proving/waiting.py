"""The questions of a running comparison to the clusters: what has arrived on the target, which offset has a
time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from twinlog.comparison.sides import Extended
from twinlog.errors import KafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog_source.verify.proving.locating import OffsetForTime

_POLL_SECONDS = 0.5
_LookUp = Callable[
    [Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, int | KafkaError | None]]
]


class Arriving(Protocol):
    """A flow whose copies grow (`GatheredFlow`)."""

    @property
    def open_copies(self) -> Mapping[TopicPartition, object]: ...
    def copy_of(self, partition: TopicPartition) -> TopicPartition: ...
    async def stored_positions(self) -> Mapping[TopicPartition, int]: ...
    def position_of(
        self, partition: TopicPartition, positions: Mapping[TopicPartition, int]
    ) -> int | None: ...
    async def target_end(self, copy: TopicPartition, spec: OffsetSpec = ...) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Waits until the copy has reached the ends of the source from the start of the verification."""

    gathered: Arriving
    give_up_at: float

    async def extend(self, partition: TopicPartition, *, at: int, limit: int) -> Extended:
        """`at` is the next source offset to compare, `limit` the known end of the copy. Raises KafkaError.

        A position counts only when readers can see everything that was written before it, because a
        transaction ends on one partition before it ends on another.
        """
        loop = asyncio.get_running_loop()
        copy = self.gathered.copy_of(partition)
        while True:
            position = self.gathered.position_of(partition, await self.gathered.stored_positions())
            written = await self.gathered.target_end(copy, OffsetSpec.LATEST)
            while True:
                end = await self.gathered.target_end(copy)
                is_seen = end >= written
                is_lost = is_seen and position is not None and position > at
                is_over = partition in self.gathered.open_copies or loop.time() >= self.give_up_at
                if end > limit or is_lost or is_over:
                    return Extended(target_limit=max(end, limit), position=position if is_seen else None)
                await wait_or_stop(asyncio.Event(), _POLL_SECONDS)
                if is_seen:
                    break


def offset_for_time(look_up: _LookUp, partition: TopicPartition) -> OffsetForTime:
    """None: no record is that young. Raises KafkaError."""

    async def offset(timestamp_ms: int) -> int | None:
        found = (await look_up({partition: max(0, timestamp_ms)}))[partition]
        if isinstance(found, KafkaError):
            raise found
        return found

    return offset
