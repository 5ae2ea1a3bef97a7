"""The consumer group that moves: reads half on A, stops, and continues on B at exactly its next record."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.kafka.groups.consumer import GroupConsumer
from twinlog.kafka.ports import CommittedOffset, KafkaCluster
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Record, TopicPartition

POLL_SECONDS = 0.5
FETCH_MAX_BYTES = 4 << 20


@dataclass(slots=True, kw_only=True)
class Reading:
    """What the group read between joining and leaving."""

    records: int = 0
    first: dict[int, tuple[int, bytes | None, bytes | None]] = field(default_factory=dict)
    """Partition -> timestamp, key, value of the first record."""
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)


async def read_some(
    alias: str,
    properties: Mapping[str, str],
    *,
    group: str,
    topic: str,
    at_least: int,
    max_idle_polls: int,
    poll_records: int = 500,
    then_idle_polls: int = 0,
) -> Reading:
    """Join the group, read `at_least` records and on until `then_idle_polls` in a row return none, commit,
    leave. Without that many records it ends after `max_idle_polls` without any."""
    reading = Reading()
    async with GroupConsumer(alias, properties, group=group, topics=[topic]) as consumer:
        idle_polls = 0
        while idle_polls < (then_idle_polls if reading.records >= at_least else max_idle_polls):
            polled = await consumer.poll(max_wait_seconds=POLL_SECONDS, max_records=poll_records)
            idle_polls = 0 if polled else idle_polls + 1
            for record in polled:
                number = record.partition.partition
                reading.first.setdefault(number, (record.timestamp_ms, record.key, record.value))
                reading.next_offsets[record.partition] = record.offset + 1
                reading.records += 1
        if reading.next_offsets:
            await consumer.commit(reading.next_offsets)
    return reading


async def group_position(cluster: KafkaCluster, group: str) -> Mapping[TopicPartition, CommittedOffset]:
    """The group's committed offsets on a cluster; empty when it has none. Raises KafkaError."""
    answer = (await cluster.group_offsets([group])).get(group, {})
    if isinstance(answer, KafkaError):
        if answer.reason == KafkaReason.GROUP_UNKNOWN:
            return {}
        raise answer
    return answer


async def first_records(
    cluster: KafkaCluster, offsets: Mapping[TopicPartition, int]
) -> Mapping[int, Record | None]:
    """The record that a group would read first at each offset; None at the end of the log."""
    found: dict[int, Record | None] = {}
    async with cluster.reader() as reader:
        for partition, offset in offsets.items():
            fetched = await reader.fetch(partition, offset, max_wait_seconds=1.0, max_bytes=FETCH_MAX_BYTES)
            found[partition.partition] = fetched.records[0] if fetched.records else None
    return found
