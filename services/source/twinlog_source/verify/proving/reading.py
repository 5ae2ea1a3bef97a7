"""The connections for reading the records of both sides."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol

from twinlog.batches.header import BatchHeader
from twinlog.comparison.model import Side
from twinlog.comparison.sides import Extended
from twinlog.comparison.view import View, of_anybody
from twinlog.config.client_settings import ClientConfig
from twinlog.errors import KafkaError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import BatchReader, DataClientPool
from twinlog.model import TopicPartition
from twinlog.policy.transformed import TopicTransforms, changes_records
from twinlog.service.waiting import wait_or_stop
from twinlog_source.records.changing import Changing
from twinlog_source.verify.proving.partition_log import Pace, PartitionLog
from twinlog_source.verify.proving.prover import OffsetForTime

# The questions of a running comparison to the clusters: what has arrived on the target, which offset has a
# time.

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


_TIMEOUT_SECONDS = 30.0


@dataclass(slots=True, kw_only=True)
class Sides:
    """The connections for reading records."""

    source: DataClientPool
    target: DataClientPool
    source_reader: BatchReader
    target_reader: BatchReader
    source_pace: Pace
    target_pace: Pace
    transforms: TopicTransforms | None
    changing: Changing | None = None
    """What Spark does to records of the source; None = nothing."""
    most_bytes: Mapping[str, int] = field(default_factory=dict)
    """By source topic, what Spark may make larger is left out."""

    def log(
        self,
        side: Side,
        partition: TopicPartition,
        patience: float,
        group: asyncio.TaskGroup,
        counts: Callable[[BatchHeader], bool] = of_anybody,
        too_large: dict[int, str] | None = None,
    ) -> PartitionLog:
        """`too_large`: as in `Bounds`."""
        is_source = side is Side.SOURCE
        reader = self.source_reader if is_source else self.target_reader
        transforms = self.transforms if is_source else None
        change = None if transforms is None else transforms.changes(partition.topic)
        by_spark = transforms is not None and transforms.expressions(partition.topic) is not None
        return PartitionLog(
            partition=partition,
            session=self.source if is_source else self.target,
            reader=reader,
            pace=self.source_pace if is_source else self.target_pace,
            view=View(read_committed=reader.read_committed, counts=counts, change=change),
            patience_seconds=patience,
            group=group,
            changing=self.changing if by_spark else None,
            most_bytes=self.most_bytes.get(partition.topic, math.inf) if by_spark else math.inf,
            too_large={} if too_large is None else too_large,
        )


async def open_sides(
    stack: AsyncExitStack,
    source: ClientConfig,
    target: ClientConfig,
    *,
    read_committed: bool,
    max_bytes_per_second: int,
    policy_config: Mapping[str, str],
    changing: Changing | None,
    most_bytes: Mapping[str, int],
) -> Sides:
    """They close with the stack. `policy_config`: the flow's, with its transforms. Raises ConfigError."""
    pools = []
    for client in (source, target):
        options = aiokafka_client_options(client.properties, alias=client.alias, client_id_suffix="verify")
        pool = DataClientPool(client.alias, options, timeout_seconds=_TIMEOUT_SECONDS)
        stack.push_async_callback(pool.close)
        pools.append(pool)
    return Sides(
        source=pools[0],
        target=pools[1],
        source_reader=BatchReader(pools[0], read_committed=read_committed),
        target_reader=BatchReader(pools[1], read_committed=True),
        source_pace=Pace(max_bytes_per_second),
        target_pace=Pace(max_bytes_per_second),
        transforms=TopicTransforms(policy_config, source.alias) if changes_records(policy_config) else None,
        changing=changing,
        most_bytes=most_bytes,
    )
