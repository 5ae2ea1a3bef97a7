"""Checks whether the copy is complete and exact: reads both logs to their ends and compares them record by
record."""

from collections.abc import Callable
from dataclasses import dataclass

from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.whole_logs import committed_records
from twinlog.model import Record, TopicPartition

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
FETCH_MAX_BYTES = 4 << 20


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
    contents = [_content(record) for record in right]
    if contents == [_content(record) for record in left]:
        result.elsewhere += sum(
            mine.offset != theirs.offset for mine, theirs in zip(left, right, strict=True)
        )
        return
    seen: dict[Content, int] = {}
    for content in contents:
        seen[content] = seen.get(content, 0) + 1
    missing = different = 0
    for record in left:
        content = _content(record)
        if seen.get(content, 0):
            seen[content] -= 1
        elif len(left) == len(right):
            different += 1
        else:
            missing += 1
        if (missing or different) and not result.first_problem:
            result.first_problem = (
                f"{partition} offset {record.offset} is not on the target, or is different there"
            )
    result.missing += missing
    result.different += different
    result.duplicates += max(0, sum(seen.values()) - different)
    if not (missing or different or sum(seen.values())):
        result.different += 1
        result.first_problem = result.first_problem or f"{partition}: the order of the records differs"


def _content(record: Record) -> Content:
    return record.timestamp_ms, record.key, record.value, tuple(record.headers)
