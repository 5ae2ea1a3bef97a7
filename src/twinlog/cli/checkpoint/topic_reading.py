"""Reads a whole topic for the command line: every partition from its first record to its end, or without
end."""

import asyncio
from collections.abc import Callable

from twinlog.cli.common.failures import tell
from twinlog.errors import NotFoundError, TwinlogError
from twinlog.kafka.ports import KafkaCluster, ManagedReader, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import records_to
from twinlog.model import Record, TopicPartition
from twinlog.service.waiting import wait_or_stop

_MAX_WAIT_SECONDS = 1.0
_RETRY_SECONDS = 1.0

OnRecord = Callable[[TopicPartition, Record], None]


async def read_topic(
    cluster: KafkaCluster, topic: str, on_record: OnRecord, *, from_beginning: bool, follow: bool
) -> None:
    """Call `on_record` with each committed record, partition by partition; then, with `follow`, as they
    arrive.

    Raises NotFoundError when the topic does not exist, KafkaError when the cluster does not answer.
    """
    description = (await cluster.describe_topics([topic]))[topic]
    if isinstance(description, TwinlogError):
        if description.reason == KafkaReason.TOPIC_UNKNOWN:
            raise NotFoundError(f"there is no topic {topic} on this cluster", metadata={"topic": topic})
        raise description
    partitions = [TopicPartition(topic, number) for number in range(description.partition_count)]
    ends = await _offsets(cluster, OffsetSpec.LAST_STABLE, partitions)
    positions = await _offsets(cluster, OffsetSpec.EARLIEST, partitions) if from_beginning else ends
    async with cluster.reader(read_committed=True) as reader:
        for partition in partitions:
            async for record in records_to(reader, partition, positions[partition], ends[partition]):
                on_record(partition, record)
        if follow:
            async with asyncio.TaskGroup() as group:
                for partition in partitions:
                    group.create_task(
                        _follow(reader, partition, ends[partition], on_record),
                        name=f"follow {partition}",
                    )


async def _offsets(
    cluster: KafkaCluster, spec: OffsetSpec, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for partition, offset in (await cluster.list_offsets(spec, partitions)).items():
        if isinstance(offset, TwinlogError):
            raise offset
        offsets[partition] = offset
    return offsets


async def _follow(reader: ManagedReader, partition: TopicPartition, offset: int, on_record: OnRecord) -> None:
    never = asyncio.Event()
    while True:
        try:
            fetched = await reader.fetch(partition, offset, max_wait_seconds=_MAX_WAIT_SECONDS)
        except TwinlogError as error:
            if not error.retriable:
                raise
            tell(error, f"{partition}: {error}; trying again")
            await wait_or_stop(never, _RETRY_SECONDS)
            continue
        for record in fetched.records:
            on_record(partition, record)
        offset = fetched.next_offset
