"""Records that only the cluster has that groups leave, and that they would skip.

They lie before the record with which the log on the other cluster begins, and, in a copy, wherever other
producers wrote (FOREIGN): no flow copies those. Behind everything that the original has, the logs tell which
they are; between copied records, only the source service knows.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from twinlog.errors import KafkaError, required
from twinlog.model import TopicPartition
from twinlog_checkpoint.moves.planning.decision import CopyReport, CopyState, CopyStates
from twinlog_checkpoint.moves.planning.plan import ForeignRange
from twinlog_checkpoint.moves.routes.offset_router import NOT_KNOWN
from twinlog_checkpoint.moves.routes.route import Route
from twinlog_checkpoint.translation.log_sides import BudgetSpent, ByteBudget, ComparedPartition
from twinlog_checkpoint.translation.translation import LogBounds, SourcePosition, Translation

MOST_BETWEEN = 128
"""So many offsets between two places are looked at for records; more of them are hardly all markers."""
COUNT_BYTES = 64 << 20
"""One look reads so much to count these records, and then once more of each part."""


@dataclass(slots=True, kw_only=True)
class RecordsOnlyHere:
    """One look at both clusters; it reads each part of a log only once."""

    route: Route
    copy_states: CopyStates
    budget: ByteBudget = field(default_factory=lambda: ByteBudget(COUNT_BYTES))
    _counts: dict[tuple[TopicPartition, int, int], int] = field(default_factory=dict)
    _empty: dict[tuple[TopicPartition, int, int], bool] = field(default_factory=dict)

    async def before_start(
        self, places: Collection[SourcePosition], logs: Mapping[TopicPartition, LogBounds]
    ) -> dict[SourcePosition, int]:
        """For groups that would continue at the first record there: how many records that they have not read
        lie before it here. `logs` has the logs there, by partition here. Raises KafkaError."""
        first = await self.route.ways.first_left(logs) if logs else {}
        bounds = await self.route.here.bounds(first)
        away = self.route.away
        behind = away is not None and NOT_KNOWN in first.values()
        copies = await self.copy_states.of(away.flow) if behind and away is not None else CopyReport()
        found: dict[SourcePosition, int] = {}
        for place in places:
            log, stop = required(bounds.get(place.partition)), first.get(place.partition)
            if log is not None and stop is not None:
                if stop == NOT_KNOWN:
                    # What is copied from now on is there.
                    copy = copies.partitions.get(place.partition)
                    stop = log.end if copy is None or copy.position is None else min(log.end, copy.position)
                found[place] = await self._count(place.partition, log, place.next_offset, stop)
        return found

    async def foreign(self, topics: Collection[str]) -> list[ForeignRange]:
        """Return the foreign records of the copies among these topics, sorted by partition and offset. Raises
        KafkaError."""
        described = await self.route.from_cluster.describe_topics(topics) if topics else {}
        origins = {
            partition: origin
            for topic, found in described.items()
            if not isinstance(found, KafkaError)
            for partition in (TopicPartition(topic, number) for number in range(found.partition_count))
            if (origin := self.route.ways.original(partition)) is not None
        }
        # What is copied between the two answers must not look like foreign records.
        here = await self.route.here.bounds(origins)
        there = await self.route.there.bounds(set(origins.values()))
        ends = {
            partition: log.end
            for partition, origin in origins.items()
            if isinstance(log := there.get(origin), LogBounds)
        }
        copied = await self.route.ways.copied_to(ends) if ends else {}
        home = self.route.ways.home
        states = CopyReport() if home is None or not ends else await self.copy_states.of(home.flow)
        found: list[ForeignRange] = []
        for partition, origin in sorted(origins.items()):
            log, original = here.get(partition), there.get(origin)
            if not isinstance(log, LogBounds) or log.start == log.end or original is None:
                continue
            if isinstance(original, KafkaError):
                found.append(_unknown(partition, origin, log, str(original)))
                continue
            tail = await self._tail(partition, origin, log, original, copied[partition])
            end = log.end if tail is None else tail.begin
            state = states.partitions.get(origin)
            found += _between(partition, origin, LogBounds(start=log.start, end=end), state)
            found += [] if tail is None else [tail]
        return found

    async def is_empty_there(self, partition: TopicPartition, start: int, stop: int) -> bool:
        """Whether the log there is known to have no record in [start, stop), only ends of transactions and
        what was aborted."""
        if not start < stop <= start + MOST_BETWEEN:
            return False
        at = partition, start, stop
        if at not in self._empty:
            log = LogBounds(start=start, end=stop)
            side = ComparedPartition(
                log=self.route.there.log, partition=partition, bounds=log, budget=ByteBudget(1)
            )
            try:
                self._empty[at] = await side.count(start, stop) == 0
            except (BudgetSpent, KafkaError):
                self._empty[at] = False
        return self._empty[at]

    async def unread(self, next_offset: int, ranges: Iterable[ForeignRange]) -> int:
        """How many of the foreign records a group at this offset has not read. Raises KafkaError."""
        unread = 0
        for each in ranges:
            records = each.records or 0
            if records and next_offset > each.begin:
                log = LogBounds(start=each.begin, end=each.end)
                records = min(records, await self._count(each.partition, log, next_offset, each.end))
            unread += records
        return unread

    async def _tail(
        self,
        partition: TopicPartition,
        origin: TopicPartition,
        log: LogBounds,
        original: LogBounds,
        copied: Translation,
    ) -> ForeignRange | None:
        """`copied`: where the end of the original lies in the copy."""
        begin = log.start if copied.downstream_offset is None else copied.downstream_offset
        records = await self._count(partition, log, begin, log.end)
        if not records:
            return None
        # An original without records has none of those of the copy, wherever its end lies.
        if not copied.is_certain and original.start < original.end:
            return _unknown(partition, origin, log, copied.message)
        return ForeignRange(partition=partition, origin=origin, begin=begin, end=log.end, records=records)

    async def _count(self, partition: TopicPartition, log: LogBounds, start: int, stop: int) -> int:
        """Records in [start, stop); the offsets where that takes too long to count. Raises KafkaError."""
        start = max(start, log.start)
        if start >= stop:
            return 0
        at = partition, start, stop
        if at not in self._counts:
            # One read is always made: behind most copies lies only the marker of a transaction.
            budget = self.budget if self.budget.left_bytes > 0 else ByteBudget(1)
            side = ComparedPartition(log=self.route.here.log, partition=partition, bounds=log, budget=budget)
            try:
                self._counts[at] = await side.count(start, stop)
            except BudgetSpent:
                self._counts[at] = stop - start
        return self._counts[at]


def _between(
    partition: TopicPartition, origin: TopicPartition, log: LogBounds, state: CopyState | None
) -> list[ForeignRange]:
    """The known stretches that lie in the log, whose end is that of the copied records."""
    cut = [
        (max(begin, log.start), min(end, log.end), records)
        for begin, end, records in sorted(() if state is None else state.foreign)
    ]
    return [
        ForeignRange(
            partition=partition, origin=origin, begin=begin, end=end, records=min(records, end - begin)
        )
        for begin, end, records in cut
        if begin < end
    ]


def _unknown(partition: TopicPartition, origin: TopicPartition, log: LogBounds, message: str) -> ForeignRange:
    return ForeignRange(
        partition=partition, origin=origin, begin=log.end, end=log.end, records=None, message=message
    )
