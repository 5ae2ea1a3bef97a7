"""Moves positions for an operator, in the task that copies the partition.

    ordered ──at rest──▶ storing ──on the log──▶ done
       └──── withdraw ─────┴─▶ withdrawn: the partition continues where it was

A preserved copy is at rest once its end is known and compared, and nothing is about to end it.

Invariant A: nothing is fetched from a new position before that position is on the log.
Invariant B: a withdrawn move has no later effect, although its record may be in a commit whose answer is not
known yet: the old position is written behind it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from twinlog.batches import NewRecord
from twinlog.clock import Clock
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_for_any, wait_or_stop
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import EpochStart, LeaderEpochsFact
from twinlog_source.log.gaps import Gap, gap_key, gap_record, passed_over
from twinlog_source.partitions.orders import Reposition, WithdrawReposition
from twinlog_source.preserved.reasons import PreservedReason
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.loss import LossReason
from twinlog_source.task.writing.preserved_copies import PreservedCopies

POLL_SECONDS = 0.05


class PositionStore(Protocol):
    """Stores positions in transactions (`TargetWriter`)."""

    def store_soon(self, partition: TopicPartition, extra: Sequence[NewRecord] = ()) -> None: ...
    def is_stored(self, partition: TopicPartition) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Storing:
    """A move that is carried out and not yet on the log."""

    number: int
    before: int
    epochs: tuple[EpochStart, ...]
    gaps: tuple[Gap, ...]
    to_offset: int
    ends_copy: bool = False
    """The copy does not keep the source's offsets from there on: that is not taken back."""


@dataclass(slots=True, kw_only=True)
class PositionMoves:
    flow: Flow
    copies: Mapping[TopicPartition, PartitionCopy]
    target_writer: PositionStore
    on_gap: Callable[[Gap], None]
    """Told of what a move leaves out, once that is on the log."""
    on_moved: Callable[[], None]
    """A partition may be fetched again."""
    clock: Clock
    preserved: PreservedCopies | None = None
    """What is left out of a copy that keeps its source's offsets is filled, once the move is on the log."""
    _ordered: dict[TopicPartition, Reposition] = field(default_factory=dict)
    _storing: dict[TopicPartition, _Storing] = field(default_factory=dict)
    _told: asyncio.Event = field(default_factory=asyncio.Event)

    def order(self, command: Reposition) -> None:
        """Continue a partition elsewhere as soon as nothing of it is on its way."""
        if command.partition in self.copies:
            self._ordered[command.partition] = command
            self._told.set()

    def withdraw(self, command: WithdrawReposition) -> None:
        """The driver has given a move up. One that is on the log already stands."""
        self.settle()
        partition = command.partition
        ordered, storing = self._ordered.get(partition), self._storing.get(partition)
        if ordered is not None and ordered.number == command.number:
            del self._ordered[partition]
            self.copies[partition].withdrawn = command.number
        elif storing is not None and storing.number == command.number and not storing.ends_copy:
            del self._storing[partition]
            self._undo(partition, storing)
            self.copies[partition].withdrawn = command.number

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: carry out what is ordered, for partitions that have come to rest."""
        while not stop.is_set():
            self._told.clear()
            self.settle()
            for partition in list(self._ordered):
                copy = self.copies[partition]
                copy.drop_queued()
                if self.preserved is not None and partition not in self._storing:
                    self.preserved.forget_queued(partition)
                if self._may_carry_out(copy):
                    self._carry_out(copy, self._ordered.pop(partition))
            if self._ordered or self._storing:
                await wait_or_stop(stop, POLL_SECONDS)
            else:
                await wait_for_any(stop, self._told)

    def settle(self) -> None:
        """Take note of the moves that are on the log by now."""
        for partition in [p for p in self._storing if self.target_writer.is_stored(p)]:
            stored, copy = self._storing.pop(partition), self.copies[partition]
            copy.repositioned, copy.settling = stored.number, False
            if stored.ends_copy:
                for gap in stored.gaps:
                    self.on_gap(gap)
                continue
            copy.retry_now()
            if self.preserved is not None:
                self.preserved.retry_now(partition)
                if copy.keeps_offsets:
                    self.preserved.skip(partition, stored.to_offset)
            for gap in stored.gaps:
                self.on_gap(gap)
            self.on_moved()

    def _may_carry_out(self, copy: PartitionCopy) -> bool:
        if not copy.is_idle or copy.partition in self._storing:
            return False
        if self.preserved is None:
            return True
        # What is filled before its end is not compared any more. If more is to be filled then, it waits.
        self.preserved.believe(copy.partition)
        return self.preserved.may_be_moved(copy.partition)

    def _carry_out(self, copy: PartitionCopy, command: Reposition) -> None:
        if copy.keeps_offsets and copy.source_lost_from is not None:
            self._end_copy(copy, command, copy.source_lost_from)
            return
        if copy.keeps_offsets and command.position < copy.committed:
            # The driver refuses it: the copy holds those records.
            copy.withdrawn = command.number
            return
        now_ms = self.clock.now_ms()
        left_out = passed_over(
            copy.partition,
            from_offset=copy.committed,
            to_offset=command.position,
            bounds=command.bounds,
            found_at_ms=now_ms,
        )
        self._storing[copy.partition] = _Storing(
            number=command.number,
            before=copy.committed,
            epochs=copy.epochs,
            gaps=tuple(left_out),
            to_offset=command.position,
        )
        records = [NewRecord(*gap_record(self.flow, gap), now_ms) for gap in left_out]
        if copy.keeps_offsets and self.preserved is not None:
            records.append(self.preserved.fact_of(copy.partition, skip_to=command.position))
        copy.settling = True
        copy.restart_at(command.position)
        # Position and gaps: both or neither.
        self.target_writer.store_soon(copy.partition, records)

    def _end_copy(self, copy: PartitionCopy, command: Reposition, lost_from: int) -> None:
        """The copy holds what the source lost: wherever it continues, it has other offsets from there on."""
        assert self.preserved is not None
        now_ms, before = self.clock.now_ms(), copy.committed
        lost = Gap(
            partition=copy.partition,
            from_offset=lost_from,
            to_offset=before,
            reason=LossReason.TRUNCATION,
            found_at_ms=now_ms,
        )
        left_out = passed_over(
            copy.partition,
            from_offset=before,
            to_offset=command.position,
            bounds=command.bounds,
            found_at_ms=now_ms,
        )
        gaps = (lost, *(gap for gap in left_out if gap.reason != LossReason.TRUNCATION))
        self._storing[copy.partition] = _Storing(
            number=command.number,
            before=before,
            epochs=copy.epochs,
            gaps=gaps,
            to_offset=command.position,
            ends_copy=True,
        )
        copy.settling = True
        # Position, gaps and the end of the copy: all or none.
        records = [NewRecord(*gap_record(self.flow, gap), now_ms) for gap in gaps]
        self.target_writer.store_soon(copy.partition, records)
        self.preserved.end_at(
            copy.partition,
            command.position,
            until=lost_from,
            reason=PreservedReason.SOURCE_TRUNCATED,
            message=f"the source log of {copy.partition} ended at {lost_from}, and the copy holds what the"
            f" source lost up to {before}; its position was set to {command.position}",
        )

    def _undo(self, partition: TopicPartition, storing: _Storing) -> None:
        copy, now_ms = self.copies[partition], self.clock.now_ms()
        copy.restart_at(storing.before)
        copy.epochs, copy.settling = storing.epochs, False
        records = [NewRecord(gap_key(self.flow, gap.identity), None, now_ms) for gap in storing.gaps]
        if copy.keeps_offsets and self.preserved is not None:
            records.append(self.preserved.fact_of(partition))
        if storing.epochs:
            epochs = LeaderEpochsFact(partition=partition, epochs=storing.epochs)
            records.append(NewRecord(*fact_record(self.flow.source, epochs), now_ms))
        self.target_writer.store_soon(partition, records)
        self.on_moved()
