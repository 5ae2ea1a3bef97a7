"""Moves positions of partitions that no task has; the driver does this itself.

Invariant: a copy that keeps the source's offsets and has begun is moved only by its task, which has compared
the end of the copy with the source.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from twinlog.clock import Clock
from twinlog.errors import (
    FatalKafkaError,
    KafkaError,
    NotFoundError,
    TransientKafkaError,
    TwinlogError,
)
from twinlog.kafka.deadline import deadline
from twinlog.model import Flow, TopicPartition
from twinlog_source.driver.withdrawals import Withdrawals
from twinlog_source.log.facts import CopyFact
from twinlog_source.log.gaps import LogBounds, passed_over
from twinlog_source.log.journal import COMMAND_SECONDS, Journal
from twinlog_source.log.ledger import Ledger
from twinlog_source.partitions.events import (
    BeginningRefused,
    Begun,
    CopyChanged,
    Event,
    MoveBegun,
    Moved,
    MoveUndone,
)
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.topics.copy_changes import CopyChanges
from twinlog_source.topics.copy_modes import CopyModes
from twinlog_source.topics.known import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverMoves:
    """For the owner of the flow."""

    flow: Flow
    table: PartitionTable
    journal: Journal
    ledger: Ledger
    withdrawals: Withdrawals
    changes: CopyChanges
    modes: CopyModes
    confirm: Callable[[], Awaitable[None]]
    """Raises KafkaError when this process no longer owns the flow; called before anything is written, because
    nothing fences the driver's own writer: the process may have slept."""
    clock: Clock
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Keeps the undoing of one move, the records of the next one, and the restart of a recreated topic from
    mixing on the log."""

    async def move(
        self, partition: TopicPartition, position: int, *, topics: Topics, bounds: LogBounds | None
    ) -> None:
        """Set the position of a partition that has no task. If the previous position is known, skipped
        records are recorded as a gap. Raises NotFoundError when the flow no longer copies the partition,
        KafkaError, and WireFormatError as `PositionsLog.refresh`; then it has no effect, neither now nor
        later.

        Until the move is decided, the partition is in no plan, because a task would continue at the previous
        position.
        """
        was_set_aside = self._row(partition).blocker is not None
        async with self.writing:
            async with deadline(COMMAND_SECONDS, "check who owns the flow", alias=self.flow.target):
                await self.confirm()
            if was_set_aside and self._row(partition).blocker is None:
                raise _task_is_about_to_copy(partition)
            if partition in self.withdrawals.of_driver:
                # Undo a failed move first. If it were undone later, that would undo this move too.
                await self.withdraw_locked()
            self._note(MoveBegun(partition=partition))
            async with self.modes.deciding:
                row = self._row(partition)
                if row.blocker is None or row.is_preserved:
                    self._note(MoveUndone(partition=partition))
                    raise _task_is_about_to_copy(partition)
                before, begins = row.position, row.copy is None and not row.stored
                copy = self.changes.control.copies.get(partition)
                if begins:
                    await self._begin_at(row, position, topics, copy)
                    self._note(MoveBegun(partition=partition))
            gaps = (
                []
                if before is None
                else passed_over(
                    partition,
                    from_offset=before,
                    to_offset=position,
                    bounds=bounds,
                    found_at_ms=self.clock.now_ms(),
                )
            )
            try:
                # Write the gaps first. After a crash in between, a gap may be listed that was not left out,
                # but never the other way round.
                await self.journal.move(partition, position, gaps)
            except (KafkaError, asyncio.CancelledError):
                # Keep it out of all plans until the valid position is on the log, behind records that may
                # still arrive.
                if begins:
                    self._give_up_beginning(partition, position, before, copy)
                else:
                    self.withdrawals.by_driver(partition, to_offset=position, before=before, gaps=gaps)
                raise
        for gap in gaps:
            self.ledger.enter(gap)
        self._note(Moved(partition=partition, position=position))

    async def withdraw(self) -> None:
        """Restore on the log what is valid, after the driver's own moves that failed, unless one is running.
        Raises KafkaError, also when this process no longer owns the flow."""
        if self.withdrawals.of_driver and not self.writing.locked():
            async with self.writing:
                await self.confirm()
                await self.withdraw_locked()

    async def withdraw_locked(self) -> None:
        """The same; the caller holds `writing`, and has confirmed the ownership since."""
        for partition, given_up in self.withdrawals.of_driver.items():
            await self.journal.restore(partition, given_up.before)
            if given_up.began:
                await self.changes.undo_beginning(partition, given_up.copy)
            await self.ledger.remove(given_up.gaps)
            self.withdrawals.done(partition, given_up)
            self._note(MoveUndone(partition=partition))

    def forget(self) -> None:
        """Another process has owned the flow since: the positions that it stored are valid."""
        for partition in self.withdrawals.due:
            self._note(MoveUndone(partition=partition))
        self.withdrawals.due.clear()

    def _row(self, partition: TopicPartition) -> PartitionRow:
        row = self.table.rows.get(partition)
        if row is None:
            raise NotFoundError(f"{self.flow} does not copy {partition} any more", reason="PARTITION_UNKNOWN")
        return row

    async def _begin_at(
        self, row: PartitionRow, position: int, topics: Topics, copy: CopyFact | None
    ) -> None:
        """Begin a copy at this position, with the source's offsets where possible; `copy` is the previous
        decision. Raises KafkaError if it may not begin, and WireFormatError as `PositionsLog.refresh`."""
        before = row.position
        self._note(Begun(partition=row.partition, position=position))
        try:
            await self.modes.decide_locked(topics, only=row.partition)
        except (TwinlogError, asyncio.CancelledError):
            self._give_up_beginning(row.partition, position, before, copy)
            raise
        if row.copy is None and row.blocker is not None:
            self._note(BeginningRefused(partition=row.partition, before=before))
            raise FatalKafkaError(row.blocker.message, reason=row.blocker.reason)

    def _give_up_beginning(
        self, partition: TopicPartition, position: int, before: int | None, copy: CopyFact | None
    ) -> None:
        """Give up a beginning. Records about it may be on the log, or arrive later."""
        self._note(CopyChanged(partition=partition, copy=None))
        self._note(BeginningRefused(partition=partition, before=before))
        self.withdrawals.of_beginning(partition, to_offset=position, before=before, copy=copy)

    def _note(self, event: Event) -> None:
        self.table.apply(event, self.clock.monotonic())


def _task_is_about_to_copy(partition: TopicPartition) -> KafkaError:
    return TransientKafkaError(
        f"{partition} was not moved, because a task is about to copy it: try again",
        reason="POSITION_NOT_MOVED",
    )
