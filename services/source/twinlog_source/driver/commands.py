"""What operators do to a flow: pause, resume, throttle, move positions. Each is on the log before it takes
effect."""

import asyncio
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from twinlog.api.source.v1 import worker_service_pb2 as worker_pb
from twinlog.clock import Clock
from twinlog.errors import ConfigError, KafkaError, NotFoundError, StateError, TransientKafkaError
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog_source.driver.epoch import Slot
from twinlog_source.driver.flow_driver import FlowDriver
from twinlog_source.driver.withdrawals import Withdrawal
from twinlog_source.driver.worker_messages import partition_message
from twinlog_source.log.facts import ControlRecord, PauseFact, ThrottleFact
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.rows import PartitionRow

MOVE_SECONDS = 8.0
"""How long a task may take to come to rest and to write a new position: below the deadline of a call."""
WITHDRAW_SECONDS = 3.0
"""How long a task may take to answer that it has withdrawn a move: it reports every second."""
MOVE_POLL_SECONDS = 0.05
LEDGER_SECONDS = 8.0
"""How long the ledger of a flow that is not ours may take to be read: below the deadline of a call."""

log = structlog.get_logger(__name__)

_order_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A flow (no topic), a topic (no partition), or a partition."""

    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where positions are moved: one of the four."""

    offset: int | None = None
    timestamp_ms: int | None = None
    spec: OffsetSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What moving one partition means."""

    partition: TopicPartition
    from_offset: int
    to_offset: int
    reason: str = ""
    message: str = ""
    applied: bool = False
    """It is carried out, and the new position is on the log."""
    log_start_offset: int = -1
    log_end_offset: int = -1
    """Of the source, when it was planned; -1 = not known."""

    @property
    def repeated_offsets(self) -> int:
        return max(0, self.from_offset - self.to_offset) if not self.reason else 0

    @property
    def skipped_offsets(self) -> int:
        return max(0, self.to_offset - self.from_offset) if self.from_offset >= 0 and not self.reason else 0


@dataclass(slots=True, kw_only=True)
class _Order:
    """A move on its way to the task that owns the partition."""

    move: Move
    number: int
    slot: Slot | None = None
    """Who was told; None = nobody yet."""
    task: int = 0
    """Which of the slot's tasks that was."""
    given_up: bool = False
    """The task was told to withdraw it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOperations:
    driver: FlowDriver
    source: KafkaCluster
    clock: Clock

    async def pause(self, subject: Subject, *, by: str) -> None:
        """Raises StateError, NotFoundError, KafkaError."""
        partitions = self._partitions(subject)
        mark = PauseFact(topic=subject.topic, partition=subject.partition, by=by, at_ms=self.clock.now_ms())
        await self._command("pause", subject, mark)
        self._apply("pause", subject, mark)
        self._tell_paused(partitions)
        log.info(
            "paused", flow=str(self.driver.flow), topic=subject.topic, partition=subject.partition, by=by
        )

    async def resume(self, subject: Subject, *, by: str) -> None:
        """Raises NotFoundError when exactly this is not paused; StateError, KafkaError."""
        self._require_owned()
        pauses = self.driver.estate.positions.control.pauses
        if (subject.topic, subject.partition) not in pauses:
            paused = ", ".join(
                sorted(_words(Subject(topic=topic, partition=number)) for topic, number in pauses)
            )
            raise NotFoundError(
                f"{_words(subject)} of {self.driver.flow} is not paused by itself; paused:"
                f" {paused or 'nothing'}",
                reason="NOT_PAUSED",
            )
        await self._command("pause", subject, None)
        self._apply("pause", subject, None)
        # None of a topic that is not copied any more: its pause can be taken back all the same.
        self._tell_paused(self._found(subject))
        log.info(
            "resumed", flow=str(self.driver.flow), topic=subject.topic, partition=subject.partition, by=by
        )

    async def resume_all(self, *, by: str) -> None:
        """Take every pause of the flow back, the narrowest first. Raises StateError, KafkaError; pauses that
        were taken back before an error stay so."""
        self._require_owned()
        for topic, partition in sorted(
            self.driver.estate.positions.control.pauses,
            key=lambda scope: (scope[1] is None, scope[0] is None, scope[0] or "", scope[1] or 0),
        ):
            await self.resume(Subject(topic=topic, partition=partition), by=by)

    async def throttle(self, subject: Subject, bytes_per_second: int, *, by: str) -> None:
        """0 takes the limit away. Raises ConfigError, StateError, NotFoundError, KafkaError."""
        if subject.partition is not None:
            raise ConfigError(
                "a limit is for a flow or a topic, not for one partition", reason="INVALID_SCOPE"
            )
        if bytes_per_second < 0:
            raise ConfigError("a limit is 0 (none) or more bytes per second", reason="INVALID_LIMIT")
        self._require_owned()
        mark = None
        if bytes_per_second:
            self._partitions(subject)
            mark = ThrottleFact(
                topic=subject.topic, bytes_per_second=bytes_per_second, by=by, at_ms=self.clock.now_ms()
            )
        await self._command("throttle", subject, mark)
        self._apply("throttle", subject, mark)
        self.driver.send_throttles()
        log.info(
            "throttled",
            flow=str(self.driver.flow),
            topic=subject.topic,
            bytes_per_second=bytes_per_second,
            by=by,
        )

    async def plan_moves(self, subject: Subject, destination: Destination) -> list[Move]:
        """What `move` would do. Raises StateError, NotFoundError, KafkaError."""
        partitions = sorted(self._partitions(subject))
        wanted = await self._resolve(partitions, destination)
        starts = await self.source.list_offsets(OffsetSpec.EARLIEST, partitions)
        ends = await self.source.list_offsets(OffsetSpec.LATEST, partitions)
        return [
            planned_move(
                partition,
                self.driver.estate.table.rows.get(partition),
                wanted=wanted[partition],
                start=starts[partition],
                end=ends[partition],
            )
            for partition in partitions
        ]

    async def move(self, moves: Collection[Move], *, by: str) -> list[Move]:
        """Move positions and return when they are on the log: each move with what became of it.

        Those that cannot be carried out keep their reason. One that nobody confirmed in time is withdrawn
        (POSITION_NOT_MOVED): it has no later effect. Where the task did not answer to that either, it is not
        known (POSITION_UNCERTAIN).
        """
        estate, epoch = self.driver.estate, self.driver.current
        done: dict[TopicPartition, Move] = {}
        orders: list[_Order] = []
        for move in moves:
            if move.reason:
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
            row = estate.table.rows.get(move.partition)
            if row is None:
                done[move.partition] = self._not_copied(move)
            elif row.obstacle is not None and (epoch is None or epoch.slot_of(move.partition) is None):
                done[move.partition] = await self._move_without_task(move)
            else:
                orders.append(_Order(move=move, number=next(_order_numbers)))
        give_up_at = self.clock.monotonic() + MOVE_SECONDS
        try:
            while orders:
                orders = [order for order in orders if not self._is_over(order, give_up_at, done)]
                if orders:
                    await wait_or_stop(asyncio.Event(), MOVE_POLL_SECONDS)
        finally:
            # Whoever asked is gone: nobody can be told that it took place.
            for order in orders:
                self._give_up(order)
        return [done[move.partition] for move in moves]

    async def _move_without_task(self, move: Move) -> Move:
        try:
            await self.driver.estate.set_position(
                move.partition,
                move.to_offset,
                log_start_offset=move.log_start_offset,
                log_end_offset=move.log_end_offset,
            )
        except (KafkaError, NotFoundError) as error:
            return replace(move, reason=error.reason, message=f"nothing was changed: {error}")
        return replace(move, applied=True)

    def _not_copied(self, move: Move) -> Move:
        return replace(
            move,
            reason="PARTITION_UNKNOWN",
            message=f"{self.driver.flow} does not copy {move.partition} any more",
        )

    def _is_over(self, order: "_Order", give_up_at: float, done: dict[TopicPartition, Move]) -> bool:
        """Whether an order needs no more waiting; then what became of it is in `done`."""
        move, now = order.move, self.clock.monotonic()
        try:
            if move.partition not in self.driver.estate.table.rows:
                self._give_up(order)
                done[move.partition] = self._not_copied(move)
            elif self._is_carried_out(order):
                done[move.partition] = replace(move, applied=True)
            elif not order.given_up and self._is_withdrawn(order):
                # Its task knows better than its last report how far a preserved copy is.
                position = self.driver.estate.table.rows[move.partition].position
                done[move.partition] = _copied_already(move, position or 0)
            elif now > give_up_at:
                self._give_up(order)
                if order.slot is None or self._is_withdrawn(order):
                    raise _not_moved(move)
                if now > give_up_at + WITHDRAW_SECONDS:
                    raise _uncertain(move, f"its task did not answer within {MOVE_SECONDS:g} s")
        except StateError as error:
            done[move.partition] = replace(move, reason=error.reason, message=str(error))
        return move.partition in done

    def _give_up(self, order: "_Order") -> None:
        """Have the task that was told drop it. It hears that after the order itself."""
        if order.given_up or order.slot is None:
            return
        order.given_up, move = True, order.move
        withdrawal = Withdrawal(
            to_offset=move.to_offset,
            before=None,
            number=order.number,
            log_start_offset=move.log_start_offset,
            log_end_offset=move.log_end_offset,
        )
        self.driver.estate.withdrawals.by_task(move.partition, withdrawal)
        command = worker_pb.WithdrawReposition(partition=partition_message(move.partition), id=order.number)
        order.slot.tell(worker_pb.WorkerCommand(withdraw_reposition=command))

    def _is_withdrawn(self, order: "_Order") -> bool:
        row = self.driver.estate.table.rows.get(order.move.partition)
        return row is not None and row.report is not None and row.report.withdrawn == order.number

    async def gaps(self) -> list[Gap]:
        """The ledger, sorted. Raises StateError or KafkaError when it is not known."""
        positions = self.driver.estate.positions
        if not (self.driver.owned and positions.is_read):
            await self._read_ledger()
        return [gap for _, gap in sorted(positions.gaps.items(), key=lambda item: item[0])]

    async def _read_ledger(self) -> None:
        """While the flow is not ours the log tells what its owner has found until now."""
        positions = self.driver.estate.positions
        if not positions.partition_count:
            self._require_owned()
        try:
            async with asyncio.timeout(LEDGER_SECONDS):
                await positions.peek()
        except TimeoutError:
            raise TransientKafkaError(
                f"cluster {self.driver.flow.target}: {positions.topic} was not read within"
                f" {LEDGER_SECONDS:g} s",
                reason="KAFKA_TIMEOUT",
                metadata={"cluster": self.driver.flow.target, "topic": positions.topic},
            ) from None

    async def acknowledge_gaps(
        self, subject: Subject, *, from_offset: int | None, found_until_ms: int | None, by: str
    ) -> list[Gap]:
        """Note that somebody knows of gaps; return those that were new to everybody. Raises StateError,
        NotFoundError (GAP_UNKNOWN: nothing was found to acknowledge), KafkaError."""
        self._require_owned()

        def is_meant(gap: Gap) -> bool:
            return (
                subject.topic in (None, gap.partition.topic)
                and subject.partition in (None, gap.partition.partition)
                and from_offset in (None, gap.from_offset)
                and (found_until_ms is None or gap.found_at_ms <= found_until_ms)
            )

        ledger = self.driver.estate.ledger
        new = await ledger.acknowledge(is_meant, by=by, now_ms=self.clock.now_ms())
        if new is None:
            raise NotFoundError(f"no such gap of {self.driver.flow} is on record", reason="GAP_UNKNOWN")
        log.info("gaps_acknowledged", flow=str(self.driver.flow), gaps=len(new), by=by)
        return sorted(new, key=lambda gap: gap.identity)

    def _is_carried_out(self, order: "_Order") -> bool:
        """Tell the task that owns the partition now, and look whether it has obeyed. Raises StateError."""
        move = order.move
        if order.slot is not None:
            row = self.driver.estate.table.rows.get(move.partition)
            report = None if row is None else row.report
            if report is not None and report.repositioned == order.number:
                return True
            if order.slot.ended_well:
                order.slot = None  # It ended in order and says that it did not: the next one shall.
                if order.given_up:
                    raise _not_moved(move)
            elif order.slot.joined != order.task or order.slot.final is not None:
                raise _uncertain(move, "the task that was told is gone")
        epoch = self.driver.current
        slot = None if epoch is None else epoch.slot_of(move.partition)
        if order.slot is None and slot is not None and slot.final is None and not order.given_up:
            order.slot, order.task = slot, slot.joined
            command = worker_pb.Reposition(
                partition=partition_message(move.partition),
                position=move.to_offset,
                id=order.number,
                log_start_offset=move.log_start_offset,
                log_end_offset=move.log_end_offset,
            )
            slot.tell(worker_pb.WorkerCommand(reposition=command))
        return False

    # -------------------------------------------------------------------------------------------------

    def _partitions(self, subject: Subject) -> frozenset[TopicPartition]:
        """The partitions of a subject. Raises NotFoundError, and StateError while the flow is not ours."""
        self._require_owned()
        found = self._found(subject)
        if not found and subject.topic is not None:
            raise NotFoundError(
                f"{self.driver.flow} does not copy {_words(subject)}",
                reason="PARTITION_UNKNOWN",
                metadata={"flow": str(self.driver.flow), "topic": subject.topic},
            )
        return found

    def _require_owned(self) -> None:
        """Raises StateError while the flow is not ours."""
        if not self.driver.owned:
            reason, message = self.driver.idle_reason()
            raise StateError(
                f"{self.driver.flow} is not copied by this process now: {reason} {message}".rstrip(),
                reason="FLOW_NOT_READY",
            )

    def _found(self, subject: Subject) -> frozenset[TopicPartition]:
        return frozenset(
            partition
            for partition in self.driver.estate.table.rows
            if subject.topic in (None, partition.topic) and subject.partition in (None, partition.partition)
        )

    async def _command(self, kind: str, subject: Subject, fact: PauseFact | ThrottleFact | None) -> None:
        """Put a command on the log. Raises KafkaError: then it has no effect, neither now nor later."""
        try:
            await self.driver.estate.journal.command((kind, subject.topic, subject.partition), fact)
        except TransientKafkaError as error:
            raise TransientKafkaError(
                f"nothing was changed: the target of {self.driver.flow} did not take the command: {error}",
                reason=error.reason,
                metadata=error.metadata,
                code=error.code,
            ) from error

    def _apply(self, kind: str, subject: Subject, fact: PauseFact | ThrottleFact | None) -> None:
        record = ControlRecord(kind=kind, topic=subject.topic, partition=subject.partition, fact=fact)
        self.driver.estate.positions.control.apply(record)

    def _tell_paused(self, partitions: Collection[TopicPartition]) -> None:
        epoch = self.driver.current
        if epoch is None:
            return  # the next one is told when it starts
        control = self.driver.estate.positions.control
        for slot in epoch.slots:
            for paused in (True, False):
                named = [
                    partition_message(partition)
                    for partition in slot.partitions
                    if partition in partitions and control.is_paused(partition) is paused
                ]
                if named:
                    command = worker_pb.SetPaused(partitions=named, paused=paused)
                    slot.tell(worker_pb.WorkerCommand(set_paused=command))

    async def _resolve(
        self, partitions: Collection[TopicPartition], destination: Destination
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        if destination.offset is not None:
            return dict.fromkeys(partitions, destination.offset)
        if destination.timestamp_ms is not None:
            return await self.source.offsets_for_times(dict.fromkeys(partitions, destination.timestamp_ms))
        if destination.spec is None:
            raise ConfigError("no target: an offset, earliest, latest or a time", reason="INVALID_TARGET")
        return await self.source.list_offsets(destination.spec, partitions)


def planned_move(
    partition: TopicPartition,
    row: PartitionRow | None,
    *,
    wanted: int | KafkaError | None,
    start: int | KafkaError,
    end: int | KafkaError,
) -> Move:
    """What moving a partition to `wanted` (None: the end) means, by the bounds of the source's log."""
    before = row.position if row is not None and row.position is not None else -1
    for answer in (wanted, start, end):
        if isinstance(answer, KafkaError):
            return Move(
                partition=partition,
                from_offset=before,
                to_offset=-1,
                reason=answer.reason,
                message=str(answer),
            )
    assert isinstance(start, int)
    assert isinstance(end, int)
    assert not isinstance(wanted, KafkaError)
    after = end if wanted is None else wanted
    refused = Move(partition=partition, from_offset=before, to_offset=after)
    if not start <= after <= end:
        return replace(
            refused, reason="OFFSET_OUT_OF_RANGE", message=f"the source holds offsets {start} to {end}"
        )
    if row is not None and row.is_preserved and after < before:
        return _copied_already(refused, before)
    return Move(
        partition=partition,
        from_offset=before,
        to_offset=after,
        log_start_offset=start,
        log_end_offset=end,
    )


def _copied_already(move: Move, position: int) -> Move:
    return replace(
        move,
        reason="OFFSETS_PRESERVED",
        message=f"the copy holds the records before {position} at their offsets already; to copy them again"
        " delete the target topic; or name the topic in twinlog.offsets.translated.topics, restart, and"
        " set the position",
    )


def _words(subject: Subject) -> str:
    if subject.topic is None:
        return "the flow as a whole"
    return subject.topic if subject.partition is None else f"{subject.topic}-{subject.partition}"


def _not_moved(move: Move) -> StateError:
    return StateError(
        f"{move.partition} was not moved: its position was not on the target within {MOVE_SECONDS:g} s, and"
        " the command was withdrawn: try again when the target takes records",
        reason="POSITION_NOT_MOVED",
        metadata={"topic": move.partition.topic, "partition": str(move.partition.partition)},
    )


def _uncertain(move: Move, why: str) -> StateError:
    return StateError(
        f"{move.partition}: whether it continues at {move.to_offset} is not certain, {why}:"
        " look at its position, and set it again if need be",
        reason="POSITION_UNCERTAIN",
        metadata={"topic": move.partition.topic, "partition": str(move.partition.partition)},
    )
