"""Checks whether the copy is complete and exact: reads both logs to their ends and compares them record by
record."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.kafka.groups.consumer import ConsumedRecord, GroupConsumer
from twinlog.kafka.ports import CommittedOffset, KafkaCluster
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import committed_records
from twinlog.model import Record, TopicPartition

# The consumer group that moves: reads half on A, stops, and continues on B at exactly its next record.

POLL_SECONDS = 0.5
FETCH_MAX_BYTES = 4 << 20


@dataclass(slots=True, kw_only=True)
class Reading:
    """What the group read between joining and leaving; what it reads again after a rebalance counts once."""

    records: int = 0
    first: dict[int, tuple[int, bytes | None, bytes | None]] = field(default_factory=dict)
    """Partition -> timestamp, key, value of the first record."""
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def add(self, polled: Iterable[ConsumedRecord]) -> None:
        for record in polled:
            number = record.partition.partition
            self.first.setdefault(number, (record.timestamp_ms, record.key, record.value))
            if record.offset >= self.next_offsets.get(record.partition, 0):
                self.next_offsets[record.partition] = record.offset + 1
                self.records += 1


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
            reading.add(polled)
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


@dataclass(slots=True, kw_only=True)
class CopyCheck:
    """Counts over all compared partitions."""

    source_records: int = 0
    target_records: int = 0
    missing: int = 0
    """Records of the source that the target does not have at their place."""
    duplicates: int = 0
    """Records that the target has twice."""
    different: int = 0
    """Records with another key, value, header or timestamp on the target."""
    elsewhere: int = 0
    """Records with another offset than on the source."""
    first_problem: str = ""

    @property
    def identical(self) -> bool:
        return not (self.missing or self.duplicates or self.different) and (
            self.source_records == self.target_records
        )


def _as_it_is(record: Record) -> Record | None:
    return record


async def compare(
    source: KafkaCluster,
    source_topic: str,
    target: KafkaCluster,
    target_topic: str,
    *,
    partition_count: int,
    change: Callable[[Record], Record | None] = _as_it_is,
) -> CopyCheck:
    """Compare two topics as a read_committed reader sees them, partition by partition. `change`: what becomes
    of a record of the source; None = it is not copied. Raises KafkaError."""
    result = CopyCheck()
    async with source.reader() as source_reader, target.reader() as target_reader:
        for number in range(partition_count):
            mine, theirs = TopicPartition(source_topic, number), TopicPartition(target_topic, number)
            all_left = [record async for record in committed_records(source, source_reader, mine)]
            left = [changed for record in all_left if (changed := change(record)) is not None]
            right = [record async for record in committed_records(target, target_reader, theirs)]
            _compare_partition(left, right, mine, result)
    return result


def _compare_partition(
    left: list[Record], right: list[Record], partition: TopicPartition, result: CopyCheck
) -> None:
    result.source_records += len(left)
    result.target_records += len(right)
    wanted, found = [[_content(record) for record in each] for each in (left, right)]
    if found == wanted:
        result.elsewhere += sum(
            mine.offset != theirs.offset for mine, theirs in zip(left, right, strict=True)
        )
        return
    missing, surplus = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    if len(left) == len(right):
        result.different += missing.total() or 1  # Or the order differs.
    else:
        result.missing += missing.total()
        result.duplicates += surplus.total()
    first = next((record for record in left if _content(record) in missing), None)
    what = "the order or the number of records differs"
    if first is not None:
        what = f"offset {first.offset} is not on the target, or is different there"
    result.first_problem = result.first_problem or f"{partition}: {what}"


def _content(record: Record) -> Hashable:
    return record.timestamp_ms, record.key, record.value, tuple(record.headers)
