"""Finds how much of the source is already on the target, at the same offsets, for a copy that is about to
begin.

This happens after applications moved to the other cluster, and its topics are copied back under the same
names: the target is where the records came from. MirrorMaker 2 would copy all of them again.

Two logs with a common origin are equal up to one offset and different from there on. A binary search finds
this offset with about thirty small reads of each side. The records right before it, and at the beginning, are
compared one by one. Timestamps count, so nothing is found if a cluster stamps its own.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.errors import TIMEOUT
from twinlog.kafka.ports import ConfigAdmin, FetchedRecords, KafkaCluster, LogReader
from twinlog.model import Record, TopicPartition
from twinlog_source.partitions.copy_mode import CommonLog

LOOK_SECONDS = 120.0
"""The limit for one partition: each read is a round trip to both clusters."""
LOOKS_AT_ONCE = 16
COMPARED_OFFSETS = 1_000
COMPARED_BYTES = 4 << 20
PAGE_BYTES = 64 << 10
READ_BYTES = 1 << 20
AGAIN_SECONDS = 0.5
_STAMPED_BY = "message.timestamp.type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A copy that has not begun, and whose target has records."""

    source: TopicPartition
    target: TopicPartition
    source_start: int
    source_end: int
    target_start: int
    target_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonLogs:
    source: KafkaCluster
    target: KafkaCluster
    read_committed: bool

    async def find(
        self, suspects: Collection[Suspect]
    ) -> Mapping[TopicPartition, CommonLog | KafkaError | None]:
        """Return the result by source partition; None where the logs have nothing in common, or it is
        unknown. Raises KafkaError."""
        suspects = [each for each in suspects if _begin(each) < min(each.target_end, each.source_end)]
        if not suspects:
            return {}
        stamped = await _stamped_by_broker(self.source, {each.source.topic for each in suspects})
        stamped_there = await _stamped_by_broker(self.target, {each.target.topic for each in suspects})
        comparable = [
            each
            for each in suspects
            if each.source.topic not in stamped and each.target.topic not in stamped_there
        ]
        found: dict[TopicPartition, CommonLog | KafkaError | None] = {}
        at_once = asyncio.Semaphore(LOOKS_AT_ONCE)
        async with (
            self.source.reader(read_committed=self.read_committed) as source,
            self.target.reader(read_committed=self.read_committed) as target,
            asyncio.TaskGroup() as group,
        ):

            async def look(suspect: Suspect) -> None:
                async with at_once:
                    found[suspect.source] = await _look(suspect, source, target)

            for each in comparable:
                group.create_task(look(each), name=f"compare {each.source} with its copy")
        return found


async def _look(suspect: Suspect, source: LogReader, target: LogReader) -> CommonLog | KafkaError | None:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await _Pair(suspect, source, target).common()
    except KafkaError as error:
        # A log that may not be read counts as one with nothing in common.
        return error if error.retriable else None
    except TimeoutError:
        words = f"{suspect.target}: not compared with its source within {LOOK_SECONDS:g} s"
        return TransientKafkaError(words, reason=TIMEOUT.name)


@dataclass(frozen=True, slots=True)
class _Pair:
    suspect: Suspect
    source: LogReader
    target: LogReader

    async def common(self) -> CommonLog | None:
        begin, end = _begin(self.suspect), self.suspect.target_end
        first = await _first(self.target, self.suspect.target, begin, end)
        if first is None or not await self._is_common_from(begin):
            return None
        low, high = begin, end
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_common_from(middle):
                low = middle
            else:
                high = middle
        common_end = min(high, self.suspect.source_end)
        for window in (begin, max(begin, common_end - COMPARED_OFFSETS)):
            if not await self._are_equal(window, min(window + COMPARED_OFFSETS, common_end)):
                return None
        return CommonLog(begin, common_end)

    async def _is_common_from(self, offset: int) -> bool:
        """Whether the first record of both logs from an offset on is the same, at the same offset."""
        end = self.suspect.target_end
        here = await _first(self.source, self.suspect.source, offset, min(end, self.suspect.source_end))
        there = await _first(self.target, self.suspect.target, offset, end)
        return here is None is there or (here is not None and there is not None and _same(here, there))

    async def _are_equal(self, begin: int, end: int) -> bool:
        here, read_to = await _read(self.source, self.suspect.source, begin, end)
        there, read_there_to = await _read(self.target, self.suspect.target, begin, end)
        to = min(read_to, read_there_to)
        ours = [each for each in here if each.offset < to]
        theirs = [each for each in there if each.offset < to]
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))


def _begin(suspect: Suspect) -> int:
    return max(suspect.source_start, suspect.target_start)


def _same(here: Record, there: Record) -> bool:
    return (
        here.offset == there.offset
        and here.timestamp_ms == there.timestamp_ms
        and here.key == there.key
        and here.value == there.value
        and here.headers == there.headers
    )


async def _fetch(
    reader: LogReader, partition: TopicPartition, offset: int, *, known_end: int, max_bytes: int
) -> FetchedRecords:
    """Fetch; a new leader may show less than the log was known to have for a while, so it is asked again. The
    caller bounds the time."""
    wait_seconds = 0.0
    while True:
        fetched = await reader.fetch(partition, offset, max_wait_seconds=wait_seconds, max_bytes=max_bytes)
        if fetched.next_offset > offset or fetched.high_watermark >= known_end:
            return fetched
        wait_seconds = AGAIN_SECONDS


async def _first(reader: LogReader, partition: TopicPartition, begin: int, end: int) -> Record | None:
    """The first record of a log between two offsets."""
    at = begin
    while at < end:
        fetched = await _fetch(reader, partition, at, known_end=end, max_bytes=PAGE_BYTES)
        for record in fetched.records:
            if record.offset >= begin:
                return record if record.offset < end else None
        if fetched.next_offset <= at:
            return None
        at = fetched.next_offset
    return None


async def _read(
    reader: LogReader, partition: TopicPartition, begin: int, end: int
) -> tuple[Sequence[Record], int]:
    """The records of a log between two offsets, and how far it was read."""
    found: list[Record] = []
    at, size_bytes = begin, 0
    while at < end and size_bytes < COMPARED_BYTES:
        fetched = await _fetch(reader, partition, at, known_end=end, max_bytes=READ_BYTES)
        found += [each for each in fetched.records if begin <= each.offset < end]
        size_bytes += sum(len(each.key or b"") + len(each.value or b"") for each in fetched.records)
        if fetched.next_offset <= at:
            return found, end
        at = fetched.next_offset
    return found, min(at, end)


async def _stamped_by_broker(cluster: ConfigAdmin, topics: Collection[str]) -> set[str]:
    """Topics with the brokers' timestamps, and those whose configuration is unknown."""
    configs = await cluster.describe_topic_configs(sorted(topics), keys=[_STAMPED_BY])
    known = {
        name: {entry.name: entry.value for entry in entries}
        for name, entries in configs.items()
        if not isinstance(entries, KafkaError)
    }
    return {name for name in topics if known.get(name, {}).get(_STAMPED_BY) != "CreateTime"}
