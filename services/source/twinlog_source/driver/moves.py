"""Moves positions for `twinlog positions set`. The partition's task carries a move out, or the driver if
there is no task. A move counts as done only when it is on the log."""

import asyncio
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from twinlog.clock import Clock
from twinlog.errors import ConfigError, KafkaError, StateError, TwinlogError
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog_source.driver.epoch import Slot
from twinlog_source.driver.flow_driver import FlowDriver
from twinlog_source.driver.subjects import Subject, require_partitions
from twinlog_source.driver.withdrawals import Withdrawal
from twinlog_source.log.gaps import LogBounds
from twinlog_source.partitions.orders import Reposition, WithdrawReposition
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.preserved.fill_limits import MOST_AT_LEADER, is_visible

MOVE_SECONDS = 8.0
"""The longest time for a task to stop and write a new position; less than the deadline of a call."""
WITHDRAW_SECONDS = 3.0
"""The longest time for a task to confirm that it has withdrawn a move; it reports every second."""
MOVE_POLL_SECONDS = 0.05

log = structlog.get_logger(__name__)

_order_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where positions are moved; exactly one field is set."""

    offset: int | None = None
    timestamp_ms: int | None = None
    spec: OffsetSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The move of one partition, planned or done."""

    partition: TopicPartition
    from_offset: int | None
    """None: it has no position yet."""
    to_offset: int | None
    """None: unknown; `reason` tells why."""
    reason: str = ""
    message: str = ""
    applied: bool = False
    """The move is done, and the new position is on the log."""
    bounds: LogBounds | None = None
    """Start and end of the source's log when the move was planned; None = unknown."""
    offsets_end: bool = False
    """The copy keeps its source's offsets until now, and does not from there on."""
    fills_offsets: bool = False
    """The copy keeps its source's offsets, and what is left out is filled: it cannot be moved back."""

    @property
    def repeated_offsets(self) -> int:
        return max(0, -self._offsets_forward)

    @property
    def skipped_offsets(self) -> int:
        return max(0, self._offsets_forward)

    @property
    def _offsets_forward(self) -> int:
        """How many offsets the move skips; 0 if it is refused, or the partition has no position."""
        if self.reason or self.from_offset is None or self.to_offset is None:
            return 0
        return self.to_offset - self.from_offset


@dataclass(slots=True, kw_only=True)
class _Order:
    """A move that waits for the task which owns the partition."""

    move: Move
    to_offset: int
    number: int
    slot: Slot | None = None
    """The slot whose task got the order; None = none yet."""
    task: int = 0
    """The number of that task among the slot's tasks."""
    given_up: bool = False
    """The task was told to withdraw the move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionMoves:
    """The moves of one flow."""

    driver: FlowDriver
    source: KafkaCluster
    clock: Clock

    async def plan(self, subject: Subject, destination: Destination) -> list[Move]:
        """Plan what `carry_out` would do. Raises StateError, NotFoundError, KafkaError."""
        partitions = sorted(require_partitions(self.driver, subject))
        wanted = await self._resolve(partitions, destination)
        starts = await self.source.list_offsets(OffsetSpec.EARLIEST, partitions)
        ends = await self.source.list_offsets(OffsetSpec.LATEST, partitions)
        return [
            planned_move(
                partition,
                self.driver.state.row(partition),
                wanted=wanted[partition],
                start=starts[partition],
                end=ends[partition],
            )
            for partition in partitions
        ]

    async def carry_out(self, moves: Collection[Move], *, by: str) -> list[Move]:
        """Move positions, and return each move with its outcome when they are on the log.

        A move that cannot be carried out has a reason. One that is not confirmed in time is withdrawn
        (POSITION_NOT_MOVED) and has no later effect. If the task does not confirm the withdrawal either, the
        outcome is unknown (POSITION_UNCERTAIN).
        """
        state, epoch = self.driver.state, self.driver.current
        done: dict[TopicPartition, Move] = {}
        orders: list[_Order] = []
        for move in moves:
            if move.reason or move.to_offset is None:
                done[move.partition] = move
                continue
            log.warning(
                "position_set",
                flow=str(self.driver.flow),
                topic=move.partition.topic,
                partition=move.partition.partition,
                from_offset=move.from_offset,
                to_offset=move.to_offset,
                by=by,
            )
            row = state.row(move.partition)
            if row is None:
                done[move.partition] = self._not_copied(move)
            elif row.blocker is not None and (epoch is None or epoch.slot_of(move.partition) is None):
                done[move.partition] = await self._move_without_task(move, move.to_offset)
            else:
                orders.append(_Order(move=move, to_offset=move.to_offset, number=next(_order_numbers)))
        give_up_at = self.clock.monotonic() + MOVE_SECONDS
        try:
            while orders:
                orders = [order for order in orders if not self._is_over(order, give_up_at, done)]
                if orders:
                    await wait_or_stop(asyncio.Event(), MOVE_POLL_SECONDS)
        finally:
            # The caller has gone, so the outcome can no longer be reported: withdraw the move.
            for order in orders:
                self._give_up(order)
        return [done[move.partition] for move in moves]

    async def _move_without_task(self, move: Move, to_offset: int) -> Move:
        try:
            await self.driver.state.set_position(move.partition, to_offset, bounds=move.bounds)
        except TwinlogError as error:
            return replace(move, reason=error.reason, message=f"nothing was changed: {error}")
        return replace(move, applied=True)

    def _not_copied(self, move: Move) -> Move:
        return replace(
            move,
            reason="PARTITION_UNKNOWN",
            message=f"{self.driver.flow} does not copy {move.partition} any more",
        )

    def _is_over(self, order: _Order, give_up_at: float, done: dict[TopicPartition, Move]) -> bool:
        """Whether an order is finished; its outcome is in `done` then."""
        move, now = order.move, self.clock.monotonic()
        try:
            row = self.driver.state.row(move.partition)
            if row is None:
                self._give_up(order)
                done[move.partition] = self._not_copied(move)
            elif self._is_carried_out(order):
                done[move.partition] = replace(move, applied=True)
            elif not order.given_up and self._is_withdrawn(order):
                # The task knows the progress of a preserved copy better than its last report.
                done[move.partition] = _copied_already(move, row.position or 0)
            elif now > give_up_at:
                self._give_up(order)
                if order.slot is None or self._is_withdrawn(order):
                    raise _not_moved(move)
                if now > give_up_at + WITHDRAW_SECONDS:
                    raise _uncertain(move, f"its task did not answer within {MOVE_SECONDS:g} s")
        except StateError as error:
            done[move.partition] = replace(move, reason=error.reason, message=str(error))
        return move.partition in done

    def _give_up(self, order: _Order) -> None:
        """Tell the task to drop the order. It gets this after the order itself."""
        if order.given_up or order.slot is None:
            return
        order.given_up, move = True, order.move
        withdrawal = Withdrawal(
            to_offset=order.to_offset, before=None, number=order.number, bounds=move.bounds
        )
        self.driver.state.withdrawals.by_task(move.partition, withdrawal)
        order.slot.tell(WithdrawReposition(partition=move.partition, number=order.number))

    def _is_withdrawn(self, order: _Order) -> bool:
        row = self.driver.state.row(order.move.partition)
        return row is not None and row.report is not None and row.report.withdrawn == order.number

    def _is_carried_out(self, order: _Order) -> bool:
        """Give the order to the task that owns the partition now, and check whether it was carried out.
        Raises StateError."""
        move = order.move
        if order.slot is not None:
            row = self.driver.state.row(move.partition)
            report = None if row is None else row.report
            if report is not None and report.repositioned == order.number:
                return True
            if order.slot.ended_well:
                order.slot = (
                    None  # The task ended in order without carrying it out: give the order to the next one.
                )
                if order.given_up:
                    raise _not_moved(move)
            elif order.slot.joined != order.task or order.slot.final is not None:
                raise _uncertain(move, "its task has ended")
        epoch = self.driver.current
        slot = None if epoch is None else epoch.slot_of(move.partition)
        if order.given_up or order.slot is not None or slot is None or slot.final is not None:
            return False
        if slot.takes_orders:
            order.slot, order.task = slot, slot.joined
            slot.tell(
                Reposition(
                    partition=move.partition,
                    position=order.to_offset,
                    number=order.number,
                    bounds=move.bounds,
                )
            )
        return False

    async def _resolve(
        self, partitions: Collection[TopicPartition], destination: Destination
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        if destination.offset is not None:
            return dict.fromkeys(partitions, destination.offset)
        if destination.timestamp_ms is not None:
            return await self.source.offsets_for_times(dict.fromkeys(partitions, destination.timestamp_ms))
        if destination.spec is None:
            raise ConfigError(
                "the target is missing: give an offset, earliest, latest or a time", reason="INVALID_TARGET"
            )
        return await self.source.list_offsets(destination.spec, partitions)


def planned_move(
    partition: TopicPartition,
    row: PartitionRow | None,
    *,
    wanted: int | KafkaError | None,
    start: int | KafkaError,
    end: int | KafkaError,
) -> Move:
    """What moving a partition to `wanted` (None: the end) means, given the bounds of the source's log."""
    before = None if row is None else row.position
    for answer in (wanted, start, end):
        if isinstance(answer, KafkaError):
            return Move(
                partition=partition,
                from_offset=before,
                to_offset=None,
                reason=answer.reason,
                message=str(answer),
            )
    assert isinstance(start, int)
    assert isinstance(end, int)
    assert not isinstance(wanted, KafkaError)
    after = end if wanted is None else wanted
    move = Move(partition=partition, from_offset=before, to_offset=after)
    if not start <= after <= end:
        return replace(move, reason="OFFSET_OUT_OF_RANGE", message=f"the source has offsets {start} to {end}")
    lost_from = None if row is None or row.report is None else row.report.source_lost_from
    has_diverged = row is not None and row.is_preserved and lost_from is not None
    if row is not None and row.is_preserved and before is not None and after < before and not has_diverged:
        return _copied_already(move, before)
    move = replace(move, bounds=LogBounds(start=start, end=end), offsets_end=has_diverged)
    if row is None or not row.is_preserved or has_diverged or before is None or after == before:
        return move
    return replace(move, fills_offsets=True, message=_filled_words(after - before))


def _filled_words(count: int) -> str:
    """What filling so many offsets means for the consumers of a copy."""
    words = "these offsets are filled, and the position cannot be set back"
    if not is_visible(count):
        return words
    unless = "" if is_visible(count, MOST_AT_LEADER) else ", unless the target grants ALTER on the cluster"
    return (
        f"{words}: consumers of the copy with isolation.level=read_uncommitted read empty records"
        f" there{unless}"
    )


def _copied_already(move: Move, position: int) -> Move:
    return replace(
        move,
        reason="OFFSETS_PRESERVED",
        message=f"the copy holds the records before {position} at their offsets already; to copy them again"
        " delete the target topic; or name the topic in twinlog.offsets.translated.topics, restart, and"
        " set the position",
    )


def _not_moved(move: Move) -> StateError:
    return StateError(
        f"{move.partition} was not moved: its position was not on the target within {MOVE_SECONDS:g} s, and"
        " the command was withdrawn: try again when the target takes records",
        reason="POSITION_NOT_MOVED",
        metadata={"topic": move.partition.topic, "partition": str(move.partition.partition)},
    )


def _uncertain(move: Move, why: str) -> StateError:
    return StateError(
        f"{move.partition}: it is not certain that it continues at {move.to_offset}, because {why}:"
        " check its position, and set it again if necessary",
        reason="POSITION_UNCERTAIN",
        metadata={"topic": move.partition.topic, "partition": str(move.partition.partition)},
    )
