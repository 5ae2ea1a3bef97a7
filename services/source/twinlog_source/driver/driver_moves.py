"""Moves positions for operators, between two epochs: no task copies then, and the last reports of the tasks
say where each copy stands.

Invariant: nothing is written about a move that was withdrawn before it was begun.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from twinlog.errors import FatalKafkaError, NotFoundError, StateError, TwinlogError
from twinlog.kafka.deadline import deadline
from twinlog.model import TopicPartition
from twinlog.service.feeds.replicated_topics import Topics
from twinlog_source.log.gaps import Gap, SourceBounds, passed_over
from twinlog_source.log.journal import COMMAND_SECONDS
from twinlog_source.partitions.events import BeginningRefused, Begun, CopyChanged, Moved
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.topics.copy_modes import CopyModes
from twinlog_source.topics.flow_book import FlowBook
from twinlog_source.topics.new_copies import CopyChanges


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MoveOrder:
    """A move that waits until no task copies."""

    partition: TopicPartition
    position: int
    bounds: SourceBounds | None = None
    """Start and end of the source's log, as far as known."""
    outcome: "asyncio.Future[TwinlogError | None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Why it did not take place, or may not have; None = the new position is on the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverMoves:
    """For the owner of the flow."""

    book: FlowBook
    changes: CopyChanges
    modes: CopyModes
    confirm: Callable[[], Awaitable[None]]
    """Raises KafkaError when this process no longer owns the flow; called before anything is written, because
    nothing fences the driver's own writer: the process may have slept."""
    ordered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when moves wait: the running epoch has to end."""
    _orders: list[MoveOrder] = field(default_factory=list)

    def order(self, order: MoveOrder) -> None:
        self._orders.append(order)
        self.ordered.set()

    def withdraw(self, order: MoveOrder) -> bool:
        """Whether the move was not begun: then it has no effect, neither now nor later."""
        if order not in self._orders:
            return False
        self._orders.remove(order)
        if not self._orders:
            self.ordered.clear()
        return True

    async def carry_out(self, topics: Topics) -> None:
        """Carry out what was ordered, while no task copies. Raises TwinlogError when this process may not own
        the flow any more, or when it is not certain what is on the log: it has to be read again."""
        if not self._orders:
            self.ordered.clear()
            return
        async with deadline(COMMAND_SECONDS, "check who owns the flow", alias=self.book.flow.flow.target):
            await self.confirm()
        while self._orders:
            order = self._orders.pop(0)
            outcome: TwinlogError | None = uncertain(order, "it could not be stored")
            try:
                outcome = await self._refusal(order, topics)
                if outcome is None:
                    outcome = uncertain(order, "it could not be stored")
                    await self._move(order)
                    outcome = None
            finally:
                if not order.outcome.done():
                    order.outcome.set_result(outcome)
        self.ordered.clear()

    async def _refusal(self, order: MoveOrder, topics: Topics) -> TwinlogError | None:
        """Why the partition cannot be moved. A copy that has not begun begins there, if it may."""
        row = self.book.table.rows.get(order.partition)
        if row is None:
            words = f"{self.book.flow.flow} does not copy {order.partition} any more"
            return NotFoundError(words, reason="PARTITION_UNKNOWN")
        if row.copy is None and not row.stored:
            return await self._begin_at(row, order.position, topics)
        topic = topics.get(order.partition.topic)
        fact = None if topic is None else self.book.marks.copy_of(order.partition, topic)
        if row.copy is None and fact is not None and fact.preserved:
            words = f"{order.partition} was not moved: how its copy goes on is not decided yet: try again"
            return StateError(words, reason="POSITION_NOT_MOVED")
        before = row.position
        if not row.is_preserved or _lost_from(row) is not None or before is None:
            return None
        if order.position < before:
            return StateError(copied_already_words(before), reason="OFFSETS_PRESERVED")
        if skip_from(row) == 0 < before:
            words = f"{order.partition} was not moved: what lies before its copy is being filled: try again"
            return StateError(words, reason="POSITION_NOT_MOVED")
        return None

    async def _move(self, order: MoveOrder) -> None:
        row, position = self.book.table.rows[order.partition], order.position
        before, lost_from = row.position, _lost_from(row)
        gaps = self._gaps(order, before, lost_from)
        async with deadline(COMMAND_SECONDS, "store a position", alias=self.book.flow.flow.target):
            # Write the gaps first. After a crash in between, a gap may be listed that was not left out, but
            # never the other way round.
            written = await self.book.ledger.write_all(gaps)
            if row.is_preserved and lost_from is not None:
                await self.changes.end(row, lost_from, position)
            elif row.is_preserved and before is not None and position > before:
                await self.changes.leave_out(row, skip_from(row), position)
            await self.book.journal.position(order.partition, position)
        for gap in written:
            self.book.ledger.enter(gap)
        self.book.note(Moved(partition=order.partition, position=position))

    def _gaps(self, order: MoveOrder, before: int | None, lost_from: int | None) -> list[Gap]:
        if before is None:
            return []
        now_ms = self.book.clock.now_ms()
        gaps = passed_over(
            order.partition,
            from_offset=before,
            to_offset=order.position,
            bounds=order.bounds,
            found_at_ms=now_ms,
        )
        if lost_from is None:
            return gaps
        # The copy holds what the source lost, from there on.
        lost = Gap(
            partition=order.partition,
            from_offset=lost_from,
            to_offset=before,
            reason="TRUNCATION",
            found_at_ms=now_ms,
        )
        return [lost, *(gap for gap in gaps if gap.reason != "TRUNCATION")]

    async def _begin_at(self, row: PartitionRow, position: int, topics: Topics) -> TwinlogError | None:
        """Begin a copy at this position, with the source's offsets where possible; return why it may not
        begin."""
        before = row.position
        self.book.note(Begun(partition=row.partition, position=position, is_told=True))
        try:
            await self.modes.decide(topics, only=row.partition)
        except (TwinlogError, asyncio.CancelledError):
            self.book.note(CopyChanged(partition=row.partition, copy=None))
            self.book.note(BeginningRefused(partition=row.partition, before=before))
            raise
        if row.copy is not None or row.blocker is None:
            return None
        self.book.note(BeginningRefused(partition=row.partition, before=before))
        return FatalKafkaError(row.blocker.message, reason=row.blocker.reason)


def uncertain(order: MoveOrder, why: str) -> StateError:
    return StateError(
        f"{order.partition}: it is not certain that it continues at {order.position}, because {why}:"
        " check its position, and set it again if necessary",
        reason="POSITION_UNCERTAIN",
        metadata={"topic": order.partition.topic, "partition": str(order.partition.partition)},
    )


def copied_already_words(position: int) -> str:
    """Why a copy with the source's offsets is not moved back."""
    return (
        f"the copy holds the records before {position} at their offsets already; to copy them again"
        " delete the target topic; or name the topic in twinlog.offsets.translated.topics, restart, and"
        " set the position"
    )


def skip_from(row: PartitionRow) -> int | None:
    """The beginning of the range that a preserved copy leaves out if it is moved on: where it ends, or, if it
    may end within the range that it leaves out already, the beginning of that."""
    copy, report = row.copy, row.report
    # What a task said at another position was about an earlier range.
    is_at_rest = report is not None and report.at_rest and report.position == row.position
    is_filling = copy is not None and copy.skip_from < copy.skip_to == row.position and not is_at_rest
    return copy.skip_from if copy is not None and is_filling else row.position


def _lost_from(row: PartitionRow) -> int | None:
    """The source offset from which on a preserved copy holds what the source lost; None = there is none."""
    return row.report.source_lost_from if row.is_preserved and row.report is not None else None
