"""Where the logs of a cluster begin and end, for offsets that are to be committed there."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.errors import KafkaError
from twinlog.kafka.ports import LogAdmin, OffsetSpec
from twinlog.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The offsets a group may stand at: from the first record to after the last one."""

    start: int
    end: int

    def begin(self, offset: int) -> int:
        """Where a reader begins that is told `offset`: records before the log's start are gone."""
        return max(offset, self.start)


async def log_ranges(
    admin: LogAdmin, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, LogRange]:
    """Partitions that do not exist, or cannot be looked up, are left out. Raises KafkaError."""
    if not partitions:
        return {}
    starts = await admin.list_offsets(OffsetSpec.EARLIEST, partitions)
    ends = await admin.list_offsets(OffsetSpec.LATEST, partitions)
    ranges: dict[TopicPartition, LogRange] = {}
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        if not isinstance(start, KafkaError) and not isinstance(end, KafkaError):
            ranges[partition] = LogRange(start=start, end=end)
    return ranges


async def log_ends(admin: LogAdmin, partitions: set[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Log ends; a partition that has none (deleted, not visible) is left out. Raises KafkaError."""
    if not partitions:
        return {}
    answers = await admin.list_offsets(OffsetSpec.LATEST, partitions)
    return {partition: end for partition, end in answers.items() if not isinstance(end, KafkaError)}
