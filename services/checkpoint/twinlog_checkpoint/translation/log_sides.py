"""The two logs of an alignment, and what is read of them within a budget of bytes."""

from dataclasses import dataclass

from twinlog.model import TopicPartition
from twinlog_checkpoint.translation.alignment import Print
from twinlog_checkpoint.translation.alignment_log import AlignedLog

READ_BYTES = 256 << 10
"""One fetch of records to compare; a broker gives at least one batch."""
PEEK_BYTES = 4 << 10
"""One fetch for a single record."""
COUNT_BYTES = 1 << 20
"""One fetch of records to count."""


class BudgetSpent(Exception):  # noqa: N818  # a signal, not an error
    """The bytes that may be read in this interval are used up."""


@dataclass(slots=True)
class ByteBudget:
    """Bytes that may still be read."""

    left_bytes: int
    spent_bytes: int = 0

    def spend(self, size_bytes: int) -> None:
        self.left_bytes -= size_bytes
        self.spent_bytes += size_bytes

    def check(self) -> None:
        """Raises BudgetSpent."""
        if self.left_bytes <= 0:
            raise BudgetSpent


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """First offset, and the end that a reader may see."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One log of an alignment."""

    log: AlignedLog
    partition: TopicPartition
    bounds: LogBounds


async def count_visible(side: Side, start: int, stop: int, budget: ByteBudget) -> int:
    """Visible records of one log in [start, stop). Raises BudgetSpent or KafkaError."""
    records, position = 0, start
    while position < stop:
        budget.check()
        passed = await side.log.count(side.partition, position, stop, max_bytes=COUNT_BYTES)
        budget.spend(passed.size_bytes)
        if passed.next_offset <= position:
            break
        records, position = records + passed.records, passed.next_offset
    return records


async def skip_visible(side: Side, start: int, records: int, budget: ByteBudget) -> int:
    """The offset that has `records` visible ones between `start` and it, or the log's end. Raises as
    `count_visible`."""
    position, left = start, records
    while left > 0 and position < side.bounds.end:
        budget.check()
        passed = await side.log.skip(side.partition, position, left, max_bytes=COUNT_BYTES)
        budget.spend(passed.size_bytes)
        if passed.next_offset <= position:
            break
        left, position = left - passed.records, passed.next_offset
    return position


async def first_visible(side: Side, offset: int, budget: ByteBudget) -> Print | None:
    """The first visible record at or after `offset`; None when there is none. Raises as `count_visible`."""
    max_bytes = PEEK_BYTES
    while offset < side.bounds.end:
        budget.check()
        stretch = await side.log.read(side.partition, offset, max_bytes=max_bytes)
        budget.spend(stretch.size_bytes)
        if stretch.prints:
            return stretch.prints[0]
        if stretch.next_offset <= offset:
            break
        offset, max_bytes = stretch.next_offset, READ_BYTES
    return None
