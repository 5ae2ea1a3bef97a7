"""Where the logs of a cluster begin and end: what of them can be read, and where groups may stand."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.errors import KafkaError
from twinlog.kafka.ports import LogAdmin, OffsetSpec
from twinlog.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """From the first record to after the last one: the offsets at which a group may stand."""

    start: int
    end: int

    def begin(self, offset: int) -> int:
        """Where a reader begins that is told `offset`: records before the log's start are gone."""
        return max(offset, self.start)


async def bounds_or_errors(
    admin: LogAdmin, partitions: Collection[TopicPartition], end: OffsetSpec
) -> dict[TopicPartition, LogBounds | KafkaError]:
    """First offset and end of each log, or why they cannot be looked up. Two requests per broker. Raises
    KafkaError."""
    if not partitions:
        return {}
    starts = await admin.list_offsets(OffsetSpec.EARLIEST, partitions)
    ends = await admin.list_offsets(end, partitions)
    found: dict[TopicPartition, LogBounds | KafkaError] = {}
    for partition in partitions:
        first, last = starts[partition], ends[partition]
        if isinstance(first, KafkaError):
            found[partition] = first
        else:
            found[partition] = last if isinstance(last, KafkaError) else LogBounds(start=first, end=last)
    return found


async def log_bounds(
    admin: LogAdmin, partitions: Collection[TopicPartition], end: OffsetSpec = OffsetSpec.LAST_STABLE
) -> Mapping[TopicPartition, LogBounds]:
    """Partitions that do not exist, or cannot be looked up, are left out. Raises KafkaError."""
    found = await bounds_or_errors(admin, partitions, end)
    return {partition: log for partition, log in found.items() if isinstance(log, LogBounds)}


async def log_ends(admin: LogAdmin, partitions: set[TopicPartition]) -> Mapping[TopicPartition, int]:
    """The ends of all that is written, also behind open transactions; a partition that has none (deleted, not
    visible) is left out. Raises KafkaError."""
    answers = await admin.list_offsets(OffsetSpec.LATEST, partitions) if partitions else {}
    return {partition: end for partition, end in answers.items() if not isinstance(end, KafkaError)}
