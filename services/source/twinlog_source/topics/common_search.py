"""One comparison of a source partition with its target: where do two logs of one origin part?

Two logs with a common origin are equal up to one offset and different from there on. A binary search finds
this offset with about thirty small reads of each side. The records right before it, and at the beginning, are
compared one by one. Timestamps count, so nothing is found if a cluster stamps its own.

A comparison can stop between two reads and continue later where it stopped, so it makes progress however slow
the clusters are, and whoever runs it is free in between.

Finds how much of the source is already on the target, at the same offsets, for copies that are about to
begin.

This happens after applications moved to the other cluster, and its topics are copied back under the same
names: the target is where the records came from. MirrorMaker 2 would copy all of them again.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from twinlog.clock import Clock
from twinlog.comparison.records import is_copy
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.deadline import deadline
from twinlog.kafka.ports import ConfigAdmin, FetchedRecords, KafkaCluster, LogReader
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Record, TopicPartition
from twinlog_source.partitions.copy_mode import CommonLog
from twinlog_source.reasons import PartitionReason

COMPARED_OFFSETS = 1_000
COMPARED_BYTES = 4 << 20
PAGE_BYTES = 64 << 10
READ_BYTES = 256 << 10
AGAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A copy that has not begun, and whose target has records."""

    source: TopicPartition
    target: TopicPartition
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    readable_end: int
    """Of the target: what lies behind it is in a transaction that is open, or behind one."""
    topic_ids: tuple[str, str] = ("", "")
    """Of the source and the target topic; empty = unknown."""

    @property
    def begin(self) -> int:
        """Where the log that begins later begins."""
        return max(self.source_start, self.target_start)

    @property
    def end(self) -> int:
        """Up to here both logs can be compared."""
        return min(self.source_end, self.readable_end)

    def is_also(self, later: "Suspect") -> bool:
        """Whether what was found of this one holds for a later look at the same partition: logs that have
        grown meanwhile have the same records below their former ends."""
        return (
            (self.source, self.target, self.topic_ids) == (later.source, later.target, later.topic_ids)
            and self.begin == later.begin
            and self.readable_end <= later.readable_end
            and self.source_end <= later.source_end
        )


class SearchStopped(Exception):  # noqa: N818  # a signal, not an error
    """The time of this look is over: the comparison continues with the next one."""


@dataclass(slots=True)
class Logs:
    """The two logs, and how long they may be read."""

    source: LogReader
    target: LogReader
    may_go_on: Callable[[], bool]

    async def fetch(
        self, reader: LogReader, partition: TopicPartition, offset: int, *, known_end: int, max_bytes: int
    ) -> FetchedRecords:
        """Fetch; a new leader may show less than the log was known to have for a while, so it is asked again.
        Raises KafkaError, and SearchStopped instead of asking again when the time is over."""
        wait_seconds = 0.0
        while True:
            fetched = await reader.fetch(
                partition, offset, max_wait_seconds=wait_seconds, max_bytes=max_bytes
            )
            if fetched.next_offset > offset or fetched.high_watermark >= known_end:
                return fetched
            wait_seconds = AGAIN_SECONDS
            self.stop_in_time()

    def stop_in_time(self) -> None:
        if not self.may_go_on():
            raise SearchStopped


@dataclass(slots=True)
class CommonSearch:
    suspect: Suspect
    _low: int = field(init=False)
    """From here on the logs are equal for at least one record, as far as is known."""
    _high: int = field(init=False)
    """From here on they are not, or one of them ends."""
    common_to: int = 0
    """The logs are known to be equal between the beginning and this offset."""
    _has_common_begin: bool = field(init=False)
    _windows: list[tuple[int, int]] | None = None
    """What is to be compared record by record; None = the search has not ended."""
    _compared_bytes: int = 0
    """Of the first of these windows."""

    def __post_init__(self) -> None:
        self._low = max(self.suspect.begin, self.common_to - 1)
        self._high = self.suspect.end
        self._has_common_begin = self.common_to > self.suspect.begin

    async def common(self, logs: Logs) -> CommonLog | None:
        """What both logs have in common; None = nothing. Call it again after SearchStopped. Raises
        KafkaError."""
        begin = self.suspect.begin
        if not self._has_common_begin:
            first = await _first(logs, logs.target, self.suspect.target, begin, self.suspect.end)
            if first is None or not await self._is_common_from(logs, begin):
                return None
            self._has_common_begin = True
        while self._high - self._low > 1:
            logs.stop_in_time()
            middle = (self._low + self._high) // 2
            if await self._is_common_from(logs, middle):
                self._low = middle
            else:
                self._high = middle
        end = self._high
        if self._windows is None:
            starts = (begin, max(begin, end - COMPARED_OFFSETS))
            self._windows = [(start, min(start + COMPARED_OFFSETS, end)) for start in starts]
        while self._windows:
            logs.stop_in_time()
            if not await self._compare_page(logs, self._windows):
                return None
        return CommonLog(begin, end)

    async def _is_common_from(self, logs: Logs, offset: int) -> bool:
        """Whether the first record of both logs from an offset on is the same, at the same offset."""
        suspect, end = self.suspect, self.suspect.end
        here = await _first(logs, logs.source, suspect.source, offset, end)
        there = await _first(logs, logs.target, suspect.target, offset, end)
        return here is None is there or (here is not None and there is not None and _same(here, there))

    async def _compare_page(self, logs: Logs, windows: list[tuple[int, int]]) -> bool:
        """Whether both logs have the same records at the beginning of the first window, as far as one read of
        each side reaches. What is compared is no longer in the windows."""
        at, end = windows[0]
        to = at
        if at < end:
            here, here_to = await _page(logs, logs.source, self.suspect.source, at, end)
            there, there_to = await _page(logs, logs.target, self.suspect.target, at, end)
            to = min(here_to, there_to)
            ours = [each for each in here if each.offset < to]
            theirs = [each for each in there if each.offset < to]
            if len(ours) != len(theirs) or not all(map(_same, ours, theirs)):
                return False
            self._compared_bytes += sum(len(each.key or b"") + len(each.value or b"") for each in ours)
        if to >= end or self._compared_bytes >= COMPARED_BYTES:
            windows.pop(0)
            self._compared_bytes = 0
        else:
            windows[0] = to, end
        return True


def _same(here: Record, there: Record) -> bool:
    return here.offset == there.offset and is_copy(here, there)


async def _first(
    logs: Logs, reader: LogReader, partition: TopicPartition, begin: int, end: int
) -> Record | None:
    """The first record of a log between two offsets."""
    at = begin
    while at < end:
        fetched = await logs.fetch(reader, partition, at, known_end=end, max_bytes=PAGE_BYTES)
        for record in fetched.records:
            if record.offset >= begin:
                return record if record.offset < end else None
        if fetched.next_offset <= at:
            return None
        at = fetched.next_offset
    return None


async def _page(
    logs: Logs, reader: LogReader, partition: TopicPartition, begin: int, end: int
) -> tuple[list[Record], int]:
    """The records of one read between two offsets, and how far it reaches."""
    fetched = await logs.fetch(reader, partition, begin, known_end=end, max_bytes=READ_BYTES)
    records = [each for each in fetched.records if begin <= each.offset < end]
    return records, end if fetched.next_offset <= begin else min(fetched.next_offset, end)


LOOK_SECONDS = 3.0
"""How long one call compares. The driver of the flow waits for it, with all its other work."""
LONGEST_LOOK_SECONDS = 15.0
"""The limit for one partition, also where a cluster does not answer a read."""
LOOKS_AT_ONCE = 16
_STAMPED_BY = "message.timestamp.type"


@dataclass(slots=True, kw_only=True)
class CommonLogs:
    source: KafkaCluster
    target: KafkaCluster
    read_committed: bool
    clock: Clock
    _begun: dict[TopicPartition, CommonSearch] = field(default_factory=dict)
    """Comparisons that have not ended, by source partition."""

    def forget(self) -> None:
        """Comparisons that have not ended begin again: the logs may be others by now."""
        self._begun.clear()

    async def find(
        self, suspects: Collection[Suspect]
    ) -> Mapping[TopicPartition, CommonLog | KafkaError | None]:
        """Return the result by source partition; None where the logs have nothing in common, or it is
        unknown. Where the search has not ended yet, the result is a TransientKafkaError (COMPARING), and
        the next call continues it. Takes `LOOK_SECONDS` and the time of one read. Raises KafkaError."""
        suspects = [each for each in suspects if each.begin < min(each.target_end, each.source_end)]
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
        until = self.clock.monotonic() + LOOK_SECONDS
        at_once = asyncio.Semaphore(LOOKS_AT_ONCE)
        async with (
            self.source.reader(read_committed=self.read_committed) as source,
            self.target.reader(read_committed=self.read_committed) as target,
            asyncio.TaskGroup() as group,
        ):
            logs = Logs(source, target, lambda: self.clock.monotonic() < until)

            async def look(suspect: Suspect) -> None:
                async with at_once:
                    found[suspect.source] = await self._look(suspect, logs)

            for each in comparable:
                group.create_task(look(each), name=f"compare {each.source} with its copy")
        return found

    async def _look(self, suspect: Suspect, logs: Logs) -> CommonLog | KafkaError | None:
        if suspect.readable_end <= suspect.begin:
            return _open_transaction(suspect)
        begun = self._begun.pop(suspect.source, None)
        search = begun if begun is not None and begun.suspect.is_also(suspect) else CommonSearch(suspect)
        try:
            logs.stop_in_time()
            async with deadline(LONGEST_LOOK_SECONDS, f"compare {suspect.target} with its source"):
                found = await search.common(logs)
                if found is not None and found.end == search.suspect.end < suspect.end:
                    # Both logs have grown since this search began.
                    search = CommonSearch(suspect, found.end)
                    found = await search.common(logs)
        except SearchStopped:
            self._begun[suspect.source] = search
            return _unfinished(suspect)
        except KafkaError as error:
            if error.reason == KafkaReason.OFFSET_OUT_OF_RANGE:
                # Retention has deleted the beginning meanwhile.
                return _unfinished(suspect)
            if not error.retriable:
                # A log that may not be read counts as one with nothing in common.
                return None
            self._begun[suspect.source] = search
            return error
        if found is not None and found.end == suspect.readable_end < suspect.target_end:
            # Also where the source ends there: a flow in the other direction copies no further for now.
            return _open_transaction(suspect)
        return found


def _unfinished(suspect: Suspect) -> TransientKafkaError:
    words = f"{suspect.target} has records already, and is being compared with its source"
    return TransientKafkaError(words, reason=PartitionReason.COMPARING)


def _open_transaction(suspect: Suspect) -> TransientKafkaError:
    """No read_committed reader sees what lies behind it, and the logs are equal up to there."""
    return TransientKafkaError(
        f"a transaction is open on {suspect.target} since offset {suspect.readable_end}: what lies behind it"
        " cannot be compared with the source before it ends",
        reason=PartitionReason.TARGET_OPEN_TRANSACTION,
    )


async def _stamped_by_broker(cluster: ConfigAdmin, topics: Collection[str]) -> set[str]:
    """Topics with the brokers' timestamps, and those whose configuration is unknown."""
    configs = await cluster.describe_topic_configs(sorted(topics), keys=[_STAMPED_BY])
    known = {
        name: {entry.name: entry.value for entry in entries}
        for name, entries in configs.items()
        if not isinstance(entries, KafkaError)
    }
    return {name for name in topics if known.get(name, {}).get(_STAMPED_BY) != "CreateTime"}
