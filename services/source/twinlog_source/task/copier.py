"""One task's copy: its partitions, the reading and the writing half, and the driver's commands to them."""

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.batches import Codec, CopyPolicy, NewRecord, TargetTopicLimits
from twinlog.clock import Clock
from twinlog.errors import KafkaError, StateError
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import DataClientPool, EpochEnd, epoch_ends, list_offsets
from twinlog.model import Flow, TopicPartition
from twinlog_source.log.gaps import Gap, gap_record
from twinlog_source.partitions.assignments import Setback
from twinlog_source.partitions.shares import SlotLimits
from twinlog_source.partitions.states import PartitionState
from twinlog_source.preserved.reasons import PreservedReason
from twinlog_source.reasons import PartitionReason
from twinlog_source.task.foreign_writes import ForeignWrites
from twinlog_source.task.moves import PositionMoves
from twinlog_source.task.orders import SetPaused, TaskAssignment, TaskStart
from twinlog_source.task.partition import PartitionCopy, State
from twinlog_source.task.reading.loss import (
    LossReason,
    find_divergence,
    find_loss,
    goes_on,
    settles,
)
from twinlog_source.task.reading.source_reader import SourceReader
from twinlog_source.task.reading.throttle import Throttle
from twinlog_source.task.resting_copies import RestingCopies
from twinlog_source.task.stream.reports import Reporter
from twinlog_source.task.writing.preserved_copies import PreservedCopies, hole_words
from twinlog_source.task.writing.syncs import OffsetSyncs
from twinlog_source.task.writing.target_writer import TargetWriter

CALL_TIMEOUT_SECONDS = 30.0
UNSUPPORTED = "UNSUPPORTED_VERSION"
"""Of a broker too old to be asked for the ends of leader epochs."""
_NO_EPOCH = -1
"""In a question for the end of an epoch: none is known."""
TRUNCATION_DOUBT_SECONDS = 5.0
_OFFSETS_END = (
    ": from there on the copy has offsets of its own; or delete the target topic, and it is copied again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySettings:
    """How records are copied, the same for all partitions of a task."""

    read_committed: bool
    check_crcs: bool
    coalesce_below_bytes: int
    max_uncompressed_bytes: int
    recode_compression_level: int | None
    forced_codec: Codec | None
    """The producer's `compression.type` when somebody set it; None = records keep their codec."""
    fail_on_data_loss: bool
    exactly_once: bool
    """Rounds are transactions."""

    def policy(self, assignment: TaskAssignment) -> CopyPolicy:
        """How batches of one partition are copied to its target topic."""
        named = assignment.compression_type
        if named in ("", "producer"):
            codec = self.forced_codec
        else:
            codec = Codec.NONE if named == "uncompressed" else Codec[named.upper()]
        return CopyPolicy(
            target=TargetTopicLimits(
                max_message_bytes=assignment.max_message_bytes,
                codec=codec,
                level=self.recode_compression_level,
            ),
            read_committed=self.read_committed,
            check_crc=self.check_crcs,
            coalesce_below_bytes=self.coalesce_below_bytes,
            max_open_bytes=self.max_uncompressed_bytes,
            keeps_offsets=assignment.preserved is not None,
        )


@dataclass(slots=True, kw_only=True)
class Copier:
    """Built by `open_copier`; `assign` once, then `run` once."""

    flow: Flow
    dials: CopySettings
    source: DataClientPool
    clock: Clock
    source_reader: SourceReader
    target_writer: TargetWriter
    syncs: OffsetSyncs
    reporter: Reporter
    copies: dict[TopicPartition, PartitionCopy]
    policies: dict[TopicPartition, CopyPolicy]
    by_target: dict[TopicPartition, PartitionCopy]
    throttle: Throttle
    foreign_writes: ForeignWrites
    resting: RestingCopies
    preserved: PreservedCopies | None = None
    """None where the flow has no copies that keep their source's offsets."""
    moves: PositionMoves = field(init=False)
    """What operators order."""

    def __post_init__(self) -> None:
        self.moves = PositionMoves(
            flow=self.flow,
            copies=self.copies,
            target_writer=self.target_writer,
            on_gap=self.reporter.add_gap,
            on_moved=self.source_reader.wake,
            clock=self.clock,
            preserved=self.preserved,
        )

    def assign(self, start: TaskStart) -> None:
        """Take the partitions and the positions to continue from."""
        self.set_limits(start.limits)
        for assignment in start.assignments:
            partition = assignment.partition
            copy = PartitionCopy(
                partition=partition,
                target_topic=assignment.target_topic,
                committed=assignment.position,
                random=random.random,
                epochs=assignment.epochs,
                target_end=assignment.target_end,
                end_is_exact=assignment.target_end_is_exact,
                ends_rounds_with_marker=self.dials.exactly_once,
                markers_to_come=int(self.dials.exactly_once),
                compacted=assignment.compacted,
            )
            copy.pause(paused=assignment.paused)
            self.copies[partition] = copy
            self.by_target[TopicPartition(assignment.target_topic, partition.partition)] = copy
            self.policies[partition] = self.dials.policy(assignment)
            if assignment.preserved is not None:
                self._require_preserved().assign(assignment, copy)
            if assignment.sync_pace is not None:
                self.syncs.paced.resume(partition, assignment.sync_pace, self.clock.monotonic())
            if assignment.setback is not None:
                self._set_back(copy, assignment.setback)
            if assignment.position_stored:
                self.target_writer.note_stored(partition, assignment.position)
            else:
                # Also a 0: what comes before the first record must not be left out by a later start.
                self.target_writer.store_soon(partition)

    async def run(self, stop: asyncio.Event) -> None:
        """Copy until `stop`; then commit what was sent. Raises KafkaError when that failed, or we are
        fenced."""
        copied, over = asyncio.Event(), asyncio.Event()
        failures: list[KafkaError] = []

        async def wake() -> None:
            await stop.wait()
            end()

        def end() -> None:
            over.set()
            self.source_reader.arrived.set()

        async def write_preserved(preserved: PreservedCopies) -> None:
            try:
                await preserved.run(copied)
            except KafkaError as error:
                failures.append(error)
                end()

        async with asyncio.TaskGroup() as group:
            waking = group.create_task(wake(), name="wake at stop")
            reading = group.create_task(self.source_reader.run(copied), name="source_reader")
            group.create_task(self.syncs.run(copied), name="offset syncs")
            # Not after `stop`: what is moved then would be reported, and be in no log.
            moving = group.create_task(self.moves.run(stop), name="positions")
            looking = group.create_task(self.foreign_writes.run(copied), name="foreign writes")
            resting = group.create_task(self.resting.run(stop), name="copies at rest")
            if self.preserved is not None:
                group.create_task(write_preserved(self.preserved), name="preserved copies")
            try:
                await self.target_writer.run(over)
                if self.preserved is not None and not failures:
                    await self.preserved.drain()
                # Only then: what is found while the last positions are stored would be in no log.
                reading.cancel()
                await asyncio.wait([reading])
                if not failures:
                    await self.target_writer.store_rest()
            except KafkaError as error:
                failures.append(error)
            finally:
                copied.set()
                # All of them: who is fenced ends without a `stop`, and the driver waits for its last words.
                for part in (reading, waking, moving, looking, resting):
                    part.cancel()
        self.moves.settle()
        await self.syncs.close()
        if failures:
            raise failures[0]

    def set_paused(self, command: SetPaused) -> None:
        for partition in command.partitions:
            copy = self.copies.get(partition)
            if copy is not None:
                copy.pause(paused=command.paused)
        self.source_reader.wake()

    def set_limits(self, limits: SlotLimits) -> None:
        self.throttle.set_limits(
            limits.bytes_per_second or 0, limits.topic_bytes_per_second, self.clock.monotonic()
        )
        self.source_reader.wake()

    async def on_out_of_range(self, copies: Sequence[PartitionCopy]) -> None:
        """The source does not hold the positions: find out what is missing, and go on or stop by policy."""
        # The others are judged again once what is in flight is committed.
        await self._judge([copy for copy in copies if copy.is_idle and not self._is_believed(copy)])

    async def on_other_leaders(self, copies: Sequence[PartitionCopy]) -> Collection[TopicPartition]:
        """Ask the leaders whether their logs go on where the copies stand; those that do not are judged."""
        refused: set[TopicPartition] = set()
        diverged: list[PartitionCopy] = []
        generations = {copy.partition: copy.generation for copy in copies}
        epochs = {
            copy.partition: _NO_EPOCH if copy.fetched_epoch is None else copy.fetched_epoch for copy in copies
        }
        ends = await self._epoch_ends(epochs)
        for copy in copies:
            end = ends[copy.partition]
            if isinstance(end, KafkaError):
                if end.reason != UNSUPPORTED:
                    refused.add(copy.partition)
                    if copy.generation == generations[copy.partition]:
                        self._not_answered(copy, end)
            elif not goes_on(copy.fetched, epochs[copy.partition], end, compacted=copy.compacted):
                refused.add(copy.partition)
                if copy.is_idle and not self._is_believed(copy):
                    diverged.append(copy)
        await self._judge(diverged)
        return refused

    def _is_believed(self, copy: PartitionCopy) -> bool:
        """Whether it was only read again to prove the end of its copy, by what the source does not hold any
        more: it is read from that end on then."""
        return self.preserved is not None and copy.keeps_offsets and self.preserved.believe(copy.partition)

    async def _judge(self, copies: Sequence[PartitionCopy]) -> None:
        """Ask the leaders about all of them together, and decide for each by itself."""
        if not copies:
            return
        generations = {copy.partition: copy.generation for copy in copies}
        starts = await self._offsets(OffsetSpec.EARLIEST, copies)
        ends = await self._offsets(OffsetSpec.LATEST, copies)
        divergences = await self._divergences(copies)
        for copy in copies:
            partition = copy.partition
            if copy.generation != generations[partition] or not copy.is_idle:
                continue  # it was moved meanwhile: what was asked is not about where it stands
            start, end, diverged_at = starts[partition], ends[partition], divergences[partition]
            unanswered = next((one for one in (start, end, diverged_at) if isinstance(one, KafkaError)), None)
            if unanswered is not None:
                self._not_answered(copy, unanswered)
                continue
            assert isinstance(start, int)
            assert isinstance(end, int)
            assert not isinstance(diverged_at, KafkaError)
            self._decide(copy, start, end, diverged_at)

    def _decide(self, copy: PartitionCopy, start: int, end: int, diverged_at: int | None) -> None:
        """The log runs from `start` to `end`, and differs from `diverged_at` on from what was copied."""
        partition, now = copy.partition, self.clock.monotonic()
        loss = find_loss(
            position=copy.committed, log_start_offset=start, log_end_offset=end, diverged_at=diverged_at
        )
        if loss is None:
            return
        if loss.reason is LossReason.TRUNCATION and copy.reason_before not in (
            PartitionReason.TRUNCATION_SUSPECTED,
            PartitionReason.DATA_LOSS,
        ):
            # A log that ends before the position may be a new topic of the old name: the driver looks at
            # topic ids, and gives the partition another position if so.
            copy.fail(
                reason=PartitionReason.TRUNCATION_SUSPECTED,
                message=f"the source log ended at {loss.from_offset}, before the position {copy.committed}",
                retriable=True,
                now=now,
                wait_seconds=TRUNCATION_DOUBT_SECONDS,
            )
            return
        if self.dials.fail_on_data_loss:
            if loss.reason is LossReason.TRUNCATION:
                copy.source_lost_from = loss.from_offset
            copy.fail(
                reason=PartitionReason.DATA_LOSS,
                message=f"{loss.reason}: the source does not hold offsets {loss.from_offset} to"
                f" {loss.to_offset - 1} any more (twinlog.on.data.loss=fail); set the position to go on"
                f"{_OFFSETS_END if copy.keeps_offsets and loss.reason is LossReason.TRUNCATION else ''}",
                retriable=False,
                now=now,
            )
            return
        gap = Gap(
            partition=partition,
            from_offset=loss.from_offset,
            to_offset=loss.to_offset,
            reason=loss.reason,
            found_at_ms=self.clock.now_ms(),
        )
        records = [NewRecord(*gap_record(self.flow, gap), gap.found_at_ms)]
        if copy.keeps_offsets and not self._require_preserved().is_at_rest(partition):
            return  # It is judged again.
        is_filled = False
        if copy.keeps_offsets and loss.reason is LossReason.RETENTION:
            preserved = self._require_preserved()
            is_filled = preserved.fills(partition, loss.from_offset, loss.to_offset)
            wait_seconds = preserved.seconds_before_alone(partition)
            if not is_filled and wait_seconds > 0:
                # The task before may hold what was lost, and write it among records that have other offsets.
                copy.fail(
                    reason=PreservedReason.HOLE_TOO_LONG,
                    message=hole_words(partition, loss.from_offset, loss.to_offset),
                    retriable=True,
                    now=now,
                    wait_seconds=wait_seconds,
                )
                return
        if is_filled:
            records.append(self._require_preserved().fact_of(partition, skip_to=loss.resume_at))
        self.reporter.add_gap(gap)
        # The position that is moved, and what the move leaves out: both or neither.
        self.target_writer.store_soon(partition, records)
        if not copy.keeps_offsets:
            copy.restart_at(loss.resume_at)
        elif loss.reason is LossReason.TRUNCATION:
            self._require_preserved().end_at(
                partition,
                loss.resume_at,
                until=loss.from_offset,
                reason=PreservedReason.SOURCE_TRUNCATED,
                message=f"the source log of {partition} ended at {loss.from_offset}, and the copy holds what"
                f" the source lost up to {loss.to_offset}",
            )
        elif is_filled:
            self._require_preserved().skip(partition, loss.resume_at)
        else:
            self._require_preserved().end_at(
                partition,
                loss.resume_at,
                until=loss.from_offset,
                reason=PreservedReason.HOLE_TOO_LONG,
                message=hole_words(partition, loss.from_offset, loss.to_offset),
            )

    def _require_preserved(self) -> PreservedCopies:
        if self.preserved is None:
            raise StateError("a copy that keeps offsets was assigned, and no writer for it was prepared")
        return self.preserved

    def _set_back(self, copy: PartitionCopy, setback: Setback) -> None:
        copy.take_over_setback(
            state=State.FAULTED if setback.state is PartitionState.FAULTED else State.BACKOFF,
            reason=setback.reason,
            message=setback.message,
            failures=setback.failures,
            retry_at=self.clock.monotonic() + setback.retry_in_ms / 1000,
        )
        if setback.source_lost_from is not None:
            copy.source_lost_from = setback.source_lost_from

    async def _divergences(
        self, copies: Sequence[PartitionCopy]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        """Where each log stopped being the one that was copied, None while it is."""
        found: dict[TopicPartition, int | KafkaError | None] = {}
        ends: dict[TopicPartition, dict[int, EpochEnd]] = {copy.partition: {} for copy in copies}
        left = {copy.partition: list(copy.epochs) for copy in copies}
        compacted = {copy.partition: copy.compacted for copy in copies}
        while wanted := {each: epochs.pop().leader_epoch for each, epochs in left.items() if epochs}:
            for partition, end in (await self._epoch_ends(wanted)).items():
                epoch = wanted[partition]
                if isinstance(end, KafkaError):
                    found[partition] = None if end.reason == UNSUPPORTED else end
                    left[partition].clear()
                    continue
                ends[partition][epoch] = end
                if settles(epoch, end.epoch, compacted=compacted[partition]):
                    left[partition].clear()
        for copy in copies:
            if copy.partition not in found:
                found[copy.partition] = find_divergence(
                    copy.committed, copy.epochs, ends[copy.partition], compacted=copy.compacted
                )
        return found

    async def _epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, EpochEnd | KafkaError]:
        try:
            return await epoch_ends(self.source, epochs, timeout_seconds=CALL_TIMEOUT_SECONDS)
        except KafkaError as error:
            return dict.fromkeys(epochs, error)

    def _not_answered(self, copy: PartitionCopy, error: KafkaError) -> None:
        copy.fail(
            reason=error.reason,
            message=f"source: {error}",
            retriable=True,
            now=self.clock.monotonic(),
            keep_in_flight=True,
        )

    async def _offsets(
        self, spec: OffsetSpec, copies: Sequence[PartitionCopy]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        partitions = [copy.partition for copy in copies]
        try:
            return await list_offsets(self.source, spec, partitions, timeout_seconds=CALL_TIMEOUT_SECONDS)
        except KafkaError as error:
            return dict.fromkeys(partitions, error)
