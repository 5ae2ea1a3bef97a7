"""The connections for reading the records of both sides."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from twinlog.batches.header import BatchHeader
from twinlog.comparison.model import Side
from twinlog.comparison.view import View, of_anybody
from twinlog.config.client_settings import ClientConfig
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.raw import BatchReader, DataClientPool
from twinlog.model import TopicPartition
from twinlog.policy.transformed import TopicTransforms, changes_records
from twinlog_source.records.changing import Changing
from twinlog_source.verify.proving.pace import Pace
from twinlog_source.verify.proving.partition_log import PartitionLog

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

    def log(
        self,
        side: Side,
        partition: TopicPartition,
        patience: float,
        group: asyncio.TaskGroup,
        counts: Callable[[BatchHeader], bool] = of_anybody,
    ) -> PartitionLog:
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
    )
