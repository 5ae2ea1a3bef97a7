"""Plans moves of positions for `twinlog positions set`, has them carried out (`driver_moves`), and says what
became of them. A move counts as done only when it is on the log."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from twinlog.errors import ConfigError, KafkaError, StateError, TwinlogError
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.policy.expected_offsets import MOST_AT_LEADER
from twinlog_source.driver.driver_moves import MoveOrder, copied_already_words, uncertain
from twinlog_source.driver.flow_driver import FlowDriver
from twinlog_source.driver.subjects import Subject, require_partitions
from twinlog_source.log.gaps import SourceBounds
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.preserved.fill_limits import is_visible

MOVE_SECONDS = 8.0
"""The longest time for tasks to end and a new position to be written; less than the deadline of a call."""

log = structlog.get_logger(__name__)


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
    bounds: SourceBounds | None = None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionMoves:
    """The moves of one flow."""

    driver: FlowDriver
    source: KafkaCluster

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
        """Move positions, and return each move with its outcome when they are on the log. The flow's tasks
        end for that, and the next ones begin at the new positions.

        A move that cannot be carried out has a reason. One that is not begun in time is withdrawn
        (POSITION_NOT_MOVED) and has no effect. If writing it fails or takes too long, the outcome is unknown
        (POSITION_UNCERTAIN).
        """
        waiting = self.driver.state.moves
        orders: dict[TopicPartition, MoveOrder] = {}
        for move in moves:
            if move.reason or move.to_offset is None:
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
            order = MoveOrder(partition=move.partition, position=move.to_offset, bounds=move.bounds)
            orders[move.partition] = order
            waiting.order(order)
        try:
            if orders:
                await asyncio.wait([each.outcome for each in orders.values()], timeout=MOVE_SECONDS)
        finally:
            # Also when the caller has gone, because the outcome can no longer be reported.
            withdrawn = {partition for partition, order in orders.items() if waiting.withdraw(order)}
        done = []
        for move in moves:
            if move.partition not in orders:
                done.append(move)
                continue
            order = orders[move.partition]
            if move.partition in withdrawn:
                failure: TwinlogError | None = _not_moved(move)
            elif order.outcome.done():
                failure = order.outcome.result()
            else:
                failure = uncertain(order, f"the target did not answer within {MOVE_SECONDS:g} s")
            done.append(
                replace(move, applied=True)
                if failure is None
                else replace(move, reason=failure.reason, message=str(failure))
            )
        applied = [each.partition for each in done if each.applied]
        state = self.driver.state
        await state.origins.forget(applied, state.journal, state.confirm)
        return done

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
        return replace(move, reason="OFFSETS_PRESERVED", message=copied_already_words(before))
    move = replace(move, bounds=SourceBounds(start=start, end=end), offsets_end=has_diverged)
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


def _not_moved(move: Move) -> StateError:
    return StateError(
        f"{move.partition} was not moved: its position was not on the target within {MOVE_SECONDS:g} s, and"
        " the command was withdrawn: try again when the target takes records",
        reason="POSITION_NOT_MOVED",
        metadata={"topic": move.partition.topic, "partition": str(move.partition.partition)},
    )
